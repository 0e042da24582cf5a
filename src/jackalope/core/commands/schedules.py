"""Commands about schedules.

Owns their shapes. To declare, trigger or backfill a schedule is to submit tasks, now or later, and
to pause, resume or delete one is to act on them: each needs that permission, for the queue of the
schedule. A schedule outlives the key by which it was declared.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jackalope.core.api_key import Permission
from jackalope.core.commands.base import Limited, Scope
from jackalope.core.ids import NO_TASK, TaskId


class DeclareSchedule(Limited):
    """Create a schedule or change its settings. Fields that are not given stay.

    If `only` is set, schedules of other queues are not changed.
    """

    needs = (Permission.SUBMIT_TASKS,)
    scope = Scope.QUEUES

    name: str
    changes: dict[str, object] = msgspec.field(default_factory=dict)

    def touches(self) -> Iterable[str]:
        queue = self.changes.get("queue")
        return (str(queue),) if queue else ()


class DeclareSchedules(Limited):
    """Declare all schedules of an application: all of them, or none.

    Fields that are not given have their defaults. Schedules that it declared before, and does not
    now, are orphaned: they are shown as such, and go on. If `only` is set, schedules of other
    queues are left alone.
    """

    counted = "schedules"
    needs = (Permission.SUBMIT_TASKS,)
    scope = Scope.QUEUES

    app: str
    schedules: dict[str, dict[str, object]] = msgspec.field(default_factory=dict)

    def touches(self) -> Iterable[str]:
        return {str(settings.get("queue", "")) for settings in self.schedules.values()}


class PauseSchedule(Limited):
    """Submit nothing for a schedule until it is resumed."""

    needs = (Permission.CANCEL_TASKS,)
    scope = Scope.NARROWED

    name: str


class ResumeSchedule(Limited):
    """Submit tasks of a schedule again, from its next slot on."""

    needs = (Permission.CANCEL_TASKS,)
    scope = Scope.NARROWED

    name: str


class TriggerSchedule(Limited):
    """Submit a task of a schedule now, whether or not it is paused.

    `task` is the id that it gets, so that a repeated command does not submit twice; the broker
    makes one if there is none.
    """

    needs = (Permission.SUBMIT_TASKS,)
    scope = Scope.NARROWED

    name: str
    task: TaskId = NO_TASK


class BackfillSchedule(Limited):
    """Submit the tasks of slots that have passed, from `since_us` to `until_us`, both included.

    A slot that has a task is left out, and so is one that fired and whose task is forgotten, unless
    it is to run `again`.
    """

    needs = (Permission.SUBMIT_TASKS,)
    scope = Scope.NARROWED

    name: str
    since_us: int
    until_us: int
    again: bool = False


class DeleteSchedule(Limited):
    """Delete a schedule. Its tasks stay."""

    needs = (Permission.CANCEL_TASKS,)
    scope = Scope.NARROWED

    name: str


AnyScheduling = (
    DeclareSchedule
    | DeclareSchedules
    | PauseSchedule
    | ResumeSchedule
    | TriggerSchedule
    | BackfillSchedule
    | DeleteSchedule
)

"""Filters: select the tasks of an action that does not name them one by one.

Owns the fields and their meaning. Storage repeats them in SQL; one suite checks that both agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import State
from jackalope.core.limits import QUEUES_PER_API_KEY_MAX, TIME_US_MAX

if TYPE_CHECKING:
    from jackalope.core.task import Error, Task


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Conditions that must all hold; empty ones are ignored."""

    states: tuple[State, ...] = ()  # the state is one of these
    queue: str = ""  # in this queue
    name: str = ""  # with exactly this name
    key: str = ""  # with exactly this key
    tag: str = ""  # with this among its tags
    parent: TaskId = NO_TASK  # submitted by this task
    batch: int = 0  # in the batch of this number (of `queue`)
    # contained in name, key or alias, in any case of ASCII letters; or the beginning of the id in
    # hex
    text: str = ""
    older_than_us: int = 0  # created before
    queues: tuple[str, ...] = ()  # in one of these queues
    newer_than_us: int = 0  # created then or later
    # contained in the error, in any case of ASCII letters, or in the payload as it is; not looked
    # for in the blob store
    contains: str = ""
    is_flow: bool = False  # a flow

    def is_sound(self) -> bool:
        """Return whether its numbers are within the bounds of tasks and storage."""
        return (
            0 <= self.older_than_us <= TIME_US_MAX
            and 0 <= self.newer_than_us <= TIME_US_MAX
            and 0 <= self.batch <= TIME_US_MAX
            and len(self.queues) <= QUEUES_PER_API_KEY_MAX
        )


def matching(wanted: Filter, tasks: Iterable[Task]) -> list[Task]:
    """Return those of many tasks that meet every condition."""
    found = list(tasks)
    # What is asked for most often comes first, without a call for each task.
    if wanted.states:
        states = wanted.states
        found = [task for task in found if task.state in states]
    if wanted.queue:
        found = [task for task in found if task.queue.name == wanted.queue]
    if wanted == Filter(states=wanted.states, queue=wanted.queue):
        return found
    return [task for task in found if matches(wanted, task)]


def matches(wanted: Filter, task: Task) -> bool:
    options = task.options
    return bool(
        (not wanted.states or task.state in wanted.states)
        and (not wanted.queue or task.queue.name == wanted.queue)
        and (not wanted.queues or task.queue.name in wanted.queues)
        and (not wanted.name or task.name == wanted.name)
        and (not wanted.key or task.key == wanted.key)
        and (not wanted.tag or wanted.tag in options.tags)
        and (not wanted.parent or options.parent == wanted.parent)
        and (not wanted.is_flow or options.flow is not None)
        and (not wanted.batch or task.batch == wanted.batch)
        and (not wanted.older_than_us or task.created_us < wanted.older_than_us)
        and (not wanted.newer_than_us or task.created_us >= wanted.newer_than_us)
        and (not wanted.text or _has_text(task, wanted.text))
        and (not wanted.contains or _contains(task, wanted.contains))
    )


def _has_text(task: Task, text: str) -> bool:
    wanted = text.encode().lower()  # Of bytes, so that only ASCII letters change, as in SQL.
    texts = (task.name, task.key, task.options.alias)
    is_named = any(wanted in each.encode().lower() for each in texts)
    return is_named or task.id.hex().encode().startswith(wanted)


def _contains(task: Task, text: str) -> bool:
    wanted = text.encode()
    if isinstance(task.payload, bytes) and wanted in task.payload:
        return True
    error = task.outcome.error if task.outcome is not None else None
    return error is not None and wanted.lower() in error_line(error).encode().lower()


def error_line(error: Error) -> str:
    """Return an error in one line, as it is searched for."""
    return f"{error.type}: {error.message}"

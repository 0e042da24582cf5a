"""Schedules: what the broker submits by itself, declared by an application or a client.

Owns the client's side of the commands about schedules, and how their settings are written: times as
`datetime`, durations as seconds or text. A part of `Jackalope`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict

import msgspec

from jackalope.calendar import CronCalendar
from jackalope.client import option_checks
from jackalope.client.admin import Administration, shaped
from jackalope.client.option_checks import Seconds, one_of
from jackalope.core.durations import parse_duration
from jackalope.core.ids import TaskId
from jackalope.core.shapes.schedule import ScheduleSettings
from jackalope.core.task import NO_OPTIONS, TaskSpec
from jackalope.errors import ConfigError, Rejected, to_rejected
from jackalope.task_ids import new_task_id
from jackalope.wire.views import SchedulePage, ScheduleView

#: How many schedules of a list are asked for at once.
PAGE_SCHEDULES = 500

_DURATIONS = frozenset(
    name.removesuffix("_us") for name in ScheduleSettings.__struct_fields__ if name.endswith("_us")
)
_MOMENTS = frozenset({"start", "end"})


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a backfill did."""

    tasks: tuple[TaskId, ...]  # the tasks that were submitted
    known: int = 0  # how many slots had one
    refused: Rejected | None = None  # why it stopped before the end, if it did
    # the slots that were left out because they fired once, although their tasks are forgotten
    forgotten: tuple[datetime, ...] = ()


class Scheduling(Administration):
    """Schedules of a broker."""

    async def schedules(self, text: str = "") -> AsyncIterator[ScheduleView]:
        """Yield the schedules of the namespace by name, or those with a text in their names."""
        cursor = ""
        while True:
            about = {"text": text, "cursor": cursor, "limit": PAGE_SCHEDULES}
            page = await self.query("schedules", about, SchedulePage)
            for view in page.schedules:
                yield view
            cursor = page.cursor
            if not cursor:
                return

    async def schedule_of(self, name: str) -> ScheduleView:
        """Return a schedule with its next ten slots and its last ten tasks.

        Raises:
            Rejected: there is no such schedule.
        """
        return await self.query("schedule", {"name": name}, ScheduleView)

    async def declare_schedule(self, name: str, **settings: Any) -> ScheduleSettings:
        """Create a schedule, or change the settings that are given.

            await app.declare_schedule(
                "nightly", queue="reports", task="report", cron="0 3 * * *", zone="Europe/Berlin"
            )

        Args:
            name: its name in the namespace.
            settings: the fields of `ScheduleSettings`. Durations (`every`, `jitter`, `timeout`,
                `time_to_live`, `catch_up_within`) are seconds, a `timedelta` or a text such as
                "10m"; `start`, `end` and `times` are aware datetimes.

        Raises:
            ConfigError: a setting cannot be read.
            Rejected: the schedule cannot be; every problem is listed.
        """
        about = {"name": one_of("name", option_checks.name, name), "changes": to_wire(settings)}
        body = await self.manage("declare_schedule", about)
        return shaped(body["settings"], ScheduleSettings)

    async def pause_schedule(self, name: str) -> None:
        """Submit nothing for a schedule until it is resumed."""
        await self.manage("pause_schedule", {"name": name})

    async def resume_schedule(self, name: str) -> None:
        """Submit tasks of a schedule again, from its next slot on."""
        await self.manage("resume_schedule", {"name": name})

    async def trigger_schedule(self, name: str) -> TaskId:
        """Submit a task of a schedule now, and return its id.

        Raises:
            Rejected: there is no such schedule, or an earlier task is in the way.
        """
        task_id = new_task_id()
        body = await self.manage("trigger_schedule", {"name": name, "task": task_id})
        return TaskId(body["tasks"][0]) if body["tasks"] else task_id

    async def backfill_schedule(
        self, name: str, since: datetime, until: datetime, *, again: bool = False
    ) -> Backfilled:
        """Submit the tasks of slots that have passed and never fired.

        Args:
            name: the schedule.
            since: the first moment.
            until: the last.
            again: also those of slots that fired and whose tasks are forgotten.

        Raises:
            ConfigError: a moment has no time zone.
            Rejected: there is no such schedule, or there are too many slots.
        """
        about = {
            "name": name,
            "since_us": one_of("since", option_checks.moment_us, since),
            "until_us": one_of("until", option_checks.moment_us, until),
        }
        body = await self.manage("backfill_schedule", about | ({"again": True} if again else {}))
        refused = None if body["refused"] is None else to_rejected(body["refused"])
        forgotten = tuple(
            datetime.fromtimestamp(slot_us / 1_000_000, UTC)
            for slot_us in body.get("forgotten", ())
        )
        return Backfilled(tuple(map(TaskId, body["tasks"])), body["known"], refused, forgotten)

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Its tasks stay."""
        await self.manage("delete_schedule", {"name": name}, can_repeat=False)


def to_wire(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as the broker takes them. What they may be is the broker's matter.

    Raises:
        ConfigError: a time cannot be read; every problem is listed.
    """
    wire: dict[str, Any] = {}
    problems = []
    for name, value in settings.items():
        try:
            if name in _DURATIONS:
                is_text = isinstance(value, str)
                to_us = parse_duration if is_text else option_checks.duration_us
                wire[f"{name}_us"] = to_us(value)
            elif name in _MOMENTS:
                wire[name] = 0 if value is None else option_checks.moment_us(value)
            elif name == "times":
                wire[name] = [option_checks.moment_us(each) for each in value]
            else:
                wire[name] = value
        except (ConfigError, TypeError, ValueError) as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise ConfigError("; ".join(problems))
    return wire


# Schedules of an application.


class WhenChoices(TypedDict, total=False):
    """When a task is submitted, and what else can be chosen where a schedule is defined."""

    name: str  # what the schedule is called; as the task, if not chosen
    every: Seconds | str  # an interval, in place of the cron expression
    times: Sequence[datetime]  # single moments, in place of the cron expression
    tz: str  # the time zone of the cron expression; UTC if not chosen
    args: Sequence[Any]  # the positional arguments of the task
    kwargs: Mapping[str, Any]  # the named arguments of the task
    start: datetime  # no slot before
    end: datetime  # no slot after
    jitter: Seconds | str  # how long after its slot a task is submitted at most
    # what to do at a slot while an earlier task has not ended
    overlap: Literal["allow", "skip", "wait", "replace"]
    # what to do about slots that passed while the broker was down
    catch_up: Literal["skip", "last", "all"]
    catch_up_within: Seconds | str  # slots that are longer ago are not caught up on


class Scheduled:
    """A task that is to be scheduled, for `Jackalope.schedule`: its settings, as on the wire."""

    def __init__(self, cron: str, choices: WhenChoices) -> None:
        given: dict[str, Any] = dict(choices)
        unknown = sorted(given.keys() - WhenChoices.__annotations__.keys())
        if unknown:
            known = ", ".join(WhenChoices.__annotations__)
            raise ConfigError(f"schedule: unknown {', '.join(unknown)}; there are cron, {known}")
        self.name = str(given.pop("name", ""))
        self.args = tuple(given.pop("args", ()))
        self.kwargs = dict(given.pop("kwargs", {}))
        if "tz" in given:
            given["zone"] = given.pop("tz")
        if cron:
            given["cron"] = cron
        if len(given.keys() & {"cron", "every", "times"}) != 1:
            raise ConfigError("schedule: give one of a cron expression, every= and times=")
        self._when = to_wire(given)
        if cron:
            problems = CronCalendar().problems(cron, self._when.get("zone", "UTC"))
            if problems:
                raise ConfigError("schedule: " + "; ".join(problems))

    def settings(self, spec: TaskSpec, expires_us: int) -> dict[str, Any]:
        """Return what a broker is told: the task as it would be submitted, and when."""
        options = spec.options or NO_OPTIONS
        unfit = [
            name
            for name in ("alias", "run_at_us", "depends_on", "parent", "held", "pace")
            if getattr(options, name)
        ]
        if unfit:
            raise ConfigError(f"schedule: a scheduled task cannot have {', '.join(unfit)}")
        settings: dict[str, Any] = {
            "queue": spec.queue,
            "task": spec.name,
            "key": spec.key,
            "priority": spec.priority,
            "payload": spec.payload,
            "headers": dict(options.headers),
            "tags": options.tags,
            "timeout_us": options.timeout_us,
            "time_to_live_us": expires_us,
            "retry": msgspec.to_builtins(options.retry),
            "same": options.same,
            "version": options.version,
        }
        return {**settings, **self._when}

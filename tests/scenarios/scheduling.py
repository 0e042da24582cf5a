"""The verbs of the scripts that are about schedules, as commands, and how schedules are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jackalope.core import Core
from jackalope.core.commands import AnyCommand
from jackalope.core.commands.schedules import (
    BackfillSchedule,
    DeclareSchedule,
    DeclareSchedules,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from jackalope.core.schedules.slots import Due
from jackalope.core.shapes.schedule import ScheduleSettings
from tests.scenarios.language import Order, parse_duration_us, tell_duration
from tests.scenarios.phrases import DEFAULT, join, option

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage

_NUMBERS = frozenset({"priority"})
_MOMENTS = frozenset({"start", "end"})


def declare(stage: Stage, order: Order) -> AnyCommand:
    name, actor = order.word("a name"), _actor(stage, order)
    return DeclareSchedule(name=name, changes=_settings(stage, order), **actor)


def declare_all(stage: Stage, order: Order) -> AnyCommand:
    """Declare the schedules of an application, all of them alike."""
    app, actor = order.word("an application"), _actor(stage, order)
    names = order.names("schedules") if order.has_words() else []
    settings = _settings(stage, order)
    return DeclareSchedules(app=app, schedules={name: dict(settings) for name in names}, **actor)


def trigger(stage: Stage, order: Order) -> AnyCommand:
    name, task = order.word("a name"), order.text("task")
    actor = _actor(stage, order)
    if not task:
        return TriggerSchedule(name=name, **actor)
    return TriggerSchedule(name=name, task=stage.task(task), **actor)


def backfill(stage: Stage, order: Order) -> AnyCommand:
    name, actor = order.word("a name"), _actor(stage, order)
    now_us = stage._clock_us
    since_us, until_us = order.duration_us("since"), order.duration_us("until")
    return BackfillSchedule(
        name=name,
        since_us=now_us + since_us,
        until_us=now_us + until_us,
        again=order.flag("again"),
        **actor,
    )


def _named(shape: type[Any]) -> Callable[[Stage, Order], AnyCommand]:
    def act(stage: Stage, order: Order) -> AnyCommand:
        command: AnyCommand = shape(name=order.word("a name"), **_actor(stage, order))
        return command

    return act


def _actor(stage: Stage, order: Order) -> dict[str, Any]:
    return {
        "session": stage.client(order),
        "namespace": order.text("namespace", DEFAULT),
        "by": order.text("by"),
        "only": order.list("only"),
    }


def _settings(stage: Stage, order: Order) -> dict[str, object]:
    """Read settings: durations without their `_us`, moments from now, and texts."""
    fields = {name.removesuffix("_us"): name for name in ScheduleSettings.__struct_fields__}
    now_us, settings = stage._clock_us, {}
    for key, text in order.rest().items():
        name, value = fields.get(key, key), text.replace("_", " ") if key == "cron" else text
        given: object = value
        if name.endswith("_us"):
            given = parse_duration_us(text)
        elif key in _MOMENTS:
            given = now_us + parse_duration_us(text)
        elif key == "times":
            given = [now_us + parse_duration_us(each) for each in text.split(",")]
        elif key in _NUMBERS:
            given = int(text)
        elif key == "payload":
            given = (text[0] * int(text[2:]) if text[1:2] == "*" else text).encode()
        elif key == "tags":
            given = text.split(",")
        settings[name] = given
    return settings


SCHEDULING: dict[str, Callable[[Stage, Order], AnyCommand]] = {
    "schedule": declare,
    "schedule-all": declare_all,
    "pause-schedule": _named(PauseSchedule),
    "resume-schedule": _named(ResumeSchedule),
    "delete-schedule": _named(DeleteSchedule),
    "trigger": trigger,
    "backfill": backfill,
}


def tell_schedules(core: Core, start_us: int) -> list[str]:
    lines = []
    for world in core.book.namespaces.values():
        for name, schedule in sorted(world.schedules.items()):
            trouble = core.own(Due).troubles.get((world.name, name), "")
            next_us = schedule.next_us
            lines.append(
                join(
                    f"{name}:",
                    f"next +{tell_duration(next_us - start_us)}" if next_us else "over",
                    option("fired", schedule.fired),
                    option("missed", schedule.missed),
                    f"({schedule.why_missed})" if schedule.why_missed else "",
                    f"paused by {schedule.paused_by}" if schedule.paused_by else "",
                    option("app", schedule.app),
                    "orphaned" if schedule.orphaned_us else "",
                    f"in trouble: {trouble}" if trouble else "",
                )
            )
    return lines

"""Views of schedules: as they are, their next slots, and what became of their last tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from jackalope.broker.engine import Engine
from jackalope.core import Core
from jackalope.core.schedules.slots import Due, following
from jackalope.core.shapes.schedule import Schedule
from jackalope.wire.views import RunView, SchedulePage, ScheduleView, view_as

#: How many slots to come are shown of one schedule.
UPCOMING_SLOTS = 10


def schedule_page(
    core: Core, namespace: str, sees: Callable[[str], bool], *, text: str, after: str, limit: int
) -> SchedulePage:
    """List the schedules of a namespace by name, a page at a time."""
    there = core.book.namespaces.get(namespace)
    schedules = {} if there is None else there.schedules
    names = sorted(name for name in schedules if name > after and text in name)
    seen = (schedules[name] for name in names if sees(schedules[name].settings.queue))
    found = list(islice(seen, limit + 1))
    views = [schedule_view(core, schedule) for schedule in found[:limit]]
    return SchedulePage(views, views[-1].name if len(found) > limit else "")


def schedule_view(core: Core, schedule: Schedule) -> ScheduleView:
    return _view(core, schedule, (), ())


def whole_view(engine: Engine, schedule: Schedule) -> ScheduleView:
    """Return one schedule with its next slots, and its last tasks, the newest first."""
    core, slot_us = engine.core, schedule.next_us
    slots: list[int] = []
    # If the calendar lacks the time zone, the trouble of the schedule says so.
    with suppress(ValueError):
        while slot_us and len(slots) < UPCOMING_SLOTS:
            slots.append(slot_us)
            slot_us = following(core, schedule, slot_us)
    runs = []
    for run in reversed(schedule.runs):
        task = engine.find(schedule.namespace, run.task)
        runs.append(view_as(RunView, run, state=None if task is None else task.state))
    return _view(core, schedule, tuple(slots), tuple(runs))


def _view(
    core: Core, schedule: Schedule, upcoming: tuple[int, ...], runs: tuple[RunView, ...]
) -> ScheduleView:
    trouble = core.own(Due).troubles.get((schedule.namespace, schedule.name), "")
    state = _state(schedule)
    own = {"state": state, "trouble": trouble, "upcoming": upcoming, "runs": runs}
    return view_as(ScheduleView, schedule, **own)


def _state(schedule: Schedule) -> str:
    if schedule.paused_by:
        return "paused"
    return "active" if schedule.next_us else "over"


class ScheduleCensus(NamedTuple):
    """The schedules by namespace and state, and what they fired and missed by namespace."""

    states: dict[str, dict[str, int]]
    fired: dict[str, int]
    missed: dict[str, int]


NO_SCHEDULES = ScheduleCensus({}, {}, {})


def count_schedules(core: Core, names: Collection[str], own: str = "") -> ScheduleCensus:
    """Count schedules by namespace; those that are not named together, under an empty name.

    Only those of one namespace for a client that is limited to it.
    """
    census = ScheduleCensus({}, {}, {})
    for name, namespace in core.book.namespaces.items():
        if not namespace.schedules or own not in ("", name):
            continue
        there = namespace.schedules.values()
        paused = sum(1 for each in there if each.paused_by)
        over = sum(1 for each in there if not each.next_us and not each.paused_by)
        place = name if name in names else ""
        states = census.states.setdefault(place, Counter())
        states["active"] += len(there) - paused - over
        states["paused"] += paused
        states["over"] += over
        states["orphaned"] += sum(1 for each in there if each.orphaned_us)
        fired, missed = sum(each.fired for each in there), sum(each.missed for each in there)
        census.fired[place] = census.fired.get(place, 0) + fired
        census.missed[place] = census.missed.get(place, 0) + missed
    return census

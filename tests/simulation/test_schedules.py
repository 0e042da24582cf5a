"""Schedules among faults: every slot is accounted for, and each planted bug is caught."""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.context import Context
from jackalope.core.records import ScheduleFired
from jackalope.core.schedules import firing, slots
from jackalope.core.shapes.schedule import Schedule, run_id
from jackalope.core.state import apply, schedules
from jackalope.core.state.book import Book
from jackalope.core.task import Task
from jackalope.storage.faults import Corrupt
from tests.simulation.checker import Violation
from tests.simulation.run import Report, simulate

_SEEDS = 20
_GROUP = 5

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("begin", range(0, _SEEDS, _GROUP))
def test_seeds_with_schedules(begin: int) -> None:
    reports: list[Report] = []
    for seed in range(begin, begin + _GROUP):
        try:
            reports.append(simulate(seed, with_schedules=True))
        except Exception as error:
            error.add_note(f"simulate({seed}, with_schedules=True)")
            raise
    kinds = {kind for report in reports for kind in report.counts}
    assert {"ScheduleFired", "SlotsMissed", "SchedulePaused", "ScheduleDeleted"} <= kinds
    assert sum(report.restarts for report in reports) > 2


def _caught() -> str:
    for seed in range(_SEEDS):
        try:
            simulate(seed, with_schedules=True)
        except (Violation, BrokenInvariant, Corrupt) as error:
            return str(error)
    return ""


def test_a_slot_fires_twice(monkeypatch: Patch) -> None:
    """The schedule does not move on when it has fired."""
    original = apply.APPLIERS[ScheduleFired]

    def stuck(book: Book, records: Any) -> None:
        for record in records:
            schedule = book.namespaces[record.namespace].schedules[record.name]
            before_us = schedule.next_us
            original(book, [record])
            if record.at_us % 5 == 0:
                schedule.next_us = before_us

    monkeypatch.setitem(apply.APPLIERS, ScheduleFired, stuck)
    caught = _caught()
    assert "a slot fires once" in caught or "a slot and its task are one batch" in caught


def test_a_slot_is_lost_with_a_restart(monkeypatch: Patch) -> None:
    """After a restart a schedule goes on with the next slot from now on, and counts nothing."""

    def forgetful(ctx: Context, schedule: Schedule, **_: bool) -> slots.Passed:
        slot_us = schedule.next_us
        while (after_us := slots.following(ctx, schedule, slot_us)) <= ctx.now_us:
            slot_us = after_us
        schedule.next_us = slot_us
        return slots.Passed(slot_us)

    monkeypatch.setattr(firing, "look", forgetful)
    caught = _caught()
    assert "no slot is lost" in caught or "replay equals memory" in caught


def test_a_task_of_chance(monkeypatch: Patch) -> None:
    """The id of a task follows from when it was submitted."""
    monkeypatch.setattr(firing, "run_id", lambda namespace, name, *_: run_id(namespace, name, 1))
    assert "a slot has the task that is its own" in _caught()


def test_the_task_and_the_slot_in_two_commands(monkeypatch: Patch) -> None:
    """The schedule records that it has fired, and submits with the next tick."""
    original = firing._submit
    waiting: list[Any] = []

    def late(ctx: Context, *args: Any, **named: Any) -> Any:
        for earlier in waiting:
            original(ctx, *earlier[0], **earlier[1])
        waiting.clear()
        waiting.append((args, named))
        return args[2]

    monkeypatch.setattr(firing, "_submit", late)
    assert "a slot and its task are one batch" in _caught()


def test_an_old_task_is_overlooked(monkeypatch: Patch) -> None:
    """A schedule looks at the last tasks that it names, and at no others."""
    original = firing._unfinished

    def short(ctx: Context, schedule: Schedule) -> list[Task]:
        named = {run.task for run in schedule.runs[-1:]}
        return [task for task in original(ctx, schedule) if task.id in named]

    monkeypatch.setattr(firing, "_unfinished", short)
    caught = _caught()
    assert any(
        each in caught for each in ("no two overlap", "a task waits for all before it", "one waits")
    )


def test_a_slot_is_forgotten_with_its_task(monkeypatch: Patch) -> None:
    """A backfill looks for the task alone."""
    monkeypatch.setattr(Schedule, "has_fired", lambda *_: False)
    monkeypatch.setattr(schedules, "RUNS_PER_SCHEDULE_MAX", 2)
    assert "a slot fires once" in _caught()

"""Schedules that wait cost a timer each, and a cluster of an older level takes none."""

from __future__ import annotations

import tracemalloc

import pytest

from jackalope.calendar import CronCalendar
from jackalope.core import Core
from jackalope.core.commands import Recover, Tick
from jackalope.core.commands.schedules import (
    BackfillSchedule,
    DeclareSchedule,
    DeclareSchedules,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from jackalope.core.context import Context
from jackalope.core.durations import DAY, HOUR
from jackalope.core.effects import Accepted, ScheduleSet
from jackalope.core.records import SINCE, ScheduleDeclared, ScheduleFired
from jackalope.core.refusals import Code, Refusal
from jackalope.core.schedules import firing
from jackalope.core.shapes.schedule import Schedule
from tests.core.driving import NOW_US, Driver

SCHEDULES = 2_000
BYTES_PER_SCHEDULE_MAX = 3_000


def settings(number: int) -> dict[str, object]:
    cron = f"{number % 60} {number % 24} * * *"
    return {"queue": "q", "task": "t", "cron": cron, "zone": "Europe/Berlin"}


def test_schedules_that_wait_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core()
    core.calendar = CronCalendar()
    wanted = {f"s{number}": settings(number) for number in range(SCHEDULES)}
    core.handle(NOW_US, DeclareSchedules(app="a", schedules=wanted))  # What is cached is there.
    tracemalloc.start()
    other = {f"t{number}": settings(number) for number in range(SCHEDULES)}
    core.handle(NOW_US, DeclareSchedules(app="b", schedules=other))
    core.book.take_changes()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / SCHEDULES < BYTES_PER_SCHEDULE_MAX
    looked: list[str] = []
    original = firing._come_due

    def look(ctx: Context, schedule: Schedule) -> None:
        looked.append(schedule.name)
        original(ctx, schedule)

    monkeypatch.setattr(firing, "_come_due", look)
    next_us = core.next_deadline_us()
    assert next_us is not None
    assert core.handle(next_us - 1, Tick())[0] == []
    assert looked == []
    records, _ = core.handle(next_us, Tick())
    fired = [record.name for record in records if isinstance(record, ScheduleFired)]
    assert sorted(fired) == sorted(looked)
    assert 0 < len(fired) < 2 * SCHEDULES / 100


def test_a_cluster_of_an_older_level_refuses_what_it_could_not_read() -> None:
    driver = Driver()
    changes: dict[str, object] = {"queue": "q", "every_us": HOUR}
    driver.send(DeclareSchedule(name="s", changes=changes))
    driver.core.level = SINCE[ScheduleDeclared] - 1
    for command in (
        DeclareSchedule(name="s", changes={"every_us": DAY}),
        DeclareSchedules(app="a", schedules={"t": changes}),
        PauseSchedule(name="s"),
        ResumeSchedule(name="s"),
        TriggerSchedule(name="s"),
        BackfillSchedule(name="s", since_us=0, until_us=1),
        DeleteSchedule(name="s"),
    ):
        answer = driver.send(command)
        assert isinstance(answer, Refusal)
        assert answer.code is Code.WRONG_STATE
        assert "jackalope cluster upgrade" in answer.message
        assert driver.records == []
    # A worker without schedules is not in the way of an upgrade.
    assert driver.send(DeclareSchedules(app="none")) == Accepted(0)
    driver.core.level += 1
    assert isinstance(
        driver.send(DeclareSchedule(name="s", changes={"every_us": DAY})), ScheduleSet
    )


def test_a_calendar_that_lacks_a_zone_holds_a_schedule_up_and_loses_nothing() -> None:
    driver = Driver()
    driver.core.calendar = CronCalendar()
    driver.send(DeclareSchedule(name="s", changes=settings(0)))
    schedule = driver.core.book.namespaces["default"].schedules["s"]
    slot_us = schedule.next_us
    without = Core()
    without.apply(*driver.recorded())
    without.handle(driver.now_us, Recover())
    assert without.handle(slot_us, Tick())[0] == []
    again_us = without.next_deadline_us()
    assert again_us is not None
    assert again_us > slot_us
    without.calendar = CronCalendar()
    records, _ = without.handle(again_us, Tick())
    fired = [record for record in records if isinstance(record, ScheduleFired)]
    assert [record.slot_us for record in fired] == [slot_us]

"""The limits of schedules, at the limit and one past it. `tests.core.test_limits` runs them."""

from __future__ import annotations

from typing import Any

from jackalope.calendar import CronCalendar
from jackalope.core.commands import Recover, Tick
from jackalope.core.commands.schedules import BackfillSchedule, DeclareSchedule, TriggerSchedule
from jackalope.core.durations import DAY, HOUR, MINUTE, SECOND
from jackalope.core.effects import Answered, ScheduleSet, SlotsRun
from jackalope.core.limits import (
    MISSED_SLOTS_COUNTED_MAX,
    MOMENTS_PER_SCHEDULE_MAX,
    RUNS_PER_SCHEDULE_MAX,
    SCHEDULES_PER_NAMESPACE_MAX,
    SLOTS_PER_BACKFILL_MAX,
    SLOTS_PER_TICK_MAX,
    SPANS_PER_SCHEDULE_MAX,
)
from jackalope.core.records import ScheduleFired, SlotsMissed
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.schedule import MOMENT_US_MAX
from tests.core.driving import NOW_US, Driver

__all__ = [
    "test_missed_slots_counted_max",
    "test_moments_per_schedule_max",
    "test_runs_per_schedule_max",
    "test_schedules_per_namespace_max",
    "test_slots_per_backfill_max",
    "test_slots_per_tick_max",
    "test_spans_per_schedule_max",
]


def declare(driver: Driver, name: str, **changes: Any) -> Answered | None:
    given = {"queue": "q", **changes}
    return driver.send(DeclareSchedule(name=name, changes=given))


def assert_refused(driver: Driver, answer: Answered | None, code: Code, limit: int) -> None:
    assert isinstance(answer, Refusal)
    assert answer.code is code
    assert str(limit) in answer.message
    assert driver.records == []


def test_schedules_per_namespace_max(driver: Driver) -> None:
    declare(driver, "first", every_us=HOUR)
    schedules = driver.core.book.namespaces["default"].schedules
    missing = SCHEDULES_PER_NAMESPACE_MAX - 1 - len(schedules)
    schedules.update({f"s{number}": schedules["first"] for number in range(missing)})
    driver.is_checked = False
    assert isinstance(declare(driver, "last", every_us=HOUR), ScheduleSet)
    one_more = declare(driver, "one more", every_us=HOUR)
    assert_refused(driver, one_more, Code.TOO_MANY, SCHEDULES_PER_NAMESPACE_MAX)
    assert isinstance(declare(driver, "last", every_us=DAY), ScheduleSet)


def test_moments_per_schedule_max(driver: Driver) -> None:
    times = [NOW_US + number for number in range(MOMENTS_PER_SCHEDULE_MAX + 1)]
    refused = declare(driver, "s", times=times)
    assert_refused(driver, refused, Code.INVALID, MOMENTS_PER_SCHEDULE_MAX)
    assert isinstance(declare(driver, "s", times=times[1:]), ScheduleSet)
    late = declare(driver, "t", times=[MOMENT_US_MAX + 1])
    assert_refused(driver, late, Code.INVALID, MOMENT_US_MAX)
    assert isinstance(declare(driver, "t", times=[MOMENT_US_MAX]), ScheduleSet)


def test_slots_per_backfill_max(driver: Driver) -> None:
    driver.is_checked = False
    declare(driver, "s", every_us=MINUTE, start=NOW_US - DAY)
    last_us = NOW_US - DAY + SLOTS_PER_BACKFILL_MAX * MINUTE
    too_many = BackfillSchedule(name="s", since_us=0, until_us=last_us)
    assert_refused(driver, driver.send(too_many), Code.TOO_MANY, SLOTS_PER_BACKFILL_MAX)
    enough = BackfillSchedule(name="s", since_us=0, until_us=last_us - 1)
    answer = driver.send(enough)
    assert isinstance(answer, SlotsRun)
    assert len(answer.tasks) == SLOTS_PER_BACKFILL_MAX


def test_missed_slots_counted_max(driver: Driver) -> None:
    driver.core.calendar = CronCalendar()
    declare(driver, "s", cron="* * * * *", catch_up="skip")
    driver.now_us += DAY
    driver.send(Tick())
    [missed, _, _] = [*driver.records, None, None][:3]
    assert isinstance(missed, SlotsMissed)
    assert missed.count == MISSED_SLOTS_COUNTED_MAX
    assert missed.next_us > driver.now_us - 2 * MINUTE


def test_runs_per_schedule_max(driver: Driver) -> None:
    declare(driver, "s", every_us=HOUR)
    for _ in range(RUNS_PER_SCHEDULE_MAX + 1):
        driver.now_us += SECOND
        driver.send(TriggerSchedule(name="s"))
    schedule = driver.core.book.namespaces["default"].schedules["s"]
    assert [run.at_us for run in schedule.runs] == [
        NOW_US + number * SECOND for number in range(2, RUNS_PER_SCHEDULE_MAX + 2)
    ]


def test_slots_per_tick_max(driver: Driver) -> None:
    driver.is_checked = False
    for number in range(SLOTS_PER_TICK_MAX + 1):
        declare(driver, f"s{number}", every_us=SECOND)
    driver.send(Recover())
    driver.now_us += SECOND
    driver.send(Tick())
    assert sum(isinstance(each, ScheduleFired) for each in driver.records) == SLOTS_PER_TICK_MAX
    assert driver.core.next_deadline_us() == driver.now_us
    driver.send(Tick())
    assert sum(isinstance(each, ScheduleFired) for each in driver.records) == 1


def test_spans_per_schedule_max(driver: Driver) -> None:
    """Each slot that fires after one that did not begins a span; too many become one."""
    driver.is_checked = False
    first_us = NOW_US - DAY
    declare(driver, "s", every_us=MINUTE, start=first_us)
    schedule = driver.core.book.namespaces["default"].schedules["s"]
    for number in range(SPANS_PER_SCHEDULE_MAX + 1):
        assert len(schedule.spans) == number
        slot_us = first_us + 2 * number * MINUTE
        driver.send(BackfillSchedule(name="s", since_us=slot_us, until_us=slot_us))
    assert len(schedule.spans) == SPANS_PER_SCHEDULE_MAX
    # What lies between two that became one counts as fired, and runs if that is asked for.
    assert schedule.has_fired(first_us + MINUTE)
    assert not schedule.has_fired(first_us + 3 * MINUTE)
    between = BackfillSchedule(name="s", since_us=first_us, until_us=first_us + 3 * MINUTE)
    answer = driver.send(between)
    assert isinstance(answer, SlotsRun)
    assert (len(answer.tasks), answer.known) == (1, 2)
    assert answer.forgotten == (first_us + MINUTE,)
    between.again = True
    answer = driver.send(between)
    assert isinstance(answer, SlotsRun)
    assert (len(answer.tasks), answer.known, answer.forgotten) == (1, 3, ())

"""Overlap: which tasks count as those of a schedule, and what it does about very many."""

from __future__ import annotations

import pytest

from jackalope.core.commands import Action, ActOnTasks, Finish, FinishAttempts, Tick
from jackalope.core.commands.schedules import BackfillSchedule, DeclareSchedule, TriggerSchedule
from jackalope.core.durations import HOUR, SECOND
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.limits import DEPENDENCIES_PER_TASK_MAX
from jackalope.core.records import RUNS_LEVEL, ScheduleFired, SlotsMissed
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.schedule import SCHEDULE_HEADER, SLOT_HEADER, schedule_of
from jackalope.core.task import Task
from tests.core.driving import NOW_US, Driver, refusal_in, snapshot_of


def declare(driver: Driver, **changes: object) -> None:
    answer = driver.send(DeclareSchedule(name="s", changes={"queue": "q", "task": "t", **changes}))
    assert not isinstance(answer, Refusal), answer


def unfinished(driver: Driver) -> list[Task]:
    return [task for task in driver.core.book.tasks.values() if task.state not in ENDED]


def tick(driver: Driver, after_us: int) -> list[TaskId]:
    """Let time pass; returns the tasks that the schedule submitted then."""
    driver.now_us += after_us
    driver.send(Tick())
    return [each.task for each in driver.records if isinstance(each, ScheduleFired)]


def backfill(driver: Driver, count: int) -> None:
    """Submit the tasks of many slots, none of which waits."""
    first_us = NOW_US - count * HOUR
    declare(driver, every_us=HOUR, start=first_us)
    for since in range(0, count, 1_000):
        until_us = first_us + (min(since + 1_000, count) - 1) * HOUR
        since_us = first_us + since * HOUR
        driver.send(BackfillSchedule(name="s", since_us=since_us, until_us=until_us))
    assert len(unfinished(driver)) == count


def test_more_than_a_task_can_wait_for_are_replaced() -> None:
    """They are killed first, as many at a time as is cheap, and the slot is tried again."""
    driver = Driver(is_checked=False)
    backfill(driver, DEPENDENCIES_PER_TASK_MAX + 50)
    declare(driver, overlap="replace")
    assert tick(driver, HOUR) == []
    assert len(unfinished(driver)) < 50
    (fired,) = tick(driver, SECOND)
    (left,) = unfinished(driver)
    assert (left.id, left.state) == (fired, State.READY)


def test_a_task_waits_for_as_many_as_it_can() -> None:
    driver = Driver(is_checked=False)
    backfill(driver, DEPENDENCIES_PER_TASK_MAX)
    declare(driver, overlap="replace")
    assert len(tick(driver, HOUR)) == 1
    assert len(unfinished(driver)) == 1


def test_very_many_are_not_backfilled_in_turn() -> None:
    driver = Driver(is_checked=False)
    backfill(driver, DEPENDENCIES_PER_TASK_MAX + 1)
    declare(driver, overlap="skip", start=NOW_US - 3_000 * HOUR)
    since_us = NOW_US - 3_000 * HOUR
    answer = driver.send(BackfillSchedule(name="s", since_us=since_us, until_us=since_us))
    assert isinstance(answer, Refusal)
    assert answer.code is Code.TOO_MANY
    assert driver.records == []


def test_the_first_of_a_backfill_waits_for_all_others_for_the_one_before() -> None:
    driver = Driver()
    declare(driver, every_us=SECOND, start=NOW_US - 5 * SECOND)
    before = {task for _ in range(15) for task in tick(driver, SECOND)}
    declare(driver, overlap="wait")
    driver.send(BackfillSchedule(name="s", since_us=0, until_us=NOW_US - 4 * SECOND))
    first, second = [each.task for each in driver.records if isinstance(each, ScheduleFired)]
    tasks = driver.core.book.tasks
    assert tasks[first].waiting_for == before
    assert tasks[second].waiting_for == {first}


@pytest.mark.parametrize(("overlap", "waits"), [("skip", 0), ("wait", 1)])
def test_one_old_task_is_in_the_way(overlap: str, waits: int) -> None:
    """Also one that is not named any more, and after a restart; and when it is retried."""
    driver = Driver()
    declare(driver, every_us=SECOND)
    oldest, *others = [task for _ in range(30) for task in tick(driver, SECOND)]
    kill = ActOnTasks(ref=0, action=Action.KILL, tasks=tuple(others))
    driver.send(kill)
    declare(driver, overlap=overlap)
    assert len(tick(driver, SECOND)) == waits
    assert tick(driver, SECOND) == []
    assert any(isinstance(each, SlotsMissed) for each in driver.records)
    replayed = driver.replayed()
    assert snapshot_of(replayed) == driver.snapshot()
    namespace = replayed.book.namespaces["default"]
    assert oldest in namespace.runs["s"]
    assert len(namespace.runs["s"]) == 1 + waits
    waiting = tuple(task.id for task in unfinished(driver))
    driver.send(ActOnTasks(ref=0, action=Action.KILL, tasks=waiting))
    assert driver.core.book.namespaces["default"].runs == {}
    driver.send(ActOnTasks(ref=0, action=Action.RETRY, tasks=(oldest,)))
    assert [*driver.core.book.namespaces["default"].runs["s"]] == [oldest]
    assert len(tick(driver, SECOND)) == waits


def test_a_task_with_the_headers_of_another_is_not_one_of_the_schedule() -> None:
    """Such as one that a trigger of the queue submits, or one that a client copied."""
    driver = Driver()
    driver.declare("q", triggers=[{"queue": "after"}])
    driver.join("w", 1)
    declare(driver, every_us=SECOND, overlap="skip")
    (first,) = tick(driver, SECOND)
    held = driver.core.book.tasks[first]
    assert held.attempt is not None
    driver.submit(7, headers={SCHEDULE_HEADER: "s", SLOT_HEADER: NOW_US}, queue="other")
    finish = Finish(first, held.attempt.fence, b"done")
    driver.send(FinishAttempts(session=1, attempts=[finish]))
    (follower,) = [each for each in unfinished(driver) if each.queue.name == "after"]
    assert follower.options.headers[SCHEDULE_HEADER] == "s"
    assert schedule_of(follower.options) is None
    assert len(tick(driver, SECOND)) == 1


def test_a_client_cannot_say_that_a_task_is_of_a_schedule() -> None:
    driver = Driver()
    refusal = refusal_in(driver.submit(1, schedule="s"))
    assert refusal is not None
    assert refusal.code is Code.INVALID
    assert "trigger" in refusal.message


def test_nodes_of_an_older_level_are_told_nothing_new() -> None:
    driver = Driver()
    driver.core.level = RUNS_LEVEL - 1
    declare(driver, every_us=SECOND, overlap="skip")
    (task,) = tick(driver, SECOND)
    driver.send(TriggerSchedule(name="s"))
    assert driver.core.book.tasks[task].options.schedule == ""
    schedule = driver.core.book.namespaces["default"].schedules["s"]
    assert not schedule.spans
    # The tasks that it names are in the way as before.
    assert tick(driver, SECOND) == []
    driver.core.level = RUNS_LEVEL
    driver.send(ActOnTasks(ref=0, action=Action.KILL, tasks=(task,)))
    (later,) = tick(driver, SECOND)
    assert driver.core.book.tasks[later].options.schedule == "s"
    assert [span.first_us for span in schedule.spans] == [driver.now_us]

"""What outlives a restart beside what does not: fences, dependencies, queues, levels of records."""

from __future__ import annotations

from copy import copy

import pytest

from jackalope.core import Core
from jackalope.core.commands import Action, ActOnTasks, ForgetTasks, Recover
from jackalope.core.commands.amqp import OpenQueue, Publication, PublishMessages
from jackalope.core.durations import SECOND
from jackalope.core.ids import TaskId, is_volatile, volatile_id
from jackalope.core.invariants import check
from jackalope.core.lifecycle import Reason, State
from jackalope.core.policy import DEFAULT_POLICY
from jackalope.core.records import (
    LEVEL,
    SINCE,
    AnyRecord,
    FencesReserved,
    Forgotten,
    QueueDeclared,
    TaskSubmitted,
    is_lasting,
)
from jackalope.core.task import OnDependency, Options, TaskSpec
from jackalope.core.tasks.assign import FENCES_PER_BLOCK
from tests.core.driving import NOW_US, Driver, task_id

GONE = volatile_id(task_id(1))


def publish(driver: Driver, *numbers: int) -> None:
    """Publish transient messages to the queue of a worker."""
    messages = [Publication(task_id(number), "", "q", b"", b"") for number in numbers]
    driver.send(PublishMessages(messages=messages))


def lasting(driver: Driver) -> list[AnyRecord]:
    return [record for record in driver.recorded() if is_lasting(record)]


def restarted(records: list[AnyRecord]) -> Driver:
    """Return a broker that knows nothing but these records."""
    driver = Driver()
    for record in records:
        driver.core.apply(record)
    driver.send(Recover())
    return driver


# Fences.


def test_one_record_reserves_the_fences_of_many_tasks() -> None:
    driver = Driver()
    driver.send(OpenQueue(queue="q", durable=True))
    driver.join("w", 1, slots=9)
    publish(driver, 1, 2, 3)
    reserved = [record for record in driver.recorded() if isinstance(record, FencesReserved)]
    assert [record.through for record in reserved] == [FENCES_PER_BLOCK]
    assert [each.fence for each in driver.assignments(1)] == [1, 2, 3]


def test_a_block_that_is_used_up_is_followed_by_another() -> None:
    driver = Driver()
    driver.send(OpenQueue(queue="q", durable=True))
    driver.join("w", 1, slots=9)
    publish(driver, 1)
    driver.core.book.counters.fence = FENCES_PER_BLOCK - 1
    publish(driver, 2, 3)
    assert [each.fence for each in driver.assignments(1)] == [
        FENCES_PER_BLOCK,
        FENCES_PER_BLOCK + 1,
    ]
    assert driver.core.book.counters.reserved == 2 * FENCES_PER_BLOCK
    # A reader of the records is never behind a block that is used up.
    assert restarted(lasting(driver)).core.book.counters.fence == 2 * FENCES_PER_BLOCK


def test_durable_tasks_reserve_nothing() -> None:
    driver = Driver()
    driver.join("w", 1, slots=9)
    driver.submit(1)
    driver.finish(1)
    assert restarted(lasting(driver)).core.book.counters.fence == 1
    assert not [record for record in driver.recorded() if isinstance(record, FencesReserved)]


# Places in line.


def ranks(core: Core) -> dict[TaskId, int]:
    """Return where durable tasks stand in line, with the last place that was given out."""
    found = {id_: task.rank for id_, task in core.book.tasks.items() if not is_volatile(id_)}
    return found | {TaskId(b"last"): core.book.counters.rank}


@pytest.mark.parametrize("is_durable_first", [False, True])
def test_durable_tasks_stand_where_the_records_say(*, is_durable_first: bool) -> None:
    """Who only has the records gives the same places as who also has volatile tasks."""
    driver = Driver()
    driver.send(OpenQueue(queue="q", durable=True))
    for number in range(1, 30):
        is_durable = number % 3 == is_durable_first
        message = Publication(task_id(number), "", "q", b"", b"", persistent=is_durable)
        driver.send(PublishMessages(messages=[message]))
        driver.submit(100 + number)
    driver.act(Action.KILL, 103, 110)
    driver.act(Action.RETRY, 110, 103)
    assert ranks(driver.core) == ranks(restarted(lasting(driver)).core)


def test_tasks_are_given_out_in_the_order_in_which_they_came() -> None:
    driver = Driver()
    driver.send(OpenQueue(queue="q", durable=True))
    numbers = range(1, 41)
    messages = [
        Publication(task_id(number), "", "q", b"", b"", persistent=number % 5 < 2)
        for number in numbers
    ]
    driver.send(PublishMessages(messages=messages))
    driver.join("w", 1, slots=100)
    assert driver.assigned() == list(numbers)


def test_time_goes_on_behind_volatile_tasks_and_never_back() -> None:
    driver = Driver()
    driver.send(OpenQueue(queue="q", durable=True))
    publish(driver, *range(1, 11))
    driver.submit(20)
    publish(driver, 11)
    driver.submit(21)
    times = [record.at_us for record in driver.recorded()]
    assert times == sorted(times)
    assert times[-1] <= NOW_US + 15
    driver.tick(SECOND)
    assert driver.core.now_us == NOW_US + SECOND


# Dependencies that earlier versions accepted.


def old_folder(on_dependency: OnDependency, state: State, *others: TaskId) -> list[AnyRecord]:
    """Return what an earlier version wrote: task 2 waits for a task that is not durable."""
    options = Options(depends_on=(GONE, *others), on_dependency=on_dependency)
    declared = QueueDeclared(NOW_US, "default", "q", DEFAULT_POLICY)
    first = TaskSubmitted(NOW_US, "default", TaskSpec(task_id(3), "q"), State.HELD, "", 1)
    spec = TaskSpec(task_id(2), "q", options=options)
    waits = TaskSubmitted(NOW_US, "default", spec, state, "", 1, 0, options.depends_on)
    return [declared, first, waits]


@pytest.mark.parametrize("has_history", [True, False])
def test_a_task_that_waits_for_what_is_gone_is_given_up(*, has_history: bool) -> None:
    records = old_folder(OnDependency.DEAD, State.WAITING, task_id(3))
    if has_history:
        core, driver = Core(), Driver()
        for record in records:
            core.apply(record)
        stored = core.book.snapshot()
        (row,) = (row for row in stored.tasks if row.id == task_id(2))
        row.waiting_for = (GONE, *row.waiting_for)
        driver.core.book.restore(copy(stored.counters), stored.entities, stored.tasks)
        driver.send(Recover())
    else:
        driver = restarted(records)
    outcome = driver.task(2).outcome
    assert driver.state(2) is State.DEAD
    assert outcome is not None
    assert outcome.reason is Reason.DEPENDENCY
    assert outcome.error is not None
    assert "went with a restart" in outcome.error.message
    assert not driver.core.book.dependents
    check(driver.core)


def test_a_task_that_runs_anyway_is_released() -> None:
    driver = restarted(old_folder(OnDependency.RUN, State.WAITING))
    assert driver.state(2) is State.READY


def test_a_task_that_waits_for_others_as_well_goes_on_waiting() -> None:
    driver = restarted(old_folder(OnDependency.RUN, State.WAITING, task_id(3)))
    assert driver.state(2) is State.WAITING
    driver.act(Action.KILL, 3)
    assert driver.state(2) is State.READY


def test_a_retry_does_not_wait_for_what_is_not_durable() -> None:
    driver = restarted(old_folder(OnDependency.DEAD, State.WAITING))
    driver.send(OpenQueue(queue="q", durable=True))
    publish(driver, 1)
    assert GONE in driver.core.book.tasks
    driver.act(Action.RETRY, 2)
    assert driver.state(2) is State.READY


def test_a_volatile_task_that_is_retried_is_still_not_for_the_journal() -> None:
    """It ended and lives again within one turn, before it has left memory."""
    driver = Driver()
    driver.send(OpenQueue(queue="gone"))
    driver.send(PublishMessages(messages=[Publication(task_id(1), "", "gone", b"", b"")]))
    for action in (Action.KILL, Action.RETRY):
        driver.send(ActOnTasks(ref=0, action=action, tasks=(GONE,)))
    assert driver.core.book.tasks[GONE].state is State.READY
    assert lasting(driver) == []


# Levels.


def test_an_older_level_has_no_later_records() -> None:
    driver = Driver()
    driver.core.level = 1
    driver.send(OpenQueue(queue="q", durable=True))
    driver.join("w", 1, slots=9)
    publish(driver, 1)
    driver.send(ForgetTasks(through_us=NOW_US))
    assert driver.assignments(1) == []
    assert not [record for record in driver.recorded() if type(record) in SINCE]


def test_every_later_kind_has_a_level_that_is_known() -> None:
    assert set(SINCE.values()) <= set(range(2, LEVEL + 1))


# Forgetting, and time.


def test_nothing_is_forgotten_before_its_time() -> None:
    driver = Driver()
    driver.send(ForgetTasks(through_us=NOW_US + SECOND))
    assert driver.recorded() == [Forgotten(NOW_US, NOW_US)]
    driver.send(ForgetTasks(through_us=NOW_US))
    assert driver.records == []


def test_time_goes_on_from_the_last_record() -> None:
    driver = Driver()
    driver.submit(1)
    records, reached_us = lasting(driver), driver.now_us
    later = Driver()
    for record in records:
        later.core.apply(record)
    later.now_us = reached_us - 10 * SECOND
    later.send(Recover())
    later.submit(2)
    assert later.core.now_us == reached_us
    assert later.task(2).created_us == reached_us


def test_time_goes_back_with_a_clock_that_was_wrong() -> None:
    driver = Driver()
    driver.send(ForgetTasks(through_us=NOW_US))
    later = Driver()
    for record in lasting(driver):
        later.core.apply(record)
    later.now_us = NOW_US - 3600 * SECOND
    later.send(Recover(is_clock_set_back=True))
    later.submit(2)
    assert later.task(2).created_us == later.now_us
    assert later.core.book.counters.latest_us == later.now_us
    assert later.core.book.counters.horizon_us == later.now_us

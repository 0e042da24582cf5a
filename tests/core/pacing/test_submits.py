"""Paced submits: debounced, throttled and replaced, over restarts, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core import Core
from jackalope.core.commands import Action, SubmitTasks
from jackalope.core.durations import DAY, HOUR, MINUTE, SECOND
from jackalope.core.effects import Accepted, AcceptedRequests, Answered, Served
from jackalope.core.ids import TaskId
from jackalope.core.invariants import check
from jackalope.core.lifecycle import State
from jackalope.core.limits import (
    MERGED_PER_TASK_MAX,
    NAME_CHARS_MAX,
    THROTTLED_PER_NAMESPACE_MAX,
    TIME_US_MAX,
)
from jackalope.core.records import TaskReplaced, ThrottlesEnded, blobs_named
from jackalope.core.refusals import Code
from jackalope.core.shapes.pace import Pace, Pacing
from jackalope.core.shapes.request import How, Same
from jackalope.core.task import BlobRef
from tests.core.driving import Driver, assert_accepted, refusal_in, snapshot_of, spec, task_id

DEBOUNCE = Pace(Pacing.DEBOUNCE, "ada", 5 * SECOND, 12 * SECOND)
THROTTLE = Pace(Pacing.THROTTLE, "ada", MINUTE)
DROP = Pace(Pacing.THROTTLE, "ada", MINUTE, drops=True)
REPLACE = Pace(Pacing.REPLACE, "ada")


@pytest.fixture
def driver() -> Driver:
    return Driver()


def served(answer: Answered | None) -> tuple[How, TaskId]:
    assert isinstance(answer, AcceptedRequests)
    [(_, how)] = answer.served
    return how.how, how.task


def restarted(driver: Driver) -> None:
    """Rebuild the core from rows; from the records alone it is the same."""
    assert snapshot_of(driver.replayed()) == driver.snapshot()
    reloaded(driver)


def reloaded(driver: Driver) -> None:
    """Rebuild the core from rows."""
    before, snapshot = driver.snapshot(), driver.core.book.snapshot()
    driver.core = Core()
    rows = (snapshot.tasks, snapshot.answers)
    driver.core.book.restore(snapshot.counters, snapshot.entities, *rows)
    assert driver.snapshot() == before
    check(driver.core)


# Debounce.


def test_a_debounced_task_runs_once_with_the_latest_arguments(driver: Driver) -> None:
    driver.join("w", 1)
    assert driver.submit(1, payload=b"a", pace=DEBOUNCE) == Accepted(1)
    assert driver.state(1) is State.SCHEDULED
    driver.tick(4 * SECOND)
    assert served(driver.submit(2, payload=b"b", priority=200, pace=DEBOUNCE)) == (
        How.REPLACED,
        task_id(1),
    )
    driver.tick(4 * SECOND)
    assert driver.state(1) is State.SCHEDULED
    restarted(driver)
    driver.join("w", 1)
    assert served(driver.submit(3, payload=b"c", pace=DEBOUNCE))[1] == task_id(1)
    driver.tick(4 * SECOND - 1)  # Twelve seconds after the first.
    assert driver.state(1) is State.SCHEDULED
    driver.tick(1)
    [assignment] = driver.assignments(1)
    assert (assignment.task, assignment.payload) == (task_id(1), b"c")
    assert len(driver.core.book.tasks) == 1


def test_without_a_bound_it_waits_for_as_long_as_more_come(driver: Driver) -> None:
    endless = Pace(Pacing.DEBOUNCE, "", 5 * SECOND)
    for number in range(1, 100):
        driver.submit(number, pace=endless)
        driver.tick(4 * SECOND)
    assert driver.state(1) is State.SCHEDULED
    driver.tick(SECOND)
    assert driver.state(1) is State.READY


def test_what_comes_after_it_is_due_is_another_task(driver: Driver) -> None:
    driver.submit(1, pace=DEBOUNCE)
    driver.tick(5 * SECOND)
    assert driver.state(1) is State.READY
    assert driver.submit(2, pace=DEBOUNCE) == Accepted(1)
    assert driver.state(2) is State.SCHEDULED


def test_kinds_do_not_know_each_other(driver: Driver) -> None:
    other = Pace(Pacing.DEBOUNCE, "bob", 5 * SECOND)
    driver.submit(1, pace=DEBOUNCE)
    assert driver.submit(2, pace=other) == Accepted(1)
    assert driver.submit(3, name="other", pace=DEBOUNCE) == Accepted(1)
    assert driver.submit(4, "another", pace=DEBOUNCE) == Accepted(1)
    assert driver.submit(5, pace=REPLACE) == Accepted(1)
    assert len(driver.core.book.tasks) == 5


@pytest.mark.parametrize("action", [Action.HOLD, Action.PAUSE])
def test_what_a_person_has_stopped_stays_so(driver: Driver, action: Action) -> None:
    driver.submit(1, payload=b"a", pace=DEBOUNCE)
    driver.act(action, 1)
    stopped = driver.state(1)
    driver.submit(2, payload=b"b", pace=DEBOUNCE)
    assert (driver.state(1), driver.task(1).payload) == (stopped, b"b")
    driver.tick(MINUTE)
    driver.submit(3, payload=b"c", pace=DEBOUNCE)
    assert len(driver.core.book.tasks) == 1
    driver.act(Action.PLAY, 1)
    assert (driver.state(1), driver.task(1).payload) == (State.READY, b"c")


def test_a_retry_by_a_person_lets_it_run_now(driver: Driver) -> None:
    driver.submit(1, pace=DEBOUNCE)
    driver.act(Action.RETRY, 1)
    assert driver.state(1) is State.READY
    assert driver.submit(2, pace=DEBOUNCE) == Accepted(1)
    driver.act(Action.KILL, 2)
    assert driver.submit(3, pace=DEBOUNCE) == Accepted(1)
    assert_accepted(driver.act(Action.RETRY, 2))
    assert (driver.state(2), driver.state(3)) == (State.READY, State.SCHEDULED)


def test_a_submit_that_is_repeated_does_not_undo_a_later_one(driver: Driver) -> None:
    driver.submit(1, payload=b"a", pace=DEBOUNCE)
    driver.submit(2, payload=b"b", pace=DEBOUNCE)
    driver.submit(3, payload=b"c", pace=DEBOUNCE)
    restarted(driver)
    assert served(driver.submit(2, payload=b"b", pace=DEBOUNCE)) == (How.REPLACED, task_id(1))
    assert driver.records == []
    assert driver.submit(1, payload=b"a", pace=DEBOUNCE) == Accepted(1)
    assert driver.records == []
    assert driver.task(1).payload == b"c"
    refusal = refusal_in(driver.submit(1, payload=b"a", pace=REPLACE))
    assert refusal is not None
    assert refusal.code is Code.ID_CONFLICT


def test_merged_per_task_max(driver: Driver) -> None:
    driver.submit(1, pace=DEBOUNCE)
    for number in range(2, MERGED_PER_TASK_MAX + 3):
        driver.submit(number, pace=DEBOUNCE)
    assert len(driver.task(1).merged) == MERGED_PER_TASK_MAX
    driver.submit(3, pace=DEBOUNCE)
    assert driver.records == []
    driver.submit(2, pace=DEBOUNCE)
    assert [type(record) for record in driver.records] == [TaskReplaced]


def test_time_to_live_counts_from_the_time_it_is_due(driver: Driver) -> None:
    driver.declare(time_to_live_us=10 * SECOND)
    driver.submit(1, pace=DEBOUNCE)
    driver.tick(4 * SECOND)
    driver.submit(2, pace=DEBOUNCE)
    driver.tick(15 * SECOND - 1)
    assert driver.state(1) is State.READY
    driver.tick(1)
    assert driver.state(1) is State.DEAD


# Throttle.


def test_a_throttled_task_is_accepted_once_in_a_span(driver: Driver) -> None:
    assert driver.submit(1, pace=THROTTLE) == Accepted(1)
    driver.tick(20 * SECOND)
    refusal = refusal_in(driver.submit(2, pace=THROTTLE))
    assert refusal is not None
    assert (refusal.code, refusal.retry_after_us) == (Code.THROTTLED, 40 * SECOND)
    assert task_id(1).hex() in refusal.message
    assert driver.records == []
    restarted(driver)
    driver.tick(40 * SECOND - 1)
    assert refusal_in(driver.submit(3, pace=THROTTLE)) is not None
    driver.tick(1)
    assert [type(record) for record in driver.records] == [ThrottlesEnded]
    assert driver.submit(4, pace=THROTTLE) == Accepted(1)
    assert driver.submit(4, pace=THROTTLE) == Accepted(1)  # It was repeated.


def test_it_is_throttled_for_longer_than_its_task_lasts(driver: Driver) -> None:
    driver.declare(retention_us=0)
    driver.join("w", 1)
    driver.submit(1, pace=THROTTLE)
    driver.finish(1)
    driver.core.book.stored(driver.core.book.take_changes())
    assert not driver.core.book.tasks
    reloaded(driver)
    assert refusal_in(driver.submit(2, pace=THROTTLE)) is not None
    assert served(driver.submit(2, pace=DROP)) == (How.DROPPED, task_id(1))
    driver.tick(MINUTE)
    assert not driver.core.book.namespaces["default"].throttles
    assert len(driver.core.book.throttled) == 0
    reloaded(driver)


def test_what_is_dropped_is_counted_where_it_went(driver: Driver) -> None:
    driver.submit(1, pace=DROP)
    for number in (2, 3):
        answer = driver.submit(number, payload=BlobRef(f"b{number}", 70_000), pace=DROP)
        assert served(answer) == (How.DROPPED, task_id(1))
    [entry] = driver.task(1).history or []
    assert (entry.what, entry.detail) == ("joined", "2")
    assert driver.core.book.blobs_gone == ["b2", "b3"]


def test_a_refused_task_throttles_nothing(driver: Driver) -> None:
    driver.declare(depth_limit=1)
    driver.submit(1)
    refusal = refusal_in(driver.submit(2, pace=THROTTLE))
    assert refusal is not None
    assert refusal.code is Code.QUEUE_FULL
    assert not driver.core.book.namespaces["default"].throttles


def test_throttled_per_namespace_max(driver: Driver) -> None:
    driver.submit(1, pace=THROTTLE)
    driver.is_checked = False
    throttles = driver.core.book.namespaces["default"].throttles
    [entry] = throttles.values()
    missing = THROTTLED_PER_NAMESPACE_MAX - 1 - len(throttles)
    throttles.update({f"k{number}": entry for number in range(missing)})
    assert driver.submit(2, pace=Pace(Pacing.THROTTLE, "bob", HOUR)) == Accepted(1)
    refusal = refusal_in(driver.submit(3, pace=Pace(Pacing.THROTTLE, "eve", HOUR)))
    assert refusal is not None
    assert (refusal.code, refusal.retry_after_us) == (Code.TOO_MANY, MINUTE)
    assert str(THROTTLED_PER_NAMESPACE_MAX) in refusal.message
    assert driver.records == []


# Replace.


def test_what_is_queued_is_replaced_and_keeps_its_place(driver: Driver) -> None:
    driver.submit(1, payload=BlobRef("old", 70_000), pace=REPLACE)
    driver.submit(2)
    later: dict[str, Any] = {
        "payload": BlobRef("new", 70_000),
        "key": "k",
        "tags": ("red",),
        "timeout_us": 7,
    }
    assert served(driver.submit(3, pace=REPLACE, **later)) == (How.REPLACED, task_id(1))
    assert driver.core.book.blobs_gone == ["old"]
    assert blobs_named(driver.records) == [BlobRef("new", 70_000)]
    restarted(driver)
    driver.join("w", 1, slots=2)
    [first, second] = driver.assignments(1)
    assert (first.task, second.task) == (task_id(1), task_id(2))
    assert (first.payload, first.key, first.timeout_us) == (BlobRef("new", 70_000), "k", 7)


def test_what_is_leased_or_waits_for_a_retry_is_not_replaced(driver: Driver) -> None:
    driver.join("w", 1)
    driver.submit(1, pace=REPLACE)
    assert driver.submit(2, pace=REPLACE) == Accepted(1)
    driver.fail(1, retry_after_us=HOUR)
    assert driver.state(1) is State.SCHEDULED
    assert driver.submit(3, pace=REPLACE) == Accepted(1)  # 2 was given out meanwhile.
    assert served(driver.submit(4, pace=REPLACE)) == (How.REPLACED, task_id(3))


def test_a_later_start_replaces_an_earlier_one(driver: Driver) -> None:
    at_us = driver.now_us + HOUR
    driver.submit(1, pace=REPLACE, run_at_us=at_us)
    driver.submit(2, pace=REPLACE, run_at_us=at_us + HOUR)
    assert (driver.state(1), driver.task(1).due_us) == (State.SCHEDULED, at_us + HOUR)
    driver.submit(3, pace=REPLACE)
    assert driver.state(1) is State.READY
    driver.submit(4, pace=REPLACE, run_at_us=at_us)
    assert driver.state(1) is State.SCHEDULED
    driver.submit(5, pace=REPLACE, held=True, expires_at_us=at_us)
    assert driver.state(1) is State.HELD
    driver.submit(6, pace=REPLACE)
    assert (driver.state(1), driver.task(1).expires_us) == (State.HELD, 0)
    restarted(driver)


def test_a_task_that_was_outrun_is_not_retried(driver: Driver) -> None:
    driver.submit(1, pace=REPLACE)
    driver.act(Action.KILL, 1)
    driver.submit(2, pace=REPLACE)
    refusal = refusal_in(driver.act(Action.RETRY, 1))
    assert refusal is not None
    assert refusal.code is Code.WRONG_STATE
    driver.join("w", 1)
    assert_accepted(driver.act(Action.RETRY, 1))


def test_a_full_queue_lets_a_submit_replace(driver: Driver) -> None:
    driver.declare(depth_limit=1)
    driver.submit(1, pace=REPLACE)
    assert served(driver.submit(2, pace=REPLACE)) == (How.REPLACED, task_id(1))


def test_a_paced_task_of_a_cached_queue_is_no_request(driver: Driver) -> None:
    driver.declare(same="cached")
    driver.submit(1, pace=REPLACE)
    assert not driver.task(1).options.identity
    assert driver.submit(2, payload=b"b", pace=THROTTLE) == Accepted(1)


# What is refused.


@pytest.mark.parametrize(
    ("pace", "options", "words"),
    [
        (Pace(Pacing.DEBOUNCE), {}, ["debounce: span: must be more than 0"]),
        (Pace(Pacing.THROTTLE, "", -1), {}, ["throttle: span: must be more than 0"]),
        (Pace(Pacing.THROTTLE, "", TIME_US_MAX + 1), {}, ["throttle: span: must be"]),
        (Pace(Pacing.DEBOUNCE, "", 5, 4), {}, ["debounce: at_most: must be at least as long"]),
        (Pace(Pacing.DEBOUNCE, "", 5, -1), {}, ["debounce: at_most: must be 0 to"]),
        (Pace(Pacing.THROTTLE, "", 5, 9), {}, ["throttle: at_most: is for debounce"]),
        (Pace(Pacing.DEBOUNCE, "", 5, drops=True), {}, ["debounce: drop: is for throttle"]),
        (Pace(Pacing.REPLACE, "", 5), {}, ["replace: has no span"]),
        (
            Pace(Pacing.DEBOUNCE, "k" * (NAME_CHARS_MAX + 1), 0, 0, True),
            {
                "same": Same.CACHED,
                "alias": "a",
                "run_at_us": 1,
                "parent": task_id(9),
                "depends_on": (task_id(9),),
            },
            [
                "key: longer than 256",
                "span: must be",
                "drop: is for throttle",
                "same: cannot go with debounce",
                "alias: cannot",
                "parent: cannot",
                "depends_on: cannot",
                "run_at_us: cannot",
            ],
        ),
    ],
)
def test_all_problems_are_listed(
    driver: Driver, pace: Pace, options: dict[str, Any], words: list[str]
) -> None:
    refusal = refusal_in(driver.submit(1, pace=pace, **options))
    assert refusal is not None
    assert refusal.code is Code.INVALID
    assert [word for word in words if word not in refusal.message] == []
    assert driver.records == []


def test_a_cluster_of_an_older_level_refuses_paces(driver: Driver) -> None:
    driver.core.level = 3
    for pace in (DEBOUNCE, THROTTLE, REPLACE):
        driver.declare()
        refusal = refusal_in(driver.submit(1, pace=pace))
        assert refusal is not None
        assert "cluster upgrade" in refusal.message
        assert driver.records == []


def test_many_in_one_command(driver: Driver) -> None:
    """Submits of one command are decided about one by one."""
    tasks = [spec(number, payload=b"%d" % number, pace=DEBOUNCE) for number in range(1, 4)]
    answer = driver.send(SubmitTasks(ref=0, tasks=[*tasks, spec(9), spec(10)]))
    assert isinstance(answer, AcceptedRequests)
    assert answer.count == 5
    replaced = Served(How.REPLACED, task_id(1))
    assert answer.served == ((1, replaced), (2, replaced))
    assert driver.task(1).payload == b"3"
    driver.tick(DAY)


def test_what_was_submitted_stays_as_it_is(driver: Driver) -> None:
    """The same command may come again: from a program that holds it, or after a full disk."""
    task = spec(1, pace=DEBOUNCE)
    for _ in range(2):
        assert driver.send(SubmitTasks(ref=0, tasks=[task])) == Accepted(1)
    assert task.options is not None
    assert task.options.run_at_us == 0

"""Attempts: whose word counts, and what is counted."""

from collections.abc import Callable

import pytest

from jackalope.core.commands import (
    Action,
    Answer,
    AnswerSignal,
    AnyCommand,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Heartbeat,
    Held,
    LeaveWorker,
    ReleaseAttempts,
    ReportProgress,
    StartAttempts,
    Verdict,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Joined, LeaseLost
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.refusals import Code
from jackalope.core.task import Error
from tests.core.driving import Driver, refusal_in, task_id

Report = Callable[[TaskId, int], AnyCommand]

REPORTS: dict[str, Report] = {
    "start": lambda task, fence: StartAttempts(ref=0, attempts=[Held(task, fence)]),
    "finish": lambda task, fence: FinishAttempts(attempts=[Finish(task, fence)]),
    "fail": lambda task, fence: FailAttempts(attempts=[Fail(task, fence, Error("E"))]),
    "release": lambda task, fence: ReleaseAttempts(attempts=[Held(task, fence)]),
    "progress": lambda task, fence: ReportProgress(ref=0, task=task, fence=fence),
    "answer": lambda task, fence: AnswerSignal(
        ref=0, task=task, fence=fence, answer=Answer.STOPPED
    ),
}

EVERY_REPORT = pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)


@pytest.fixture
def driver() -> Driver:
    """Return a driver with a task that worker w2 holds with fence 3, and w1 held before."""
    driver = Driver()
    driver.join("w1", 1)
    driver.submit(1)
    driver.release(1)
    driver.join("w1", 1, slots=0)
    driver.release(1)
    driver.join("w2", 2)
    driver.act(Action.KILL, 1)
    assert (driver.worker(1), driver.fence(1)) == ("w2", 3)
    return driver


def assert_ignored(driver: Driver, session: int, command: AnyCommand, code: Code) -> None:
    before = driver.snapshot()
    command.session = session
    refusal = refusal_in(driver.send(command))
    assert refusal is not None
    assert refusal.code is code
    assert driver.records == []
    assert driver.snapshot() == before


@EVERY_REPORT
@pytest.mark.parametrize("fence", [0, 1, 2, 4, -1])
def test_another_fence_is_stale(driver: Driver, report: Report, fence: int) -> None:
    assert_ignored(driver, 2, report(task_id(1), fence), Code.STALE_FENCE)


@EVERY_REPORT
def test_the_right_fence_of_another_worker_is_stale(driver: Driver, report: Report) -> None:
    assert_ignored(driver, 1, report(task_id(1), 3), Code.STALE_FENCE)


@EVERY_REPORT
def test_the_old_fence_of_a_worker_that_has_the_task_again_is_stale(report: Report) -> None:
    driver = Driver()
    driver.join("w", 1)
    driver.submit(1)
    driver.release(1)
    assert driver.fence(1) == 2
    assert_ignored(driver, 1, report(task_id(1), 1), Code.STALE_FENCE)


@EVERY_REPORT
def test_a_task_that_never_was_is_stale(driver: Driver, report: Report) -> None:
    assert_ignored(driver, 2, report(task_id(99), 3), Code.STALE_FENCE)


@EVERY_REPORT
def test_who_has_not_joined_has_no_say(driver: Driver, report: Report) -> None:
    assert_ignored(driver, 7, report(task_id(1), 3), Code.UNKNOWN_SESSION)


@EVERY_REPORT
def test_the_right_fence_counts(driver: Driver, report: Report) -> None:
    command = report(task_id(1), 3)
    command.session = 2
    assert driver.send(command) == Accepted(1)


def test_one_stale_report_does_not_spoil_the_others(driver: Driver) -> None:
    both = [Finish(task_id(1), 2), Finish(task_id(1), 3), Finish(task_id(1), 3)]
    answer = driver.send(FinishAttempts(session=2, attempts=both))
    assert isinstance(answer, Accepted)
    assert answer.count == 1
    assert [(index, refusal.code) for index, refusal in answer.refused] == [
        (0, Code.STALE_FENCE),
        (2, Code.STALE_FENCE),
    ]
    assert driver.state(1) is State.SUCCEEDED


# Counting.


def counters(driver: Driver) -> tuple[int, int, int, int]:
    task = driver.task(1)
    return task.failures, task.crashes, task.interruptions, task.attempts


def fail(driver: Driver) -> None:
    driver.fail(1)


def release(driver: Driver) -> None:
    driver.release(1)


def leave(driver: Driver) -> None:
    driver.send(LeaveWorker(session=1))


def lose(driver: Driver) -> None:
    driver.close(1)


def come_back_empty(driver: Driver) -> None:
    driver.join("w", 2)


def stop(driver: Driver) -> None:
    driver.act(Action.PAUSE, 1)
    driver.answer(1, Answer.STOPPED)


@pytest.mark.parametrize(
    ("end", "started", "expected"),
    [
        (fail, True, (1, 0, 0)),
        (fail, False, (1, 0, 0)),
        (release, True, (0, 0, 1)),
        (release, False, (0, 0, 1)),
        (leave, True, (0, 0, 1)),
        (leave, False, (0, 0, 1)),
        (lose, True, (0, 1, 0)),
        (lose, False, (0, 0, 1)),
        (come_back_empty, True, (0, 1, 0)),
        (come_back_empty, False, (0, 0, 1)),
        (stop, True, (0, 0, 0)),
        (stop, False, (0, 0, 0)),
    ],
)
def test_each_end_of_an_attempt_has_its_counter(
    end: Callable[[Driver], None], started: bool, expected: tuple[int, int, int]
) -> None:
    driver = Driver()
    driver.join("w", 1, grace_us=0)
    driver.submit(1)
    if started:
        driver.start(1)
    driver.pause_queue()
    end(driver)
    assert counters(driver) == (*expected, 1)


def test_a_task_that_costs_too_many_workers_is_dead() -> None:
    driver = Driver()
    driver.declare(crash_limit=3)
    driver.submit(1)
    for session in (1, 2, 3):
        assert driver.state(1) is State.READY
        driver.join(f"w{session}", session, grace_us=0)
        driver.start(1)
        driver.close(session)
    assert driver.state(1) is State.DEAD
    assert counters(driver) == (0, 3, 0, 3)


def test_the_word_of_a_worker_that_came_back_counts_for_what_it_kept() -> None:
    driver = Driver()
    driver.join("w", 1, slots=2)
    driver.submit(1)
    driver.submit(2)
    kept = Held(task_id(1), driver.fence(1))
    unknown = Held(task_id(9), 9)
    driver.close(1)
    answer = driver.join("w", 2, slots=0, holding=[kept, unknown])
    assert answer == Joined((kept,), (unknown,))
    assert driver.state(1) is State.ASSIGNED
    assert driver.state(2) is State.READY
    assert driver.finish(1) == Accepted(1)


def test_a_repeated_join_takes_nothing_away() -> None:
    driver = Driver()
    driver.join("w", 1)
    driver.submit(1)
    driver.join("w", 1)
    assert driver.records == []
    assert driver.fence(1) == 1


def test_verdicts_of_a_worker() -> None:
    driver = Driver()
    driver.join("w", 1)
    for number, verdict in enumerate(Verdict, start=1):
        driver.submit(number)
        driver.fail(number, verdict)
    assert [driver.state(number) for number in (1, 2, 3)] == [
        State.SCHEDULED,
        State.DEAD,
        State.DEAD,
    ]


def test_a_retry_by_a_person_gives_back_what_failures_took() -> None:
    driver = Driver()
    driver.declare(retries=1, retry_base_us=0, priority_drop=100)
    driver.join("w", 1)
    driver.submit(1, priority=150)
    driver.fail(1)
    driver.fail(1)
    task = driver.task(1)
    assert (task.state, task.priority, task.penalty) == (State.DEAD, 0, 150)
    driver.act(Action.RETRY, 1)
    task = driver.task(1)
    assert (task.priority, task.penalty, task.failures, task.avoid) == (150, 0, 0, "")


# Silence.


def test_a_silent_worker_is_given_up_after_its_lease_and_not_before() -> None:
    driver = Driver()
    driver.join("w", 1, lease_us=30 * SECOND)
    driver.submit(1)
    driver.tick(20 * SECOND)
    driver.send(Heartbeat(session=1))
    driver.tick(30 * SECOND - 1)
    assert driver.worker(1) == "w"
    driver.tick(1)
    assert driver.state(1) is State.READY
    assert LeaseLost() in driver.messages(1)


@EVERY_REPORT
def test_every_report_proves_life(report: Report) -> None:
    driver = Driver()
    driver.join("w", 1, lease_us=30 * SECOND, slots=0)
    driver.tick(20 * SECOND)
    command = report(task_id(1), 1)
    command.session = 1
    driver.send(command)
    driver.tick(20 * SECOND)
    assert ("default", "w") in driver.core.roster.workers


def test_time_in_which_the_broker_did_not_run_counts_against_nobody() -> None:
    driver = Driver()
    driver.join("w1", 1, lease_us=30 * SECOND)
    driver.join("w2", 2, lease_us=30 * SECOND)
    driver.close(2)
    driver.leap(3_600 * SECOND)
    assert len(driver.core.roster.workers) == 2
    driver.tick(30 * SECOND)
    assert not driver.core.roster.workers

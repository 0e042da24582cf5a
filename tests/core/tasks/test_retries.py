"""Retries: what becomes of a task whose attempt did not succeed, as a table."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackalope.core.commands import Verdict
from jackalope.core.durations import HOUR, MINUTE, SECOND
from jackalope.core.lifecycle import Reason, State
from jackalope.core.limits import RETRIES_ASKED_MAX
from jackalope.core.policy import OnLost, Policy
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.task import Attempt, Options, Retry, Signal, SignalRequest, Stage, Task
from jackalope.core.tasks.attempts import Decision, after_failure, after_interruption, after_loss
from tests.core.driving import NOW_US, Driver, task_id
from tests.profiles import examples

AGAIN = Decision(State.READY)
EXPIRED = Decision(State.DEAD, Reason.EXPIRED)
FAILED = Decision(State.DEAD, Reason.FAILED)


def due_in(wait_us: int) -> Decision:
    return Decision(State.SCHEDULED, None, NOW_US + wait_us)


def attempted(
    policy: Policy,
    *,
    state: State = State.RUNNING,
    failures: int = 0,
    crashes: int = 0,
    interruptions: int = 0,
    expires_us: int = 0,
    retry: Retry | None = None,
    signal: Signal | None = None,
    stage: Stage = Stage.REQUESTED,
    jitter: float | None = 0,
    number: int = 1,
) -> Task:
    """Return a task that a worker holds."""
    request = None if signal is None else SignalRequest(signal, "ada", NOW_US, stage)
    policy = policy if jitter is None else msgspec.structs.replace(policy, retry_jitter=jitter)
    return Task(
        task_id(number),
        Queue(Namespace("n"), "q", policy),
        "",
        "",
        150,
        b"",
        Options(retry=retry),
        state,
        "",
        NOW_US,
        1,
        failures=failures,
        crashes=crashes,
        interruptions=interruptions,
        expires_us=expires_us,
        attempt=Attempt(1, "w", NOW_US, NOW_US, request),
    )


def failed(task: Task, verdict: Verdict = Verdict.RETRY, retry_after_us: int = 0) -> Decision:
    return after_failure(task, NOW_US, verdict, retry_after_us)


# Jitter.


def waits_s(policy: Policy, **more: Any) -> list[float]:
    decisions = [
        failed(attempted(policy, number=number, jitter=None, **more)) for number in range(1, 101)
    ]
    return [(decision.due_us - NOW_US) / SECOND for decision in decisions]


def test_tasks_that_failed_together_are_not_tried_together() -> None:
    waits = waits_s(Policy())
    assert all(4 <= wait_s <= 5 for wait_s in waits)
    assert len(set(waits)) > 90
    assert min(waits) < 4.1
    assert max(waits) > 4.9
    assert waits == waits_s(Policy())  # The same on every node.


def test_jitter_shortens_the_longest_wait_and_that_of_a_tasks_own_settings_too() -> None:
    assert all(2880 <= wait_s <= 3600 for wait_s in waits_s(Policy(retries=100), failures=50))
    own = Retry(retries=3, base_us=10 * SECOND, factor=1.0, cap_us=HOUR)
    assert all(8 <= wait_s <= 10 for wait_s in waits_s(Policy(), retry=own))


def test_jitter_by_policy() -> None:
    assert set(waits_s(Policy(retry_jitter=0))) == {5.0}
    waits = waits_s(Policy(retry_jitter=1))
    assert all(0 <= wait_s <= 5 for wait_s in waits)
    assert min(waits) < 0.5


# Backoff.


@pytest.mark.parametrize(
    ("failures", "wait_s"),
    list(enumerate([5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600])),
)
def test_backoff_by_default(failures: int, wait_s: int) -> None:
    task = attempted(Policy(retries=100), failures=failures)
    assert failed(task) == due_in(wait_s * SECOND)


@pytest.mark.parametrize(
    ("retry", "waits_us"),
    [
        (Retry(9, 0, 2.0, HOUR), [0, 0, 0]),
        (Retry(9, SECOND, 1.0, HOUR), [SECOND, SECOND, SECOND]),
        (Retry(9, 10, 1.5, HOUR), [10, 15, 22, 33]),
        (Retry(9, 7, 3.0, 20), [7, 20, 20]),
        (Retry(9, HOUR, 2.0, MINUTE), [MINUTE, MINUTE]),
        (Retry(9, SECOND, 2.0, 0), [0, 0]),
    ],
)
def test_backoff_of_a_task_of_its_own(retry: Retry, waits_us: list[int]) -> None:
    for failures, wait_us in enumerate(waits_us):
        task = attempted(Policy(), failures=failures, retry=retry)
        assert failed(task) == (due_in(wait_us) if wait_us else AGAIN)


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.05, 2.0, 34.7, 50.0, 100.0])
@pytest.mark.parametrize("failures", [0, 154, 155, 199, 200, 1_000, 10**6, 2**62])
def test_backoff_does_not_overflow(factor: float, failures: int) -> None:
    policy = Policy(
        retries=2**62 + 1, retry_base_us=SECOND, retry_factor=factor, retry_cap_us=2**62
    )
    decision = failed(attempted(policy, failures=failures))
    assert decision.to is State.SCHEDULED
    assert NOW_US < decision.due_us <= NOW_US + 2**62


@settings(max_examples=examples(200))
@given(
    base_us=st.integers(0, HOUR),
    factor=st.floats(1.0, 100.0),
    cap_us=st.integers(0, 24 * HOUR),
    failures=st.integers(0, 60),
)
def test_backoff_is_what_the_formula_says(
    base_us: int, factor: float, cap_us: int, failures: int
) -> None:
    task = attempted(Policy(), failures=failures, retry=Retry(100, base_us, factor, cap_us))
    exact = min(base_us * Fraction(factor) ** failures, Fraction(cap_us))
    decision = failed(task)
    wait_us = decision.due_us - NOW_US if decision.to is State.SCHEDULED else 0
    assert abs(wait_us - exact) <= 1 + exact / 10**9


def test_a_worker_may_name_the_wait_itself() -> None:
    task = attempted(Policy())
    assert failed(task, retry_after_us=7) == due_in(7)
    assert failed(task, retry_after_us=9 * HOUR) == due_in(9 * HOUR)
    assert failed(task, retry_after_us=-7) == due_in(5 * SECOND)


def test_a_worker_that_says_when_is_obeyed_without_retries_of_the_policy() -> None:
    """At the limit, and one past it; other failures, and a task's own settings, as they are."""
    none = Policy(retries=0)
    last = attempted(none, failures=RETRIES_ASKED_MAX - 1)
    assert failed(last, retry_after_us=7) == due_in(7)
    assert failed(attempted(none, failures=RETRIES_ASKED_MAX), retry_after_us=7) == FAILED
    assert failed(attempted(none)) == FAILED
    assert failed(attempted(none), Verdict.DEAD, retry_after_us=7) == FAILED
    assert failed(attempted(none, retry=Retry(0, 1, 1.0, 1)), retry_after_us=7) == FAILED
    assert failed(attempted(Policy(retries=1), failures=1), retry_after_us=7) == FAILED


# Failures.


def test_as_many_retries_as_allowed() -> None:
    for failures, expected in enumerate([State.SCHEDULED, State.SCHEDULED, State.DEAD]):
        assert failed(attempted(Policy(retries=2), failures=failures)).to is expected
    assert failed(attempted(Policy(retries=0))) == FAILED


def test_retries_of_a_task_of_its_own_count_instead() -> None:
    own = Retry(1, 0, 2.0, 0)
    assert failed(attempted(Policy(retries=0), retry=own)) == AGAIN
    assert failed(attempted(Policy(retries=9), retry=own, failures=1)) == FAILED


def test_verdicts() -> None:
    task = attempted(Policy(retries=9))
    assert failed(task, Verdict.DEAD) == FAILED
    assert failed(task, Verdict.REJECT) == Decision(State.DEAD, Reason.REJECTED)
    assert failed(task, Verdict.RETRY).to is State.SCHEDULED


# Losses and interruptions.


@pytest.mark.parametrize(
    ("on_lost", "expected"),
    [
        (OnLost.REQUEUE, AGAIN),
        (OnLost.PAUSE, Decision(State.PAUSED)),
        (OnLost.DEAD, Decision(State.DEAD, Reason.CRASHED)),
    ],
)
def test_loss_while_running_goes_by_the_policy(on_lost: OnLost, expected: Decision) -> None:
    assert after_loss(attempted(Policy(on_lost=on_lost)), NOW_US) == expected


@pytest.mark.parametrize("on_lost", OnLost)
def test_loss_before_it_began_is_an_interruption(on_lost: OnLost) -> None:
    policy = Policy(on_lost=on_lost, crash_limit=1)
    assert after_loss(attempted(policy, state=State.ASSIGNED), NOW_US) == AGAIN


@pytest.mark.parametrize(
    ("limit", "crashes", "is_dead"),
    [(0, 10**6, False), (1, 0, True), (3, 1, False), (3, 2, True), (3, 3, True)],
)
def test_a_task_that_costs_too_many_workers_is_dead(
    limit: int, crashes: int, is_dead: bool
) -> None:
    task = attempted(Policy(crash_limit=limit), crashes=crashes)
    expected = Decision(State.DEAD, Reason.CRASHED) if is_dead else AGAIN
    assert after_loss(task, NOW_US) == expected


@pytest.mark.parametrize(
    ("limit", "interruptions", "is_dead"),
    [(0, 10**6, False), (1, 0, True), (3, 1, False), (3, 2, True), (3, 3, True)],
)
def test_a_task_interrupted_too_often_is_dead(
    limit: int, interruptions: int, is_dead: bool
) -> None:
    task = attempted(Policy(interruption_limit=limit), interruptions=interruptions)
    expected = Decision(State.DEAD, Reason.INTERRUPTED) if is_dead else AGAIN
    assert after_interruption(task, NOW_US) == expected


def test_a_task_that_was_handed_back_for_a_while_waits() -> None:
    waiting = Decision(State.SCHEDULED, None, NOW_US + 5)
    assert after_interruption(attempted(Policy()), NOW_US, 5) == waiting
    assert after_interruption(attempted(STRICT), NOW_US, 5).to is State.DEAD
    killed = attempted(Policy(), signal=Signal.KILL)
    assert after_interruption(killed, NOW_US, 5) == Decision(State.KILLED)


def test_the_three_counters_do_not_mix() -> None:
    many = 10**6
    policy = Policy(retries=3, crash_limit=3, interruption_limit=3)
    assert failed(attempted(policy, crashes=many, interruptions=many)).to is State.SCHEDULED
    assert after_loss(attempted(policy, failures=many, interruptions=many), NOW_US) == AGAIN
    assert after_interruption(attempted(policy, failures=many, crashes=many), NOW_US) == AGAIN


# What was asked of the task, and its time.


STRICT = Policy(retries=0, crash_limit=1, interruption_limit=1)


@pytest.mark.parametrize("policy", [Policy(), STRICT])
def test_a_kill_that_was_asked_for_comes_first(policy: Policy) -> None:
    task, killed = attempted(policy, signal=Signal.KILL), Decision(State.KILLED)
    assert failed(task) == killed
    assert failed(task, Verdict.DEAD) == killed
    assert after_loss(task, NOW_US) == killed
    assert after_interruption(task, NOW_US) == killed


def test_a_pause_that_was_asked_for_takes_the_place_of_another_try() -> None:
    task, paused = attempted(Policy(), signal=Signal.PAUSE), Decision(State.PAUSED)
    assert failed(task) == paused
    assert after_loss(task, NOW_US) == paused
    assert after_interruption(task, NOW_US) == paused
    assert failed(task, Verdict.DEAD) == FAILED
    assert failed(attempted(STRICT, signal=Signal.PAUSE)) == FAILED


@pytest.mark.parametrize("signal", [Signal.KILL, Signal.PAUSE])
def test_what_the_worker_refused_counts_no_more(signal: Signal) -> None:
    task = attempted(Policy(retry_base_us=0), signal=signal, stage=Stage.REFUSED)
    assert failed(task) == AGAIN
    assert after_loss(task, NOW_US) == AGAIN
    assert after_interruption(task, NOW_US) == AGAIN


def test_a_timeout_is_a_failure_like_others() -> None:
    task = attempted(Policy(), signal=Signal.TIMEOUT)
    assert failed(task) == due_in(5 * SECOND)
    assert after_loss(task, NOW_US) == AGAIN


@pytest.mark.parametrize(
    ("expires_us", "is_expired"),
    [(0, False), (NOW_US - 1, True), (NOW_US, True), (NOW_US + 1, False)],
)
def test_what_has_expired_before_it_began_is_not_tried_again(
    expires_us: int, is_expired: bool
) -> None:
    task = attempted(Policy(), state=State.ASSIGNED, expires_us=expires_us)
    expected = EXPIRED if is_expired else AGAIN
    assert after_loss(task, NOW_US) == expected
    assert after_interruption(task, NOW_US) == expected


# In the core.


def test_a_task_goes_through_all_its_retries() -> None:
    driver = Driver()
    driver.declare(retries=3, priority_drop=100, retry_jitter=0)
    driver.join("w", 1)
    driver.submit(1, priority=250)
    waits_us = []
    for _ in range(3):
        driver.fail(1)
        waits_us.append(driver.task(1).due_us - driver.now_us)
        driver.tick(waits_us[-1])
        assert driver.state(1) is State.ASSIGNED
    driver.fail(1)
    assert waits_us == [5 * SECOND, 10 * SECOND, 20 * SECOND]
    task = driver.task(1)
    assert (task.state, task.failures) == (State.DEAD, 4)
    assert (task.priority, task.penalty) == (0, 250)
    assert task.outcome is not None
    assert task.outcome.reason is Reason.FAILED


def test_a_thousand_failures_do_no_harm() -> None:
    driver = Driver()
    driver.declare(retries=1_000, retry_factor=100.0, retry_base_us=1)
    driver.join("w", 1)
    driver.submit(1)
    for failures in range(1, 1_001):
        driver.fail(1)
        assert driver.task(1).failures == failures
        driver.tick(driver.task(1).due_us - driver.now_us)
    driver.fail(1)
    assert driver.state(1) is State.DEAD

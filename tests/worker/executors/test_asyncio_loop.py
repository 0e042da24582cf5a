"""Coroutines on a loop of their own."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jackalope.core.commands import Verdict
from jackalope.worker.attempt import Cause, Failed, Finished, Stopped
from jackalope.worker.executors.asyncio_loop import LoopExecutor
from tests.worker.executors.stage import Ear, attempt_at, until


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def executor() -> Iterator[LoopExecutor]:
    executor = LoopExecutor()
    executor.start()
    yield executor
    executor.close()
    executor.join(5)


def value(outcome: object) -> object:
    assert isinstance(outcome, Finished)
    return msgspec.msgpack.decode(outcome.result)


def test_runs_many_that_never_wait(executor: LoopExecutor, ear: Ear) -> None:
    executor.run([attempt_at(ear, "add", n, 1) for n in range(1000)])
    assert [value(ear.next()) for _ in range(1000)] == [n + 1 for n in range(1000)]


def test_runs_many_that_wait(executor: LoopExecutor, ear: Ear) -> None:
    executor.run([attempt_at(ear, "add_later", n, 1) for n in range(1000)])
    assert sorted(str(value(ear.next())) for _ in range(1000)) == sorted(map(str, range(1, 1001)))


def test_one_that_waits_does_not_hold_up_others(executor: LoopExecutor, ear: Ear) -> None:
    waiting = attempt_at(ear, "wait_for_ever")
    executor.run([waiting, attempt_at(ear, "add", 1, 2)])
    assert value(ear.next()) == 3
    executor.run([attempt_at(ear, "add", 3, 4)])
    assert value(ear.next()) == 7
    assert ear.next_or_none() is None


def test_knows_its_context(executor: LoopExecutor, ear: Ear) -> None:
    attempt = attempt_at(ear, "who")
    executor.run([attempt])
    assert value(ear.next()) == [
        attempt.assignment.task,
        1,
        attempt.assignment.fence,
        "who",
        "default",
        False,
    ]


def test_failure_has_type_message_and_trace(executor: LoopExecutor, ear: Ear) -> None:
    executor.run([attempt_at(ear, "fail", "no such cat")])
    outcome = ear.next()
    assert isinstance(outcome, Failed)
    assert (outcome.error.type, outcome.error.message) == ("ValueError", "no such cat")
    assert "in fail" in outcome.error.trace
    assert "application.py" in outcome.error.trace.splitlines()[1]
    assert outcome.verdict is Verdict.RETRY


def test_verdicts_of_the_task(executor: LoopExecutor, ear: Ear) -> None:
    executor.run([attempt_at(ear, "retry_later", 1.5), attempt_at(ear, "reject")])
    later, never = ear.next(), ear.next()
    assert isinstance(later, Failed)
    assert (later.verdict, later.retry_after_us) == (Verdict.RETRY, 1_500_000)
    assert isinstance(never, Failed)
    assert never.verdict is Verdict.REJECT


def test_result_without_encoding_is_a_failure_that_says_so(
    executor: LoopExecutor, ear: Ear
) -> None:
    executor.run([attempt_at(ear, "return_object")])
    outcome = ear.next()
    assert isinstance(outcome, Failed)
    assert outcome.verdict is Verdict.DEAD
    assert "result of return_object" in outcome.error.message


def test_wrong_arguments_are_rejected(executor: LoopExecutor, ear: Ear) -> None:
    attempt = attempt_at(ear, "add", 1, 2)
    attempt.assignment = msgspec.structs.replace(
        attempt.assignment, payload=msgspec.msgpack.encode([["one", 2], {}])
    )
    executor.run([attempt])
    outcome = ear.next()
    assert isinstance(outcome, Failed)
    assert outcome.verdict is Verdict.REJECT
    assert "'left'" in outcome.error.message


def test_stops_one_that_waits(executor: LoopExecutor, ear: Ear, tmp_path: Path) -> None:
    attempt = attempt_at(ear, "wait_for_ever", str(tmp_path / "begun"))
    executor.run([attempt])
    until((tmp_path / "begun").exists)
    attempt.cause = Cause.KILL
    assert executor.stop(attempt, 0) == ""
    assert isinstance(ear.next(), Stopped)
    assert ear.told == [attempt]


def test_stops_one_that_has_not_begun(executor: LoopExecutor, ear: Ear) -> None:
    attempt = attempt_at(ear, "wait_for_ever")
    attempt.cause = Cause.KILL
    executor.stop(attempt, 0)
    executor.run([attempt])
    assert isinstance(ear.next(), Stopped)


def test_says_that_a_stubborn_one_goes_on(executor: LoopExecutor, ear: Ear, tmp_path: Path) -> None:
    attempt = attempt_at(ear, "stubborn", str(tmp_path / "release"))
    executor.run([attempt])
    until(lambda: attempt.handle and attempt.handle.task)
    attempt.cause = Cause.KILL
    executor.stop(attempt, 0)
    executor.stop(attempt, 1)
    assert "still running" in executor.stop(attempt, 2)
    (tmp_path / "release").touch()
    assert value(ear.next()) == "at last"


def test_says_that_a_blocked_loop_cannot_be_reached(
    executor: LoopExecutor, ear: Ear, tmp_path: Path
) -> None:
    attempt = attempt_at(ear, "block_loop", str(tmp_path / "release"), str(tmp_path / "begun"))
    executor.run([attempt])
    until((tmp_path / "begun").exists)
    attempt.cause = Cause.KILL
    executor.stop(attempt, 0)
    until(lambda: "blocked" in executor.stop(attempt, 2))
    assert ear.told == []
    assert "block_loop" in executor.stack()
    (tmp_path / "release").touch()
    assert value(ear.next()) == "free"


def test_soft_timeout_can_be_caught(executor: LoopExecutor, ear: Ear) -> None:
    attempt = attempt_at(ear, "soft")
    executor.run([attempt])
    until(lambda: attempt.handle and attempt.handle.task)
    executor.time_out_softly(attempt)
    assert value(ear.next()) == "cleaned up"


def test_contexts_of_tasks_are_apart(executor: LoopExecutor, ear: Ear) -> None:
    attempts = [attempt_at(ear, "who") for _ in range(50)]
    executor.run(attempts)
    seen = {value(ear.next())[2] for _ in attempts}  # type: ignore[index]
    assert seen == {attempt.assignment.fence for attempt in attempts}

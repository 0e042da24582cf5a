"""Blocking functions in threads."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from jackalope.worker.attempt import Cause, Finished, Stopped
from jackalope.worker.executors.threads import ThreadExecutor
from tests.worker.executors.stage import Ear, attempt_at, until


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def executor() -> Iterator[ThreadExecutor]:
    executor = ThreadExecutor()
    yield executor
    executor.close()


def value(outcome: object) -> object:
    assert isinstance(outcome, Finished)
    return msgspec.msgpack.decode(outcome.result)


def test_runs_functions(executor: ThreadExecutor, ear: Ear) -> None:
    executor.run([attempt_at(ear, "multiply", n, 2) for n in range(20)])
    assert sorted(int(str(value(ear.next()))) for _ in range(20)) == list(range(0, 40, 2))


def test_runs_coroutines_that_ask_for_a_thread(executor: ThreadExecutor, ear: Ear) -> None:
    executor.run([attempt_at(ear, "add_in_thread", 2, 3)])
    assert value(ear.next()) == 5


def test_uses_threads_again(executor: ThreadExecutor, ear: Ear) -> None:
    for n in range(10):
        executor.run([attempt_at(ear, "multiply", n, 2)])
        assert value(ear.next()) == n * 2
    assert executor.threads == 1


def test_one_that_looks_stops(executor: ThreadExecutor, ear: Ear, tmp_path: Path) -> None:
    attempt = attempt_at(ear, "heed", str(tmp_path / "begun"))
    executor.run([attempt])
    until((tmp_path / "begun").exists)
    attempt.cause = Cause.KILL
    assert executor.stop(attempt, 0) == ""
    assert isinstance(ear.next(), Stopped)
    assert ear.told == [attempt]


def test_one_that_runs_python_is_made_to_stop(executor: ThreadExecutor, ear: Ear) -> None:
    attempt = attempt_at(ear, "loop_in_python")
    executor.run([attempt])
    until(lambda: attempt.handle)
    attempt.cause = Cause.TIMEOUT
    assert executor.stop(attempt, 1) == ""
    assert isinstance(ear.next(), Stopped)


def test_one_that_ignores_all_that_goes_on_and_this_is_said(
    executor: ThreadExecutor, ear: Ear, tmp_path: Path
) -> None:
    attempt = attempt_at(ear, "sleep_in_c", str(tmp_path / "release"), str(tmp_path / "begun"))
    executor.run([attempt])
    until((tmp_path / "begun").exists)
    attempt.cause = Cause.KILL
    executor.stop(attempt, 0)
    executor.stop(attempt, 1)
    assert "isolation='process'" in executor.stop(attempt, 2)
    (tmp_path / "release").touch()
    assert value(ear.next()) == "done"


def test_interruption_that_comes_too_late_hits_nobody(executor: ThreadExecutor, ear: Ear) -> None:
    """A thread goes on to the next task; what was meant for the one before must not reach it."""
    for n in range(300):
        attempt = attempt_at(ear, "multiply", n, 2)
        attempt.cause = None
        executor.run([attempt])
        until(partial(getattr, attempt, "handle"))
        attempt.cause = Cause.KILL
        executor.stop(attempt, 1)
        ear.next()
        executor.run([attempt_at(ear, "multiply", n, 3)])
        assert value(ear.next()) == n * 3


def test_soft_timeout_can_be_caught(executor: ThreadExecutor, ear: Ear) -> None:
    attempt = attempt_at(ear, "soft_in_thread")
    executor.run([attempt])
    until(lambda: attempt.handle)
    executor.time_out_softly(attempt)
    assert value(ear.next()) == "cleaned up"


def test_a_tracer_gets_through_after_threads_ran_and_were_stopped() -> None:
    """An interpreter left looking for an exception hangs under a tracer: in a process apart."""
    script = """
import sys
from jackalope.worker.attempt import Cause
from jackalope.worker.executors.threads import ThreadExecutor
from tests.worker.executors.stage import Ear, attempt_at, until

ear, executor = Ear(), ThreadExecutor()
for n in range(300):
    attempt = attempt_at(ear, "multiply", n, 2)
    executor.run([attempt])
    if n % 2:
        until(lambda: attempt.handle)
        attempt.cause = Cause.KILL
        executor.stop(attempt, 1)
    ear.next()
sys.settrace(lambda *_: None)
print((lambda: "through")())
"""
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "through\n"

"""Isolated functions in processes that can really be stopped."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jackalope.core.commands import RecordStep, Suspend
from jackalope.errors import Rejected
from jackalope.transport.connection import new_event_loop
from jackalope.worker.attempt import Attempt, Cause, Failed, Finished, Outcome, StepRefused, Stopped
from jackalope.worker.context import Cancelled
from jackalope.worker.executors.processes import ProcessExecutor, Recycling
from tests.worker.executors.stage import WAIT_S, Ear, attempt_at, children_of, pids

APPLICATION = "tests.worker.application:app"
MIB = 1024 * 1024


class Stand:
    """An executor and what it says."""

    def __init__(self, **settings: Any) -> None:
        self.executor = ProcessExecutor(settings.pop("application", APPLICATION), **settings)
        self.ear = Ear()

    def begin(self, name: str, *args: Any, **kwargs: Any) -> Attempt:
        attempt = attempt_at(self.ear, name, *args, **kwargs)
        self.executor.run([attempt])
        return attempt

    async def reach(self, mark: Path, name: str, *args: Any) -> Attempt:
        """Begin an attempt, and return when it has reached its mark."""
        attempt = self.begin(name, str(mark), *args)
        await until(lambda: pids(mark))
        return attempt

    async def end(self) -> Outcome:
        async with asyncio.timeout(WAIT_S):
            while (outcome := self.ear.next_or_none()) is None:  # noqa: ASYNC110  from a thread
                await asyncio.sleep(0.005)
        return outcome

    async def value(self, name: str, *args: Any) -> Any:
        self.begin(name, *args)
        outcome = await self.end()
        assert isinstance(outcome, Finished), outcome
        return msgspec.msgpack.decode(outcome.result) if outcome.result else None

    async def failure(self, name: str, *args: Any) -> Failed:
        self.begin(name, *args)
        outcome = await self.end()
        assert isinstance(outcome, Failed), outcome
        return outcome


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110  another process brings it about
            await asyncio.sleep(0.005)


def on_stand(story: Callable[[Stand], Awaitable[None]], **settings: Any) -> None:
    async def play() -> None:
        stand = Stand(**settings)
        try:
            await story(stand)
        finally:
            await stand.executor.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(play())


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def cpu_ticks(pid: int) -> int:
    """Return how long a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_runs_in_another_process_that_is_used_again() -> None:
    async def story(stand: Stand) -> None:
        first = await stand.value("pid")
        assert first != os.getpid()
        assert await stand.value("pid") == first
        assert await stand.value("isolated_add", 1, 2) == 3
        assert stand.executor.processes() == [first]

    on_stand(story)


def test_failure_and_progress_come_through() -> None:
    async def story(stand: Stand) -> None:
        failed = await stand.failure("isolated_fail", "cat")
        assert failed.error.type == "KeyError"
        assert "isolated_fail" in failed.error.trace
        assert "application.py" in failed.error.trace.splitlines()[1]
        attempt = stand.begin("isolated_report")
        await until(lambda: (50, "at 50") in stand.ear.progress)
        assert len(stand.ear.progress) < 50
        attempt.cause = Cause.KILL
        stand.executor.stop(attempt, 0)
        assert isinstance(await stand.end(), Stopped)

    on_stand(story)


def test_process_of_its_own_for_each_at_once(tmp_path: Path) -> None:
    async def story(stand: Stand) -> None:
        begun = tmp_path / "begun"
        attempts = [stand.begin("isolated_wait", str(begun)) for _ in range(2)]
        await until(lambda: len(set(pids(begun))) == 2)
        for attempt in attempts:
            attempt.cause = Cause.DRAIN
            stand.executor.stop(attempt, 0)
            assert isinstance(await stand.end(), Stopped)

    on_stand(story)


def test_asked_to_stop_it_cleans_up_and_another_process_goes_on(tmp_path: Path) -> None:
    async def story(stand: Stand) -> None:
        begun, cleaned = tmp_path / "begun", tmp_path / "cleaned"
        attempt = await stand.reach(begun, "isolated_wait", str(cleaned))
        attempt.cause = Cause.KILL
        assert stand.executor.stop(attempt, 0) == ""
        assert isinstance(await stand.end(), Stopped)
        assert cleaned.exists()
        assert stand.ear.told == [attempt]
        assert await stand.value("pid") != pids(begun)[0]

    on_stand(story)


def test_coroutine_is_cancelled(tmp_path: Path) -> None:
    async def story(stand: Stand) -> None:
        begun = tmp_path / "begun"
        attempt = await stand.reach(begun, "isolated_wait_async")
        attempt.cause = Cause.KILL
        stand.executor.stop(attempt, 0)
        assert isinstance(await stand.end(), Stopped)
        assert stand.ear.told == [attempt]

    on_stand(story)


def test_code_in_c_is_killed_and_shows_where_it_was(tmp_path: Path) -> None:
    async def story(stand: Stand) -> None:
        begun = tmp_path / "begun"
        attempt = await stand.reach(begun, "compute_in_c")
        [pid] = pids(begun)
        marked = cpu_ticks(pid)
        await until(lambda: cpu_ticks(pid) > marked + 2)  # It is in C by now, past the mark.
        attempt.cause = Cause.TIMEOUT
        assert stand.executor.stop(attempt, 0) == ""
        assert stand.executor.stop(attempt, 1) == ""
        outcome = await stand.end()
        assert isinstance(outcome, Stopped)
        assert stand.ear.told == []  # Code in C cannot have seen it.
        assert outcome.detail.startswith("forced: ")
        assert "9 (SIGKILL)" in outcome.detail
        assert "compute_in_c" in outcome.trace
        assert not is_there(pid)
        assert await stand.value("isolated_add", 1, 2) == 3

    on_stand(story)


def test_end_just_before_the_kill_spares_the_next_task(tmp_path: Path) -> None:
    async def story(stand: Stand) -> None:
        begun = tmp_path / "begun"
        attempt = await stand.reach(begun, "isolated_wait")
        attempt.cause = Cause.KILL
        stand.executor.stop(attempt, 0)
        stand.executor.stop(attempt, 1)
        assert isinstance(await stand.end(), Stopped)
        stand.begin("isolated_nap", 1.5)  # Longer than the stack may take to be written.
        assert isinstance(await stand.end(), Finished)

    on_stand(story)


def test_kill_takes_along_what_the_task_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stand: Stand) -> None:
        begun = tmp_path / "begun"
        monkeypatch.setenv("JACKALOPE_TEST_MARK", str(begun))
        attempt = stand.begin("start_another")
        await until(lambda: pids(begun))
        parent = pids(begun)[0]
        children = children_of(parent)
        assert len(children) == 1
        attempt.cause = Cause.KILL
        stand.executor.stop(attempt, 1)
        assert isinstance(await stand.end(), Stopped)
        await until(lambda: not is_there(children[0]))

    on_stand(story)


def test_what_it_started_ends_with_a_task_that_obeys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stand: Stand) -> None:
        begun = tmp_path / "begun"
        monkeypatch.setenv("JACKALOPE_TEST_MARK", str(begun))
        attempt = stand.begin("start_another")
        await until(lambda: pids(begun))
        [child] = children_of(pids(begun)[0])
        attempt.cause = Cause.KILL
        stand.executor.stop(attempt, 0)
        outcome = await stand.end()
        assert isinstance(outcome, Stopped)
        assert not outcome.detail.startswith("forced")
        await until(lambda: not is_there(child))

    on_stand(story)


def test_crash_says_what_it_used_and_wrote(capfd: pytest.CaptureFixture[str]) -> None:
    async def story(stand: Stand) -> None:
        failed = await stand.failure("write_and_abort", "a last word")
        assert failed.crashed
        assert re.search(r"; peak memory [1-9]\d* MiB, CPU [\d.]+ s$", failed.error.message)
        assert failed.error.trace.endswith("The last lines that it wrote:\nout a last word")
        assert "write_and_abort" in failed.error.trace

    on_stand(story)
    assert "a last word" in capfd.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_end_by_signal_is_told(number: signal.Signals) -> None:
    async def story(stand: Stand) -> None:
        failed = await stand.failure("end_by_signal", int(number))
        assert failed.error.type == "Crashed"
        assert number.name in failed.error.message
        if number is not signal.SIGKILL:
            assert "end_by_signal" in failed.error.trace
        assert await stand.value("isolated_add", 1, 2) == 3

    on_stand(story)


def test_end_by_exit_code_is_told() -> None:
    async def story(stand: Stand) -> None:
        failed = await stand.failure("end_by_exit", 7)
        assert (failed.error.type, failed.crashed) == ("Crashed", True)
        assert "code 7" in failed.error.message

    on_stand(story)


def test_kill_from_outside_is_told(tmp_path: Path) -> None:
    async def story(stand: Stand) -> None:
        begun = tmp_path / "begun"
        stand.begin("isolated_wait", str(begun))
        await until(lambda: pids(begun))
        os.kill(pids(begun)[0], signal.SIGKILL)
        outcome = await stand.end()
        assert isinstance(outcome, Failed)
        assert "SIGKILL" in outcome.error.message

    on_stand(story)


def test_memory_cap_of_the_task() -> None:
    async def story(stand: Stand) -> None:
        assert await stand.value("eat", MIB) == MIB
        before = await stand.value("pid")
        failed = await stand.failure("eat", 400 * MIB)
        assert failed.error.type == "OutOfMemory"
        assert str(256 * MIB) in failed.error.message
        assert await stand.value("pid") != before

    on_stand(story)


def test_memory_cap_of_the_worker_is_for_tasks_without_their_own() -> None:
    async def story(stand: Stand) -> None:
        assert (await stand.failure("keep", 300 * MIB)).error.type == "OutOfMemory"
        assert await stand.value("eat", 150 * MIB) == 150 * MIB

    on_stand(story, memory_bytes_max=128 * MIB)


def test_recycled_by_count() -> None:
    async def story(stand: Stand) -> None:
        pids = [await stand.value("pid") for _ in range(4)]
        assert pids[0] == pids[1] != pids[2] == pids[3]
        await until(lambda: not is_there(pids[0]))

    on_stand(story, recycling=Recycling(tasks=2))


def test_recycled_by_age() -> None:
    async def story(stand: Stand) -> None:
        first = await stand.value("pid")
        assert await stand.value("pid") != first

    on_stand(story, recycling=Recycling(age_s=0.001))


def test_recycled_by_size() -> None:
    async def story(stand: Stand) -> None:
        small = await stand.value("keep", 1)
        grown = await stand.value("keep", 100 * MIB)
        assert grown == small
        assert await stand.value("keep", 1) != small

    on_stand(story, recycling=Recycling(rss_bytes=120 * MIB))


def test_soft_timeout_can_be_caught() -> None:
    async def story(stand: Stand) -> None:
        assert await stand.value("isolated_soft") == "cleaned up"

    on_stand(story)


def test_application_that_cannot_be_imported_is_told() -> None:
    async def story(stand: Stand) -> None:
        failed = await stand.failure("pid")
        assert "no_such_module" in failed.error.message

    on_stand(story, application="no_such_module:app")


def test_processes_end_with_the_executor(tmp_path: Path) -> None:
    pids = []

    async def story(stand: Stand) -> None:
        pids.append(await stand.value("pid"))

    on_stand(story)
    assert not is_there(pids[0])


# The log.


@pytest.mark.parametrize("end", [False, True], ids=["and go on", "and are killed"])
def test_lines_of_the_process_look_like_those_of_the_worker(
    capfd: pytest.CaptureFixture[str], end: bool
) -> None:
    async def story(stand: Stand) -> None:
        attempt = stand.begin("isolated_log", end)
        assert isinstance(await stand.end(), Failed if end else Finished)
        shown.append(attempt.shown)

    shown: list[str] = []
    on_stand(story, log="info json")
    library, own = map(json.loads, capfd.readouterr().err.splitlines())
    assert (library["level"], library["message"]) == ("warn", "few cats left")
    assert (library["component"], library["task_id"]) == ("shop", shown[0])
    assert (own["level"], own["message"], own["tiles"]) == ("info", "painted", 3)
    assert (own["task_id"], own["name"], own["attempt"]) == (shown[0], "isolated_log", 1)


def test_log_on_the_console(capfd: pytest.CaptureFixture[str]) -> None:
    async def story(stand: Stand) -> None:
        await stand.value("isolated_log", False)

    on_stand(story, log="warn console")
    (line,) = capfd.readouterr().err.splitlines()
    assert "few cats left" in line
    assert "task_id=" in line


def test_log_costs_nothing_before_it_is_used() -> None:
    async def story(stand: Stand) -> None:
        assert await stand.value("isolated_modules") == []
        await stand.value("isolated_log", False)
        assert await stand.value("isolated_modules") == ["structlog", "jackalope.log_setup"]

    on_stand(story, log="info json")


def test_last_progress_comes_before_the_end() -> None:
    async def story(stand: Stand) -> None:
        for _ in range(5):
            stand.ear.progress.clear()
            assert await stand.value("isolated_progress") == "done"
            assert stand.ear.progress[-1] == (100.0, "last")

    on_stand(story)


# Questions about steps.


async def question(stand: Stand, number: int = 0) -> tuple[RecordStep | Suspend, Future[Any]]:
    await until(lambda: len(stand.ear.questions) > number)
    return stand.ear.questions[number]


def test_a_task_is_stopped_while_it_waits_for_an_answer() -> None:
    async def story(stand: Stand) -> None:
        attempt = stand.begin("isolated_steps", 1, 1)
        _, answer = await question(stand)
        attempt.cause = Cause.KILL
        stand.executor.stop(attempt, 0)
        assert isinstance(await stand.end(), Stopped)
        answer.set_result({})  # Nobody waits for it any more.
        assert await stand.value("isolated_add", 1, 2) == 3

    on_stand(story)


def test_an_answer_that_comes_too_late_is_not_taken_for_another() -> None:
    async def story(stand: Stand) -> None:
        process = await stand.value("pid")
        stand.begin("isolated_impatient")
        _, late = await question(stand)
        outcome = await stand.end()
        assert isinstance(outcome, Finished)
        assert msgspec.msgpack.decode(outcome.result) == "too late"
        stand.begin("isolated_steps", 1, 7)
        message, answer = await question(stand, 1)
        late.set_exception(Cancelled())
        assert stand.ear.next_or_none() is None
        assert isinstance(message, RecordStep)
        answer.set_result({})
        outcome = await stand.end()
        assert isinstance(outcome, Finished)
        assert msgspec.msgpack.decode(outcome.result) == 7
        assert stand.executor.processes() == [process]

    on_stand(story)


@pytest.mark.parametrize(
    ("error", "type_"),
    [
        (Rejected("too_large", "no room for it", 5), "jackalope.errors.Rejected"),
        (StepRefused("not here"), "jackalope.StepRefused"),
    ],
)
def test_a_refusal_reaches_the_task(error: Exception, type_: str) -> None:
    async def story(stand: Stand) -> None:
        stand.begin("isolated_steps", 1, 1)
        _, answer = await question(stand)
        answer.set_exception(error)
        outcome = await stand.end()
        assert isinstance(outcome, Failed)
        assert (outcome.error.type, outcome.error.message) == (type_, str(error))

    on_stand(story)


def test_a_process_that_is_killed_waits_for_no_answer() -> None:
    async def story(stand: Stand) -> None:
        stand.begin("isolated_steps", 1, 1)
        _, answer = await question(stand)
        os.kill(stand.executor.processes()[0], signal.SIGKILL)
        outcome = await stand.end()
        assert isinstance(outcome, Failed)
        assert outcome.crashed
        answer.set_result({})
        assert await stand.value("isolated_add", 1, 2) == 3

    on_stand(story)

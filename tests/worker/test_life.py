"""Workers as real processes at a real broker: results, failures, signals, time-outs, the end."""

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from jackalope.core.commands import Action
from jackalope.core.lifecycle import Reason, State
from jackalope.core.task import Options
from tests.worker.executors.stage import pids
from tests.worker.harness import AT_ONCE, NO_RETRY, ROOT, House, in_house


@pytest.mark.feature("D20")
def test_results_of_every_kind(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker()
        many = await house.submit_many([("add", (n, 1)) for n in range(500)])
        thread = await house.submit("multiply", 6, 7)
        process = await house.submit("isolated_add", 1, 2)
        nothing = await house.submit("return_nothing")
        assert [await house.value(task) for task in many] == [n + 1 for n in range(500)]
        assert await house.value(thread) == 42
        assert await house.value(process) == 3
        assert await house.value(nothing) is None

    in_house(story, tmp_path)


@pytest.mark.feature("T36")
def test_a_thousand_coroutines_at_once_in_one_worker(tmp_path: Path) -> None:
    """None of them ends before all have begun."""

    async def story(house: House) -> None:
        house.worker(concurrency=1_000)
        for task in await house.submit_many([("meet", (1_000,))] * 1_000):
            assert (await house.end(task)).state is State.SUCCEEDED

    in_house(story, tmp_path)


def test_failures_say_what_happened(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker()
        once = Options(retry=NO_RETRY)
        failed = await house.end(await house.submit("fail", "no such cat", options=once))
        assert (failed.state, failed.reason) == (State.DEAD, Reason.FAILED)
        assert failed.error is not None
        assert (failed.error.type, failed.error.message) == ("ValueError", "no such cat")
        assert "in fail" in failed.error.trace

        rejected = await house.end(await house.submit("reject"))
        assert rejected.reason is Reason.REJECTED

        unsendable = (await house.end(await house.submit("return_object"))).error
        assert unsendable is not None
        assert "result of return_object" in unsendable.message

        assert len(await house.value(await house.submit("return_bytes", 3_000_000))) == 3_000_000

        # Its own process dies: a crash each time, until the limit.
        doomed = await house.submit("end_by_exit", 7, options=once)
        ended = await house.end(doomed)
        crashed, view = ended.error, await house.view(doomed)
        assert (ended.reason, view.crashes, view.failures) == (Reason.CRASHED, 5, 0)
        assert crashed is not None
        assert crashed.type == "Crashed"
        assert crashed.message.startswith("the process exited with code 7; peak memory ")

        again = await house.submit("fail", "thrice", options=Options(retry=AT_ONCE))
        assert (await house.end(again)).reason is Reason.FAILED
        assert (await house.view(again)).failures == 4

    in_house(story, tmp_path)


def test_context_and_progress(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker()
        task = await house.submit("who")
        told = await house.value(task)
        view = await house.view(task)
        assert told == [task, 1, told[2], "who", "default", False]
        assert view.state is State.SUCCEEDED

        busy = await house.submit("report", [10, 20, 30])

        async def has_come_far() -> bool:
            progress = (await house.view(busy)).progress
            return progress is not None and (progress.percent, progress.note) == (30, "at 30")

        await house.until(has_come_far)
        await house.act(Action.KILL, busy)
        assert (await house.end(busy)).state is State.KILLED

    in_house(story, tmp_path)


STOPPABLE = ("wait_for_ever", "heed", "isolated_wait", "compute_in_c")


@pytest.mark.feature("J21")
def test_kill_really_stops(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(stop_s=0.2)
        for name in STOPPABLE:
            begun = tmp_path / name
            task = await house.submit(name, str(begun))
            await house.until(partial(pids, begun))
            await house.act(Action.KILL, task)
            assert (await house.end(task)).state is State.KILLED
            told = [line.what for line in await house.history(task)]
            assert told[-1] == "stop", told
        assert await house.value(await house.submit("add", 1, 1)) == 2

    in_house(story, tmp_path / "data")


def test_kill_of_a_thread_that_does_not_listen_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(stop_s=0.1)
        begun, release = tmp_path / "begun", tmp_path / "release"
        task = await house.submit("sleep_in_c", str(release), str(begun))
        await house.until(lambda: pids(begun))
        await house.act(Action.KILL, task)

        async def is_refused() -> bool:
            return any("isolation='process'" in line.detail for line in await house.history(task))

        await house.until(is_refused)
        assert (await house.view(task)).state is State.RUNNING
        release.touch()
        assert await house.value(task) == "done"

    in_house(story, tmp_path / "data")


@pytest.mark.feature("T28")
def test_pause_stops_and_play_runs_again(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker()
        begun, release = tmp_path / "begun", tmp_path / "release"
        task = await house.submit("wait_for_file", str(release), str(begun))
        await house.until(lambda: pids(begun))
        await house.act(Action.PAUSE, task)
        await house.state_is(task, State.PAUSED)
        release.touch()
        await house.act(Action.PLAY, task)
        assert await house.value(task) == "seen"
        assert len(pids(begun)) == 2

    in_house(story, tmp_path / "data")


@pytest.mark.feature("D19")
def test_timeouts(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(stop_s=0.2)
        options = Options(retry=NO_RETRY, timeout_us=500_000)
        tasks = {name: await house.submit(name, options=options) for name in STOPPABLE}
        for name, task in tasks.items():
            ended = await house.end(task)
            assert (ended.state, ended.reason) == (State.DEAD, Reason.FAILED)
            assert ended.error is not None
            assert ended.error.type == "Timeout"
            assert "0.5 s" in ended.error.message
            assert ("compute_in_c" in ended.error.trace) == (name == "compute_in_c")
        for name in ("soft", "soft_in_thread", "isolated_soft"):
            assert await house.value(await house.submit(name)) == "cleaned up"

    in_house(story, tmp_path)


# The end of a worker.


def test_drain_finishes_what_runs_and_hands_back_what_has_not_begun(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        worker = house.worker(concurrency=1, prefetch=5, name="first")
        begun, release = tmp_path / "begun", tmp_path / "release"
        running = await house.submit("wait_for_file", str(release), str(begun))
        await house.until(lambda: pids(begun))
        waiting = await house.submit("add", 1, 1)
        await house.state_is(waiting, State.ASSIGNED)
        worker.send_signal(signal.SIGTERM)
        await house.state_is(waiting, State.READY)
        later = await house.submit("add", 2, 2)
        release.touch()
        assert await house.value(running) == "seen"
        assert await house.exit_code(worker) == 0
        assert (await house.view(later)).state is State.READY
        view = await house.view(waiting)
        assert (view.interruptions, view.failures, view.crashes) == (1, 0, 0)
        house.worker(name="second")
        assert await house.value(waiting) == 2
        assert await house.value(later) == 4

    in_house(story, tmp_path / "data")


def test_drain_hands_back_what_does_not_finish_in_time(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        worker = house.worker(drain_s=0.2, stop_s=0.2)
        release = str(tmp_path / "release")
        names = ["wait_for_ever", "heed", "isolated_wait", "compute_in_c"]
        marks = [tmp_path / name for name in [*names, "sleep_in_c"]]
        tasks = [
            await house.submit(name, str(mark)) for name, mark in zip(names, marks, strict=False)
        ]
        tasks.append(await house.submit("sleep_in_c", release, str(marks[-1])))
        await house.until(lambda: all(pids(mark) for mark in marks))
        worker.send_signal(signal.SIGTERM)
        assert await house.exit_code(worker) == 0
        for task in tasks:
            view = await house.view(task)
            assert (view.state, view.interruptions) == (State.READY, 1), view.name
            assert (view.failures, view.crashes) == (0, 0)

    in_house(story, tmp_path / "data")


def test_second_signal_hands_back_at_once(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        worker = house.worker(drain_s=600)
        begun = tmp_path / "begun"
        task = await house.submit("wait_for_ever", str(begun))
        await house.until(lambda: pids(begun))
        worker.send_signal(signal.SIGTERM)

        async def takes_nothing_more() -> bool:
            return (await house.workers())[0].slots == 0

        await house.until(takes_nothing_more)
        assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        assert await house.exit_code(worker) == 0
        assert (await house.view(task)).state is State.READY

    in_house(story, tmp_path / "data")


def test_broker_can_ask_for_the_drain(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        worker = house.worker(name="veteran")
        await house.joined()
        await house.manage("drain_worker", worker="veteran")
        assert await house.exit_code(worker) == 0
        assert [view.state for view in await house.workers()] == ["gone"]

    in_house(story, tmp_path)


def test_worker_without_its_module_says_so_in_one_line() -> None:
    told = '{"port": 1, "application": "no.such.module:app"}'
    command = [sys.executable, "-m", "tests.worker.process", told]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert len(lines) == 1
    assert "No module named 'no'" in lines[0]


def test_second_worker_of_the_same_name_takes_over(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        first = house.worker(name="twin")
        await house.joined()
        house.worker(name="twin")
        assert await house.exit_code(first) == 3
        assert await house.value(await house.submit("add", 1, 1)) == 2

    in_house(story, tmp_path)


@pytest.mark.feature("J25")
def test_worker_ends_after_so_many_tasks(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        tasks = await house.submit_many([("add", (n, 1)) for n in range(3)])
        one = house.worker(tasks=1)
        assert await house.exit_code(one) == 0
        assert await house.value(tasks[0]) == 1
        views = [await house.view(task) for task in tasks[1:]]
        assert [(view.state, view.attempts) for view in views] == [(State.READY, 0)] * 2
        assert await house.exit_code(house.worker(tasks=2, concurrency=1)) == 0
        assert [await house.value(task) for task in tasks[1:]] == [2, 3]
        assert [(await house.view(task)).interruptions for task in tasks] == [0, 0, 0]

    in_house(story, tmp_path)

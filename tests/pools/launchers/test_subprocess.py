"""The subprocess launcher: what only processes can suffer."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackalope.core.commands import Seen
from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import Launcher, LaunchFailed
from jackalope.pools.launchers.worker_state import WORDS_LINES_MAX, WorkerFolder, process_of
from tests.pools.launchers.backends import (
    Subprocess,
    find,
    is_empty,
    launch,
    play,
    reach,
    running,
    to_start,
    until,
)

LAUNCHING_PROCESS = """
import asyncio, sys
from pathlib import Path
from tests.pools.launchers.backends import Subprocess, launch, running, to_start

async def main():
    backend = Subprocess.__new__(Subprocess)
    backend.folder = Path(sys.argv[1])
    backend.dump, backend.worker = backend.folder / "dump", backend.folder / "worker.sh"
    launcher = backend.launcher()
    for number in range(3):
        await running(backend, launcher, launch(f"w-{number}"))
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def backend(tmp_path: Path) -> Subprocess:
    return Subprocess(tmp_path)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_workers_outlive_a_killed_broker_and_are_found(backend: Subprocess) -> None:
    command = [sys.executable, "-c", LAUNCHING_PROCESS, str(backend.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"ready\n"
        broker.kill()

    async def scenario(launcher: Launcher) -> None:
        found = await launcher.list()
        assert [each.launch for each in found] == ["w-0", "w-1", "w-2"]
        assert {each.phase for each in found} == {Phase.RUNNING}
        os.kill(int(found[0].external_id), signal.SIGKILL)
        assert "137 (SIGKILL)" in (await reach(launcher, "w-0", Phase.ENDED)).detail
        await launcher.stop("w-1", 600)
        await until(lambda: _is_listed(launcher, {"w-0", "w-2"}))

    play(backend, scenario)


def test_end_is_known_even_if_no_broker_saw_it(backend: Subprocess) -> None:
    async def scenario(launcher: Launcher) -> None:
        found = await running(backend, launcher, launch("w-1"))
        await launcher.close()
        os.kill(int(found.external_id), signal.SIGTERM)
        later = backend.launcher()
        assert "143 (SIGTERM)" in (await reach(later, "w-1", Phase.ENDED)).detail

    play(backend, scenario)


def test_used_again_process_id_is_left_alone(
    backend: Subprocess, bystander: subprocess.Popen[bytes]
) -> None:
    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-1"))
        folder = WorkerFolder(backend.folder / "home" / "one", "w-1")
        process = folder.process()
        assert process is not None
        process.send_to_group(signal.SIGKILL)
        # As if the machine had given the number away since.
        (folder.path / "process").write_text(_stat_of(bystander.pid, began=1))
        later = backend.launcher()
        assert (await reach(later, "w-1", Phase.ENDED)).detail == "it was killed"
        await later.stop("w-1", 0)
        await until(lambda: is_empty(later))

    play(backend, scenario)
    assert bystander.poll() is None


def test_same_session_of_somebody_else_is_left_alone(
    backend: Subprocess, bystander: subprocess.Popen[bytes]
) -> None:
    async def scenario(launcher: Launcher) -> None:
        folder = WorkerFolder(backend.folder / "home" / "one", "w-1")
        await running(backend, launcher, launch("w-1"))
        process = folder.process()
        assert process is not None
        process.send_to_group(signal.SIGKILL)
        real = process_of(bystander.pid)
        assert real is not None
        (folder.path / "process").write_text(_stat_of(bystander.pid, began=real.began + 1))
        later = backend.launcher()
        await later.stop("w-1", 0)
        await until(lambda: is_empty(later))

    play(backend, scenario)
    assert bystander.poll() is None


def test_worker_without_its_shell_runs_on_and_can_be_stopped(backend: Subprocess) -> None:
    async def scenario(launcher: Launcher) -> None:
        found = await running(backend, launcher, launch("w-1"))
        process = WorkerFolder(backend.folder / "home" / "one", "w-1").process()
        assert process is not None
        process.send(signal.SIGKILL)
        await until(lambda: _is_dead(process.pid))
        assert (await reach(launcher, "w-1", Phase.RUNNING)).launch == "w-1"
        await launcher.stop("w-1", 600)
        await until(lambda: is_empty(launcher))
        assert await _is_dead(int(found.external_id))

    play(backend, scenario)


def test_what_a_worker_started_ends_with_it(backend: Subprocess) -> None:
    child = backend.folder / "child"
    backend.worker.write_text(
        f"#!/bin/sh\nsleep 600 &\necho $! > {child}.new\nmv {child}.new {child}\nexit 5\n"
    )

    async def scenario(launcher: Launcher) -> None:
        await launcher.start(*to_start("w-1"))
        assert "exit code 5" in (await reach(launcher, "w-1", Phase.ENDED)).detail
        left = process_of(int(child.read_text()))
        assert left is not None
        await launcher.stop("w-1", 600)
        await until(lambda: is_empty(launcher))
        await until(lambda: _is_dead(left.pid))

    play(backend, scenario)


def test_only_the_worker_is_asked_to_end(backend: Subprocess) -> None:
    said = backend.folder / "said"
    backend.worker.write_text(
        "#!/bin/sh\n"
        f"(trap 'echo child >> {said}' TERM; while [ ! -e {said} ]; do sleep 0.05; done) &\n"
        f"trap 'echo worker >> {said}; wait; exit 0' TERM\n"
        'env -0 > "$DUMP/$WORKER_ID.new" && mv "$DUMP/$WORKER_ID.new" "$DUMP/$WORKER_ID"\n'
        "while :; do sleep 0.05; done\n"
    )

    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-1"))
        await launcher.stop("w-1", 600)
        await until(lambda: is_empty(launcher))
        assert said.read_text() == "worker\n"

    play(backend, scenario)


def test_no_zombie_is_left(backend: Subprocess) -> None:
    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-1"))
        process = WorkerFolder(backend.folder / "home" / "one", "w-1").process()
        assert process is not None
        await launcher.stop("w-1", 600)
        await until(lambda: is_empty(launcher))
        await until(lambda: _is_reaped(launcher, process.pid))

    play(backend, scenario)


def test_log_is_bounded_and_last_words_are_short(backend: Subprocess) -> None:
    backend.worker.write_text(
        "#!/bin/sh\nnumber=0\nwhile [ $number -lt 3000 ]; do number=$((number + 1)); "
        "echo line $number; done\nexit 1\n"
    )

    async def scenario(launcher: Launcher) -> None:
        small = backend.made(backend.folder / "home" / "one", log_bytes_max=4096)
        await small.start(*to_start("w-1"))
        await reach(small, "w-1", Phase.ENDED)
        found = await find(small, "w-1")
        assert found is not None
        assert found.detail.endswith("line 2999\nline 3000")
        assert found.detail.count("\n") == WORDS_LINES_MAX - 1
        log = WorkerFolder(backend.folder / "home" / "one", "w-1").log.read_text()
        assert len(log) <= 4096
        assert log.splitlines()[-1] == "line 3000"
        assert all(line.startswith("line ") for line in log.splitlines())

    play(backend, scenario)


def test_logs_of_the_past_are_kept_and_counted(backend: Subprocess) -> None:
    async def scenario(launcher: Launcher) -> None:
        few = backend.made(backend.folder / "home" / "one", logs_kept=2)
        for number in range(4):
            await few.start(*to_start(f"w-{number}", "crash"))
            await reach(few, f"w-{number}", Phase.ENDED)
            await few.stop(f"w-{number}", 0)
            await until(lambda: is_empty(few))
        past = backend.folder / "home" / "one" / ".past"

        async def is_cleared_away() -> bool:
            return sorted(log.name for log in past.iterdir()) == ["w-2.log", "w-3.log"]

        await until(is_cleared_away)
        assert (past / "w-2.log").read_text() == "out of cheese\n"

    play(backend, scenario)


def test_a_folder_of_an_earlier_version_is_listed(backend: Subprocess) -> None:
    async def scenario(launcher: Launcher) -> None:
        folder = WorkerFolder(backend.folder / "home" / "one", "w-1")
        folder.path.mkdir(parents=True)
        (folder.path / "labels").write_text(
            '{"worker":"w-1","namespace":"default","pool":"core","key":"42","generation":7,'
            '"version":"v1","phase":"starting","external_id":"","detail":""}'
        )
        found = await find(launcher, "w-1")
        assert found == Seen("w-1", "default", "core", "42", "v1", Phase.STARTING)

    play(backend, scenario)


def test_order_that_a_crash_cut_short_is_told(backend: Subprocess) -> None:
    async def scenario(launcher: Launcher) -> None:
        folder = WorkerFolder(backend.folder / "home" / "one", "w-1")
        await running(backend, launcher, launch("w-0"))
        assert folder.make(launch("w-1"))
        listed = await launcher.list()
        assert [each.phase for each in listed] == [Phase.RUNNING, Phase.STARTING]
        os.utime(folder.path / "labels", (0, 0))
        listed = await launcher.list()
        assert [each.phase for each in listed] == [Phase.RUNNING, Phase.ENDED]
        assert "it was not started" in listed[1].detail

    play(backend, scenario)


def test_damaged_folder_is_passed_over(backend: Subprocess) -> None:
    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-0"))
        odd = backend.folder / "home" / "one" / "w-1"
        odd.mkdir()
        (odd / "labels").write_text("{")
        assert [each.launch for each in await launcher.list()] == ["w-0"]

    play(backend, scenario)


def test_retired_folder_that_a_crash_left_is_cleared(backend: Subprocess) -> None:
    async def scenario(launcher: Launcher) -> None:
        found = await running(backend, launcher, launch("w-0"))
        WorkerFolder(backend.folder / "home" / "one", "w-0").retire()
        later = backend.launcher()
        assert await later.list() == []
        await until(lambda: _is_dead(int(found.external_id)))

    play(backend, scenario)


def test_missing_program_or_folder_is_told(backend: Subprocess) -> None:
    async def scenario(launcher: Launcher) -> None:
        home = backend.folder / "other"
        for changes, message in (
            ({"command": ["no-such-program"]}, "program 'no-such-program'.*`command`"),
            ({"command": ["./no-such-script"]}, "program './no-such-script' is not"),
            ({"folder": str(home / "nowhere")}, "the folder .*nowhere.*set `folder`"),
        ):
            broken = backend.made(home, **changes)
            with pytest.raises(LaunchFailed, match=message):
                await broken.start(*to_start("w-1"))
            assert await broken.list() == []

    play(backend, scenario)


def test_environment_and_folder_are_as_set(
    backend: Subprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JACKALOPE_TOKEN", "secret")
    monkeypatch.setenv("SOMETHING", "inherited")
    home = backend.folder / "home" / "one"
    (backend.folder / "work").mkdir()

    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-0"))
        full = backend.env_of("w-0")
        assert full is not None
        assert full["SOMETHING"] == "inherited"
        assert "JACKALOPE_TOKEN" not in full
        bare = backend.made(home, inherit_env=False, folder=str(backend.folder / "work"))
        await running(backend, bare, launch("w-1"))
        few = backend.env_of("w-1")
        assert few is not None
        assert "SOMETHING" not in few
        assert few["PWD"] == str(backend.folder / "work")

    play(backend, scenario)


def test_workers_that_are_not_kept_end_with_the_broker(backend: Subprocess) -> None:
    async def scenario(launcher: Launcher) -> None:
        passing = backend.made(backend.folder / "home" / "one", keep_running=False)
        await running(backend, passing, launch("w-1"))
        await running(backend, passing, launch("w-2"))
        await passing.close()
        assert await launcher.list() == []

    play(backend, scenario)


def test_many_at_once(backend: Subprocess) -> None:
    async def scenario(launcher: Launcher) -> None:
        names = {f"w-{number}" for number in range(50)}
        await asyncio.gather(*(launcher.start(*to_start(name)) for name in names))
        await until(lambda: _are_running(launcher, names))
        await asyncio.gather(*(launcher.stop(name, 600) for name in names))
        await until(lambda: is_empty(launcher))

    play(backend, scenario)


def _stat_of(pid: int, began: int) -> str:
    fields = Path(f"/proc/{pid}/stat").read_text().split(" ")
    fields[21] = str(began)
    return " ".join(fields)


async def _is_listed(launcher: Launcher, workers: set[str]) -> bool:
    return {each.launch for each in await launcher.list()} == workers


async def _are_running(launcher: Launcher, workers: set[str]) -> bool:
    listed = await launcher.list()
    return {each.launch for each in listed if each.phase is Phase.RUNNING} == workers


async def _is_dead(pid: int) -> bool:
    process = process_of(pid)
    return process is None or not process.is_alive()


async def _is_reaped(launcher: Launcher, pid: int) -> bool:
    await launcher.list()
    return process_of(pid) is None

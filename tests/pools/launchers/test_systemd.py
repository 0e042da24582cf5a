"""The systemd launcher: what only units can suffer, with a stand-in for `systemctl`."""

import asyncio
import stat
from pathlib import Path

import pytest

from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import Launcher, LaunchFailed
from jackalope.pools.launchers.systemd import env_file, how_it_ended, phase_of, read_properties
from tests.pools.launchers.backends import (
    find,
    is_empty,
    launch,
    play,
    reach,
    running,
    to_start,
    until,
)
from tests.pools.launchers.systemd import Systemd


@pytest.fixture
def backend(tmp_path: Path) -> Systemd:
    return Systemd(tmp_path)


def test_whole_life_with_the_stand_in(backend: Systemd) -> None:
    async def scenario(launcher: Launcher) -> None:
        found = await running(backend, launcher, launch("w-1", 'odd "key"\n$HOME \\ `x`'))
        assert found.external_id.startswith("jackalope-worker@w-1.service (")
        env = backend.env_of("w-1")
        assert env is not None
        assert env["WORKER_KEY"] == 'odd "key"\n$HOME \\ `x`'
        secret = backend.env_folder / "w-1.env"
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        await launcher.start(*to_start("w-2", "crash"))
        detail = (await reach(launcher, "w-2", Phase.ENDED)).detail
        assert detail == "exit code 3 (exit-code); last output: out of cheese"
        await launcher.stop("w-1", 600)
        await launcher.stop("w-2", 600)
        await until(lambda: is_empty(launcher))
        assert list(backend.env_folder.iterdir()) == []

    play(backend, scenario)


def test_hanging_systemd_is_given_up(backend: Systemd) -> None:
    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-1"))
        (backend.units / "hang").touch()
        hasty = backend.made("one", timeout="200ms")
        orders = (hasty.start(*to_start("w-2")), hasty.stop("w-1", 1), hasty.list())
        failures = await asyncio.gather(*orders, return_exceptions=True)
        for failure in failures:
            assert isinstance(failure, LaunchFailed)
            assert "took longer than 0.2 s; check systemd" in str(failure)
        (backend.units / "hang").unlink()
        assert await find(launcher, "w-2") is None
        assert (await reach(launcher, "w-1", Phase.RUNNING)).launch == "w-1"
        await hasty.close()

    play(backend, scenario)


def test_end_is_seen_after_systemd_was_out_of_reach(backend: Systemd) -> None:
    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-1"))
        await launcher.stop("w-1", 600)
        (backend.units / "fail").touch()
        with pytest.raises(LaunchFailed, match="No medium found; check that the template"):
            await launcher.list()
        (backend.units / "fail").unlink()
        await until(lambda: is_empty(launcher))

    play(backend, scenario)


def test_missing_template_or_program_is_told(backend: Systemd) -> None:
    async def scenario(launcher: Launcher) -> None:
        other = backend.made("one", unit="nothing")
        with pytest.raises(LaunchFailed, match=r"nothing@w-1.service not found.*nothing@.service"):
            await other.start(*to_start("w-1"))
        assert await other.list() == []
        missing = backend.made("one", systemctl="no-such-systemctl")
        with pytest.raises(LaunchFailed, match=r"cannot run no-such-systemctl.*systemd machine"):
            await missing.start(*to_start("w-1"))

    play(backend, scenario)


def test_damaged_labels_are_passed_over(backend: Systemd) -> None:
    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-1"))
        (backend.folder / "home" / "one" / "w-2.json").write_text("{")
        assert [each.launch for each in await launcher.list()] == ["w-1"]

    play(backend, scenario)


def test_environment_file_quotes_what_has_a_meaning() -> None:
    assert env_file({"A": 'a"b', "B": "$x `y` \\z", "C": "1\n2"}) == (
        'A="a\\"b"\nB="\\$x \\`y\\` \\\\z"\nC="1\n2"\n'
    )


@pytest.mark.parametrize(
    ("text", "phase", "how"),
    [
        ("ActiveState=active", Phase.RUNNING, None),
        ("ActiveState=activating", Phase.STARTING, None),
        ("ActiveState=deactivating", Phase.STOPPING, None),
        ("ActiveState=inactive\nJob=17", Phase.STARTING, None),
        ("ActiveState=inactive\nJob=", Phase.ENDED, "exit code 0"),
        (
            "ActiveState=failed\nResult=oom-kill\nExecMainCode=2\nExecMainStatus=9",
            Phase.ENDED,
            "signal 9 (oom-kill)",
        ),
        ("ActiveState=inactive\nLoadState=not-found", Phase.ENDED, "its unit is not-found"),
    ],
)
def test_state_of_a_unit(text: str, phase: Phase, how: str | None) -> None:
    state = read_properties(text)
    assert phase_of(state) is phase
    if how is not None:
        assert how_it_ended(state) == how

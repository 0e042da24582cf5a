"""The settings of launchers, and how they are refused."""

import asyncio
from pathlib import Path

import pytest

from jackalope.pools.launchers import make_launcher
from jackalope.pools.launchers.settings import SubprocessSettings, read_settings
from jackalope.pools.ports import Scope
from tests.pools.launchers.backends import launch


def test_subprocess_is_the_default() -> None:
    settings = read_settings({"command": ["worker"], "timeout": "3s"})
    assert settings == SubprocessSettings(command=("worker",), timeout_us=3_000_000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "subproces"}, "type: must be .* did you mean subprocess?"),
        ({"type": 5}, "type: must be none or subprocess.*, got 5"),
        ({}, "subprocess launcher: .*`command`"),
        ({"command": []}, "subprocess launcher: command: .*length >= 1"),
        ({"command": "sleep 1"}, "subprocess launcher: command: Expected `array`"),
        ({"command": ["a"], "comand": 1}, "comand: unknown key; did you mean command?"),
        ({"command": ["a"], "zzz": 1}, "zzz: unknown key; there are command, folder"),
        ({"command": ["a"], "timeout": "soon"}, "timeout: 'soon' is no duration"),
        ({"command": ["a"], "timeout": 0}, "timeout: Expected `int` >= 100000"),
        ({"command": ["a"], "env": {"A": 1}}, "env"),
        ({"type": "none", "command": ["a"]}, "command: unknown key; there are nothing else"),
    ],
)
def test_wrong_settings_are_told(given: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        make_launcher(given, tmp_path / "home", "one")
    assert not (tmp_path / "home").exists()


def test_none_starts_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = make_launcher({"type": "none"}, tmp_path / "home", "one")
        await launcher.start(launch("w-1"))
        assert await launcher.list() == []
        await launcher.stop("w-1", 1)
        await launcher.close()
        assert launcher.scope is Scope.WORKER

    asyncio.run(scenario())
    assert not (tmp_path / "home").exists()

"""The settings of launchers, and how they are refused."""

import asyncio
from pathlib import Path

import pytest

from jackalope.pools.launcher import Scope
from jackalope.pools.launchers import make_launcher
from jackalope.pools.launchers.settings import SubprocessSettings, read_settings
from tests.pools.launchers.backends import to_start


def test_subprocess_is_the_default() -> None:
    settings = read_settings({"command": ["worker"], "timeout": "3s"})
    assert settings == SubprocessSettings(command=("worker",), timeout_us=3_000_000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "subproces"}, "type: must be .* did you mean subprocess?"),
        ({"type": 5}, "type: must be none or subprocess.*, got 5"),
        ({}, "subprocess launcher: command: required"),
        ({"command": []}, "subprocess launcher: command: must not be empty"),
        (
            {"command": "sleep 1"},
            "subprocess launcher: command: must be a list of strings, got 'sleep 1'",
        ),
        ({"command": ["a"], "comand": 1}, "comand: unknown key; did you mean command?"),
        ({"command": ["a"], "zzz": 1}, "zzz: unknown key; there are command, folder"),
        ({"command": ["a"], "timeout": "soon"}, "timeout: 'soon' is not a duration"),
        ({"command": ["a"], "timeout": 0}, "timeout: must be 100ms to 1h, got 0s"),
        ({"command": ["a"], "env": {"A": 1}}, "env"),
        (
            {"type": "systemd", "manager": "me"},
            "systemd launcher: manager: must be system or user, got 'me'",
        ),
        ({"type": "systemd", "unit": "a b"}, "systemd launcher: unit: must match"),
        ({"type": "docker"}, "docker launcher: image: required"),
        ({"type": "docker", "image": "x", "prefix": "-x"}, "docker launcher: prefix: must match"),
        (
            {"type": "docker", "image": "x", "network": "n", "host_network": True},
            "network: cannot be set with host_network",
        ),
        ({"type": "kubernetes", "image": "x", "autoscaling": "more"}, "autoscaling.type: must be"),
        ({"type": "kubernetes", "image": "x", "autoscaling": 5}, "autoscaling.type: must be"),
        (
            {"type": "kubernetes", "image": "x", "autoscaling": {"type": "hpa", "cpu": 5}},
            "autoscaling.cpu: unknown key; there are target_cpu_percent",
        ),
        (
            {"type": "kubernetes", "image": "x", "autoscaling": "keda"},
            "autoscaling: keda needs either amqp_host or metrics_url",
        ),
        (
            {
                "type": "kubernetes",
                "image": "x",
                "autoscaling": {"type": "keda", "metrics_url": "http://x"},
            },
            "autoscaling.metrics_path: metrics_url needs it",
        ),
        ({"type": "none", "command": ["a"]}, "command: unknown key; there are nothing else"),
    ],
)
def test_wrong_settings_are_told(given: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        make_launcher(given, tmp_path / "home", "one")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("kind", "package"), [("docker", "aiodocker"), ("kubernetes", "lightkube")]
)
def test_missing_extra_is_told(
    kind: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jackalope.pools.launchers.find_spec", {}.get)
    with pytest.raises(ValueError, match=rf"pip install 'jackalope\[{kind}\]'"):
        make_launcher({"type": kind, "image": "x"}, tmp_path, "one")


@pytest.mark.feature("O18")
def test_none_starts_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = make_launcher({"type": "none"}, tmp_path / "home", "one")
        await launcher.start(*to_start("w-1"))
        assert await launcher.list() == []
        await launcher.stop("w-1", 1)
        await launcher.close()
        assert launcher.scope is Scope.WORKER

    asyncio.run(scenario())
    assert not (tmp_path / "home").exists()

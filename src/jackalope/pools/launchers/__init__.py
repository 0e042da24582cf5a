"""Launchers: how workers are started and stopped on one kind of machine.

Owns the choice between them by the settings of the broker, and the launcher that starts nothing.
Every other is a module of its own and knows no other; `launcher` defines their duties. The clients
that some of them need are extras, and are loaded when such a launcher is made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from jackalope.core.commands import Seen
from jackalope.core.effects import StartOrder
from jackalope.pools.launcher import Launcher, Scope
from jackalope.pools.launchers.settings import (
    DockerSettings,
    KubernetesSettings,
    NoneSettings,
    SubprocessSettings,
    SystemdSettings,
    read_settings,
)

__all__ = ["is_local", "make_launcher"]


def make_launcher(settings: Mapping[str, object], home: Path, owner: str) -> Launcher:
    """Make a launcher. Nothing is opened or started before it is first used.

    `home` is a folder of this launcher's own, made when there is need for it. What another `owner`
    started is left alone. Raises `ValueError` for a wrong setting or a missing extra.
    """
    read = read_settings(settings)
    match read:
        case NoneSettings():
            return NoneLauncher()
        case SubprocessSettings():
            from jackalope.pools.launchers.subprocess import SubprocessLauncher  # noqa: PLC0415

            return SubprocessLauncher(read, home)
        case SystemdSettings():
            from jackalope.pools.launchers.systemd import SystemdLauncher  # noqa: PLC0415

            return SystemdLauncher(read, home)
        case DockerSettings():
            _need("aiodocker", "docker")
            from jackalope.pools.launchers.docker import DockerLauncher  # noqa: PLC0415

            return DockerLauncher(read, owner)
        case KubernetesSettings():
            _need("lightkube", "kubernetes")
            from jackalope.pools.launchers.kubernetes import KubernetesLauncher  # noqa: PLC0415

            return KubernetesLauncher(read, owner)


def is_local(settings: Mapping[str, object]) -> bool:
    """Return whether what a launcher starts can be seen on this machine alone."""
    match read_settings(settings):
        case KubernetesSettings():
            return False
        case DockerSettings(host=host):
            return (host or os.environ.get("DOCKER_HOST") or "unix:").startswith("unix:")
        case _:
            return True


def _need(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise ValueError(
            f"type: the {extra} launcher needs jackalope[{extra}]; "
            f"install it with pip install 'jackalope[{extra}]'"
        )


class NoneLauncher:
    """Takes every order and carries out none: workers are started by hand, or by another program.

    What runs is known by the sessions of workers alone.
    """

    @property
    def scope(self) -> Scope:
        return Scope.WORKER

    async def start(self, order: StartOrder, env: Mapping[str, str]) -> None:
        pass

    async def stop(self, worker: str, grace_s: float) -> None:
        pass

    async def list(self) -> list[Seen]:
        return []

    async def close(self) -> None:
        pass

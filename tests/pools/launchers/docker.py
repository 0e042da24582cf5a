"""Docker for tests."""

from __future__ import annotations

import signal
from pathlib import Path

from jackalope.pools.launcher import Launcher
from jackalope.pools.launchers import make_launcher
from tests.pools.launchers.backends import Backend
from tests.pools.launchers.docker_server import DockerServer

IMAGE = "registry.example/worker:1"


class Docker(Backend):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server: DockerServer | None = None

    @property
    def server(self) -> DockerServer:
        assert self._server is not None
        return self._server

    async def open(self) -> None:
        self._server = DockerServer(self.folder, {IMAGE})
        await self._server.open()

    async def close(self) -> None:
        await self.server.close()

    async def end(self, worker: str) -> None:
        await self.server.by_worker(worker).kill(signal.SIGKILL)

    def launcher(self, owner: str = "one") -> Launcher:
        return self.made(owner)

    def broken_launcher(self) -> Launcher:
        return self.made(host="tcp://127.0.0.1:9")

    def made(self, owner: str = "one", **settings: object) -> Launcher:
        return make_launcher(self.settings(**settings), self.folder / "home", owner)

    def settings(self, **settings: object) -> dict[str, object]:
        return {
            "type": "docker",
            "image": IMAGE,
            "command": [str(self.worker)],
            "env": {"DUMP": str(self.dump)},
            "host": self.server.url,
            "timeout": "60s",
            **settings,
        }

"""A broker in a process of its own, with every door open at ports that outlive a restart."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from jackalope.broker.access import hash_of, id_of, new_token
from tests.doors.http.harness import Serving
from tests.ports import free_port


@dataclass(frozen=True)
class Ports:
    """Where the doors are."""

    native: int = field(default_factory=free_port)
    http: int = field(default_factory=free_port)
    grpc: int = field(default_factory=free_port)


def new_key(name: str, *permissions: str) -> tuple[str, dict[str, Any]]:
    """Make a token, and the API key of the configuration that admits it."""
    token = new_token()
    key = {"id": id_of(token), "hash": hash_of(token), "name": name}
    return token, key | {"permissions": list(permissions)}


class OpenBroker:
    """The broker, which a test may kill and start again."""

    def __init__(self, folder: Path, config: dict[str, Any] | None = None) -> None:
        self.ports = Ports()
        self._folder = folder
        self._config = folder / "jackalope.yaml"
        grpc = {"enabled": True, "port": self.ports.grpc, **((config or {}).get("grpc") or {})}
        self._config.write_text(yaml.safe_dump((config or {}) | {"grpc": grpc}))
        self._start()

    def _start(self) -> None:
        self._serving = Serving(
            self._folder,
            *("--config", str(self._config)),
            port=self.ports.native,
            http_port=self.ports.http,
        )

    def kill_and_start(self) -> None:
        """Kill it as a crash of the machine would, and start it on what is on the disk."""
        self._serving.stop(signal.SIGKILL)
        self._start()

    def stop(self) -> None:
        code, log = self._serving.stop()
        assert code == 0, log


class ClosedBroker(OpenBroker):
    """A broker with API keys, and a limit on the requests of each."""

    #: Enough for the behaviours, and little enough to be exceeded.
    rate_burst = 60

    def __init__(self, folder: Path) -> None:
        self.root_token, root = new_key("root", "admin")
        self.reader_token, reader = new_key("reader", "read_tasks")
        self.hasty_token, hasty = new_key("hasty", "read_tasks")
        self.unknown_token = new_token()
        limit = {"rate_per_s": 1, "rate_burst": self.rate_burst}
        limits = dict.fromkeys(("http", "native", "grpc"), limit)
        super().__init__(folder, {"auth": {"keys": [root, reader, hasty]}, **limits})

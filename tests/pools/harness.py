"""A broker's process with a pool, for tests: it can be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.acceptance.harness import wait_until
from tests.ports import free_port

LIGHT_WORKER = Path(__file__).with_name("light_worker.py")
PIKA = Path(__file__).with_name("pika_worker.py")
ROOT = Path(__file__).resolve().parents[2]


class PoolHouse:
    """A broker on a folder, with subprocess launchers and pools.

    Attributes:
        address: where clients reach it.
        amqp: where clients reach it over AMQP.
    """

    def __init__(
        self,
        folder: Path,
        pools: dict[str, dict[str, object]],
        queues: dict[str, dict[str, object]] | None = None,
        amqp: dict[str, object] | None = None,
        launchers: dict[str, dict[str, object]] | None = None,
    ) -> None:
        self.folder = folder
        self.port, self._amqp_port = free_port(), free_port()
        self.address = f"jackalope://127.0.0.1:{self.port}"
        self.amqp = f"amqp://guest:guest@127.0.0.1:{self._amqp_port}/%2F"
        self._process: subprocess.Popen[bytes] | None = None
        self._config = folder / "jackalope.yaml"
        config = {
            "data": {"folder": str(folder / "data")},
            "native": {"port": self.port},
            "http": {"enabled": False},
            "amqp": {"enabled": True, "port": self._amqp_port, **(amqp or {})},
            "launchers": {
                "local": self._launcher(LIGHT_WORKER),
                "pika": self._launcher(PIKA),
                "nameless": self._launcher(PIKA, f"--url={self.amqp}"),
                **(launchers or {}),
            },
            "queues": queues or {},
            "pools": {name: {"launcher": "local", **each} for name, each in pools.items()},
        }
        self._config.write_bytes(msgspec.yaml.encode(config))

    def _launcher(self, worker: Path, *flags: str) -> dict[str, object]:
        command = [sys.executable, "-E", str(worker), f"--of={self.folder}", *flags]
        return {"type": "subprocess", "command": command}

    def start(self) -> None:
        """Start the broker, and return when its doors are open."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jackalope", "serve", "--config", str(self._config)],
                env=environment,
                stdout=log,
                stderr=log,
            )
        wait_until(self._is_open, "the broker's doors are open", 60)

    def kill(self) -> None:
        """Kill the broker without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop the broker and whatever its launcher still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
        for pid in self.workers():
            os.kill(pid, signal.SIGKILL)

    def workers(self) -> list[int]:
        """Return the processes of this house's workers."""
        mark = f"--of={self.folder}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                # The shell that waits for a worker has the same words, and is none.
                if mark in words and b"/sh" not in words[0]:
                    found.append(int(entry.name))
        return found

    def _is_open(self) -> bool:
        return all(map(_is_listening, (self.port, self._amqp_port)))


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

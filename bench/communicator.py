"""Round trips of a kiwipy communicator: ours beside kiwipy's own over RabbitMQ, in one run.

Two communicators in this process, one broker as a process of its own, both durable. Each figure is
what one thread does that waits for every step, as AiiDA does; only the drain has many tasks at
hand, and one figure has many threads that send. Nobody brings an encoder.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kiwipy.rmq import RmqThreadCommunicator

from bench import beside
from bench.peers import servers
from bench.peers.place import Place
from bench.peers.processes import Started, is_listening
from jackalope.kiwipy.communicator import JackalopeCommunicator

_PATIENCE_S = 60.0
_THREADS = 16

Connect = Callable[[], Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--number", type=int, default=2_000, help="how many of each")


def run(args: argparse.Namespace) -> int:
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Place.new("communicator", Path(folder), "always", "classic")
        figures["jackalope"] = _with_jackalope(place, args.number)
        if "rabbitmq-server" in servers.missing():
            print("rabbitmq-server is not installed: nothing to compare with")
        else:
            figures["rabbitmq"] = _with_rabbitmq(place, args.number)
    beside.print_table(figures)
    return 0


def _with_jackalope(place: Place, number: int) -> dict[str, float]:
    port = place.jackalope_port
    command = [sys.executable, "-m", "jackalope", "serve", "--no-http", "--port", str(port)]
    broker = Started([*command, "--data", str(place.path / "data")], place.path / "jackalope.log")
    try:
        broker.wait_until(lambda: is_listening(port))
        return measure(lambda: JackalopeCommunicator(f"jackalope://127.0.0.1:{port}"), number)
    finally:
        broker.stop()


def _with_rabbitmq(place: Place, number: int) -> dict[str, float]:
    server = servers.start_rabbitmq(place)
    try:
        return measure(lambda: RmqThreadCommunicator.connect(place.amqp_url), number)
    finally:
        server.stop()


def measure(connect: Connect, number: int) -> dict[str, float]:
    """Return what each kind of message does in a second."""
    sender, taker = connect(), connect()
    try:
        return {
            "task_send/s": _rate(number, lambda n: sender.task_send(n, no_reply=True)),
            f"task_send/s x {_THREADS}": _send_together(sender, number),
            "drain/s": _drain(taker, 2 * number),
            "task round trips/s": _rate(number, lambda n: _end_of(sender.task_send(n))),
            "RPC round trips/s": _rpc(sender, taker, number),
            "broadcasts/s": _broadcasts(sender, taker, number),
        }
    finally:
        sender.close()
        taker.close()


def _rate(number: int, act: Callable[[int], Any]) -> float:
    begin = time.perf_counter()
    for each in range(number):
        act(each)
    return number / (time.perf_counter() - begin)


def _send_together(sender: Any, number: int) -> float:
    def send(_: int) -> None:
        sender.task_send(0, no_reply=True)

    with ThreadPoolExecutor(_THREADS) as threads:
        begin = time.perf_counter()
        for _ in threads.map(send, range(number)):
            pass
        return number / (time.perf_counter() - begin)


def _drain(taker: Any, number: int) -> float:
    done = threading.Semaphore(0)
    begin = time.perf_counter()
    taker.add_task_subscriber(lambda *_: done.release())
    for _ in range(number):
        assert done.acquire(timeout=_PATIENCE_S)
    return number / (time.perf_counter() - begin)


def _rpc(sender: Any, taker: Any, number: int) -> float:
    taker.add_rpc_subscriber(lambda _, message: message, "clerk")
    return _rate(number, lambda n: _end_of(sender.rpc_send("clerk", n)))


def _broadcasts(sender: Any, taker: Any, number: int) -> float:
    heard = threading.Semaphore(0)
    taker.add_broadcast_subscriber(lambda *_: heard.release())
    begin = time.perf_counter()
    for each in range(number):
        sender.broadcast_send(each)
    for _ in range(number):
        assert heard.acquire(timeout=_PATIENCE_S)
    return number / (time.perf_counter() - begin)


def _end_of(future: Any) -> Any:
    return future.result(timeout=_PATIENCE_S)

"""Processes a minute of a real AiiDA daemon: over Jackalope, and over the brokers AiiDA brings.

Two workers on this machine, a profile with SQLite storage for each broker, one after the other.
Most of the time is AiiDA's own: what is compared is whether the broker adds to it. A broker that
loses tasks has no figure, and the next one has its turn.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.peers import servers
from bench.peers.place import Place
from tests.aiida.lab import READY, Lab

BROKERS = ("jackalope", "core.zeromq", "core.rabbitmq")

#: All three together take less than six minutes, whatever happens.
_PATIENCE_S = 90.0

#: A chain is a process itself, and calls a function and a calculation.
_PROCESSES_PER_CHAIN = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--adds", type=int, default=20, help="how many calculations")
    parser.add_argument("--chains", type=int, default=10, help="how many work chains")
    parser.add_argument("--brokers", nargs="+", choices=BROKERS, default=BROKERS)


def run(args: argparse.Namespace) -> int:
    if not READY.exists():
        print("AiiDA is not installed: `make aiida` does it")
        return 1
    print(f"{'':15} {'submit s':>9} {'all s':>9} {'processes/min':>14} {'jackalope is':>13}")
    processes = args.adds + _PROCESSES_PER_CHAIN * args.chains
    ours: float | None = None
    for backend in args.brokers:
        if backend == "core.rabbitmq" and "rabbitmq-server" in servers.missing():
            print(f"{backend:15} rabbitmq-server is not installed")
            continue
        with tempfile.TemporaryDirectory() as folder, _broker(backend, Path(folder)) as config:
            try:
                submitted_s, ended_s = _measure(Path(folder), backend, config, args)
            except AssertionError as error:
                print(f"{backend:15} {str(error).splitlines()[0]}", flush=True)
                continue
        rate = 60 * processes / ended_s
        ours = rate if backend == "jackalope" else ours
        times = f"{ours / rate:.2f} times" if ours is not None and backend != "jackalope" else ""
        print(
            f"{backend:15} {submitted_s:9.1f} {ended_s:9.1f} {rate:14.1f} {times:>13}", flush=True
        )
    return 0


def _measure(
    folder: Path, backend: str, config: dict[str, Any], args: argparse.Namespace
) -> tuple[float, float]:
    lab = Lab(folder, patience_s=_PATIENCE_S)
    try:
        lab.open(backend, config)
        lab.open_gate()
        lab.start_daemon()
        lab.wait_until_ended(lab.ask("submit_adds", 2))  # Now everything is loaded.
        begin = time.perf_counter()
        pks = lab.ask("submit_adds", args.adds) + lab.ask("submit_chains", args.chains)
        submitted = time.perf_counter()
        lab.wait_until_ended(pks)
        return submitted - begin, time.perf_counter() - begin
    finally:
        lab.close()


@contextmanager
def _broker(backend: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Start what the daemon does not start by itself, and yield the configuration of a profile."""
    if backend == "core.zeromq":
        yield {"supervised_by_daemon": True}
    elif backend == "jackalope":
        yield {}
    else:
        place = Place.new("aiida", folder / "server", "always", "classic")
        place.path.mkdir()
        server = servers.start_rabbitmq(place)
        url = urlsplit(place.amqp_url)
        try:
            yield {
                "broker_protocol": "amqp",
                "broker_username": url.username or "guest",
                "broker_password": url.password or "guest",
                "broker_host": url.hostname,
                "broker_port": url.port,
                "broker_virtual_host": "",
            }
        finally:
            server.stop()

"""The `latency` command: rounds in which the systems take turns, and the tables of what came out.

Each system is in a process of its own (`bench.turns`). In every round each of them submits one
task after the other without a pause, then with pauses of 20 ms in which caches and cores go cold;
when all rounds of that are over, workers are started and the same is done with round trips.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.latency import report
from bench.latency.marks import Mark
from bench.latency.report import Kind, Measured
from bench.latency.stages import Stages, Track, of_round_trip, of_submit
from bench.peers import install
from bench.turns import SYSTEMS, Driver

#: Who submits and has nothing to say about round trips, and the other way round.
_NO_ROUND_TRIP = {"huey_sqlite", "beanstalkd"}
_NO_SUBMIT = {"dramatiq_rabbitmq"}

_PAUSE_S = 0.02


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="coarse, within a minute")
    parser.add_argument("--rounds", type=int, help="how often each has its turn: 10, or 3")
    parser.add_argument("--only", metavar="A,B", help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write every time as JSON")


def run(args: argparse.Namespace) -> int:
    names = list(SYSTEMS) if args.only is None else args.only.split(",")
    unknown = [name for name in names if name not in SYSTEMS]
    if unknown:
        print(f"bench: no system is called {', '.join(unknown)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rounds = args.rounds or (3 if args.quick else 10)
    hot, idle = (60, 12) if args.quick else (200, 50)
    folder = Path(tempfile.mkdtemp(prefix="jackalope-latency-"))
    try:
        with _drivers(names, folder) as drivers:
            measured = _measure(drivers, rounds, hot, idle)
            errors = {driver.name: driver.error for driver in drivers if driver.error}
        found, missing = _stages(folder / "timed", measured)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.show(measured, found)
    for name, error in errors.items():
        print(f"left out: {name}: {error}")
    print(f"load average at the end: {os.getloadavg()[0]:.1f}")
    for place in missing:
        print(f"no mark at {place}, which does not exist: its stage counts with the next one")
    if args.save is not None:
        args.save.write_text(json.dumps([of.as_json() for of in measured]) + "\n")
    return 0


@contextmanager
def _drivers(names: Sequence[str], folder: Path) -> Iterator[list[Driver]]:
    """Start every system at once, and wait until all are ready."""
    with ExitStack() as stack:
        drivers = []
        python = install.python(install.VENV)
        for name in names:
            (folder / name).mkdir()
            chosen = str(python) if python.exists() else sys.executable
            driver = Driver(name, folder / name, chosen)
            stack.callback(driver.stop)
            drivers.append(driver)
        for driver in drivers:
            driver.answer()
        yield drivers


def _measure(drivers: Sequence[Driver], rounds: int, hot: int, idle: int) -> list[Measured]:
    found: dict[tuple[Kind, str], Measured] = {}
    for what, absent in (("submit", _NO_SUBMIT), ("round trip", _NO_ROUND_TRIP)):
        able = [driver for driver in drivers if driver.name not in absent]
        if what == "round trip":
            for driver in able:
                driver.ask("worker")
        for number in range(rounds):
            begin = time.monotonic()
            for driver in able:
                for pause_s, count in ((0.0, hot), (_PAUSE_S, idle)):
                    answer = driver.ask(what, count, pause_s)
                    if "spans" in answer:
                        kind = Kind(what, is_hot=not pause_s)
                        of = found.setdefault((kind, driver.name), Measured(kind, driver.name))
                        of.add(answer)
            took_s = time.monotonic() - begin
            print(f"{what}, round {number + 1} of {rounds}: {took_s:.1f} s", file=sys.stderr)
    return list(found.values())


def _stages(folder: Path, measured: list[Measured]) -> tuple[dict[Kind, list[Stages]], list[str]]:
    """Return the stages of every request of the system with marks, and the places without."""
    tracks: dict[str, Track] = {}
    missing: list[str] = []
    for role in ("client", "broker", "worker"):
        texts = [file.read_text() for file in folder.glob(f"{role}-*.marks")]
        parts = [json.loads(text) for text in texts]
        tracks[role] = Track(Mark(*mark) for part in parts for mark in part["made"])
        missing += [place for part in parts for place in part["missing"]]
    found: dict[Kind, list[Stages]] = {}
    for of in measured:
        if of.system == "timed":
            follow = of_submit if of.kind.what == "submit" else of_round_trip
            ways = [follow(begin_ns, end_ns, tracks) for begin_ns, end_ns in of.spans]
            found[of.kind] = [stages for stages in ways if stages is not None]
    return found, missing

"""How the aims are measured: each part starts what it needs, in turns, and stops it again."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from bench.aims.table import Found
from bench.history import written
from bench.peers import processes, servers
from bench.peers.place import Place
from bench.peers.processes import Started
from bench.turns import Driver

_PAYLOAD = b"jackalope!" * 10


@dataclass(frozen=True)
class Scale:
    """How often and how long."""

    rounds: int = 10
    submits: int = 200
    trips: int = 150
    bulk: int = 5_000
    sustain_s: float = 60
    sustain_rounds: int = 4
    messages: int = 1_000
    message_rounds: int = 5
    http_s: float = 15
    starts: int = 7


@dataclass
class Run:
    """What is asked for, and what was found."""

    wanted: Collection[str]
    scale: Scale
    folder: Path
    found: dict[str, Found] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(
        self, row: str, ours: float, theirs: float | None = None, *, less: bool = False
    ) -> None:
        if row in self.wanted:
            self.found.setdefault(row, Found()).add(ours, theirs, is_less_better=less)

    def wants(self, *rows: str) -> bool:
        return not self.wanted.isdisjoint(rows)  # type: ignore[attr-defined]

    def leave_out(self, what: str, why: str) -> None:
        note = f"Left out: {what}: {why}"
        self.notes.append(note)
        say(note)


def say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)


# Client, broker and worker, and their peers, one at a time.

_SUBMITTERS = {
    "submit-bare": "bare",
    "submit-rabbitmq": "rabbitmq_pika",
    "submit-beanstalkd": "beanstalkd",
    "submit-huey": "huey_sqlite",
}
_CALLERS = {"trip-pika": "rabbitmq_pika", "trip-dramatiq": "dramatiq_rabbitmq"}
_CPU = ("cpu-all", "cpu-broker", "cpu-history", "cpu-worker", "cpu-client")
_CHUNK = 5_000


def turns(run: Run) -> None:
    """Submits, round trips, bulk and sustained work."""
    trips = {row: name for row, name in _CALLERS.items() if run.wants(f"{row}-p50", f"{row}-p99")}
    submits = {row: name for row, name in _SUBMITTERS.items() if row in run.wanted}
    lasts = run.wants("sustained", *_CPU)
    names = {"jackalope", *trips.values(), *submits.values()}
    if "sustained" in run.wanted:
        names.add("rabbitmq_pika")
    with _drivers(run, sorted(names)) as drivers:
        if "jackalope" not in drivers:
            return
        for number in range(run.scale.rounds if submits else 0):
            say(f"one submit, round {number + 1} of {run.scale.rounds}")
            _submit_round(run, drivers, submits)
        for _ in range(run.scale.rounds if "bulk-cpu" in run.wanted else 0):
            answer = drivers["jackalope"].ask("bulk", run.scale.bulk)
            broker_ns = answer["cpu_ns"]["server"] - answer["children_ns"]
            run.add("bulk-cpu", broker_ns / run.scale.bulk / 1e3)
        if not (trips or lasts):
            return
        drivers["jackalope"].ask("reset")
        for name in list(drivers):
            if name in (*trips.values(), "jackalope", "rabbitmq_pika"):
                drivers[name].ask("worker")
                _keep_able(run, drivers, name)
        for number in range(run.scale.rounds if trips else 0):
            say(f"round trips, round {number + 1} of {run.scale.rounds}")
            _trip_round(run, drivers, trips)
        for number in range(run.scale.sustain_rounds if lasts else 0):
            say(f"sustained, round {number + 1} of {run.scale.sustain_rounds}")
            _sustain_round(run, drivers)


@contextmanager
def _drivers(run: Run, names: Sequence[str]) -> Iterator[dict[str, Driver]]:
    """Start systems at once, and return those that are ready."""
    with ExitStack() as stack:
        drivers = {}
        for name in names:
            folder = run.folder / name
            folder.mkdir()
            drivers[name] = Driver(name, folder, sys.executable)
            stack.callback(drivers[name].stop)
        for name in names:
            drivers[name].answer()
            _keep_able(run, drivers, name)
        yield drivers


def _keep_able(run: Run, drivers: dict[str, Driver], name: str) -> None:
    if drivers[name].error:
        run.leave_out(name, drivers.pop(name).error)


def _ask_each(
    drivers: dict[str, Driver], rows: Mapping[str, str], what: str, count: int
) -> dict[str, list[float]]:
    """Return how long each of some operations took, for us and for each peer of the rows."""
    asked = ["jackalope", *dict.fromkeys(rows.values())]
    return {name: _taken_us(drivers[name].ask(what, count)) for name in asked if name in drivers}


def _submit_round(run: Run, drivers: dict[str, Driver], submits: Mapping[str, str]) -> None:
    took = _ask_each(drivers, submits, "submit", run.scale.submits)
    ours = took["jackalope"]
    for row, name in submits.items():
        if name not in took:
            continue
        if name == "bare":
            run.add(row, statistics.median(ours), statistics.median(took[name]))
        else:
            run.add(row, 1e6 / statistics.mean(ours), 1e6 / statistics.mean(took[name]))


def _trip_round(run: Run, drivers: dict[str, Driver], trips: Mapping[str, str]) -> None:
    took = _ask_each(drivers, trips, "round trip", run.scale.trips)
    ours = took["jackalope"]
    for row, name in trips.items():
        if name in took:
            theirs = took[name]
            run.add(f"{row}-p50", statistics.median(ours), statistics.median(theirs), less=True)
            run.add(f"{row}-p99", _p99(ours), _p99(theirs), less=True)


def _sustain_round(run: Run, drivers: dict[str, Driver]) -> None:
    seconds = run.scale.sustain_s / run.scale.sustain_rounds
    ours = drivers["jackalope"].ask("sustain", _CHUNK, seconds)
    count = ours["done"]
    spent_us = {who: ns / count / 1e3 for who, ns in ours["cpu_ns"].items()}
    history_us = ours["children_ns"] / count / 1e3
    run.add("cpu-all", sum(spent_us.values()))
    run.add("cpu-broker", spent_us["server"] - history_us)
    run.add("cpu-history", history_us)
    run.add("cpu-worker", spent_us["worker"])
    run.add("cpu-client", spent_us["client"])
    if "sustained" in run.wanted and "rabbitmq_pika" in drivers:
        theirs = drivers["rabbitmq_pika"].ask("sustain", _CHUNK, seconds / 2)
        run.add("sustained", _rate(ours), _rate(theirs))


def _taken_us(answer: Mapping[str, Any]) -> list[float]:
    return [(end - begin) / 1e3 for begin, end in answer["spans"]]


def _p99(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[98]


def _rate(answer: Mapping[str, Any]) -> float:
    ((begin_ns, end_ns),) = answer["spans"]
    return float(answer["done"] * 1e9 / (end_ns - begin_ns))


def memory(run: Run) -> None:
    """A broker of its own, filled and at rest."""
    for number in range(2):
        (folder := run.folder / f"memory-{number}").mkdir()
        driver = Driver("jackalope", folder, sys.executable)
        try:
            driver.answer()
            answer = driver.ask("memory", 100_000)
        finally:
            driver.stop()
        if driver.error:
            run.leave_out("memory", driver.error)
            return
        run.add("memory", answer["mb"])


# AMQP.


def amqp(run: Run) -> None:
    """RabbitMQ's own clients over both brokers, in turns."""
    try:
        from bench.amqp import command  # noqa: PLC0415  needs the clients
    except ImportError as error:
        run.leave_out("AMQP", f"{error}; `python -m bench.peers.install` installs the clients")
        return
    if "rabbitmq-server" in servers.missing():
        run.leave_out("AMQP", "rabbitmq-server is not installed")
        return
    clients = [name for name in command.CLIENTS if run.wants(*(_amqp_rows(name).values()))]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Place.new("amqp", Path(folder), "always", "classic")
        rivals = [
            stack.enter_context(start(place)) for start in (command.jackalope, command.rabbitmq)
        ]
        for name in clients:
            for number in range(run.scale.message_rounds):
                say(f"AMQP by {name}, round {number + 1} of {run.scale.message_rounds}")
                figures: list[dict[str, list[float]]] = []
                for rival in rivals:
                    figures.append({})
                    command.measure(name, rival, run.scale.messages, figures[-1])
                for what, row in _amqp_rows(name).items():
                    ours, theirs = (each[f"{name}: {what}/s"][0] for each in figures)
                    run.add(row, ours, theirs)


def _amqp_rows(client: str) -> dict[str, str]:
    return {what: f"{client}-{what}" for what in ("confirmed", "drained", "calls")}


# HTTP.


def http(run: Run) -> None:
    """Looks and lists while tasks flow at half of the speed that they reach alone."""
    uvloop.run(_http(run))


async def _http(run: Run) -> None:
    from bench.http import noop, paced, reach_full_speed, serving  # noqa: PLC0415
    from jackalope import Jackalope  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as house:
        async with Jackalope(house.address) as client:
            task = client.task(queue="bench", name=noop.name)(noop.definition.function)
            sample = await task.submit(_PAYLOAD)
            await sample.result(timeout=60)
            await reach_full_speed(task)
            for number in range(3):
                say(f"HTTP, round {number + 1} of 3")
                half = await reach_full_speed(task) / 2
                await written(client, "bench")  # So that nothing is left over.
                probe = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "bench.aims.probe", str(house.http_port)),
                    *(str(sample), str(run.scale.http_s)),
                    stdout=subprocess.PIPE,
                )
                await paced(task, half, run.scale.http_s)
                told, _ = await probe.communicate()
                times_ms = json.loads(told)
                run.add("http-look", times_ms["task"])
                run.add("http-list", times_ms["list"])


# Starting.


def start(run: Run) -> None:
    """The help, and a broker with a new folder until it accepts."""
    program = processes.python_program("jackalope")
    for number in range(run.scale.starts):
        if "start-help" in run.wanted:
            begin = time.perf_counter()
            subprocess.run([program, "--help"], capture_output=True, check=True)
            run.add("start-help", time.perf_counter() - begin)
        if "start-serve" in run.wanted:
            run.add("start-serve", _serve_s(program, run.folder / f"start-{number}"))


def _serve_s(program: str, folder: Path) -> float:
    folder.mkdir()
    port = processes.free_port()
    command = [program, "serve", "--no-http", "--port", str(port), "--data", str(folder / "data")]
    begin = time.perf_counter()
    broker = Started(command, folder / "log")
    try:
        broker.wait_until(lambda: processes.is_listening(port))
        return time.perf_counter() - begin
    finally:
        broker.stop()


PARTS: dict[str, Callable[[Run], None]] = {
    "turns": turns,
    "memory": memory,
    "amqp": amqp,
    "http": http,
    "start": start,
}

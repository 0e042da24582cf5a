"""What task logs cost a task that prints nothing, in CPU time of the worker and the broker.

One broker has two workers, one that keeps what its tasks print and one that does not. They take
turns with the same tasks, in changing order, so that what else the machine does meets both alike. A
difference that is smaller than the spread of the rounds is noise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import uvloop

from bench.http import PAYLOAD, noop
from bench.peers import processes
from bench.peers.processes import Started
from jackalope import Jackalope, gather

#: What `--task-logs` of each worker is.
KINDS = {"logs": "both", "no logs": "output"}

_ANSWER_S_MAX = 120
_WARM_UP = 2_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--rounds", type=int, default=15, help="how many turns each takes")
    parser.add_argument("--tasks", type=int, default=20_000, help="how many tasks a turn has")


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    figures = uvloop.run(_measure(args.rounds, args.tasks))
    if args.json:
        print(json.dumps(figures))
        return 0
    print(f"{'microseconds a task':24} {'logs':>8} {'no logs':>8} {'more':>8} {'spread':>8}")
    for what, of_kinds in figures.items():
        on, off = (statistics.median(of_kinds[kind]) for kind in KINDS)
        pairs = [a - b for a, b in zip(*(of_kinds[kind] for kind in KINDS), strict=True)]
        low, _, high = statistics.quantiles(pairs, n=4)
        more = statistics.median(pairs)
        noise = "" if abs(more) > high - low else " ~"
        print(f"{what:24} {on:8.2f} {off:8.2f} {more:8.2f} {high - low:8.2f}{noise}")
    return 0


async def _measure(rounds: int, tasks: int) -> dict[str, dict[str, list[float]]]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place, port = Path(folder), processes.free_port()
        address = f"jackalope://127.0.0.1:{port}"
        program = processes.python_program("jackalope")
        serve = [program, "serve", "--data", str(place / "data"), "--port", str(port), "--no-http"]
        broker = Started([*serve, "--log-level", "warn"], place / "broker.log")
        stack.callback(broker.stop)
        broker.wait_until(lambda: processes.is_listening(port))
        workers = {}
        for kind, where in KINDS.items():
            command = [program, "worker", "bench.http:app", "--broker", address, "--queues", where]
            command += ["--concurrency", "1000", "--log-level", "warn", "--task-logs", where]
            workers[kind] = Started(command, place / f"{where}.log")
            stack.callback(workers[kind].stop)
        figures: dict[str, dict[str, list[float]]] = {
            what: {kind: [] for kind in KINDS} for what in ("worker CPU", "broker CPU", "time")
        }
        async with Jackalope(address) as client:
            for number in range(-1, rounds):
                for kind in KINDS if number % 2 else reversed(KINDS):
                    pids = {"worker CPU": workers[kind].pid, "broker CPU": broker.pid}
                    before = {what: processes.cpu_s([pid]) for what, pid in pids.items()}
                    before["time"] = perf_counter()
                    count = tasks if number >= 0 else _WARM_UP
                    await _turn(client, KINDS[kind], count)
                    after = {what: processes.cpu_s([pid]) for what, pid in pids.items()}
                    after["time"] = perf_counter()
                    if number >= 0:
                        for what, at_s in after.items():
                            figures[what][kind].append((at_s - before[what]) / count * 1e6)
        return figures


async def _turn(client: Jackalope, queue: str, tasks: int) -> None:
    task = client.task(queue=queue, name=noop.name)(noop.definition.function)
    handles = await task.submit_many([(PAYLOAD,)] * tasks)
    await gather(handles, timeout=_ANSWER_S_MAX)

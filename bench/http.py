"""Mixed use over HTTP while tasks flow: is the load held?

One broker, one worker process. In each round first the tasks alone, as fast as they go; then at
half of that speed over the native door, while another process sends the wanted number of HTTP
requests a second: looking at tasks, lists, queues and statistics, health, and submitting. Somebody
waits for every result. What is answered within the time counts, whether it is a request or a task;
if more comes than is answered, that is less than what comes.

Full speed is that of a broker that has worked for a while: a fresh one writes no history at first,
and is quicker. It is measured anew in each round, because machines change their speed within a
minute. The load is held if the medians of the rounds are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.history import written
from bench.peers import processes
from bench.peers.processes import Started
from jackalope import Jackalope, gather
from jackalope.client.task import Task

PAYLOAD = b"jackalope!" * 10

_PACE_STEP_S = 0.02
#: Enough that requests that are due never wait for a connection: lists take long while tasks flow.
_CONNECTIONS = 200
# Enough of them that history is written on the way, as it is when this goes on for ever.
_FULL_SPEED_TASKS = 120_000
_CLIENTS, _BATCH = 8, 1_000
#: The load is held by whoever reaches this much of what is wanted, of requests and of tasks.
_HELD = 0.99
_ANSWER_S_MAX = 30
#: How long a load flows before it is counted, so that what is under way at the end was so at the
#: beginning as well.
_RAMP_S = 3.0

#: How often each kind of request comes in twenty, spread as they would be.
MIX = (
    *("task", "submit", "task", "health", "submit", "task", "queues", "task", "submit", "stats"),
    *("task", "submit", "task", "list", "task", "submit", "health", "task", "submit", "queues"),
)

#: Lists that follow each other differ: the broker answers equal ones together, and would look
#: better here than it does to people who look for different things.
_LIST_SIZES = range(1, 41)

Noop = Task[[bytes], bytes]
Figures = dict[str, float]

app = Jackalope("jackalope://127.0.0.1:7420")


@app.task(queue="bench")
async def noop(payload: bytes) -> bytes:
    """Do nothing."""
    return payload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--rate", type=int, default=1_000, help="requests a second")
    parser.add_argument("--seconds", type=float, default=20, help="how long to hold it in a round")
    parser.add_argument("--rounds", type=int, default=5, help="how often to measure")
    parser.add_argument("--load", metavar="FILE", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Measure, and print; 1 if the load was not held."""
    if args.load:
        uvloop.run(_load(json.loads(Path(args.load).read_text())))
        return 0
    rounds = uvloop.run(_measure(args))
    summary = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    is_held = summary["requests_per_s"] >= _HELD * args.rate and summary["tasks_of_half"] >= _HELD
    if args.json:
        print(json.dumps({"is_held": is_held, "median": summary, "rounds": rounds}))
    else:
        _print_line(summary.values(), summary)
        print("held" if is_held else "not held", "by the medians, which are the last line")
    return 0 if is_held else 1


def _print_line(values: Iterable[object], names: Iterable[str]) -> None:
    cells = zip(values, names, strict=True)
    print("  ".join(f"{value!s:>{len(name)}}" for value, name in cells), flush=True)


# The broker, the worker, and the tasks.


class House(NamedTuple):
    """A broker and a worker, and where they are."""

    broker: Started
    worker: Started
    address: str
    http_port: int


@contextmanager
def serving(place: Path) -> Iterator[House]:
    """Start a broker and a worker in a folder; they are gone when this ends."""
    port, http_port = processes.free_port(), processes.free_port()
    address = f"jackalope://127.0.0.1:{port}"
    program = processes.python_program("jackalope")
    flags = ["--port", str(port), "--http-port", str(http_port), "--log-level", "warn"]
    broker = Started(
        [program, "serve", "--data", str(place / "data"), *flags], place / "broker.log"
    )
    started = [broker]
    try:
        broker.wait_until(lambda: all(map(processes.is_listening, (port, http_port))))
        command = [program, "worker", "bench.http:app", "--broker", address]
        command += ["--queues", "bench", "--concurrency", "1000"]
        worker = Started(command, place / "worker.log")
        started.append(worker)
        yield House(broker, worker, address, http_port)
    finally:
        for process in reversed(started):
            process.stop()


async def _measure(args: argparse.Namespace) -> list[Figures]:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as house:
        async with Jackalope(house.address) as client:
            task = client.task(queue="bench", name=noop.name)(noop.definition.function)
            sample = await task.submit(PAYLOAD)
            await sample.result(timeout=_ANSWER_S_MAX)
            request = Path(folder) / "load.json"
            request.write_text(
                json.dumps(
                    {
                        "port": house.http_port,
                        "rate": args.rate,
                        "seconds": args.seconds,
                        "task": str(sample),
                    }
                )
            )
            await reach_full_speed(task)
            rounds: list[Figures] = []
            for _ in range(args.rounds):
                full_speed = await reach_full_speed(task)
                await _settle(client)
                flow = await _flow(task, full_speed / 2, args.seconds, house, request)
                rounds.append(
                    {
                        "full_speed": round(full_speed),
                        "tasks_of_half": round(flow["tasks_per_s"] / (full_speed / 2), 3),
                        **flow,
                    }
                )
                if not args.json:
                    if len(rounds) == 1:
                        _print_line(rounds[-1], rounds[-1])
                    _print_line(rounds[-1].values(), rounds[-1])
            return rounds


async def _settle(client: Jackalope) -> None:
    """Wait until history is up to date: what is left over must not disturb."""
    await written(client, "bench")


async def _flow(
    task: Noop, tasks_per_s: float, seconds: float, house: House, request: Path
) -> Figures:
    """Let tasks and requests flow for some time."""
    load = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench", "http", "--load", str(request), stdout=subprocess.PIPE
    )
    if load.stdout is not None:
        await load.stdout.readline()  # It is ready, and begins.
    cpu_before_s, begin = processes.cpu_s([house.broker.pid]), time.perf_counter()
    tasks_per_s = await paced(task, tasks_per_s, seconds)
    passed_s = time.perf_counter() - begin
    cpu_s = processes.cpu_s([house.broker.pid]) - cpu_before_s
    answer, _ = await load.communicate()
    return {
        "tasks_per_s": round(tasks_per_s),
        **json.loads(answer),
        "broker_cores": round(cpu_s / passed_s, 2),
    }


async def reach_full_speed(task: Noop) -> float:
    """Return how many tasks a second there are when a few clients never pause."""
    left = iter(range(_FULL_SPEED_TASKS // _BATCH))

    async def one_client() -> None:
        for _ in left:
            await _batch(task, _BATCH)

    begin = time.perf_counter()
    await asyncio.gather(*(one_client() for _ in range(_CLIENTS)))
    return _FULL_SPEED_TASKS / (time.perf_counter() - begin)


async def paced(task: Noop, rate: float, seconds: float) -> float:
    """Submit at a rate; return how many tasks a second have had their results once it flows."""
    begin, done = time.perf_counter(), 0

    async def one_batch(size: int) -> None:
        nonlocal done
        await _batch(task, size)
        if _RAMP_S <= time.perf_counter() - begin <= _RAMP_S + seconds:
            done += size

    batches, due = [], 0
    for step in range(1, round((_RAMP_S + seconds) / _PACE_STEP_S) + 1):
        # Whoever submits does not wait for the others.
        size, due = round(rate * step * _PACE_STEP_S) - due, round(rate * step * _PACE_STEP_S)
        batches.append(asyncio.create_task(one_batch(size)))
        await asyncio.sleep(max(0, begin + step * _PACE_STEP_S - time.perf_counter()))
    await asyncio.gather(*batches)
    return done / seconds


async def _batch(task: Noop, size: int) -> None:
    """Submit some tasks, and wait for their results."""
    await gather(await task.submit_many([(PAYLOAD,)] * size), timeout=_ANSWER_S_MAX)


# The requests, in a process of their own.


async def _load(request: dict[str, float | str]) -> None:
    port, rate, seconds = int(request["port"]), float(request["rate"]), float(request["seconds"])
    task = str(request["task"])
    requests = cycle([(kind, request_of(kind, task, size)) for size in _LIST_SIZES for kind in MIX])
    print("ready", flush=True)
    begin = time.perf_counter()
    count = round(rate * (_RAMP_S + seconds))
    due = iter([begin + number / rate for number in range(count)])
    answers: list[_Answer] = []
    await asyncio.gather(*(_connection(port, due, requests, answers) for _ in range(_CONNECTIONS)))
    in_time = [each for each in answers if _RAMP_S <= each.at - begin <= _RAMP_S + seconds]
    lists = [answer for answer in answers if answer.kind == "list"]
    others = [answer for answer in answers if answer.kind != "list"]
    figures = {
        "requests_per_s": round(len(in_time) / seconds),
        "refused": sum(answer.status >= 400 for answer in answers),
        **{f"{name}_ms": value for name, value in _times_ms(others).items()},
        **{f"list_{name}_ms": value for name, value in _times_ms(lists).items()},
    }
    print(json.dumps(figures))


def _times_ms(answers: list[_Answer]) -> Figures:
    # From when it was due: a request that had to wait for its turn was slow as well.
    times_ms = sorted((answer.at - answer.due) * 1_000 for answer in answers)
    p99 = times_ms[math.ceil(len(times_ms) * 0.99) - 1]
    return {"p50": round(statistics.median(times_ms), 1), "p99": round(p99, 1)}


class _Answer(NamedTuple):
    """What was asked, when it was due, when it was answered, and how."""

    kind: str
    due: float
    at: float
    status: int


async def _connection(
    port: int, due: Iterator[float], requests: Iterator[tuple[str, bytes]], answers: list[_Answer]
) -> None:
    """Send requests when they are due, one after the other over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for at in due:
        await asyncio.sleep(max(0, at - time.perf_counter()))
        kind, request = next(requests)
        status = await exchange(reader, writer, request)
        answers.append(_Answer(kind, at, time.perf_counter(), status))
    writer.close()


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> int:
    """Send a request, read its answer to the end, and return the status."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length or b"0"))
    return int(head[9:12])


def request_of(kind: str, task: str, list_size: int = 20) -> bytes:
    """Write a request of one of the kinds, about a task or for a list of this size."""
    paths = {
        "task": f"GET /api/v1/tasks/{task}",
        "list": f"GET /api/v1/tasks?limit={list_size}",
        "queues": "GET /api/v1/queues",
        "stats": "GET /api/v1/stats",
        "health": "GET /health",
        "submit": "POST /api/v1/tasks",
    }
    body = b'{"name":"later","queue":"later","payload":"amFja2Fsb3Bl"}'
    has_body = kind == "submit"
    head = f"{paths[kind]} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if has_body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + (body if has_body else b"")

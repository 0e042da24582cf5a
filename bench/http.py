"""Mixed use over HTTP while tasks flow: does either slow the other down?

One broker, one worker process. First the tasks alone, as fast as they go; then at half of that
speed over the native door, while another process sends the wanted number of HTTP requests a second:
looking at tasks, lists, queues and statistics, health, and submitting. The figures say how many
requests were answered, how long that took, and what became of the tasks meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import uvloop

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
_ANSWER_S_MAX = 30

#: How often each kind of request comes in twenty, spread as they would be.
MIX = (
    *("task", "submit", "task", "health", "submit", "task", "queues", "task", "submit", "stats"),
    *("task", "submit", "task", "list", "task", "submit", "health", "task", "submit", "queues"),
)

#: Lists that follow each other differ: the broker answers equal ones together, and would look
#: better here than it does to people who look for different things.
_LIST_SIZES = range(1, 41)

Noop = Task[[bytes], bytes]

app = Jackalope("jackalope://127.0.0.1:7420")


@app.task(queue="bench")
async def noop(payload: bytes) -> bytes:
    """Do nothing."""
    return payload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--rate", type=int, default=1_000, help="requests a second")
    parser.add_argument("--seconds", type=float, default=20, help="how long to hold it")
    parser.add_argument("--load", metavar="FILE", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    if args.load:
        uvloop.run(_load(json.loads(Path(args.load).read_text())))
        return 0
    figures = uvloop.run(_measure(args.rate, args.seconds))
    if args.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:>12,}")
    return 0


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


async def _measure(rate: int, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as house:
        async with Jackalope(house.address) as client:
            return await _flow(client, house, Path(folder), rate=rate, seconds=seconds)


async def _flow(
    client: Jackalope, house: House, place: Path, *, rate: int, seconds: float
) -> dict[str, float]:
    task = client.task(queue="bench", name=noop.name)(noop.definition.function)
    sample = await task.submit(PAYLOAD)
    await sample.result(timeout=_ANSWER_S_MAX)
    full_speed = await _full_speed(task)
    # What is left over of that must not disturb: a list is answered when history is up to date.
    await anext(client.tasks(queue="bench"))

    request = place / "load.json"
    request.write_text(
        json.dumps({"port": house.http_port, "rate": rate, "seconds": seconds, "task": str(sample)})
    )
    load = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench", "http", "--load", str(request), stdout=subprocess.PIPE
    )
    if load.stdout is not None:
        await load.stdout.readline()  # It is ready, and begins.
    cpu_before_s, begin = processes.cpu_s([house.broker.pid]), time.perf_counter()
    tasks_per_s = await _paced(task, full_speed / 2, seconds)
    passed_s = time.perf_counter() - begin
    cpu_s = processes.cpu_s([house.broker.pid]) - cpu_before_s
    answer, _ = await load.communicate()
    return {
        "tasks_per_s_full_speed": round(full_speed),
        "tasks_per_s_wanted": round(full_speed / 2),
        "tasks_per_s": round(tasks_per_s),
        "requests_per_s_wanted": rate,
        **json.loads(answer),
        "broker_cores": round(cpu_s / passed_s, 2),
    }


async def _full_speed(task: Noop) -> float:
    """Return how many tasks a second there are when a few clients never pause."""
    left = iter(range(_FULL_SPEED_TASKS // _BATCH))

    async def one_client() -> None:
        for _ in left:
            await _batch(task, _BATCH)

    begin = time.perf_counter()
    await asyncio.gather(*(one_client() for _ in range(_CLIENTS)))
    return _FULL_SPEED_TASKS / (time.perf_counter() - begin)


async def _paced(task: Noop, rate: float, seconds: float) -> float:
    """Submit at a rate for some time; return how many tasks a second had their results by then."""
    begin, done = time.perf_counter(), 0

    async def one_batch(size: int) -> None:
        nonlocal done
        await _batch(task, size)
        if time.perf_counter() - begin <= seconds:
            done += size

    batches, due = [], 0
    for step in range(1, round(seconds / _PACE_STEP_S) + 1):
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
    requests = cycle([request_of(kind, task, size) for size in _LIST_SIZES for kind in MIX])
    print("ready", flush=True)
    begin = time.perf_counter()
    due = iter([begin + number / rate for number in range(round(rate * seconds))])
    answers: list[_Answer] = []
    await asyncio.gather(*(_connection(port, due, requests, answers) for _ in range(_CONNECTIONS)))
    # From when it was due: a request that had to wait for its turn was slow as well.
    times_s = sorted(answer.at - answer.due for answer in answers)
    figures = {
        "requests_per_s": round(sum(answer.at <= begin + seconds for answer in answers) / seconds),
        "requests_refused": sum(answer.status >= 400 for answer in answers),
        "request_p50_ms": round(times_s[len(times_s) // 2] * 1_000, 2),
        "request_p99_ms": round(times_s[math.ceil(len(times_s) * 0.99) - 1] * 1_000, 2),
    }
    print(json.dumps(figures))


class _Answer(NamedTuple):
    """When a request was due, when it was answered, and how."""

    due: float
    at: float
    status: int


async def _connection(
    port: int, due: Iterator[float], requests: Iterator[bytes], answers: list[_Answer]
) -> None:
    """Send requests when they are due, one after the other over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for at in due:
        await asyncio.sleep(max(0, at - time.perf_counter()))
        status = await exchange(reader, writer, next(requests))
        answers.append(_Answer(at, time.perf_counter(), status))
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
    body = b'{"task_type":"later","queue":"later","payload":"amFja2Fsb3Bl"}'
    has_body = kind == "submit"
    head = f"{paths[kind]} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if has_body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + (body if has_body else b"")

"""What requests and tasks cost, in CPU time of the processes that serve them.

A speed depends on everything else that the machine does. The CPU time of a process over a fixed
piece of work depends on it less, and the least of several readings hardly does, so this is what to
compare before and after a change: microseconds of the broker for each kind of request, and of
broker, worker and client for each task.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import uvloop

from bench.http import MIX, PAYLOAD, House, exchange, noop, request_of, serving
from bench.peers import processes
from jackalope import Jackalope, gather

#: Few, so that requests come one by one, as they do from clients that know nothing of each other.
_CONNECTIONS = 4

#: Of each kind of request there are so many readings; the first is of requests that come cold.
_READINGS = 6

_TASKS_PER_CALL = 1_000
_ANSWER_S_MAX = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--requests", type=int, default=6_000, help="how many of each kind")
    parser.add_argument("--tasks", type=int, default=100_000, help="how many tasks")


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    figures = uvloop.run(_measure(args.requests, args.tasks))
    if args.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:>12,}")
    return 0


async def _measure(requests: int, tasks: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as house:
        async with Jackalope(house.address) as client:
            task = client.task(queue="bench", name=noop.name)(noop.definition.function)
            sample = await task.submit(PAYLOAD)
            await sample.result(timeout=_ANSWER_S_MAX)
            figures = await _cost_of_requests(house, str(sample), requests) if requests else {}
            return figures | (await _cost_of_tasks(client, house, tasks) if tasks else {})


async def _cost_of_requests(house: House, task: str, number: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    # Submits first, so that there is something to list.
    for kind in ("submit", *sorted(set(MIX) - {"submit"})):
        requests = [request_of(kind, task)] * (number // _READINGS)
        readings_s = []
        for _ in range(_READINGS):
            before_s = processes.cpu_s([house.broker.pid])
            await _send(house.http_port, iter(requests))
            readings_s.append(processes.cpu_s([house.broker.pid]) - before_s)
        figures[f"{kind}_us"] = round(min(readings_s) / len(requests) * 1e6)
    figures["mix_us"] = round(sum(figures[f"{kind}_us"] for kind in MIX) / len(MIX))
    return figures


async def _send(port: int, requests: Iterator[bytes]) -> None:
    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in requests:
            await exchange(reader, writer, request)
        writer.close()

    await asyncio.gather(*(one() for _ in range(_CONNECTIONS)))


async def _cost_of_tasks(client: Jackalope, house: House, number: int) -> dict[str, float]:
    task = client.task(queue="bench", name=noop.name)(noop.definition.function)

    def spent_s() -> dict[str, float]:
        return {
            "broker": processes.cpu_s([house.broker.pid]),
            "worker": processes.cpu_s([house.worker.pid]),
            "client": sum(os.times()[:2]),
        }

    before_s = spent_s()
    handles = [
        handle
        for _ in range(number // _TASKS_PER_CALL)
        for handle in await task.submit_many([(PAYLOAD,)] * _TASKS_PER_CALL)
    ]
    await gather(handles, timeout=_ANSWER_S_MAX)
    # What the broker has put off is a part of the price: this waits for it.
    await client.batches("bench")
    after_s = spent_s()
    return {
        f"task_{name}_us": round((after_s[name] - before_s[name]) / number * 1e6, 1)
        for name in before_s
    }

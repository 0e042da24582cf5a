"""The command that measures a broker: rates and latencies of tasks that do nothing."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from statistics import quantiles
from typing import Annotated, Any

from rich.console import Group, RenderableType

from jackalope.cli.base import Failure, opt
from jackalope.cli.formatting import number
from jackalope.cli.output import Screen, dim, table
from jackalope.client.app import Jackalope
from jackalope.core.commands import Action, Finish, Held, JoinWorker, LeaveWorker, StartAttempts
from jackalope.core.filter import Filter
from jackalope.core.task import TaskSpec
from jackalope.errors import ConnectionLost
from jackalope.task_ids import new_task_id
from jackalope.transport.address import Address
from jackalope.transport.connection import Connection
from jackalope.wire.messages import AnyMessage, Assign, Hello, Result


async def bench(
    client: Jackalope,
    screen: Screen,
    *,
    tasks: Annotated[int, opt("--tasks -t", "How many tasks.", min=1, max=10_000_000)] = 20_000,
    payload_bytes: Annotated[
        int, opt("--payload-bytes", "The size of each payload.", min=0, max=65_536)
    ] = 100,
    slots: Annotated[
        int, opt("--slots", "How many tasks the worker holds at once.", min=1, max=100_000)
    ] = 1_000,
    trips: Annotated[
        int, opt("--trips", "How many round trips are timed.", min=2, max=100_000)
    ] = 300,
) -> None:
    """Measure a broker: submit tasks that do nothing, run them, and print rates and latencies.

    It uses a queue of its own, and removes it.

    Examples:
        jackalope bench
        jackalope bench --tasks 200000 --payload-bytes 1000 --format json
    """
    total = 2 * trips + 2 * tasks
    with screen.progress("measuring", total) as progress:
        measured = await measure(
            client,
            tasks=tasks,
            payload_bytes=payload_bytes,
            slots=slots,
            trips=trips,
            advance=lambda count: progress.advance(progress.task_ids[0], count),
        )
    screen.show(measured, lambda: draw(measured))


_POLICY = {"retention_us": 0, "depth_limit": 0, "retries": 0}

Advance = Callable[[int], None]


async def measure(
    client: Jackalope, *, tasks: int, payload_bytes: int, slots: int, trips: int, advance: Advance
) -> dict[str, Any]:
    """Measure a broker, and return rates in tasks a second and latencies in milliseconds.

    Args:
        client: the submitter's connection.
        tasks: how many are submitted in bulk and then run.
        payload_bytes: how large each of them is.
        slots: how many the worker holds at once.
        trips: how many are submitted one at a time, and how many round trips are made.
        advance: called for every task that has ended.
    """
    queue = f"bench-{os.urandom(4).hex()}"
    await client.declare_queue(queue, changes=_POLICY)
    session = client.session()
    try:
        broker = (await client.session().connected()).address
        async with _worker(broker, queue, slots) as worker:
            single = await _timed(
                partial(session.submit, timeout_s=client.timeout_s),
                _specs(queue, trips, payload_bytes),
                advance,
            )
            await worker.done(trips)
            round_trips = await _timed(
                partial(session.serve, timeout_s=client.timeout_s),
                _specs(queue, trips, payload_bytes),
                advance,
            )
            await worker.done(2 * trips)
            specs = _specs(queue, tasks, payload_bytes)
            submit_s, run_s = await _in_bulk(client, worker, queue, specs, advance)
    finally:
        with suppress(Exception):
            await client.act(Action.KILL, matching=Filter(queue=queue))
            await client.delete_queue(queue)
    return {
        "tasks": tasks,
        "payload_bytes": payload_bytes,
        "durability": (await client.stats()).durability,
        "submit_one_per_s": trips / sum(single),
        "submit_bulk_per_s": tasks / submit_s,
        "run_per_s": tasks / run_s,
        "end_to_end_per_s": tasks / (submit_s + run_s),
        **_percentiles("submit", single),
        **_percentiles("round_trip", round_trips),
    }


async def _timed(
    send: Callable[[TaskSpec], Awaitable[object]], specs: list[TaskSpec], advance: Advance
) -> list[float]:
    """Send tasks one by one, and return how long each took."""
    took_s = []
    for spec in specs:
        begin = time.perf_counter()
        await send(spec)
        took_s.append(time.perf_counter() - begin)
        advance(1)
    return took_s


async def _in_bulk(
    client: Jackalope, worker: "BenchWorker", queue: str, specs: list[TaskSpec], advance: Advance
) -> tuple[float, float]:
    """Submit many while the queue rests, then let it go; return how long each of these took."""
    await client.pause_queue(queue)
    begin = time.perf_counter()
    refused = await client.session().submit_many(specs, timeout_s=client.timeout_s)
    for rejected in refused.values():
        raise Failure(f"{len(refused)} tasks were refused: {rejected.message}")
    advance(len(specs))
    submitted = time.perf_counter()
    wanted = worker.count + len(specs)
    worker.advance = advance
    await client.resume_queue(queue)
    await worker.done(wanted)
    return submitted - begin, time.perf_counter() - submitted


def _percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=100, method="inclusive")
    return {f"{name}_p50_ms": cuts[49] * 1e3, f"{name}_p99_ms": cuts[98] * 1e3}


def _specs(queue: str, count: int, payload_bytes: int) -> list[TaskSpec]:
    payload = os.urandom(payload_bytes)
    return [TaskSpec(new_task_id(), queue, "noop", payload=payload) for _ in range(count)]


def draw(measured: dict[str, Any]) -> RenderableType:
    """Draw what was measured."""
    rates = table("rate", ">tasks/s")
    for name, key in (
        ("submit, one at a time", "submit_one_per_s"),
        ("submit, in bulk", "submit_bulk_per_s"),
        ("run by one worker", "run_per_s"),
        ("submit, then run", "end_to_end_per_s"),
    ):
        rates.add_row(name, number(measured[key]))
    times = table("latency", ">p50 ms", ">p99 ms")
    for name, key in (("submit", "submit"), ("submit, run, await result", "round_trip")):
        times.add_row(name, f"{measured[f'{key}_p50_ms']:.2f}", f"{measured[f'{key}_p99_ms']:.2f}")
    what = (
        f"{measured['tasks']:,} tasks of {measured['payload_bytes']} bytes, "
        f"durability {measured['durability']}"
    )
    return Group(rates, "", times, "", dim(what))


# The worker.


class BenchWorker:
    """Finishes every task at once."""

    def __init__(self) -> None:
        self.count = 0  # how many it has finished
        self.advance: Advance = lambda _: None  # whom to tell of them
        self._wanted = 0
        self._reached = asyncio.Event()
        self._loss: ConnectionLost | None = None
        self._connection: Connection

    async def join(self, address: Address, queue: str, slots: int) -> None:
        """Connect, and serve the queue."""
        hello = Hello(namespace=address.namespace, token=address.token, name=queue)
        self._connection = await Connection.open(address, hello, heard=self._heard, lost=self._lost)
        await self._connection.request(JoinWorker(0, queue, (queue,), slots=slots))

    async def leave(self) -> None:
        """Go."""
        if self._connection.is_open:
            await self._connection.request(LeaveWorker())
        await self._connection.close()

    async def done(self, count: int) -> None:
        """Return when so many tasks are done, counted from the beginning."""
        self._wanted = count
        self._reached.clear()
        if self.count < count and self._loss is None:
            await self._reached.wait()
        if self._loss is not None:
            raise self._loss

    def _heard(self, message: AnyMessage) -> None:
        if not isinstance(message, Assign):
            return
        given = message.assignments
        self._connection.send(StartAttempts(0, [Held(each.task, each.fence) for each in given]))
        finished = [Finish(each.task, each.fence) for each in given]
        self._connection.ask(Result(0, finished), lambda *_: self._finished(len(given)))

    def _finished(self, count: int) -> None:
        self.count += count
        self.advance(count)
        if self.count >= self._wanted:
            self._reached.set()

    def _lost(self, loss: ConnectionLost) -> None:
        self._loss = loss
        self._reached.set()


@asynccontextmanager
async def _worker(address: Address, queue: str, slots: int) -> AsyncIterator[BenchWorker]:
    worker = BenchWorker()
    await worker.join(address, queue, slots)
    try:
        yield worker
    finally:
        await worker.leave()

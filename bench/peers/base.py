"""What every system must offer, and the measuring, written once for all of them.

One task is the same everywhere: it takes a payload of 100 bytes and gives it back; its result is
kept. One process submits, one process works, the servers are private, all on one machine.

- `submit_one_per_s`: submit, wait until the system says that it has the task, submit the next;
  no worker is running.
- `submit_bulk_per_s`: the same by whatever the system has for many at once, a thousand a call; no
  worker is running. Where it has nothing, one after the other, and `notes` says so.
- `end_to_end_per_s`: from the first submit in bulk to the last result, while one worker process
  runs: client, system and worker share the machine, as they do for a user.
- `round_trip_p50_ms`, `round_trip_p99_ms`: from submit to result in hand, one at a time, with
  nothing else to do.
- `rss_mb_100k`: resident memory of the broker's processes with 100,000 tasks pending and no
  worker; `rss_mb_idle` is the same before the first task.
- `cpu_at_5000_per_s`: cores that the broker's processes are busy with at 5,000 tasks a second, from
  submit to result; none where that rate is not reached. `broker_cpu_us_per_task` is known for
  every system that has a broker process: it is taken while `end_to_end_per_s` is measured.
- `floor_fsyncs_per_s`: what the disk itself did just before, one durable append after the other.
  Two systems that wait for the disk can be compared only if it was the same for both.

Clients are sync or async; the measuring is async, and a sync client simply blocks it.
"""

from __future__ import annotations

import abc
import asyncio
import math
import signal
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar

from bench.peers import processes
from bench.peers.place import Place
from bench.peers.processes import Started
from bench.peers.servers import Server

TEXT = "jackalope!" * 10
PAYLOAD = TEXT.encode()

BULK = 1_000
RESULT_S_MAX = 120

Figures = dict[str, Any]

FIGURES = (
    "submit_one_per_s",
    "submit_bulk_per_s",
    "end_to_end_per_s",
    "round_trip_p50_ms",
    "round_trip_p99_ms",
    "rss_mb_100k",
    "cpu_at_5000_per_s",
    "rss_mb_idle",
    "broker_cpu_us_per_task",
    "floor_fsyncs_per_s",
)

_PENDING = 100_000
_PENDING_MIN = 2_500
_TRIAL = 100
_PACE_PER_S = 5_000
_PACE_STEP_S = 0.01
_PACE_S_MIN = 1
_PACE_LATE_S_MAX = 0.2

_REDIS_DURABILITY = {
    "everysec": "up to 1 s lost (Redis appendfsync everysec)",
    "always": "fsync (Redis appendfsync always)",
}


@dataclass(frozen=True)
class Plan:
    """How long and how much to measure."""

    # A plan may ask for memory, for speed or for both.
    has_memory: bool
    has_speed: bool
    # What cannot fill its queue in this time is measured with fewer tasks, or not at all.
    memory_s: float
    phase_s: float
    round_trips: int
    tasks_max: int


class Peer(abc.ABC):
    """A system under test.

    A subclass starts its servers and connects in `open`, says how to start its worker, and offers
    the operations below. A handle is whatever its client gives for a submitted task.
    """

    # The client libraries, for their versions.
    packages: ClassVar[tuple[str, ...]] = ()
    # What is safe when a submit returns, and what of a result.
    durability: ClassVar[str] = ""
    notes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, place: Place) -> None:
        self.place = place
        self.servers: list[Server] = []
        self._worker: Started | None = None

    @abc.abstractmethod
    async def open(self) -> None:
        """Start the servers, put them into `servers`, and connect."""

    @abc.abstractmethod
    async def submit_one(self) -> Any:
        """Submit a task, and return its handle once the system has it."""

    @abc.abstractmethod
    async def submit_bulk(self, count: int) -> list[Any]:
        """Submit tasks in the fastest way there is, and return once the system has them all."""

    @abc.abstractmethod
    async def wait(self, handles: Sequence[Any], /) -> None:
        """Return once every one of the tasks is done and its result is kept."""

    @abc.abstractmethod
    async def round_trip(self) -> Any:
        """Submit one task, and return its result as soon as there is one."""

    @abc.abstractmethod
    async def reset(self) -> None:
        """Forget every task."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Disconnect. Called even if `open` failed half-way."""

    @abc.abstractmethod
    def worker_command(self) -> Sequence[str]:
        """Return how to start the one worker process."""

    def worker_environment(self) -> Mapping[str, str]:
        """Return what the worker needs in its environment, beside the place."""
        return {}

    def describe_durability(self) -> str:
        """Return what is safe when a submit returns, with the settings of this run."""
        redis = _REDIS_DURABILITY[self.place.redis_fsync]
        return self.durability.format(redis=redis, queue=self.place.queue_type)

    async def start_worker(self) -> None:
        """Start the worker, and return when it has answered."""
        log = self.place.path / "worker.log"
        self._worker = Started(self.worker_command(), log, environment=self.worker_environment())
        result = await self.round_trip()
        if result not in (PAYLOAD, TEXT):
            raise RuntimeError(f"a task came back with {result!r}: {self._worker.last_words()}")

    async def stop(self) -> None:
        """Stop everything that was started."""
        if self._worker is not None:
            # Nothing that it could still say matters.
            self._worker.stop(signal.SIGKILL)
        try:
            await self.close()
        finally:
            for server in reversed(self.servers):
                server.stop()

    async def settle(self) -> None:  # noqa: B027  most have nothing to do
        """Return when the system has done what it puts off, where it puts off anything."""

    def worker_pids(self) -> list[int]:
        """Return the worker's process, once it is started."""
        return [] if self._worker is None else [self._worker.pid]

    def server_pids(self) -> list[int]:
        """Return the broker's processes; empty if the system has none."""
        return [pid for server in self.servers for pid in server.pids]


async def measure(peer: Peer, plan: Plan) -> Figures:
    """Take one system through the plan, and return its figures."""
    figures: Figures = dict.fromkeys(FIGURES)
    notes = list(peer.notes)
    try:
        await peer.open()
        if plan.has_memory:
            await _measure_memory(peer, plan, figures, notes)
        if plan.has_speed:
            await peer.reset()
            await _measure_submits(peer, plan, figures)
            await peer.reset()
            await peer.start_worker()
            await _measure_round_trips(peer, plan, figures)
            await _measure_end_to_end(peer, plan, figures)
            await _measure_pace(peer, plan, figures)
    finally:
        await peer.stop()
    figures["durability"] = peer.describe_durability()
    figures["version"] = _versions(peer)
    figures["notes"] = notes
    return figures


async def _measure_memory(peer: Peer, plan: Plan, figures: Figures, notes: list[str]) -> None:
    if not peer.server_pids():
        return
    figures["rss_mb_idle"] = round(await _settled_mb(peer, plan), 1)
    if await _bulk_rate(peer) * plan.memory_s < _PENDING_MIN:
        notes.append("rss_mb_100k is left out: filling the queue takes too long")
        return
    # The first tasks make a server set up what it needs for any number of them.
    await peer.submit_bulk(BULK)
    before_mb = await _settled_mb(peer, plan)
    before = pending = BULK + 2 * _TRIAL
    deadline = time.perf_counter() + plan.memory_s
    while pending < _PENDING and time.perf_counter() < deadline:
        pending += len(await peer.submit_bulk(min(BULK, _PENDING - pending)))
    after_mb = await _settled_mb(peer, plan)
    task_mb = (after_mb - before_mb) / (pending - before)
    figures["rss_mb_100k"] = round(after_mb + task_mb * (_PENDING - pending), 1)
    if pending < _PENDING:
        notes.append(f"rss_mb_100k is scaled up from {pending:,} pending tasks")


async def _settled_mb(peer: Peer, plan: Plan) -> float:
    await asyncio.sleep(min(1, plan.phase_s / 2))
    return processes.resident_mb(peer.server_pids())


async def _measure_submits(peer: Peer, plan: Plan, figures: Figures) -> None:
    for _ in range(20):
        await peer.submit_one()
    count, begin = 0, time.perf_counter()
    while (passed_s := time.perf_counter() - begin) < plan.phase_s:
        await peer.submit_one()
        count += 1
    figures["submit_one_per_s"] = round(count / passed_s)

    # A slow system gets no more in one call than fits the time.
    size = int(max(_TRIAL, min(BULK, await _bulk_rate(peer) * plan.phase_s)))
    count, begin = 0, time.perf_counter()
    while (passed_s := time.perf_counter() - begin) < plan.phase_s and count < plan.tasks_max:
        count += len(await peer.submit_bulk(size))
    figures["submit_bulk_per_s"] = round(count / passed_s)


async def _bulk_rate(peer: Peer) -> float:
    """Return a first idea of how many tasks a second can be submitted in bulk."""
    await peer.submit_bulk(_TRIAL)
    begin = time.perf_counter()
    await peer.submit_bulk(_TRIAL)
    return _TRIAL / (time.perf_counter() - begin)


async def _measure_round_trips(peer: Peer, plan: Plan, figures: Figures) -> None:
    for _ in range(10):
        await peer.round_trip()
    times_ms = []
    for _ in range(plan.round_trips):
        begin = time.perf_counter()
        await peer.round_trip()
        times_ms.append((time.perf_counter() - begin) * 1_000)
    times_ms.sort()
    figures["round_trip_p50_ms"] = round(statistics.median(times_ms), 2)
    figures["round_trip_p99_ms"] = round(times_ms[math.ceil(len(times_ms) * 0.99) - 1], 2)


async def _measure_end_to_end(peer: Peer, plan: Plan, figures: Figures) -> None:
    await _run_many(peer, _TRIAL)
    pids = peer.server_pids()
    count = 2 * _TRIAL
    # More and more of them, until they fill the time.
    for _ in range(4):
        cpu_before_s = processes.cpu_s(pids)
        passed_s = await _run_many(peer, count)
        figures["end_to_end_per_s"] = round(count / passed_s)
        if pids:
            cpu_us = (processes.cpu_s(pids) - cpu_before_s) * 1_000_000
            figures["broker_cpu_us_per_task"] = round(cpu_us / count, 1)
        if passed_s > plan.phase_s / 2 or count == plan.tasks_max:
            break
        count = min(plan.tasks_max, int(count * plan.phase_s / passed_s))


async def _run_many(peer: Peer, count: int) -> float:
    """Submit in bulk, wait for the last result, and return the seconds that it took."""
    begin = time.perf_counter()
    handles: list[Any] = []
    while len(handles) < count:
        handles += await peer.submit_bulk(min(BULK, count - len(handles)))
    await peer.wait(handles)
    return time.perf_counter() - begin


async def _measure_pace(peer: Peer, plan: Plan, figures: Figures) -> None:
    """Hold 5,000 tasks a second and see what the broker's processes use."""
    pids = peer.server_pids()
    # What is far below at its fastest needs no trial.
    if not pids or figures["end_to_end_per_s"] < 0.8 * _PACE_PER_S:
        return
    size = round(_PACE_PER_S * _PACE_STEP_S)
    steps = round(max(_PACE_S_MIN, plan.phase_s) / _PACE_STEP_S)
    cpu_before_s, begin = processes.cpu_s(pids), time.perf_counter()
    handles: list[Any] = []
    for step in range(steps):
        await asyncio.sleep(max(0, begin + step * _PACE_STEP_S - time.perf_counter()))
        handles += await peer.submit_bulk(size)
    await peer.wait(handles)
    late_s = time.perf_counter() - begin - steps * _PACE_STEP_S
    # Who falls behind is late by ever more; who keeps up, by no more than a slow round trip.
    if late_s < _PACE_LATE_S_MAX:
        cpu_s = processes.cpu_s(pids) - cpu_before_s
        figures["cpu_at_5000_per_s"] = round(cpu_s / len(handles) * _PACE_PER_S, 3)


async def until(is_done: Callable[[], Awaitable[bool]], pause_s: float = 0.005) -> None:
    """Ask again and again until the answer is yes.

    Raises:
        RuntimeError: It is still no when a broken worker is the only explanation.
    """
    deadline = time.monotonic() + RESULT_S_MAX
    while not await is_done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the tasks are not done after {RESULT_S_MAX} s")
        await asyncio.sleep(pause_s)


async def concurrently(
    count: int, at_once: int, operation: Callable[[], Awaitable[Any]]
) -> list[Any]:
    """Run an operation many times, some of them at once, and return all that it returned."""
    remaining = iter(range(count))

    async def run() -> list[Any]:
        return [await operation() for _ in remaining]

    parts = await asyncio.gather(*(run() for _ in range(min(count, at_once))))
    return [result for part in parts for result in part]


def _versions(peer: Peer) -> str:
    clients = [f"{package} {metadata.version(package)}" for package in peer.packages]
    servers = [server.version for server in peer.servers if server.version]
    return ", ".join([*clients, *servers])

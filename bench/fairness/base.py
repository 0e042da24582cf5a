"""The load, the same for every system, and what is taken of it.

Tasks of many tenants arrive at a steady rate, half as fast again as the worker can do them; which
tenant a task has is drawn from Zipf's distribution. So a few large tenants ask for far more than
their share, and thousands of small ones for a task or two. One worker does one task at a time, and
each takes a few milliseconds. It writes down when each began.

The wait of a task is from its submit to its begin. A small tenant has three tasks or fewer in the
whole run. The ideal serves all that wait at once, each with an equal part of the worker (processor
sharing), and begins at the very moments at which the system did: so it has the same capacity, and
only the order differs.
"""

from __future__ import annotations

import abc
import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate
from pathlib import Path
from typing import Any

Figures = dict[str, Any]

#: The variable with the file in which the worker writes when each task began.
LOG = "JACKALOPE_BENCH_BEGINS"

#: How long a task takes; with what a system needs besides, 100 to 180 are done a second.
TASK_S = 0.005

_SMALL = 3
_STEP_S = 0.1
_DRAIN_S_MAX = 400


@dataclass(frozen=True)
class Plan:
    """How much to submit."""

    tenants: int
    per_s: int
    seconds: int


class FairSystem(abc.ABC):
    """A system under test: one broker, one worker that does one task at a time."""

    @abc.abstractmethod
    async def begin(self) -> None:
        """Start the system and its worker."""

    @abc.abstractmethod
    async def submit(self, tasks: Sequence[tuple[int, str]]) -> None:
        """Submit tasks, each with its number and its tenant."""

    @abc.abstractmethod
    async def end(self) -> None:
        """Stop everything."""


def note(number: int) -> None:
    """Write down that a task begins. Called in the worker."""
    with Path(os.environ[LOG]).open("a") as log:
        log.write(f"{number} {time.time()}\n")


def drawn(plan: Plan) -> list[str]:
    """Return the tenants of all tasks, in the order in which they arrive; always the same."""
    weights = list(accumulate(1 / rank for rank in range(1, plan.tenants + 1)))
    chance = random.Random(21)
    names = [f"tenant-{rank}" for rank in range(plan.tenants)]
    return chance.choices(names, cum_weights=weights, k=plan.per_s * plan.seconds)


async def measure(system: FairSystem, plan: Plan, folder: Path) -> Figures:
    """Submit the load, wait until all have begun, and return the waits."""
    log = folder / "begins"
    log.touch()
    os.environ[LOG] = str(log)
    tenants = drawn(plan)
    submitted: list[float] = []
    await system.begin()
    try:
        first = time.time()
        while len(submitted) < len(tenants):
            due = min(len(tenants), int((time.time() - first) * plan.per_s) + 1)
            some = range(len(submitted), due)
            submitted += [time.time()] * len(some)
            await system.submit([(number, tenants[number]) for number in some])
            await asyncio.sleep(_STEP_S)
        begun = await _begun(log, len(tenants))
    finally:
        await system.end()
    waits = [begun[number] - at for number, at in enumerate(submitted)]
    ideal = ideal_waits(tenants, submitted, sorted(begun.values()))
    spread = max(begun.values()) - min(begun.values())
    return {
        "tasks": len(tenants),
        "tenants": len(set(tenants)),
        "done_per_s": round(len(tenants) / spread, 1),
        **_waits_of("small", tenants, waits, is_small=True),
        **_waits_of("small_ideal", tenants, ideal, is_small=True),
        **_waits_of("large", tenants, waits, is_small=False),
        **_waits_of("large_ideal", tenants, ideal, is_small=False),
    }


async def _begun(log: Path, count: int) -> dict[int, float]:
    """Return when each task began, once all have."""
    until = time.monotonic() + _DRAIN_S_MAX
    while time.monotonic() < until:
        lines = (await asyncio.to_thread(log.read_text)).splitlines()
        if len(lines) >= count:
            begun: dict[int, float] = {}
            for line in lines:
                number, _, at = line.partition(" ")
                begun.setdefault(int(number), float(at))
            if len(begun) == count:
                return begun
        await asyncio.sleep(1)
    raise RuntimeError(f"not all of {count} tasks began within {_DRAIN_S_MAX} s")


def ideal_waits(
    tenants: Sequence[str], submitted: Sequence[float], begins: Sequence[float]
) -> list[float]:
    """Return how long each task would wait if all tenants shared the worker at every moment.

    Between two begins one task's worth of work is done, an equal part of it for each tenant that
    has any. A task waits until its own work is done, less one begin: what it takes to do it.
    """
    waits = [0.0] * len(tenants)
    queued: dict[str, list[int]] = {}
    done: list[tuple[float, int, str]] = []  # the virtual time at which each first task is done
    virtual, arrived = 0.0, 0
    for at in begins:
        while arrived < len(tenants) and submitted[arrived] <= at:
            tenant = tenants[arrived]
            queued.setdefault(tenant, []).append(arrived)
            if len(queued[tenant]) == 1:
                heappush(done, (virtual + 1, arrived, tenant))
            arrived += 1
        work = 1.0
        while work > 1e-12 and done:
            finish, number, tenant = done[0]
            step = min((finish - virtual) * len(done), work)
            virtual += step / len(done)
            work -= step
            if virtual < finish - 1e-12:
                continue
            heappop(done)
            waits[number] = max(0.0, at - submitted[number])
            queued[tenant].pop(0)
            if queued[tenant]:
                heappush(done, (finish + 1, queued[tenant][0], tenant))
            else:
                del queued[tenant]
    return waits


def _waits_of(
    name: str, tenants: Sequence[str], waits: Sequence[float], *, is_small: bool
) -> Figures:
    """Return the median, the 99th percentile and the longest wait of the small, or the largest."""
    counts = Counter(tenants)
    [(largest, _)] = counts.most_common(1)
    chosen = sorted(
        wait
        for tenant, wait in zip(tenants, waits, strict=True)
        if (counts[tenant] <= _SMALL if is_small else tenant == largest)
    )
    return {
        f"{name}_p50_s": round(chosen[len(chosen) // 2], 3),
        f"{name}_p99_s": round(chosen[min(len(chosen) - 1, len(chosen) * 99 // 100)], 3),
        f"{name}_max_s": round(chosen[-1], 3),
    }

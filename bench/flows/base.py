"""What is measured of a system that runs graphs of tasks, and the measuring.

- `chain_ms`: a chain of steps that do nothing, each of which gets what the one before returned,
  from the submit to the result of the last; the median of several.
- `join_s`: a group of tasks that do nothing and a task that counts their results, from the submit
  to the result. `per_s` is how many tasks a second that is.

One process submits, one process works, the servers are private, as in `bench.peers`.
"""

from __future__ import annotations

import abc
import statistics
import time
from dataclasses import dataclass
from typing import Any

Figures = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    steps: int
    chains: int
    members: int


class FlowSystem(abc.ABC):
    """A system that runs chains and joins."""

    @abc.abstractmethod
    async def begin(self) -> None:
        """Start servers and worker, and return when a task was done."""

    @abc.abstractmethod
    async def run_chain(self, steps: int) -> None:
        """Run a chain, and wait for its result."""

    @abc.abstractmethod
    async def run_join(self, members: int) -> int:
        """Run a group and a join, and return how many results the join had."""

    @abc.abstractmethod
    async def end(self) -> None:
        """Stop everything that was started."""


async def measure(system: FlowSystem, plan: Plan) -> Figures:
    """Take one system through the plan, and return its figures."""
    try:
        await system.begin()
        await system.run_chain(10)
        await system.run_join(10)
        times_ms = []
        for _ in range(plan.chains):
            begin = time.perf_counter()
            await system.run_chain(plan.steps)
            times_ms.append((time.perf_counter() - begin) * 1_000)
        begin = time.perf_counter()
        found = await system.run_join(plan.members)
        join_s = time.perf_counter() - begin
        if found != plan.members:
            raise RuntimeError(f"the join had {found} of {plan.members} results")
    finally:
        await system.end()
    return {
        "chain_ms": round(statistics.median(times_ms), 1),
        "join_s": round(join_s, 2),
        "per_s": round(plan.members / join_s),
    }

"""Jackalope at `fsync`, its default, with one queue that is shared out by tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bench.fairness.base import TASK_S, FairSystem, note
from bench.peers.jackalope import JackalopePeer, app

__all__ = ["app"]

#: The fairness key of the queue; without one it is first in, first out.
FAIR_BY = "tenant"


@app.task(queue="bench")
async def work(number: int, tenant: str) -> str:
    """Take a while."""
    note(number)
    await asyncio.sleep(TASK_S)
    return tenant


class JackalopeFair(JackalopePeer, FairSystem):
    """One broker, one worker."""

    def worker_command(self) -> Sequence[str]:
        """Return a worker that does one task at a time."""
        command = [*self.command("worker"), "worker", "bench.fairness.jackalope:app"]
        return [*command, "--queues", "bench", "--concurrency", "1"]

    async def begin(self) -> None:
        """Start broker and worker."""
        await self.open()
        await app.declare_queue("bench", changes={"fair_by": FAIR_BY, "retention_us": 0})
        await self.start_worker()

    async def submit(self, tasks: Sequence[tuple[int, str]]) -> None:
        """Submit in bulk. The broker finds the tenant among the arguments."""
        await work.submit_many([work.call(number, tenant=tenant) for number, tenant in tasks])

    async def end(self) -> None:
        """Stop broker and worker."""
        await self.stop()


class JackalopeInOrder(JackalopeFair):
    """The same without shares, for what they change."""

    async def begin(self) -> None:
        """Start with a queue as any other."""
        await self.open()
        await app.declare_queue("bench", changes={"retention_us": 0})
        await self.start_worker()

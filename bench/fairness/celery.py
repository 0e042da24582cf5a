"""Celery on Redis with one queue, which is what its users have: it knows no tenants.

The settings are those of `bench.peers.celery`, but for the prefetch: the worker reserves one task,
so that it holds up none that could go first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.fairness.base import TASK_S, FairSystem, note
from bench.peers.celery import CeleryRedis, app

app.conf.update(worker_prefetch_multiplier=1)


def _work(number: int, tenant: str) -> str:
    note(number)
    time.sleep(TASK_S)
    return tenant


work = app.task(name="work", ignore_result=True)(_work)


class CeleryInOrder(CeleryRedis, FairSystem):
    """One Redis, one worker with the solo pool."""

    def worker_command(self) -> Sequence[str]:
        """Return a worker that knows the task as well."""
        known = super().worker_command()
        return ["bench.fairness.celery:app" if ":app" in each else each for each in known]

    async def begin(self) -> None:
        """Start Redis and the worker."""
        await self.open()
        await self.start_worker()

    async def submit(self, tasks: Sequence[tuple[int, str]]) -> None:
        """Submit with one producer."""
        with app.producer_or_acquire() as producer:
            for number, tenant in tasks:
                work.apply_async((number, tenant), producer=producer)

    async def end(self) -> None:
        """Stop Redis and the worker."""
        await self.stop()

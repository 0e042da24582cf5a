"""Celery's canvas on Redis: `chain` and `chord`, with the settings of `bench.peers.celery`."""

from __future__ import annotations

from collections.abc import Sequence

from celery import chain, chord

from bench.flows.base import FlowSystem
from bench.peers.base import TEXT
from bench.peers.celery import CeleryRedis, app, noop

_RESULT_S_MAX = 300


def _count(results: list[str]) -> int:
    return len(results)


count = app.task(name="count", ignore_result=False)(_count)


class CeleryFlows(CeleryRedis, FlowSystem):
    """One Redis, one worker with the solo pool."""

    def worker_command(self) -> Sequence[str]:
        """Return a worker that knows the join as well."""
        return ["bench.flows.celery:app" if ":app" in each else each for each in self._base()]

    def _base(self) -> Sequence[str]:
        return super().worker_command()

    async def begin(self) -> None:
        """Start Redis and the worker."""
        await self.open()
        await self.start_worker()

    async def run_chain(self, steps: int) -> None:
        """Submit a chain; each task submits the next."""
        parts = [noop.s(TEXT), *(noop.s() for _ in range(steps - 1))]
        chain(*parts).apply_async().get(timeout=_RESULT_S_MAX)

    async def run_join(self, members: int) -> int:
        """Submit a chord."""
        whole = chord([noop.s(TEXT) for _ in range(members)], count.s())
        return int(whole.apply_async().get(timeout=_RESULT_S_MAX))

    async def end(self) -> None:
        """Stop Redis and the worker."""
        await self.stop()

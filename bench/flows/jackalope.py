"""Flows of Jackalope at `fsync`, its default."""

from __future__ import annotations

from collections.abc import Sequence

from bench.flows.base import FlowSystem
from bench.peers.base import PAYLOAD
from bench.peers.jackalope import JackalopePeer, app, noop
from jackalope import Flow, chain

__all__ = ["app"]

_RESULT_S_MAX = 300


@app.task(queue="bench")
async def count(results: list[bytes]) -> int:
    """Count what comes."""
    return len(results)


class JackalopeFlows(JackalopePeer, FlowSystem):
    """One broker, one worker."""

    def worker_command(self) -> Sequence[str]:
        """Return a worker that knows the join as well."""
        return ["bench.flows.jackalope:app" if ":app" in each else each for each in self._base()]

    def _base(self) -> Sequence[str]:
        return super().worker_command()

    async def begin(self) -> None:
        """Start broker and worker."""
        await self.open()
        await self.start_worker()

    async def run_chain(self, steps: int) -> None:
        """Submit a chain at once."""
        parts = [noop.step(PAYLOAD), *(noop.step() for _ in range(steps - 1))]
        await Flow("chain", chain(*parts)).run(_RESULT_S_MAX)

    async def run_join(self, members: int) -> int:
        """Submit a group and its join at once."""
        flow = Flow("join", noop.steps([PAYLOAD] * members) >> count.step())
        return int(await flow.run(_RESULT_S_MAX))

    async def end(self) -> None:
        """Stop broker and worker."""
        await self.stop()

"""A primary: a broker that is alone and has a standby, which may be promoted in its place.

Owns that it stops for good then: no turn is taken any more, the folder says so, and clients are
sent on to the one that was promoted. It goes on answering its standby, which takes the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import structlog

from jackalope.broker.clock import wall_us
from jackalope.broker.cluster.standing import Standing
from jackalope.broker.service import Broker
from jackalope.storage import Fenced
from jackalope.storage.standby import Fence, write_fence

log = structlog.get_logger(component="standby")


class Primary:
    """Drives a broker that is alone, until another takes its place."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.on_lead: Callable[[], Coroutine[None, None, None]] | None = None
        self._broker = broker
        self._folder = folder
        self.changed: list[Callable[[], None]] = []  # called when another takes its place
        self._by = ""
        self._ended = asyncio.Event()  # it takes no more turns
        self._stopping = asyncio.Event()
        broker.leader = self

    async def start(self) -> None:
        await self._broker.start(self.run)
        self._broker.health.down = ""
        if self.on_lead is not None:
            await self.on_lead()

    async def stop(self) -> None:
        self.release()
        await self._broker.stop()

    def release(self) -> None:
        """Let `run` return."""
        self._stopping.set()
        self._broker.relieve()

    async def run(self) -> None:
        """Lead, and stand still once another does."""
        try:
            await self._broker.lead()
        finally:
            self._ended.set()
        if self._by:
            await self._stopping.wait()

    async def fence(self, by: str) -> int:
        """Acknowledge nothing from now on, also after a restart; return the last batch.

        Args:
            by: where clients find the one that is promoted.
        """
        self._by = by
        self._broker.health.down = self._why()
        self._broker.relieve()
        await self._ended.wait()
        last = self._broker.engine.sequence
        await self._broker.off_loop(lambda: write_fence(self._folder, Fence(by, last, wall_us())))
        log.error("fenced: the standby was promoted", by=by, last=last)
        self._broker.end_sessions("another broker was promoted; connect again")
        for changed in self.changed:
            changed()
        return last

    def leads(self) -> bool:
        """Return whether it can be fenced; repeating that is harmless."""
        return True

    # Who leads: see `jackalope.broker.service.Leader`.

    @property
    def epoch(self) -> int:
        return self._broker.engine.epoch

    answers_reads = False

    def standing(self) -> Standing:
        role = "fenced" if self._by else "leading"
        return Standing(role, self.epoch, self._by, 1, is_ready=not self._by, why=self._why())

    def _why(self) -> str:
        by = self._by
        return f"the standby at {by} was promoted in place of this broker" if by else ""

    def elsewhere(self, door: str) -> str | None:
        if not self._by:
            return None
        return self._by if door == "native" else ""

    def may_read(self) -> bool:
        return not self._by

    async def confirm(self) -> None:
        raise Fenced(self._broker.health.down)

"""Endings: those that were asked to end, and are ended by force when their grace is over.

One task watches all of them, and is there only while somebody is to end. It knows who is to end and
until when; how to look, to kill and to forget is the launcher's. It outlives no launcher: what has
not ended by then runs on, and whoever comes later decides again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection

import structlog

from jackalope.pools.ports import LaunchFailed

log = structlog.get_logger(component="pools")


class Endings:
    """Watches those that are to end.

    Args:
        look: which of these still run?
        kill: end this one by force.
        forget: remove what is left of this one, which has ended.
        every_s: how often to look.
    """

    def __init__(
        self,
        look: Callable[[Collection[str]], Awaitable[Collection[str]]],
        kill: Callable[[str], Awaitable[None]],
        forget: Callable[[str], Awaitable[None]],
        every_s: float,
    ) -> None:
        self._look, self._kill, self._forget = look, kill, forget
        self._every_s = every_s
        self._kill_at: dict[str, float] = {}
        self._watching: asyncio.Task[None] | None = None

    def __contains__(self, worker: str) -> bool:
        return worker in self._kill_at

    def add(self, worker: str, grace_s: float) -> None:
        """Watch one more."""
        self._kill_at[worker] = time.monotonic() + grace_s
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="jackalope-endings")

    def remove(self, worker: str) -> None:
        """Watch one no more."""
        self._kill_at.pop(worker, None)

    async def close(self) -> None:
        """Watch nobody any more."""
        self._kill_at.clear()
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while self._kill_at:
            workers = tuple(self._kill_at)
            try:
                running = await self._look(workers)
            except LaunchFailed as failure:
                log.warning("cannot see whether workers have ended", error=str(failure))
            else:
                await asyncio.gather(*(self._see(each, each in running) for each in workers))
            if self._kill_at:
                await asyncio.sleep(self._every_s)

    async def _see(self, worker: str, is_running: bool) -> None:
        """Do what is due for one. What fails is done at the next look."""
        try:
            if not is_running:
                await self._forget(worker)
                self.remove(worker)
            elif time.monotonic() >= self._kill_at.get(worker, float("inf")):
                await self._kill(worker)
        except LaunchFailed as failure:
            log.warning("cannot end a worker yet", worker=worker, error=str(failure))

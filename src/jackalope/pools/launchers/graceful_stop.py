"""Graceful stop: workers that were asked to end are killed when their grace period is over.

One task watches all of them, and exists only while a worker is to end. It knows which workers are
to end and until when; how to check, to kill and to forget is the launcher's. It outlives no
launcher: what has not ended by then runs on, and the next launcher decides again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection

import structlog

from jackalope.pools.launcher import LaunchFailed

log = structlog.get_logger(component="pools")


class Endings:
    """Watches those that are to end.

    Args:
        look: which of these still run?
        kill: end this one by force.
        forget: remove what is left of these, which have ended.
        every_s: how often to look.
    """

    def __init__(
        self,
        look: Callable[[Collection[str]], Awaitable[Collection[str]]],
        kill: Callable[[str], Awaitable[None]],
        forget: Callable[[Collection[str]], Awaitable[None]],
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
        """Stop watching."""
        self._kill_at.clear()
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while self._kill_at:
            try:
                await self._look_round(tuple(self._kill_at))
            except LaunchFailed as failure:
                # It is tried again with the next look.
                log.warning("cannot end workers yet", error=str(failure))
            if self._kill_at:
                await asyncio.sleep(self._every_s)

    async def _look_round(self, workers: Collection[str]) -> None:
        running = await self._look(workers)
        if ended := [each for each in workers if each not in running]:
            await self._forget(ended)
            for worker in ended:
                self.remove(worker)
        now = time.monotonic()
        due = [each for each in running if self._kill_at.get(each, float("inf")) <= now]
        killing = [self._kill(worker) for worker in due]
        for outcome in await asyncio.gather(*killing, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

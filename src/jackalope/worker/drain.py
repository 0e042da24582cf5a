"""The drain: how a worker comes to its end.

Owns the order. First nothing more is taken, and what has not begun is handed back. What runs may
finish until the deadline. What still runs then is stopped and handed back as interrupted. A second
request skips the deadline; a third skips everything.
"""

from __future__ import annotations

import asyncio

import structlog

from jackalope.worker.workload import Workload

log = structlog.get_logger(component="worker")

#: How long tasks may take to stop once the deadline is over, when somebody is in a hurry.
_HURRY_STOP_S = 0.5
#: How long the means beyond asking may take to work.
_FORCE_S = 1.0
#: How long the broker may take to acknowledge the last reports.
_ACKNOWLEDGE_S = 5.0


class Drain:
    """Brings a worker to its end.

    Attributes:
        asked: set when the worker shall stop.
    """

    def __init__(self, deadline_s: float, stop_s: float) -> None:
        self._deadline_s = deadline_s
        self._stop_s = stop_s
        self.asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._abandoned = asyncio.Event()

    def ask(self, why: str) -> None:
        """Ask for the end; again, and it comes faster."""
        if not self.asked.is_set():
            log.info("draining", why=why, deadline_s=self._deadline_s)
            self.asked.set()
        elif not self._hurried.is_set():
            log.info("handing back at once", why=why)
            self._hurried.set()
        else:
            log.warning("leaving without a word", why=why)
            self._abandoned.set()

    def abandon(self) -> None:
        """Come to the end at once: there is nobody to tell."""
        for event in (self.asked, self._hurried, self._abandoned):
            event.set()

    def ask_first(self, why: str) -> None:
        """Ask for the end, unless that has been asked: the broker may repeat itself."""
        if not self.asked.is_set():
            self.ask(why)

    async def finish(self, workload: Workload) -> bool:
        """Bring the work to its end, and tell whether the broker knows all of it."""
        workload.hand_back_waiting()
        if await self._emptied(workload, self._deadline_s, self._hurried):
            return True
        stop_s = _HURRY_STOP_S if self._hurried.is_set() else self._stop_s
        log.warning("stopping what still runs", running=workload.running)
        workload.hand_back_running(stop_s)
        if await self._emptied(workload, stop_s + _FORCE_S, self._abandoned):
            return True
        workload.give_up()
        return await self._emptied(workload, _ACKNOWLEDGE_S, self._abandoned)

    async def _emptied(self, workload: Workload, within_s: float, unless: asyncio.Event) -> bool:
        """Wait until nothing is held, for a time or until an event."""
        waits = [asyncio.ensure_future(e.wait()) for e in (workload.emptied, unless)]
        try:
            await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return workload.emptied.is_set()

"""The log of outcomes: one line for each task that ended here, unless they are too many.

Owns which successes are logged. Failures always are, with their traceback: the broker keeps the
end of it alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from jackalope.core.task import Error

if TYPE_CHECKING:
    from jackalope.worker.attempt import Attempt

log = structlog.get_logger(component="worker")

#: How many successes have a line of their own within a second; the others are counted in one.
LINES_PER_SECOND_MAX = 10


class OutcomeLog:
    """Logs the ends of attempts. Belongs to one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._until_s = 0.0
        self._shown = 0
        self._others = 0

    def succeeded(self, attempt: Attempt) -> None:
        """Log a success, or count it."""
        now_s = self._loop.time()
        if now_s >= self._until_s:
            self._until_s, self._shown = now_s + 1, 0
        if self._shown >= LINES_PER_SECOND_MAX:
            if not self._others:
                self._loop.call_later(self._until_s - now_s, self.flush)
            self._others += 1
            return
        self._shown += 1
        log.info(
            "task succeeded",
            task_id=attempt.shown,
            name=attempt.assignment.name,
            attempt=attempt.assignment.attempt,
            took_ms=round(1_000 * (now_s - attempt.began_s), 1),
        )

    def failed(self, attempt: Attempt, error: Error) -> None:
        """Log a failure."""
        about = {"exception": error.trace} if error.trace else {}
        log.warning(
            "task failed",
            task_id=attempt.shown,
            name=attempt.assignment.name,
            attempt=attempt.assignment.attempt,
            error=error.type,
            why=error.message,
            **about,
        )

    def flush(self) -> None:
        """Log how many successes had no line of their own."""
        others, self._others = self._others, 0
        if others:
            log.info("more tasks succeeded", count=others)

"""Sharing: one answer for all who ask the same thing at the same time.

Owns the questions that wait for their turn in the thread of history. Pages that people leave open
ask for the same list again and again, and those that had to wait for history ask together. A
question that has begun is not joined any more: it may already have read past what somebody who
comes now must find in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Questions, by what they ask."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Future[T]] = {}
        self._one_by_one = asyncio.Lock()

    async def ask(
        self,
        what: Hashable,
        job: Callable[[], T],
        off_loop: Callable[[Callable[[], T]], Awaitable[T]],
    ) -> T:
        """Return what the job returns, or the one that waits to find out the same."""
        waiting = self._waiting.get(what)
        if waiting is None:

            def begin() -> T:
                self._waiting.pop(what, None)
                return job()

            waiting = self._waiting[what] = asyncio.ensure_future(off_loop(begin))
            waiting.add_done_callback(lambda done: self._end(what, done))
        # Whoever goes takes nothing away from the others.
        answer = await asyncio.shield(waiting)
        async with self._one_by_one:
            await asyncio.sleep(0)  # All at once they would keep the loop from everybody else.
        return answer

    def _end(self, what: Hashable, done: asyncio.Future[T]) -> None:
        """Forget a question, also one that could not begin; whoever asked may be gone by now."""
        if self._waiting.get(what) is done:
            del self._waiting[what]
        if not done.cancelled():
            done.exception()

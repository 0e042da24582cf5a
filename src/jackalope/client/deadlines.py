"""Deadlines: time limits of waits.

Knows nothing of what is waited for.

`Within` is for one thing at a time. `Deadlines` is for very many futures at once, where a timer for
each would cost more than all the rest of a submit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from jackalope.core.ids import TaskId
from jackalope.errors import JackalopeError, Timeout

F = TypeVar("F", bound="asyncio.Future[Any]")


class Within:
    """A time for something to be done in: `async with Within(5, "no answer"): ...`."""

    __slots__ = ("_timeout", "_timeout_s", "_what")

    def __init__(self, timeout_s: float | None, what: str | Callable[[], str]) -> None:
        self._timeout_s = timeout_s
        self._timeout = None if timeout_s is None else asyncio.timeout(timeout_s)
        self._what = what

    async def __aenter__(self) -> None:
        if self._timeout is not None:
            await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timeout is None:
            return
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            what = self._what if isinstance(self._what, str) else self._what()
            raise Timeout(f"{what} within {self._timeout_s:g} s") from None


class Deadlines:
    """Fails the futures that are not done in time, with one timer for all that have the same."""

    def __init__(self, late: Callable[[TaskId, float], JackalopeError]) -> None:
        self._loop = asyncio.get_running_loop()
        self._late = late
        self._by_timeout: dict[float, deque[tuple[float, asyncio.Future[Any], TaskId]]] = {}

    def add(self, future: F, timeout_s: float | None, task_id: TaskId) -> F:
        """Give a future its time, and return it."""
        if timeout_s is None:
            return future
        due = self._loop.time() + timeout_s
        waiting = self._by_timeout.get(timeout_s)
        if waiting is None:
            waiting = self._by_timeout[timeout_s] = deque()
            self._loop.call_at(due, self._look, timeout_s)
        # Answers come about in the order of submits, so this keeps little more than what waits.
        while waiting and waiting[0][1].done():
            waiting.popleft()
        waiting.append((due, future, task_id))
        return future

    def _look(self, timeout_s: float) -> None:
        waiting, now = self._by_timeout[timeout_s], self._loop.time()
        while waiting and (waiting[0][0] <= now or waiting[0][1].done()):
            _, future, task_id = waiting.popleft()
            if not future.done():
                future.set_exception(self._late(task_id, timeout_s))
        if waiting:
            self._loop.call_at(waiting[0][0], self._look, timeout_s)
        else:
            del self._by_timeout[timeout_s]

"""Futures: how results that are still to come cross threads and connections.

Owns the chains that kiwipy is built on: a future may resolve to another future, and the waiter
at the far end sees the same levels. Knows nothing of tasks and calls.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator
from concurrent.futures import CancelledError, InvalidStateError
from contextlib import suppress
from typing import Any

import kiwipy

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, dict, tuple})


class Reply:
    """A reply that may come in levels: each `pending` resolves a future to the next one."""

    def __init__(self) -> None:
        self.first: kiwipy.Future = kiwipy.Future()  # what the caller waits for
        self._last = self.first
        self._levels = 0

    def pending(self, levels: int) -> None:
        """Take the word that there are at least so many levels."""
        while self._levels < levels:
            self._levels += 1
            last, self._last = self._last, kiwipy.Future()
            with suppress(InvalidStateError):
                last.set_result(self._last)

    def finish(self, value: Any) -> None:
        with suppress(InvalidStateError):
            self._last.set_result(value)

    def cancel(self) -> None:
        """Take the word that the other end has given up."""
        self._last.cancel()

    def fail(self, error: BaseException) -> None:
        """Take the word that none will come."""
        with suppress(InvalidStateError):
            self._last.set_exception(error)


def is_pending(result: Any) -> bool:
    """Return whether the value of a subscriber is still pending. Most are not, and need no task."""
    return type(result) not in _PLAIN and (
        inspect.isawaitable(result) or isinstance(result, kiwipy.Future)
    )


async def levels_of(result: Any) -> AsyncGenerator[Any, None]:
    """Yield None at each future that a subscriber's result comes to, then what comes of it.

    Raises:
        CancelledError: the subscriber gave it up.
        Exception: whatever it raised.
    """
    if inspect.isawaitable(result) and not asyncio.isfuture(result):
        result = await result
    while asyncio.isfuture(result) or isinstance(result, kiwipy.Future):
        yield None
        result = await _value_of(result)
    yield (result,)


async def _value_of(future: Any) -> Any:
    """Wait for a future of any kind. That we stop waiting is none of the future's business."""
    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    loop = waiting.get_loop()

    def done(ended: Any) -> None:
        with suppress(RuntimeError):  # The loop is closed: nothing waits any more.
            loop.call_soon_threadsafe(_settle, waiting, ended)

    future.add_done_callback(done)
    return await waiting


def _settle(waiting: asyncio.Future[Any], ended: Any) -> None:
    if waiting.done():
        return
    if ended.cancelled():
        waiting.set_exception(CancelledError("the future was cancelled"))
    elif ended.exception() is not None:
        waiting.set_exception(ended.exception())
    else:
        waiting.set_result(ended.result())

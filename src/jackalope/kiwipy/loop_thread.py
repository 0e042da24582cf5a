"""The thread of a communicator: an event loop that other threads hand work to.

Owns the thread and its loop. Code that blocks or computes in other threads does not delay it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

import kiwipy

from jackalope.core.assertions import must
from jackalope.worker.executors.run_coroutine import new_event_loop

T = TypeVar("T")

#: Most of what is waited for has its own time, and can say better what was missing.
_MARGIN_S = 0.5


class _Call(Generic[T]):
    """A coroutine that another thread waits for. A future would cost several times more."""

    __slots__ = ("_task", "_work", "done")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self.done = threading.Lock()  # locked until there is a result
        self.done.acquire()

    def begin(self) -> None:
        """Begin, on the loop."""
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._task.add_done_callback(self._on_done)

    def give_up(self) -> None:
        """Stop it, on the loop: its result is no longer awaited."""
        if self._task is not None:
            self._task.cancel()

    def result(self) -> T:
        """Return what it returned, once it is done.

        Raises:
            CommunicatorClosed: it was cancelled, because the loop ends.
            BaseException: whatever it raised.
        """
        must(self._task is not None, "what is done has begun")
        task = cast("asyncio.Task[T]", self._task)
        if task.cancelled():
            raise kiwipy.CommunicatorClosed
        return task.result()

    def _on_done(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # Retrieved even if it is no longer awaited.
        self.done.release()


class LoopThread:
    """A thread that runs an event loop."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self.loop = new_event_loop()  # the loop
        self.timeout_s = timeout_s  # how long others wait for what they hand over
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine there, and return what it returns."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a subscriber cannot wait for its own communicator; use a thread")
        call = _Call(work)
        try:
            self.loop.call_soon_threadsafe(call.begin)
        except RuntimeError:
            work.close()
            raise kiwipy.CommunicatorClosed from None
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            is_done = call.done.acquire(timeout=timeout_s + _MARGIN_S)
        except BaseException:
            self.post(call.give_up)
            raise
        if not is_done:
            self.post(call.give_up)
            raise kiwipy.TimeoutError(f"no answer within {timeout_s:g} s")
        return call.result()

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called there, soon; never, if the thread has ended."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *args)

    def end(self) -> None:
        """Stop the loop, and end the thread."""
        self.post(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _live(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.loop.close()

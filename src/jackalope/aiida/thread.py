"""The thread of a communicator: an event loop that other threads hand work to.

Owns the thread and its loop. Whoever blocks or computes elsewhere does not hold it up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import kiwipy

from jackalope.worker.loop import new_event_loop

T = TypeVar("T")

#: Most of what is waited for has its own time, and can say better what was missing.
_MARGIN_S = 0.5


class LoopThread:
    """A thread that runs an event loop.

    Attributes:
        loop: the loop.
        timeout_s: how long others wait for what they hand over.
    """

    def __init__(self, name: str, timeout_s: float) -> None:
        self.loop = new_event_loop()
        self.timeout_s = timeout_s
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine there, and return what it returns.

        Raises:
            TimeoutError: it took too long.
            CommunicatorClosed: the thread has ended.
            RuntimeError: this is the thread itself, which would wait for ever.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a subscriber cannot wait for its own communicator; use a thread")
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise kiwipy.CommunicatorClosed from None
        try:
            timeout_s = self.timeout_s if timeout_s is None else timeout_s
            return future.result(timeout_s + _MARGIN_S)
        except BaseException:
            future.cancel()  # Does nothing if it is done.
            raise

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

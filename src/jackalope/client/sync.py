"""The sync facade: the async client for code without an event loop.

Owns a thread with a loop of its own, and nothing else: whatever can be awaited is run there, from
any number of threads, so the client exists once and not twice. A process that was forked off has
the loop but not the thread, so it begins with new ones.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from jackalope.client.checks import Seconds, wait_s
from jackalope.link.errors import ConfigError, JackalopeError, Timeout

if TYPE_CHECKING:
    from jackalope.client.app import Jackalope

T = TypeVar("T")


class Sync:
    """Runs what the async client gives, and waits for it.

        handle = app.sync(resize.submit("cat.png", width=320))
        print(app.sync(handle.result(timeout=60)))
        for progress in app.sync.iterate(handle.progress()):
            print(progress.percent)

    May be called from any thread. `with app.sync as sync:` closes the connection at the end.
    """

    def __init__(self, app: Jackalope) -> None:
        self._app = app
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __call__(self, work: Coroutine[Any, Any, T], timeout: Seconds | None = None) -> T:
        """Run a coroutine of the client, and return what it returns.

        Args:
            work: such as `resize.submit("cat.png")` or `handle.result()`.
            timeout: after how many seconds to give up and cancel it.

        Raises:
            Timeout: it took longer.
        """
        try:
            timeout_s = wait_s(timeout)
        except ConfigError:
            work.close()
            raise
        if threading.current_thread() is self._thread:
            work.close()
            raise JackalopeError("sync was called by what sync runs; use await there")
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                raise  # Of what ran, not of this wait.
            future.cancel()
            raise Timeout(f"not done within {timeout_s:g} s") from None
        except BaseException:
            future.cancel()  # Also when Ctrl-C ends the wait; does nothing if it is done.
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Return a plain iterator over an async one."""
        end = object()

        async def take() -> T | object:
            return await anext(items, end)

        try:
            while (item := self(take())) is not end:
                yield item  # type: ignore[misc]
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                self(close())

    def __enter__(self) -> Self:
        self(self._app.connect())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end the thread. The next call begins anew."""
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._app.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._process != os.getpid():
            self._begin()  # What the parent has is still the parent's: it is left alone.
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="jackalope-sync", daemon=True
                )
                self._thread.start()
            return self._loop

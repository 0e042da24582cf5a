"""Threads: the event loop of a communicator, and what crosses between it and other threads.

Owns the thread and its loop, where subscribers are called, and the chains of futures. Code that
blocks or computes in other threads does not delay the loop. Knows nothing of tasks and calls.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import CancelledError, InvalidStateError
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

import kiwipy

from jackalope.core.assertions import must
from jackalope.transport.connection import new_event_loop

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
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._task.add_done_callback(self._on_done)

    def give_up(self) -> None:
        """Stop it, on the loop: its result is no longer awaited."""
        if self._task is not None:
            self._task.cancel()

    def result(self) -> T:
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


# Subscribers: where the functions that take tasks, calls and broadcasts must be called.
#
# That is the communicator's thread, with one exception. plumpy's `LoopCommunicator` makes of a
# subscriber a function that schedules it on plumpy's loop and only then adds a callback to its
# asyncio future. Called from another thread that is a race: the loop may be done with the future
# first, and the callback then runs late, or raises an exception if the loop is in debug mode.
# Called by that loop itself, there is no race.

_PLUMPY = "plumpy.communications"

Subscriber = Callable[..., Any]


def at_home(subscriber: Subscriber) -> Subscriber:
    """Return a function that calls a subscriber where it must be called.

    For one of another loop it returns a coroutine, or None at once where plumpy filters the message
    out: most broadcasts are not meant for a process, and that is cheap to see from here.
    """
    inside = _closure_of(subscriber)
    home = inside.get("loop")
    if not isinstance(home, asyncio.AbstractEventLoop):
        return subscriber
    is_filtered = inside.get("_passthrough")

    def call(*args: Any) -> Any:
        if callable(is_filtered) and is_filtered(*args[1:]):
            return None
        return _call_on(home, subscriber, args)

    return call


async def _call_on(home: asyncio.AbstractEventLoop, subscriber: Subscriber, args: Any) -> Any:
    here = asyncio.get_running_loop()
    if home is here:
        return subscriber(*args)
    called: asyncio.Future[tuple[Any, Exception | None]] = here.create_future()

    def settle(outcome: tuple[Any, Exception | None]) -> None:
        if not called.done():
            called.set_result(outcome)

    def run() -> None:
        outcome: tuple[Any, Exception | None]
        try:
            outcome = subscriber(*args), None
        except Exception as error:  # noqa: BLE001  it belongs to the one who called
            outcome = None, error
        with suppress(RuntimeError):  # The communicator is closed: no one waits any more.
            here.call_soon_threadsafe(settle, outcome)

    home.call_soon_threadsafe(run)
    result, error = await called
    if error is not None:
        raise error
    return result


def _closure_of(function: Any) -> dict[str, Any]:
    """Return what a function of plumpy has enclosed; nothing for others."""
    if getattr(function, "__module__", "") != _PLUMPY or not hasattr(function, "__closure__"):
        return {}
    cells = function.__closure__ or ()
    return dict(zip(function.__code__.co_freevars, (c.cell_contents for c in cells), strict=True))


# Futures: how results that are still to come cross threads and connections. They come in chains, on
# which kiwipy is built: a future may resolve to another future, and the waiter at the far end sees
# the same levels.

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
    """Yield None at each future that a subscriber's result comes to, then what comes of it."""
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

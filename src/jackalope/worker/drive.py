"""Driving a coroutine by hand: its first step costs no task, and any exception can be put into it.

Most coroutines of a busy worker never wait, or wait only once. `drive` runs one inside whatever
asyncio task awaits it, and calls back when it really waits for the first time. From then on that
task belongs to the coroutine for good, so that `asyncio.current_task()`, `asyncio.timeout()` and
task groups work as ever.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from typing import Any

from jackalope.worker.context import SoftTimeout


class Ride:
    """A coroutine under way.

    Attributes:
        task: the asyncio task that belongs to it, once it waits.
        is_soft: the next cancellation stands for the soft time-out.
    """

    __slots__ = ("is_soft", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.is_soft = False

    def cancel(self) -> None:
        """Cancel the coroutine at the point where it waits."""
        if self.task is not None:
            self.is_soft = False
            self.task.cancel()

    def time_out_softly(self) -> None:
        """Raise `SoftTimeout` in the coroutine at the point where it waits."""
        if self.task is not None and not self.task.cancelling():
            self.is_soft = True
            self.task.cancel()

    def translate(self, error: BaseException) -> BaseException:
        """Return what to raise in the coroutine for what asyncio raises here."""
        if self.is_soft and self.task is not None and isinstance(error, asyncio.CancelledError):
            self.is_soft = False
            self.task.uncancel()
            return SoftTimeout("the soft time-out is over")
        return error


@types.coroutine
def drive(
    coroutine: Coroutine[Any, Any, Any],
    context: Context,
    ride: Ride,
    on_wait: Callable[[], None],
) -> Generator[Any, Any, Any]:
    """Run a coroutine to its end in a context of its own, and return what it returns.

    `on_wait` is called when it waits for the first time.
    """
    send, throw, run = coroutine.send, coroutine.throw, context.run
    try:
        waits_for = run(send, None)
    except StopIteration as stop:
        return stop.value
    ride.task = asyncio.current_task()
    on_wait()
    while True:
        try:
            value = yield waits_for
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001  all of it is for the coroutine
            step = partial(throw, ride.translate(error))
        else:
            step = partial(send, value)
        try:
            waits_for = run(step)
        except StopIteration as stop:
            return stop.value

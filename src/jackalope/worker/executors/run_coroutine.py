"""Run one coroutine in a thread that has nothing else to do, with signals that reach it.

Shared by threads and child processes, so it loads as little as they need.
"""

from __future__ import annotations

import asyncio
import signal
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from jackalope.transport.connection import new_event_loop
from jackalope.worker.context import SoftTimeout


def _nobody(_: object) -> None:
    pass


def run_coroutine(
    coroutine: Coroutine[Any, Any, Any],
    catch_signals: Callable[[Callable[[int], None] | None], None] = _nobody,
    told: Callable[[], None] = lambda: None,
) -> Any:
    """Run a coroutine on a loop of its own, and return what it returns.

    `catch_signals` is called with the handler of signals while it runs, then with None; `told` when
    it is cancelled.
    """
    under_way = CoroutineRun()

    def caught(number: int) -> None:
        act = cancel if number == signal.SIGTERM else under_way.time_out_softly
        runner.get_loop().call_soon_threadsafe(act)

    def cancel() -> None:
        told()
        under_way.cancel()

    async def main() -> Any:
        catch_signals(caught)
        try:
            return await drive(coroutine, copy_context(), under_way, lambda: None)
        finally:
            catch_signals(None)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main())


# Driving a coroutine by hand: its first step costs no task, and any exception can be put into it.


class CoroutineRun:
    """A coroutine under way."""

    __slots__ = ("is_soft", "task")

    def __init__(self) -> None:
        # the asyncio task that belongs to it, once it waits
        self.task: asyncio.Task[None] | None = None
        self.is_soft = False  # the next cancellation stands for the soft time-out

    def cancel(self) -> None:
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
    under_way: CoroutineRun,
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
    under_way.task = asyncio.current_task()
    on_wait()
    while True:
        try:
            value = yield waits_for
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001  all of it is for the coroutine
            step = partial(throw, under_way.translate(error))
        else:
            step = partial(send, value)
        try:
            waits_for = run(step)
        except StopIteration as stop:
            return stop.value

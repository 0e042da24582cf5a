"""Running one coroutine in a thread that has nothing else to do, with signals that reach it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from jackalope.worker.drive import Ride, drive
from jackalope.worker.loop import new_event_loop


def _nobody(_: object) -> None:
    pass


def run_coroutine(
    coroutine: Coroutine[Any, Any, Any],
    catch_signals: Callable[[Callable[[int], None] | None], None] = _nobody,
    told: Callable[[], None] = lambda: None,
) -> Any:
    """Run a coroutine on a loop of its own, and return what it returns.

    Args:
        coroutine: the coroutine.
        catch_signals: called with whom to tell of signals while it runs, then with None.
        told: called when it is cancelled.
    """
    ride = Ride()

    def caught(number: int) -> None:
        act = cancel if number == signal.SIGTERM else ride.time_out_softly
        runner.get_loop().call_soon_threadsafe(act)

    def cancel() -> None:
        told()
        ride.cancel()

    async def main() -> Any:
        catch_signals(caught)
        try:
            return await drive(coroutine, copy_context(), ride, lambda: None)
        finally:
            catch_signals(None)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main())

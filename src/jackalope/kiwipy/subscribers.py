"""Subscribers: where the functions that take tasks, calls and broadcasts must be called.

Owns the one case in which that is not the communicator's thread. plumpy's `LoopCommunicator` makes
of a subscriber a function that schedules it on plumpy's loop and only then adds a callback to its
asyncio future. Called from another thread that is a race: the loop may be done with the future
first, and the callback then runs late, or raises an exception if the loop is in debug mode. Called
by that loop itself, there is no race.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

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

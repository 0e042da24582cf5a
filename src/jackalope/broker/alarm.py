"""The alarm: ends a wait in time.

Owns one timer of the event loop. An alarm that rings too early costs its owner one look at what
there is to do; setting another for each of thousands of short waits a second would cost more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jackalope.core.durations import SECOND


class Alarm:
    """Calls `ring` at a set time at the latest."""

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._at_us = 0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, now_us: int, at_us: int | None) -> None:
        """Ring at a time at the latest, if there is one; what is set for an earlier one stays."""
        if at_us is None:
            return
        if self._timer is not None:
            if now_us < self._at_us <= at_us:
                return
            # One whose time is over has missed a step of the clock, and rings now.
            at_us = min(at_us, self._at_us)
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._at_us = at_us
        self._timer = loop.call_later(max(0, at_us - now_us) / SECOND, self._sound)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sound(self) -> None:
        self._timer = None
        self._ring()

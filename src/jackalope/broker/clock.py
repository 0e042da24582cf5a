"""Time: a clock that never goes back, and an alarm that ends a wait in time.

Owns the reading of the system's clocks. The core has none: each turn is given its time.

For tests of clusters a process can have a wrong clock: `JACKALOPE_CLOCK_OFFSET_US` sets it ahead or
behind, `JACKALOPE_CLOCK_RATE` lets it run faster or slower from the start. Neither is a setting.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping

from jackalope.core.durations import SECOND

#: The clock follows the system's when that is ahead by more than this.
_STEP_US = SECOND

#: A clock that was ahead by more than this before a restart was wrong, and is not followed.
_AHEAD_US_MAX = 60 * SECOND


def wrong_clocks(variables: Mapping[str, str]) -> tuple[Callable[[], int], Callable[[], int]]:
    """Return the system's clocks, steady and wall, as wrong as variables of tests want them."""
    offset_ns = int(variables.get("JACKALOPE_CLOCK_OFFSET_US", "0")) * 1_000
    rate = float(variables.get("JACKALOPE_CLOCK_RATE", "1"))
    if not offset_ns and rate == 1:
        return time.monotonic_ns, time.time_ns
    began_ns = time.monotonic_ns()

    def gained_ns() -> int:
        return int((time.monotonic_ns() - began_ns) * (rate - 1))

    return (
        lambda: time.monotonic_ns() + gained_ns(),
        lambda: time.time_ns() + offset_ns + gained_ns(),
    )


monotonic_ns, time_ns = wrong_clocks(os.environ)


class Clock:
    """Microseconds since the epoch."""

    __slots__ = ("_ahead_us",)

    def __init__(self) -> None:
        self._ahead_us = time_ns() // 1_000 - monotonic_ns() // 1_000

    def now_us(self) -> int:
        """Return the time, never less than before."""
        now_us = monotonic_ns() // 1_000 + self._ahead_us
        wall_us = time_ns() // 1_000
        if wall_us > now_us + _STEP_US:
            self._ahead_us += wall_us - now_us
            return wall_us
        return now_us

    def raise_to(self, reached_us: int, *, is_agreed: bool = False) -> bool:
        """Go on from a time that was reached before a restart, if this clock is behind it.

        Returns whether it does: not if it is so far behind that the clock must have been wrong, and
        would be ahead for ever; unless other nodes have agreed on that time.
        """
        behind_us = reached_us - self.now_us()
        if behind_us > _AHEAD_US_MAX and not is_agreed:
            return False
        self._ahead_us += max(0, behind_us)
        return True

    def steady_us(self) -> int:
        """Return a time to measure how long something took; setting the clock does not move it."""
        return monotonic_ns() // 1_000


def wall_us() -> int:
    """Return what the system's clock shows, which may go back."""
    return time_ns() // 1_000


class Alarm:
    """Calls `ring` at a set time at the latest."""

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self.at_us = 0  # when it rings; 0 if it is not set
        self._timer: asyncio.TimerHandle | None = None

    def set(self, now_us: int, at_us: int | None) -> None:
        """Ring at a time at the latest, if there is one; what is set for an earlier one stays."""
        if at_us is None:
            return
        if self._timer is not None:
            if now_us < self.at_us <= at_us:
                return
            # One whose time is over has missed a step of the clock, and rings now.
            at_us = min(at_us, self.at_us)
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self.at_us = at_us
        self._timer = loop.call_later(max(0, at_us - now_us) / SECOND, self._sound)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.at_us = 0

    def _sound(self) -> None:
        self._timer = None
        self.at_us = 0
        self._ring()

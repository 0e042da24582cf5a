"""The clock: what time it is, without ever going back.

Follows the monotonic clock from the wall's time at the start. When the wall runs ahead (the machine
slept, or somebody set the clock), it follows; when the wall falls behind, it goes on at its own
pace: a clock that stood still would hold up every deadline.
"""

import time

_STEP_US = 1_000_000


class Clock:
    """Microseconds since the epoch."""

    __slots__ = ("_ahead_us",)

    def __init__(self) -> None:
        self._ahead_us = _wall_us() - _monotonic_us()

    def now_us(self) -> int:
        """Return the time, never less than before."""
        now_us = _monotonic_us() + self._ahead_us
        wall_us = _wall_us()
        if wall_us > now_us + _STEP_US:
            self._ahead_us += wall_us - now_us
            return wall_us
        return now_us

    def steady_us(self) -> int:
        """Return a time to measure how long something took; setting the clock does not move it."""
        return _monotonic_us()


def _wall_us() -> int:
    return time.time_ns() // 1_000


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1_000

"""Verdicts: what task code may say about its own failure.

An ordinary exception is a failure like any other: the queue's policy decides. These say more.
"""

from __future__ import annotations

from datetime import timedelta

from jackalope.core.durations import SECOND
from jackalope.core.limits import TIME_US_MAX


class RetryLater(Exception):
    """Try again after this time rather than after the policy's. Counts as a failure.

    Where the policy has no retries it is obeyed all the same, a limited number of times.

    Attributes:
        after_s: the time, in seconds.

    Raises:
        TypeError: `after` is neither a number nor a `timedelta`.
        ValueError: `after` is not finite, or longer than any time that the broker stores.
    """

    __module__ = "jackalope"  # Where users know it from; histories show its name.

    def __init__(self, message: str = "", *, after: float | timedelta) -> None:
        self.after_s = after.total_seconds() if isinstance(after, timedelta) else after
        delay_us(self.after_s)
        super().__init__(message or f"asked to be tried again in {self.after_s:g} s")


class Reject(Exception):
    """Never try this task again: it cannot succeed."""

    __module__ = "jackalope"


def delay_us(after_s: object) -> int:
    """Return a delay as a report carries it: at least one microsecond, so that it is not 0.

    Raises:
        TypeError: it is no number.
        ValueError: it is not finite, or longer than any time that the broker stores.
    """
    if not isinstance(after_s, int | float):
        raise TypeError(f"RetryLater: after must be seconds, not {type(after_s).__name__}")
    if not after_s <= TIME_US_MAX / SECOND:  # False for what is not a number, too.
        raise ValueError(f"RetryLater: after must be at most {TIME_US_MAX // SECOND} s")
    return max(1, int(max(0, after_s) * SECOND))

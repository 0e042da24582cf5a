"""Verdicts: what task code may say about its own failure.

An ordinary exception is a failure like any other: the queue's policy decides. These say more.
"""

from __future__ import annotations

from datetime import timedelta


class RetryLater(Exception):
    """Try again after this time rather than after the policy's. Counts as a failure.

    Attributes:
        after_s: the time, in seconds.
    """

    __module__ = "jackalope"  # Where users know it from; histories show its name.

    def __init__(self, message: str = "", *, after: float | timedelta) -> None:
        self.after_s = after.total_seconds() if isinstance(after, timedelta) else after
        super().__init__(message or f"asked to be tried again in {self.after_s:g} s")


class Reject(Exception):
    """Never try this task again: it cannot succeed."""

    __module__ = "jackalope"

"""Verdicts: what task code may say about its own failure.

An ordinary exception is a failure like any other: the queue's policy decides. These say more.
"""

from __future__ import annotations


class RetryLater(Exception):
    """Try again after this time rather than after the policy's. Counts as a failure."""

    def __init__(self, message: str = "", *, after_s: float) -> None:
        super().__init__(message or f"asked to be tried again in {after_s:g} s")
        self.after_s = after_s


class Reject(Exception):
    """Never try this task again: it cannot succeed."""

"""Rate limits: how many requests each client may make at a door. Knows no protocol.

A bucket holds tokens, one for each request; it fills at a steady rate up to the burst. Those of the
longest absent are forgotten when there are too many: they would be full again.
"""

from __future__ import annotations

import time
from collections import OrderedDict

import msgspec

from jackalope.broker.access import Principal
from jackalope.core.durations import SECOND
from jackalope.core.refusals import Code, Refusal

#: How many buckets are kept.
BUCKETS_MAX = 10_000


class Share(msgspec.Struct, frozen=True):
    """What is left for a bearer."""

    limit: int  # how many requests may come at once
    remaining: int  # how many may come now
    reset_s: float  # when the bucket is full again
    wait_s: float = 0.0  # when the next request may come; 0 if this one was in order

    @property
    def refusal(self) -> Refusal | None:
        """Why the request is refused; None if it was in order."""
        if not self.wait_s:
            return None
        message = (
            f"too many requests: the burst size is {self.limit}; try again in {self.wait_s:.2f} s"
        )
        return Refusal(Code.RATE_LIMITED, message, max(1, round(self.wait_s * SECOND)))


class _Bucket:
    __slots__ = ("at_s", "level")

    def __init__(self, level: float, at_s: float) -> None:
        self.level = level
        self.at_s = at_s


class Rates:
    """The buckets of all bearers."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def refuse(self, principal: Principal) -> Refusal | None:
        """Count one request of an API key; return its refusal if there were too many.

        Without keys there is no limit.
        """
        if not self._per_s or principal.key is None:
            return None
        share = self.take(principal.key.id, time.monotonic())
        return None if share is None else share.refusal

    def take(self, bearer: str, now_s: float) -> Share | None:
        """Count one request of a bearer; return None if there is no limit."""
        if not self._per_s:
            return None
        bucket = self._buckets.get(bearer)
        if bucket is None:
            bucket = self._buckets[bearer] = _Bucket(self._burst, now_s)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(bearer)
        filled = bucket.level + (now_s - bucket.at_s) * self._per_s
        bucket.level, bucket.at_s = min(filled, float(self._burst)), now_s
        wait_s = 0.0
        if bucket.level >= 1:
            bucket.level -= 1
        else:
            wait_s = (1 - bucket.level) / self._per_s
        reset_s = (self._burst - bucket.level) / self._per_s
        return Share(self._burst, int(bucket.level), reset_s, wait_s)

"""Rate limits: how many requests each bearer may make.

Owns the buckets. A bucket holds tokens, one for each request; it fills at a steady rate up to the
burst. Those of the longest absent are forgotten when there are too many: they would be full again.
"""

from __future__ import annotations

import math
from collections import OrderedDict

import msgspec

#: How many buckets are kept.
BUCKETS_MAX = 10_000


class Share(msgspec.Struct, frozen=True):
    """What is left for a bearer."""

    limit: int  # how many requests may come at once
    remaining: int  # how many may come now
    reset_s: float  # when the bucket is full again
    wait_s: float = 0.0  # when the next request may come; 0 if this one was in order

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the share as the usual rate-limit headers."""
        return [
            (b"x-ratelimit-limit", str(self.limit).encode()),
            (b"x-ratelimit-remaining", str(self.remaining).encode()),
            (b"x-ratelimit-reset", str(math.ceil(self.reset_s)).encode()),
        ]


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

"""The reading: what the meter shows of one queue, in numbers that can be added up.

Owns the numbers and what can be said of them. A reading is of any length of time: two that follow
each other make one, so the same shape serves what has happened since the start, the last ten
seconds, and a week that is kept on disk.

How long things took is counted by the binary logarithm: n microseconds are in the bucket
`n.bit_length()`, which holds what is below 2^bucket. That takes a tenth of a microsecond to count,
and is right to a factor of two over any range.
"""

from __future__ import annotations

import msgspec

#: More than any number here needs.
BUCKETS = 64


class Spread(msgspec.Struct, array_like=True, gc=False):
    """How large something was: how often it was in which bucket, and how much altogether.

    Times are in microseconds.
    """

    total: int = 0
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * BUCKETS)

    def count(self, size: int) -> None:
        """Count one more."""
        if size > 0:
            self.total += size
            self.buckets[size.bit_length()] += 1
        else:
            self.buckets[0] += 1

    def add(self, other: Spread) -> None:
        """Count all that another one has counted."""
        self.total += other.total
        for bucket, number in enumerate(other.buckets):
            if number:
                self.buckets[bucket] += number

    def number(self) -> int:
        """Return how many were counted."""
        return sum(self.buckets)

    def mean(self) -> float:
        """Return how large one was on average; 0 if there was none."""
        return self.total / max(1, self.number())

    def quantile(self, part: float) -> float:
        """Return what this part of them did not exceed, estimated within its bucket; 0 if none.

        The estimate assumes that those of a bucket are spread evenly over it.
        """
        wanted = part * self.number()
        passed = 0
        for bucket, number in enumerate(self.buckets):
            if number and passed + number >= wanted:
                low, high = (1 << bucket) >> 1, 1 << bucket
                return low + (high - low) * (wanted - passed) / number
            passed += number
        return 0.0


class Reading(msgspec.Struct, array_like=True, gc=False):
    """What happened in one queue. Fields are only ever added at the end.

    Attributes:
        submitted: tasks that were accepted.
        succeeded: tasks that ended well.
        dead: tasks that ended otherwise.
        killed: tasks that somebody ended.
        failures: attempts that failed.
        crashes: attempts that were lost with their worker while they ran.
        interruptions: attempts that were handed back, or lost before they began.
        retries: tasks that are tried once more after one of these.
        queued: how long tasks were ready before a worker had them.
        assigned: how long workers had them before they began.
        started: how long attempts ran, whatever became of them.
        finished: how long it took from the submit to a good end.
        reasons: why tasks are dead.
        blobs: payloads and results that went to the blob store.
        blob_bytes: their size.
        depth: tasks that waited at the end of the time.
        leased: tasks that workers had at the end of the time.
        workers: workers of the namespace at the end of the time; only where there is no queue.
        served: requests by how they were served.
    """

    submitted: int = 0
    succeeded: int = 0
    dead: int = 0
    killed: int = 0
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    retries: int = 0
    queued: Spread = msgspec.field(default_factory=Spread)
    assigned: Spread = msgspec.field(default_factory=Spread)
    started: Spread = msgspec.field(default_factory=Spread)
    finished: Spread = msgspec.field(default_factory=Spread)
    reasons: dict[str, int] = {}
    blobs: int = 0
    blob_bytes: int = 0
    depth: int = 0
    leased: int = 0
    workers: int = 0
    served: dict[str, int] = {}

    def add(self, other: Reading) -> None:
        """Add what happened to the same tasks in another time."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in TIMES:
            getattr(self, name).add(getattr(other, name))
        for reason, number in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + number
        for how, number in other.served.items():
            self.served[how] = self.served.get(how, 0) + number

    def follow(self, later: Reading) -> None:
        """Add what happened to the same tasks in the time after this one."""
        self.add(later)
        self.depth, self.leased, self.workers = later.depth, later.leased, later.workers

    def join(self, other: Reading) -> None:
        """Add what happened to other tasks in the same time."""
        self.add(other)
        self.depth += other.depth
        self.leased += other.leased
        self.workers += other.workers


#: The stages of which it knows how long they took.
TIMES = ("queued", "assigned", "started", "finished")
_SUMS = (
    "submitted",
    "succeeded",
    "dead",
    "killed",
    "failures",
    "crashes",
    "interruptions",
    "retries",
    "blobs",
    "blob_bytes",
)

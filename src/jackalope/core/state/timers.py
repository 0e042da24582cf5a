"""Timers: things to do later, by the million, without scanning.

Owns deadlines, one for each key at most. Knows nothing of what they are for.

A heap orders the deadlines and a dict holds which of its entries still count. Moving or cancelling
a deadline leaves a stale entry behind; when more than half of the heap is stale it is rebuilt, so
both stay proportional to what is really set.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bytes, int, tuple[str, str], tuple[str, str, str])

_STALE_ENTRIES_FREE = 1_024


class Timers(Generic[Key]):
    """A set of deadlines, each with a key."""

    __slots__ = ("_at_us", "heap")

    def __init__(self) -> None:
        self._at_us: dict[Key, int] = {}
        self.heap: list[tuple[int, Key]] = []  # empty if nothing is set; else perhaps stale

    def __len__(self) -> int:
        return len(self._at_us)

    def __contains__(self, key: Key) -> bool:
        return key in self._at_us

    def set(self, key: Key, at_us: int) -> None:
        """Set or move the deadline of a key."""
        self._at_us[key] = at_us
        heappush(self.heap, (at_us, key))
        if len(self.heap) > 2 * len(self._at_us) + _STALE_ENTRIES_FREE:
            self.heap = [(at, key) for key, at in self._at_us.items()]
            heapify(self.heap)

    def cancel(self, key: Key) -> None:
        self._at_us.pop(key, None)

    def set_sooner(self, key: Key, at_us: int) -> None:
        """Set the deadline of a key unless it has an earlier one."""
        before = self._at_us.get(key)
        if before is None or at_us < before:
            self.set(key, at_us)

    def next_us(self) -> int | None:
        heap, at_us = self.heap, self._at_us
        while heap:
            at, key = heap[0]
            if at_us.get(key) == at:
                return at
            heappop(heap)
        return None

    def pop_due(self, now_us: int) -> Iterator[Key]:
        """Yield and remove, in order, every key whose deadline has passed.

        Due deadlines that are set meanwhile are included.
        """
        while (at := self.next_us()) is not None and at <= now_us:
            key = heappop(self.heap)[1]
            del self._at_us[key]
            yield key

    def items(self) -> Iterator[tuple[Key, int]]:
        yield from self._at_us.items()

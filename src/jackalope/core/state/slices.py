"""Slices: the ids of a table, found by their last bytes without a look at all the others.

Owns an index beside a table, which is needed only where states are compared (see `digest`). Ids are
in 256 buckets by their last byte. A slice is some of these, or a part of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jackalope.core.ids import TaskId

_BUCKETS = 256


class Slices:
    """The ids of one table."""

    __slots__ = ("_buckets",)

    def __init__(self, ids: Iterable[TaskId]) -> None:
        self._buckets: list[set[TaskId]] = [set() for _ in range(_BUCKETS)]
        for task_id in ids:
            self._buckets[task_id[-1]].add(task_id)

    def add(self, task_id: TaskId) -> None:
        self._buckets[task_id[-1]].add(task_id)

    def discard(self, task_id: TaskId) -> None:
        self._buckets[task_id[-1]].discard(task_id)

    def ids(self, index: int, count: int) -> Iterator[TaskId]:
        """Yield the ids of one slice of so many, which is a power of two."""
        for byte in range(index % _BUCKETS, _BUCKETS, min(count, _BUCKETS)):
            bucket = self._buckets[byte]
            yield from bucket if count <= _BUCKETS else in_slice(bucket, index, count)


def in_slice(ids: Iterable[TaskId], index: int, count: int) -> Iterator[TaskId]:
    """Yield those of the ids that are in one slice of so many, which is a power of two."""
    mask = count - 1
    return (each for each in ids if (each[-1] | each[-2] << 8) & mask == index)

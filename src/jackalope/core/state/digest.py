"""Digests of state: how nodes that applied the same records find that they are not the same.

Owns what of a book must be equal after equal records, and its digest. Ranks are left out, because
nodes that ran earlier versions may have other ones, in the same order; so are ended tasks, which
leave memory at their own pace.

A digest is of one slice of the state, so that it takes no longer with more tasks. One slice after
the other, all of the state is compared. A book that is compared has an index of its slices
(`Book.slice_up`); in one that has none, every id is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from jackalope.core.ids import is_volatile
from jackalope.core.lifecycle import ENDED
from jackalope.core.state.book import Book
from jackalope.core.state.changes import entities_of, to_entity
from jackalope.core.state.slices import in_slice
from jackalope.core.task import to_row

#: About how many tasks a slice has, and how many slices there are at most.
TASKS_PER_SLICE = 256
SLICES_MAX = 1 << 16

_DIGEST_BYTES = 8
_MODULUS = 1 << (8 * _DIGEST_BYTES)
_encode_sorted = msgspec.msgpack.Encoder(order="deterministic").encode
_encode_as_is = msgspec.msgpack.Encoder().encode


def slices_of(book: Book) -> int:
    """Return into how many slices a book of this size is divided: a power of two."""
    schedules = sum(len(namespace.schedules) for namespace in book.namespaces.values())
    wanted = max(len(book.tasks), len(book.answers.by_task), schedules) // TASKS_PER_SLICE
    return min(1 << wanted.bit_length(), SLICES_MAX)


def digest_of(book: Book, index: int, count: int) -> bytes:
    """Return the digest of one slice of so many, which is a power of two."""
    total = 0
    for row in _rows(book, index, count):
        digest = blake2b(_encode(row), digest_size=_DIGEST_BYTES).digest()
        # A sum, because tables are in another order on another node.
        total = (total + int.from_bytes(digest, "big")) % _MODULUS
    return total.to_bytes(_DIGEST_BYTES, "big")


def _encode(row: object) -> bytes:
    """Encode a row, the same on every node.

    Only maps with names can be sorted. Others, of numbers or ids, are in the order of the records.
    """
    try:
        return _encode_sorted(row)
    except TypeError:
        return _encode_as_is(row)


def _rows(book: Book, index: int, count: int) -> Iterator[object]:
    counters, tasks, answers = book.counters, book.tasks, book.answers
    # No record has the fences of volatile tasks, but they are reserved.
    yield max(counters.fence, counters.reserved), counters.horizon_us
    for task_id in (
        in_slice(tasks, index, count) if book.slices is None else book.slices.ids(index, count)
    ):
        task = tasks[task_id]
        if task.state not in ENDED and not is_volatile(task.id):
            row = to_row(task)
            row.rank = 0
            yield row
    for each in entities_of(book, lambda name: sum(name.encode()) & (count - 1) == index):
        yield to_entity(*each)
    kept = answers.by_task
    for task_id in (
        in_slice(kept, index, count) if answers.slices is None else answers.slices.ids(index, count)
    ):
        yield kept[task_id]

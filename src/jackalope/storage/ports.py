"""Ports: what the broker asks of storage, and the shapes that pass through.

The docstrings are the contract; one conformance suite a port holds every backend to it. All calls
block: the engine makes them off its loop. Faults are those of `jackalope.storage.faults`.

Who may write what, when:

1. A batch is appended to the journal, and is durable when `append` returns (at level `fsync`).
2. Only then are the changes it caused written to history (`History.write`, with the sequence of the
   last batch they contain), so that history is never ahead of a journal that may still be lost.
   Below level `fsync` that takes a `Journal.sync` before: `Storage.flush` does both.
3. The journal is trimmed only through what `History.sync` returned.
4. A blob is durable before the record that names it is appended, and is deleted only when neither a
   row in history nor a task in memory names it.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Protocol

import msgspec

from jackalope.core.changes import Changes, Counters, LimitRow, QueueRow
from jackalope.core.durations import MILLISECOND
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.task import BlobRef, TaskRow

#: How much time of acknowledged work a power failure may cost at level `interval`.
INTERVAL_US_DEFAULT = 100 * MILLISECOND


class Level(StrEnum):
    """What an acknowledgement promises.

    Attributes:
        FSYNC: nothing acknowledged is ever lost.
        INTERVAL: a crash of the broker loses nothing, a power failure at most the interval.
        MEMORY: everything ends with the process.
    """

    FSYNC = "fsync"
    INTERVAL = "interval"
    MEMORY = "memory"


class Sort(StrEnum):
    """The order of a page. Within the same value, tasks stand in the order they were stored in."""

    CREATED = "created"
    CREATED_LAST = "-created"
    ENDED = "ended"
    ENDED_LAST = "-ended"
    PRIORITY = "priority"
    PRIORITY_LAST = "-priority"


class BadCursor(ValueError):
    """A cursor that no page with this namespace, filter and sort has returned."""


class Snapshot(msgspec.Struct):
    """What memory is rebuilt from.

    Attributes:
        sequence: the last batch of the journal that is contained.
        counters: as they were then.
        queues: all of them.
        limits: all of them.
        tasks: those that have not ended, by rank. Nothing may be written before it has been read
            to its end or dropped.
    """

    sequence: int
    counters: Counters
    queues: list[QueueRow]
    limits: list[LimitRow]
    tasks: Iterator[TaskRow]


class Page(msgspec.Struct, frozen=True):
    """Some tasks of a list, and the cursor that asks for the next ones; empty at the end."""

    rows: list[TaskRow]
    cursor: str = ""


class BatchSummary(msgspec.Struct, frozen=True):
    """How many tasks of a batch are in which state."""

    number: int
    counts: dict[State, int]


class Forgotten(msgspec.Struct, frozen=True):
    """How many tasks were forgotten, and the blobs that no stored row names any more."""

    count: int
    blobs: list[str]


class Journal(Protocol):
    """The durable log of what happened, one entry a batch: the truth.

    Written from one thread at a time (any thread); reading and `sync` may be called beside that.

    After a write that failed with a fault that is not settled, every further write is refused with
    that fault until the journal is opened again. Reading goes on.
    """

    def claim(self) -> int:
        """Become the writer, and return the new epoch; from now on every older writer is fenced."""
        ...

    def append(self, body: bytes) -> int:
        """Store one batch, durable when this returns at level `fsync`.

        Returns:
            Its sequence: 1, 2, 3… without gaps.

        Raises:
            Fenced: another writer has claimed the journal since.
            DiskFull: nothing was stored; a later append may succeed.
            SyncFailed: whether the batch is stored is unknown until the journal is opened again.
        """
        ...

    def sync(self) -> None:
        """Return when every batch appended before is durable."""
        ...

    def last(self) -> int:
        """Return the sequence of the last batch ever appended; 0 when there is none."""
        ...

    def trimmed(self) -> int:
        """Return the sequence through which batches have been removed; 0 when none was."""
        ...

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Return every later batch with its sequence, in order.

        Raises:
            Corrupt: batches asked for were trimmed, or (while iterating) one is missing or damaged.
        """
        ...

    def trim(self, through: int) -> None:
        """Remove the batches up to and including a sequence.

        Raises:
            Fenced: another writer has claimed the journal since.
        """
        ...

    def close(self) -> None:
        """Let go of everything; safe to repeat."""
        ...


class History(Protocol):
    """The queryable table of tasks, written behind the journal.

    Written from one thread at a time; read from any. A read sees whole writes only.
    """

    def write(self, sequence: int, changes: Changes) -> list[str]:
        """Write changes in one transaction, together with the sequence of the last batch in them.

        Gone tasks and the tasks of gone queues are removed before rows are written, so that an id
        in both ends up written. Ended tasks that are to be forgotten at once are not kept.

        Returns:
            The blobs that no stored row names any more, `changes.blobs` included. A task in memory
            whose row is not written yet may still name one.
        """
        ...

    def applied(self) -> int:
        """Return the sequence of the last write; 0 before the first."""
        ...

    def sync(self) -> int:
        """Make all that was written safe from a power failure, and return its sequence.

        Only through this sequence may the journal be trimmed. May be called from any thread.
        """
        ...

    def load(self) -> Snapshot:
        """Return all that has not ended.

        Raises:
            Corrupt: (while iterating over the tasks) a row is damaged; it names the task.
        """
        ...

    def find(self, ids: Iterable[TaskId]) -> list[TaskRow]:
        """Return the stored rows of these tasks, ended ones included, in no order."""
        ...

    def find_aliases(self, namespace: str, aliases: Iterable[str]) -> list[TaskRow]:
        """Return the stored rows with these aliases, ended ones included, in no order."""
        ...

    def page(
        self,
        namespace: str,
        wanted: Filter,
        *,
        sort: Sort | str = Sort.CREATED_LAST,
        limit: int = 100,
        cursor: str = "",
        with_bodies: bool = False,
    ) -> Page:
        """Return the next rows of a list.

        A cursor goes on behind the last row of its page. What is stored or removed meanwhile shifts
        nothing; a task whose sorted value changes meanwhile may appear twice or not at all.

        Args:
            namespace: whose tasks.
            wanted: which tasks.
            sort: in which order.
            limit: at most how many.
            cursor: of the page before, with the same namespace, filter and sort.
            with_bodies: fill in inline payloads and results, which are left empty otherwise.

        Raises:
            BadCursor: the cursor is not from such a page.
        """
        ...

    def count(self, namespace: str, wanted: Filter) -> dict[State, int]:
        """Return how many tasks match in each state; states without any are left out."""
        ...

    def batches(
        self, namespace: str, queue: str, *, limit: int = 100, before: int = 0
    ) -> list[BatchSummary]:
        """Return the latest batches of a queue, or those before a number, greatest first."""
        ...

    def forget(self, before_us: int, limit: int) -> Forgotten:
        """Remove ended tasks that were to be kept no longer than this, at most `limit` of them.

        As with `write`, a task in memory may still name one of the blobs.
        """
        ...

    def owns(self, blob: str) -> bool:
        """Tell whether a stored row names the blob."""
        ...

    def close(self) -> None:
        """Let go of everything; safe to repeat."""
        ...


class Blobs(Protocol):
    """Payloads and results that are too large for a row. Called from any thread."""

    def write(self, chunks: Iterable[bytes]) -> BlobRef:
        """Store a blob; durable when this returns. Nothing remains if `chunks` raises."""
        ...

    def read(self, ref: BlobRef, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Return the bytes of a blob in chunks, from an offset and at most a length.

        Raises:
            Corrupt: the blob is missing or of another size; or (after the last chunk, when read as
                a whole) its bytes are not those that were written.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove a blob; nothing happens if it is not there."""
        ...

    def sweep(self, keep: Callable[[str], bool]) -> int:
        """Remove every blob that is not to be kept and all that crashed writes left behind.

        Only while nothing is being written: a new blob has no owner yet.

        Returns:
            How many files were removed.
        """
        ...

    def close(self) -> None:
        """Let go of everything; safe to repeat."""
        ...

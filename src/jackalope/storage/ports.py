"""Ports: what the broker asks of storage, and the shapes that pass through.

The docstrings are the contract; one conformance suite a port holds every backend to it. All calls
block: the engine makes them off its loop. Faults are those of `jackalope.storage.faults`.

Who may write what, when:

1. A batch is appended to the journal, and is durable when `append` returns (at level `fsync`).
2. Only then are the changes it caused written to history (`History.write`, with the sequence of the
   last batch they contain), so that history is never ahead of a journal that may still be lost.
   Below level `fsync` that takes a `Journal.sync` before: `Storage.flush` does both.
3. The journal is trimmed only through what `History.sync` returned.
4. History removes ended tasks up to the horizon of the changes (`Counters.horizon_us`), which is in
   the journal by then. So no blob is deleted whose owner could come back with a restart.
5. A blob is durable before the record that names it is appended, and is deleted only when neither a
   row in history nor a task in memory names it.
"""

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from jackalope.core.durations import MILLISECOND
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.changes import Counters, Entity
from jackalope.core.task import BlobRef, TaskRow
from jackalope.storage.faults import Corrupt, StorageFault

#: The names that stores give. One never leads out of a folder.
BLOB_NAME = re.compile(r"[0-9a-f]{32}(-[A-Za-z0-9._-]{1,100})?")

#: How much time of acknowledged work a power failure may cost at level `interval`.
INTERVAL_US_DEFAULT = 100 * MILLISECOND


class Level(StrEnum):
    """What an acknowledgement promises."""

    FSYNC = "fsync"  # nothing acknowledged is ever lost
    # a crash of the broker loses nothing, a power failure at most the interval
    INTERVAL = "interval"
    MEMORY = "memory"  # everything ends with the process


class Sort(StrEnum):
    """The order of a page. Within the same value, tasks stand in the order of their ids."""

    CREATED = "created"
    CREATED_LAST = "-created"
    ENDED = "ended"
    ENDED_LAST = "-ended"
    PRIORITY = "priority"
    PRIORITY_LAST = "-priority"


class BadCursor(ValueError):
    """A cursor that no page with this namespace, filter and sort has returned."""


class Snapshot(msgspec.Struct):
    """What memory is rebuilt from."""

    sequence: int  # the last batch of the journal that is contained
    counters: Counters  # as they were then
    entities: list[Entity]  # all of them
    # those that have not ended, by rank. Nothing may be written before it has been read to its end
    # or dropped.
    tasks: Iterator[TaskRow]
    answers: list[StoredAnswer] = []  # all that are kept


#: Where a task stands in a list: its sorted value, then its id.
Position = tuple[int, TaskId]


class Unwritten(msgspec.Struct):
    """What memory has in place of what is stored, as it was at one moment, for one list."""

    # tasks whose stored rows are out of date or gone, with the time of their creation (0 if it is
    # not known)
    hidden: dict[TaskId, int] = {}
    queues_gone: tuple[str, ...] = ()  # whose stored tasks are gone
    horizon_us: int = 0  # stored tasks up to this one are gone; see `Counters`
    # the first tasks of the list that are not hidden by being gone, as many as a page can need
    tasks: list[tuple[Position, TaskRow]] = []
    count: int = 0  # how many there are in all


class Page(msgspec.Struct, frozen=True):
    """Some tasks of a list, and the cursor that asks for the next ones; empty at the end."""

    rows: list[TaskRow]
    cursor: str = ""


class BatchSummary(msgspec.Struct, frozen=True):
    """How many tasks of a batch are in which state."""

    number: int
    counts: dict[State, int]


class Point(msgspec.Struct, frozen=True):
    """The numbers of one queue over `step_s` seconds from `at_s` on."""

    step_s: int
    at_s: int
    namespace: str
    queue: str
    body: bytes


class Journal(Protocol):
    """The durable log of what happened, one entry a batch: the truth.

    Written from one thread at a time (any thread); reading and `sync` may be called meanwhile.

    After a write that failed with a fault that is not settled, every further write is refused with
    that fault until the journal is opened again. Reading goes on.
    """

    # whether other nodes have it too. An append may then take seconds, and settles by itself.
    is_shared: bool

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

    def spare_bytes(self) -> int:
        """Return how much can be written before more of the disk is needed."""
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

    def salvage(self, after: int) -> Iterator[tuple[int, bytes | None]]:
        """Return every later batch up to the last, with None for those missing or damaged.

        For a start that accepts loss.
        """
        ...

    def restart(self, after: int) -> None:
        """Remove every batch, and go on behind a sequence that is not less than the last.

        For a start that accepts loss, once history has all that could be read.
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


@runtime_checkable
class Followed(Protocol):
    """A journal whose entries form a chain, so that another broker can follow it.

    Called from any thread, during appends.
    """

    def entries(self, sequence: int, digest: bytes, bytes_max: int) -> list[bytes] | None:
        """Return what follows in the log, as it stands there: about so many bytes, or one entry.

        Args:
            sequence: the last batch before it.
            digest: of the last entry before it.
            bytes_max: after how many bytes to end.

        Returns:
            The entries; none at the end of the log, None if no entry with the digest is here.
        """
        ...

    def digest_at(self, sequence: int) -> bytes | None:
        """Return the digest of all through a batch; None if that is not known here."""
        ...

    def keep_recent(self) -> None:
        """Prepare for a reader that follows closely."""
        ...


class Draft(Protocol):
    """A blob that is being written. Used from one thread at a time (any thread)."""

    id: str  # how the name of the blob will begin; no other blob's name begins so

    def add(self, chunk: bytes) -> None:
        """Write some more. A fault leaves nothing behind, and ends the draft."""
        ...

    def finish(self) -> BlobRef:
        """Make the blob of it; durable when this returns. A fault leaves nothing behind."""
        ...

    def abort(self) -> None:
        """Leave nothing behind. Safe to repeat; nothing happens once it has ended."""
        ...


class Blobs(Protocol):
    """Payloads and results that are too large for a row. Called from any thread."""

    drafts_max: int  # how many may be written at once; each costs memory or a file
    links: "Links | None" = None  # what makes links, if the store can

    def begin(self) -> Draft:
        """Begin to write a blob."""
        ...

    def write(self, chunks: Iterable[bytes]) -> BlobRef:
        """Store a blob; durable when this returns. Nothing remains if `chunks` raises."""
        draft = self.begin()
        try:
            for chunk in chunks:
                draft.add(chunk)
            return draft.finish()
        except BaseException:
            draft.abort()
            raise

    def ref(self, name: str) -> BlobRef:
        """Return what is needed to read a blob of which only the name is known.

        Raises:
            Corrupt: there is none.
        """
        raise StorageFault(f"blob {name} is in a store that must be backed up by itself")

    def begin_copy(self, name: str) -> Draft:
        """Begin to write a blob of another store under the name that it has there."""
        raise StorageFault(f"blob {name} is of another store, from which this one takes none")

    def adopt(self, name: str, chunks: Iterable[bytes]) -> None:
        """Store a blob of another store under the name that it has there, unless it is here."""
        try:
            self.ref(name)
        except Corrupt:
            draft = self.begin_copy(name)
            for chunk in chunks:
                draft.add(chunk)
            draft.finish()

    def read(self, ref: BlobRef, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Return the bytes of a blob in chunks, from an offset and at most a length.

        Raises:
            Corrupt: the blob is missing or of another size; or (after the last chunk, when read as
                a whole) its bytes are not those that were written.
            OutOfReach: the store does not answer; nothing is known about the blob.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove a blob; nothing happens if it is not there."""
        ...

    def names(self) -> Iterator[str]:
        """Yield the name of every blob, in no order.

        What is written or removed meanwhile may be among them or not.
        """
        ...

    def clear(self) -> int:
        """Remove what crashed writes left behind; drafts of this process stay.

        Returns:
            How many were removed.
        """
        ...

    def close(self) -> None:
        """Let go of everything; safe to repeat."""
        ...


@runtime_checkable
class Owned(Protocol):
    """A store outside of the data folder, which belongs to one broker. Called from any thread.

    Raises `OutOfReach` while the store does not answer.
    """

    def holder(self) -> str:
        """Return which broker it belongs to; nothing if to none yet."""
        ...

    def claim(self) -> None:
        """Make it this broker's, if it is new; raises `StorageFault` if it is another's."""
        ...

    def take_over(self, holder: str) -> None:
        """Make it this broker's, if it is that of a certain other one; safe to repeat."""
        ...


class Links(Protocol):
    """Addresses over which the bytes of blobs pass without the broker. Called from any thread."""

    link_life_s: int  # how long a link is to be good for

    def link_in(self, name: str, until_s: int) -> str:
        """Return the address to which one body can be sent (`PUT`) until then, in Unix time."""
        ...

    def take_in(self, name: str, until_s: int, bytes_max: int) -> BlobRef | None:
        """Make a blob of what was sent to a link; None if nothing was. Safe to repeat.

        The blob has the name that the link was made for. Whatever is sent to the link from now on
        does not change it. One that is too large is not taken, and shows by its size.
        """
        ...

    def link_out(self, ref: BlobRef, for_s: int) -> str:
        """Return the address from which a blob can be had (`GET`) for so long."""
        ...

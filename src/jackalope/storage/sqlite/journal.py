"""The journal in SQLite: `journal.db`, one row a batch.

Owns the file, its checksums and its writer's epoch. Does not know what is in a batch.

SQLite solves torn writes and recovery; an append is one statement and one sync. Damage is found by
a checksum on every batch (`read`) and by a look at the WAL before SQLite sees it
(`jackalope.storage.sqlite.wal_check`).

At level `interval`, appends are not synced one by one: a thread syncs what was appended at least
once an interval. If it fails, the next append raises the fault.

Every batch has the digest that it would have as an entry of a log (`jackalope.storage.entry`), so
that a standby can follow this journal as it does any other.
"""

import os
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

from jackalope.core.assertions import must
from jackalope.storage.entry import DIGEST_BYTES, NO_DIGEST, Kind, encode
from jackalope.storage.faults import WAY_OUT, Corrupt, Fenced, begins_later, fenced
from jackalope.storage.ports import INTERVAL_US_DEFAULT, Level
from jackalope.storage.segments.journal import Syncer
from jackalope.storage.sqlite.database import PAGE_BYTES, Database, Format, Migration
from jackalope.storage.witness import Witness


def _add_digests(connection: sqlite3.Connection) -> None:
    """Make room for the chain; the next writer fills it in."""
    for table in ("writer", "batches"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN digest BLOB")


MIGRATIONS: dict[int, Migration] = {1: _add_digests}

FORMAT = Format(
    version=2,
    schema=(
        # Exactly one row: who may write, through where batches have been removed, and the digest
        # of the last of them.
        "CREATE TABLE writer (epoch INTEGER NOT NULL, trimmed INTEGER NOT NULL, digest BLOB)",
        "INSERT INTO writer VALUES (0, 0, NULL)",
        """CREATE TABLE batches (
            sequence INTEGER PRIMARY KEY,
            epoch    INTEGER NOT NULL,
            checksum INTEGER NOT NULL,
            body     BLOB NOT NULL,
            digest   BLOB
        )""",
    ),
    migrations=MIGRATIONS,
)

#: Small enough to be written over soon again, which spares the disk the growing of a file, and
#: large enough that a checkpoint (about 5 ms) is rare.
WAL_BYTES_MAX = 8 * 1024 * 1024

CACHE_BYTES = 16 * 1024 * 1024

#: How many batches are in memory at once while reading.
BATCHES_PER_READ = 16

# One statement, so that the epoch is checked in the transaction of the append, and the thread that
# appends waits for the interpreter only once.
_APPEND = """
    INSERT INTO batches SELECT ?, epoch, ?, ?, ? FROM writer WHERE epoch = ?
"""


class SqliteJournal:
    """See `jackalope.storage.ports.Journal`."""

    is_shared = False

    def __init__(
        self,
        path: Path,
        level: Level = Level.FSYNC,
        interval_us: int = INTERVAL_US_DEFAULT,
        witness: Witness | None = None,
    ) -> None:
        must(level is not Level.MEMORY, "a journal in a file is not at level memory")
        self._db = Database(
            path,
            FORMAT,
            synchronous="FULL" if level is Level.FSYNC else "NORMAL",
            cache_bytes=CACHE_BYTES,
            wal_bytes_max=WAL_BYTES_MAX,
        )
        self._epoch = 0
        self._last = 0
        self._digest = NO_DIGEST  # of the chain through the last batch
        # Known without a look by the writer, who alone trims.
        self._trimmed: int | None = None
        self._witness = witness
        self._syncer = Syncer(self._sync, interval_us) if level is Level.INTERVAL else None

    def claim(self) -> int:
        """Become the writer, and return the new epoch."""
        with self._db.transaction() as connection:
            (self._epoch,) = connection.execute(
                "UPDATE writer SET epoch = epoch + 1 RETURNING epoch"
            ).fetchone()
            self._digest = _complete_chain(connection)
        self._last = self.last()
        self._trimmed = None
        self._trimmed = self.trimmed()
        if self._witness is not None:
            self._witness.note(self._last)  # Opening has synced all that is there.
        return self._epoch

    def append(self, body: bytes) -> int:
        """Store one batch and return its sequence."""
        must(self._epoch, "append before claim")
        sequence = self._last + 1
        digest = _digest(sequence, self._epoch, self._digest, body)
        values = (sequence, checksum(sequence, body), body, digest, self._epoch)
        with self._db.statement() as connection:
            stored_count = connection.execute(_APPEND, values).rowcount
            self._db.wal_bytes += len(body) + 2 * PAGE_BYTES
        if stored_count != 1:
            raise self._fenced()
        self._last, self._digest = sequence, digest
        if self._syncer is not None:
            self._syncer.is_due = True
        elif self._witness is not None:
            self._witness.note(sequence)
        return sequence

    def sync(self) -> None:
        """Return when every batch appended before is durable."""
        if self._syncer is not None:
            self._sync()

    def spare_bytes(self) -> int:
        """Return how much of the file is free to be written over."""
        return self._db.spare_bytes()

    def last(self) -> int:
        """Return the sequence of the last batch ever appended."""
        with self._db.reading() as connection:
            last, trimmed = connection.execute(
                "SELECT (SELECT max(sequence) FROM batches), trimmed FROM writer"
            ).fetchone()
        return int(max(last or 0, trimmed))

    def trimmed(self) -> int:
        """Return the sequence through which batches have been removed."""
        if self._trimmed is not None:
            return self._trimmed
        with self._db.reading() as connection:
            trimmed: int = connection.execute("SELECT trimmed FROM writer").fetchone()[0]
        return trimmed

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Return every later batch with its sequence, in order."""
        trimmed = self.trimmed()
        if after < trimmed:
            raise begins_later(self._db.file, trimmed + 1, after + 1)
        return self._read(after)

    def salvage(self, after: int) -> Iterator[tuple[int, bytes | None]]:
        """Return every later batch up to the last, with None for those missing or damaged."""
        last = self.last()
        while after < last:
            after += 1
            with self._db.reading() as connection:
                row = connection.execute(
                    "SELECT checksum, body FROM batches WHERE sequence = ?", (after,)
                ).fetchone()
            is_sound = row is not None and checksum(after, row[1]) == row[0]
            yield after, row[1] if is_sound else None

    def restart(self, after: int) -> None:
        """Remove every batch, and go on behind a sequence."""
        must(after >= self._last, "restart before batches that exist", after, self._last)
        with self._db.transaction() as connection:
            connection.execute("DELETE FROM batches")
            connection.execute("UPDATE writer SET trimmed = ?, digest = NULL", (after,))
            self._digest = _complete_chain(connection)
        self._last = self._trimmed = after
        if self._witness is not None:
            self._witness.note(after)

    def trim(self, through: int) -> None:
        """Remove the batches up to and including a sequence."""
        must(through <= self._last, "trim of batches that do not exist", through, self._last)
        with self._db.transaction() as connection:
            marked = connection.execute(
                "UPDATE writer SET trimmed = max(trimmed, ?), digest = coalesce("
                "(SELECT digest FROM batches WHERE sequence = ?), digest) WHERE epoch = ?",
                (through, through, self._epoch),
            )
            if marked.rowcount != 1:
                raise self._fenced()
            connection.execute("DELETE FROM batches WHERE sequence <= ?", (through,))
        self._trimmed = max(self._trimmed or 0, through)

    # For a standby; see `jackalope.storage.ports.Followed`.

    def entries(self, sequence: int, digest: bytes, bytes_max: int) -> list[bytes] | None:
        if sequence < self.trimmed() or self.digest_at(sequence) != digest:
            return None
        found: list[bytes] = []
        size = 0
        with self._db.reading() as connection:
            rows = connection.execute(
                "SELECT sequence, epoch, body, digest FROM batches WHERE sequence > ?"
                " ORDER BY sequence",
                (sequence,),
            )
            for number, epoch, body, told in rows:
                sequence += 1
                raw, digest = encode(Kind.BATCH, sequence, epoch, 0, digest, body)
                if number != sequence or digest != told:
                    raise self._damaged(sequence, "does not continue the batch before it")
                found.append(raw)
                size += len(raw)
                if size >= bytes_max:
                    break
        return found

    def digest_at(self, sequence: int) -> bytes | None:
        with self._db.reading() as connection:
            row = connection.execute(
                "SELECT digest FROM batches WHERE sequence = ?"
                " UNION ALL SELECT coalesce(digest, ?) FROM writer WHERE trimmed = ?",
                (sequence, NO_DIGEST, sequence),
            ).fetchone()
        return None if row is None else row[0]

    def keep_recent(self) -> None:
        """No-op: SQLite has the last pages in memory."""

    def close(self) -> None:
        """Sync what is not yet, and close the file; safe to repeat."""
        if self._syncer is not None:
            self._syncer.stop()
        self._db.close()

    def _sync(self) -> None:
        last = self._last  # Before the sync: what is appended during it may have come too late.
        self._db.sync()
        if self._witness is not None:
            self._witness.note(last)

    def _read(self, after: int) -> Iterator[tuple[int, bytes]]:
        # A few rows at a time and no statement left open, so that nothing stands in the way of a
        # checkpoint while the reader takes its time.
        while True:
            with self._db.reading() as connection:
                rows = connection.execute(
                    "SELECT sequence, checksum, body FROM batches WHERE sequence > ?"
                    " ORDER BY sequence LIMIT ?",
                    (after, BATCHES_PER_READ),
                ).fetchall()
            if not rows:
                return
            for sequence, check, body in rows:
                after += 1
                if sequence != after:
                    raise self._damaged(after, f"is missing, the next one is {sequence}")
                if checksum(sequence, body) != check:
                    raise self._damaged(after, "does not match its checksum")
                yield sequence, body

    def _damaged(self, sequence: int, what: str) -> Corrupt:
        return Corrupt(f"{self._db.file}: batch {sequence} {what}. {WAY_OUT}")

    def _fenced(self) -> Fenced:
        return fenced(self._db.file, self._epoch)


def checksum(sequence: int, body: bytes) -> int:
    """Return the checksum of a batch; a batch in the wrong place does not match."""
    return zlib.crc32(body, zlib.crc32(sequence.to_bytes(8, "big")))


def _digest(sequence: int, epoch: int, before: bytes, body: bytes) -> bytes:
    return encode(Kind.BATCH, sequence, epoch, 0, before, body)[1]


def _complete_chain(connection: sqlite3.Connection) -> bytes:
    """Give batches their digests that have none, and return that of the last one.

    An earlier version, or a repair, has left them out. What was before them is gone: the chain
    begins there with something that no other has.
    """
    trimmed, digest = connection.execute("SELECT trimmed, digest FROM writer").fetchone()
    if digest is None and trimmed:
        digest = os.urandom(DIGEST_BYTES)
        connection.execute("UPDATE writer SET digest = ?", (digest,))
    digest = digest or NO_DIGEST
    first, last = connection.execute(
        "SELECT min(sequence) FILTER (WHERE digest IS NULL), max(sequence) FROM batches"
    ).fetchone()
    if first is None:
        end = "SELECT digest FROM batches WHERE sequence = ?"
        return digest if last is None else bytes(connection.execute(end, (last,)).fetchone()[0])
    sql = "SELECT digest FROM batches WHERE sequence < ? ORDER BY sequence DESC LIMIT 1"
    if (before := connection.execute(sql, (first,)).fetchone()) is not None:
        digest = before[0]
    sql = "SELECT epoch, body FROM batches WHERE sequence = ?"
    for number in range(first, last + 1):
        if (row := connection.execute(sql, (number,)).fetchone()) is not None:
            digest = _digest(number, row[0], digest, row[1])
            values = (digest, number)
            connection.execute("UPDATE batches SET digest = ? WHERE sequence = ?", values)
    return bytes(digest)

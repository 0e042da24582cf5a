"""One file of SQLite: opened, versioned, synced, and its faults named.

Owns what journal and history share: connections, transactions, formats, the write-ahead log (WAL).
Knows no table.

There is one connection that writes, and any number that read. SQLite's own checkpoints are off,
because it swallows their errors; ours run before a write once enough has gathered in the WAL.

After a write that failed without being taken back for certain (a failed sync, above all) nothing
more is written until the file is opened again. Opening moves whatever an earlier process left in
the WAL into the file and syncs it, so that nothing is relied on that only the system's cache holds.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Literal, TypeVar

from jackalope.storage.disk import make_file, sync_file
from jackalope.storage.faults import NewerFormat, StorageFault, naming_faults

#: Measured with batches of 16 KiB: fewer, larger pages spare frames, while a small batch still
#: writes little.
PAGE_BYTES = 8192

#: How long to wait for another program that has the file locked.
BUSY_S = 5.0

#: Statements for many values come in these sizes only, so that each is prepared once and stays so.
CHUNK_SIZES = (250, 50, 10, 1)

#: How often a migration that takes long is logged, and after how many of SQLite's steps to look.
PROGRESS_S = 2.0
_PROGRESS_STEPS = 100_000

#: The first with all that the statements here use.
VERSION_MIN = (3, 35, 0)

Value = str | bytes | bytearray | int | None
Migration = Callable[[sqlite3.Connection], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Format:
    """The tables of a file."""

    version: int  # of the tables below, kept in the file as its `user_version`
    schema: tuple[str, ...]  # the statements that make a new file
    # `migrations[n]` makes version n + 1 out of version n
    migrations: Mapping[int, Migration] = field(default_factory=dict)


class Database:
    """A file of SQLite, or a database in memory when there is no path."""

    def __init__(
        self,
        path: Path | None,
        form: Format,
        *,
        synchronous: Literal["FULL", "NORMAL"],
        cache_bytes: int,
        wal_bytes_max: int,
        functions: Mapping[str, Callable[..., bool]] | None = None,
    ) -> None:
        self.file = str(path) if path else "memory"  # what to call it in messages
        # about how much has gathered in the WAL; each writer adds to it, and when it reaches
        # `wal_bytes_max` the next write checkpoints first
        self.wal_bytes = 0
        self._path = path
        self._synchronous = synchronous
        self._cache_bytes = cache_bytes
        self._wal_bytes_max = wal_bytes_max
        self._functions = functions or {}  # of Python, for use in statements
        self._wal: int | None = None
        self._lock = Lock()
        self._broken: StorageFault | None = None
        self._is_closed = False
        self._idle_readers: list[sqlite3.Connection] = []
        refuse_old_sqlite()
        with naming_faults(self.file):
            self._writer = self._connect()
            try:
                self._open_writer(form)
            except BaseException:
                self._writer.close()
                raise

    def _connect(self) -> sqlite3.Connection:
        if self._path is not None:
            make_file(self._path)  # SQLite gives its log and index the same permissions.
        connection = sqlite3.connect(
            self._path or ":memory:", timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        connection.execute(f"PRAGMA cache_size = {-self._cache_bytes // 1024}")
        for name, function in self._functions.items():
            connection.create_function(name, -1, function, deterministic=True)
        return connection

    def _open_writer(self, form: Format) -> None:
        writer = self._writer
        writer.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        # Both are on in some builds of SQLite, and make every removal write the freed pages.
        writer.execute("PRAGMA auto_vacuum = NONE")
        writer.execute("PRAGMA secure_delete = OFF")
        refuse_newer(writer, self.file, form)
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute(f"PRAGMA synchronous = {self._synchronous}")
        writer.execute("PRAGMA fullfsync = ON")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        # A WAL that one large write has blown up shrinks again.
        writer.execute(f"PRAGMA journal_size_limit = {2 * self._wal_bytes_max}")
        bring_up_to_date(writer, form, self.file)
        # Waits for readers, so that it leaves an empty WAL.
        self._checkpoint("TRUNCATE")
        if self._path is not None:
            # SQLite keeps no lock on the WAL itself, so that another descriptor does no harm.
            self._wal = os.open(f"{self._path}-wal", os.O_RDWR)

    @property
    def is_broken(self) -> bool:
        """Whether a write has failed in doubt, so that nothing more is written."""
        return self._broken is not None

    @contextmanager
    def statement(self) -> Iterator[sqlite3.Connection]:
        """Lend the writer for one statement, which is its own transaction."""
        with self._lock, self._writing():
            if self.wal_bytes >= self._wal_bytes_max:
                # Does not wait: what a reader still needs is left to the next time.
                self._checkpoint("PASSIVE")
            yield self._writer

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Lend the writer for one transaction, which is rolled back if the caller raises."""
        with self.statement() as writer, transaction(writer):
            yield writer

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for reading; a transaction that is begun on it ends with the loan."""
        if self._path is None:
            with self._lock, naming_faults(self.file), ending_transaction(self._writer):
                yield self._writer
            return
        with naming_faults(self.file):
            reader = self._take_reader()
            try:
                with ending_transaction(reader):
                    yield reader
            finally:
                self._give_back(reader)

    def spare_bytes(self) -> int:
        """Return how much of the file is free to be written over."""
        with self.reading() as reader:
            (pages,) = reader.execute("PRAGMA freelist_count").fetchone()
        return int(pages) * PAGE_BYTES

    def sync(self) -> None:
        """Return when every transaction committed before is on the disk.

        What is no longer in the WAL has been synced by the checkpoint that moved it.
        """
        if self._wal is not None:
            with self._writing():
                sync_file(self._wal)

    def close(self) -> None:
        """Close every connection; safe to repeat."""
        with self._lock, naming_faults(self.file):
            if self._is_closed:
                return
            self._is_closed = True
            while self._idle_readers:
                self._idle_readers.pop().close()
            self._writer.close()
            if self._wal is not None:
                os.close(self._wal)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._broken is not None:
            raise type(self._broken)(*self._broken.args) from self._broken
        try:
            with naming_faults(self.file):
                yield
        except StorageFault as fault:
            if not fault.is_settled:
                self._broken = fault
            raise

    def _checkpoint(self, mode: Literal["PASSIVE", "TRUNCATE"]) -> None:
        self._writer.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        self.wal_bytes = 0

    def _take_reader(self) -> sqlite3.Connection:
        try:
            return self._idle_readers.pop()
        except IndexError:
            reader = self._connect()
            reader.execute("PRAGMA query_only = ON")
            return reader

    def _give_back(self, reader: sqlite3.Connection) -> None:
        if self._is_closed:
            reader.close()
        else:
            self._idle_readers.append(reader)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Begin a transaction, and commit it or, if the caller raises, roll it back."""
    # After some errors SQLite has rolled back by itself.
    with ending_transaction(connection):
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")


@contextmanager
def ending_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """End a transaction that the caller has left open."""
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def refuse_old_sqlite() -> None:
    """Refuse to work with a library that does not know the statements used here."""
    if sqlite3.sqlite_version_info < VERSION_MIN:
        raise StorageFault(
            f"Python was built with SQLite {sqlite3.sqlite_version}, which is too old. Use one "
            f"with SQLite {'.'.join(map(str, VERSION_MIN))} or newer"
        )


def refuse_newer(connection: sqlite3.Connection, file: str, form: Format) -> None:
    """Refuse a file that a later version of Jackalope has written."""
    version = version_of(connection)
    if version > form.version:
        raise NewerFormat(
            f"{file}: written in format {version} by a later version of Jackalope; this one knows "
            f"up to {form.version}. Start the later version, or restore a backup from before"
        )


def bring_up_to_date(connection: sqlite3.Connection, form: Format, file: str = "") -> None:
    """Make the tables of a new file, or migrate those of an older one, a transaction a step."""
    if not connection.execute("SELECT EXISTS (SELECT 1 FROM sqlite_schema)").fetchone()[0]:
        with transaction(connection):
            for statement in form.schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {form.version}")
    for version in range(version_of(connection), form.version):
        with _showing_progress(connection, file, version + 1), transaction(connection):
            form.migrations[version](connection)
            connection.execute(f"PRAGMA user_version = {version + 1}")


@contextmanager
def _showing_progress(connection: sqlite3.Connection, file: str, version: int) -> Iterator[None]:
    """Log every few seconds that a migration still goes on: a large file takes a while."""
    begin_s = logged_s = monotonic()

    def look() -> None:
        nonlocal logged_s
        now_s = monotonic()
        if now_s - logged_s >= PROGRESS_S:
            logged_s = now_s
            # Loaded where there is something to log: most processes never need it.
            import structlog  # noqa: PLC0415

            structlog.get_logger(component="storage").warning(
                "still migrating", file=file, to_version=version, seconds=round(now_s - begin_s)
            )

    connection.set_progress_handler(look, _PROGRESS_STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


def version_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def execute_in(
    connection: sqlite3.Connection, sql: str, values: Iterable[Value], *params: Value
) -> list[tuple[Any, ...]]:
    """Execute a statement for many values, whose place is marked by {}, and return all rows."""
    rows: list[tuple[Any, ...]] = []
    for chunk in chunks_of(list(values)):
        statement = sql.format(marks(len(chunk)))
        rows += connection.execute(statement, (*params, *chunk)).fetchall()
    return rows


def chunks_of(items: list[T]) -> Iterator[list[T]]:
    """Return all items in pieces of few sizes."""
    begin = 0
    for size in CHUNK_SIZES:
        while len(items) - begin >= size:
            yield items[begin : begin + size]
            begin += size


def marks(count: int) -> str:
    """Return the places of so many values in a statement."""
    return ", ".join("?" * count)

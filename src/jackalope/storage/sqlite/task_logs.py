"""Task logs in SQLite: `logs.db`, the lines of attempts.

Owns the file, and what is removed when there are too many lines. Does not know what a task is.

Lines are for people to read. They need no journal: a power failure may cost those of the last
moment, and a file that is damaged is put aside, because a broker must not fail to start because of
its logs. A line has a number within its attempt; one that comes again is not stored again.

While the file cannot be opened, because the disk is full or fails, lines are in memory, and move to
the file when it can be. After a write that failed in doubt the file is opened again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

import msgspec

from jackalope.core.ids import TaskId
from jackalope.core.shapes.task_log import (
    LEVELS_BY_RANK,
    STREAMS,
    AttemptLogView,
    LogLevel,
    LogLine,
    LogLineView,
    line_id,
)
from jackalope.storage.faults import Corrupt, DiskFull, SyncFailed
from jackalope.storage.sqlite.database import Database, Format, Migration

MIGRATIONS: dict[int, Migration] = {}

FORMAT = Format(
    version=1,
    schema=(
        """CREATE TABLE attempts (
            task      BLOB NOT NULL,
            fence     INTEGER NOT NULL,
            attempt   INTEGER NOT NULL,
            namespace TEXT NOT NULL,
            last      INTEGER NOT NULL,
            lines     INTEGER NOT NULL,
            bytes     INTEGER NOT NULL,
            last_us   INTEGER NOT NULL,
            PRIMARY KEY (task, fence)
        ) WITHOUT ROWID""",
        "CREATE INDEX attempts_by_time ON attempts (last_us)",
        """CREATE TABLE lines (
            task   BLOB NOT NULL,
            fence  INTEGER NOT NULL,
            number INTEGER NOT NULL,
            at_us  INTEGER NOT NULL,
            level  INTEGER NOT NULL,
            stream INTEGER NOT NULL,
            logger TEXT NOT NULL,
            text   TEXT NOT NULL,
            PRIMARY KEY (task, fence, number)
        ) WITHOUT ROWID""",
    ),
    migrations=MIGRATIONS,
)

CACHE_BYTES = 2 * 1024 * 1024
WAL_BYTES_MAX = 4 * 1024 * 1024

#: Where a file goes that cannot be read.
DAMAGED = ".damaged"

#: What a line takes besides its text, about.
LINE_OVERHEAD_BYTES = 48

#: Down to which part of a limit lines are removed once it is exceeded, so that it is not each time.
_ROOM = 0.9

#: How often to try to open a file again.
_MEND_EVERY_S = 1.0

_MUCH = 1 << 62

#: Why a file cannot be opened that may be opened later. SQLite's index of the log is the first that
#: finds no room, and does not tell that from a disk that fails.
_UNWRITABLE = (DiskFull, SyncFailed)

#: How many attempts are removed at once.
_REMOVED_MAX = 500

_STREAM_RANKS = {stream: rank for rank, stream in enumerate(STREAMS)}

Position = tuple[int, int]


class Slice(msgspec.Struct, array_like=True):
    """Some lines of an attempt, to be stored."""

    task: TaskId
    fence: int
    attempt: int
    namespace: str
    lines: list[LogLine]
    last: int  # the number of its last line, stored or not
    at_us: int


class Wanted(msgspec.Struct, frozen=True):
    """Which lines of a task to read."""

    fence: int = 0  # of this attempt; 0 for all
    attempt: int = 0  # of this attempt, by its number; 0 for all
    after: Position | None = None  # behind this line
    before: Position | None = None  # before this line
    level: LogLevel = LogLevel.TRACE  # at least as grave
    text: str = ""  # that contain this, in any case
    since_us: int = 0  # written then or later
    limit: int = 1_000
    is_tail: bool = False  # the last of them, and not the first


class LogStore:
    """The lines of attempts. Called from any thread. Without a path it is in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._tried_s = 0.0  # when the file was last opened, or could not be
        self.trouble = ""  # why lines are in memory, and not in the file
        self._begin(_open(path))

    @classmethod
    def open(cls, path: Path) -> LogStore:
        """Open a file, or put it aside and begin another one if it is damaged.

        On a full or a failing disk the lines are kept in memory.
        """
        try:
            return cls(path)
        except _UNWRITABLE as fault:
            store = cls(None)
            store._path, store.trouble = path, str(fault)
            return store
        except Corrupt:
            for end in ("-wal", "-shm"):
                path.with_name(path.name + end).unlink(missing_ok=True)
            path.replace(path.with_name(path.name + DAMAGED))
            return cls(path)

    @property
    def is_in_memory(self) -> bool:
        """Whether there is no file, or there could be none yet."""
        return self._path is None or bool(self.trouble)

    def _begin(self, db: Database) -> None:
        with db.reading() as connection:
            found = connection.execute("SELECT coalesce(sum(bytes), 0) FROM attempts").fetchone()
        self._db = db
        self.bytes: int = found[0]  # of all lines

    def _mend(self) -> None:
        """Open the file again if it could not be opened, or a write to it failed in doubt."""
        is_due = monotonic() - self._tried_s >= _MEND_EVERY_S
        if not is_due or not (self.trouble or self._db.is_broken):
            return
        self._tried_s = monotonic()
        if not self.trouble:
            broken = self._db
            self._begin(_open(self._path))
            broken.close()
            return
        try:
            again = LogStore(self._path)
            for _, task in self.tasks(b"", -1):
                again.write(self.slices(task), attempt_bytes_max=_MUCH, bytes_max=_MUCH)
        except _UNWRITABLE:
            return  # What is in the file already is not stored again the next time.
        self._begin(again._db)  # What is in memory is forgotten.
        self.trouble = ""

    # Writing.

    def write(
        self, slices: Iterable[Slice], *, attempt_bytes_max: int, bytes_max: int
    ) -> list[tuple[int, int]]:
        """Store lines, and remove the oldest of an attempt or of all that are too many.

        All of it happens or none. Returns how many lines of each slice are new, and how many of
        the attempt's lines it has pushed out.
        """
        self._mend()
        done: list[tuple[int, int]] = []
        added = 0
        with self._db.transaction() as connection:
            for piece in slices:
                new, pushed, size = _write_slice(connection, piece, attempt_bytes_max)
                done.append((new, pushed))
                added += size
                self._db.wal_bytes += max(0, size)
            total = self.bytes + added
            if total > bytes_max:
                total -= _remove_oldest(connection, total - int(bytes_max * _ROOM))
        self.bytes = total
        return done

    def forget(self, before_us: int) -> int:
        """Remove attempts that have written nothing since; return how many, at most so many."""
        with self._db.transaction() as connection:
            found = connection.execute(
                "SELECT task, fence, bytes FROM attempts WHERE last_us < ?"
                " ORDER BY last_us LIMIT ?",
                (before_us, _REMOVED_MAX),
            ).fetchall()
            size = _remove(connection, found)
        self.bytes -= size
        return len(found)

    def remove_tasks(self, tasks: Iterable[TaskId]) -> None:
        """Remove all lines of tasks."""
        with self._db.transaction() as connection:
            size = 0
            for task in tasks:
                found = connection.execute(
                    "SELECT task, fence, bytes FROM attempts WHERE task = ?", (task,)
                ).fetchall()
                size += _remove(connection, found)
        self.bytes -= size

    # Reading.

    def tasks(self, after: bytes, limit: int) -> list[tuple[str, TaskId]]:
        """Return the next tasks that have lines, in the order of their ids, with namespaces."""
        with self._db.reading() as connection:
            found = connection.execute(
                "SELECT DISTINCT namespace, task FROM attempts WHERE task > ?"
                " ORDER BY task LIMIT ?",
                (after, limit),
            ).fetchall()
        return [(namespace, TaskId(task)) for namespace, task in found]

    def attempts(self, task: TaskId) -> list[AttemptLogView]:
        """Return what is kept of each attempt of a task, in their order."""
        with self._db.reading() as connection:
            found = connection.execute(
                "SELECT attempt, fence, lines, last - lines, bytes, last_us FROM attempts"
                " WHERE task = ? ORDER BY fence",
                (task,),
            ).fetchall()
        return [
            AttemptLogView(
                attempt=attempt, fence=fence, lines=lines, dropped=dropped, size=size, last_us=at_us
            )
            for attempt, fence, lines, dropped, size, at_us in found
        ]

    def read(self, task: TaskId, wanted: Wanted) -> list[LogLineView]:
        """Return lines in their order: the first that are wanted, or the last."""
        terms, values = _terms(wanted)
        order = "DESC" if wanted.is_tail else "ASC"
        with self._db.reading() as connection:
            found = connection.execute(
                "SELECT l.fence, a.attempt, l.number, l.at_us, l.level, l.stream, l.logger, l.text"  # noqa: S608  no value is in the text
                " FROM lines l JOIN attempts a ON a.task = l.task AND a.fence = l.fence"
                f" WHERE l.task = ?{terms}"
                f" ORDER BY l.fence {order}, l.number {order} LIMIT ?",
                (task, *values, wanted.limit),
            ).fetchall()
        views = [
            LogLineView(
                id=line_id(fence, number),
                attempt=attempt,
                number=number,
                at_us=at_us,
                level=LEVELS_BY_RANK[level],
                stream=STREAMS[stream],
                text=text,
                logger=logger,
            )
            for fence, attempt, number, at_us, level, stream, logger, text in found
        ]
        return views[::-1] if wanted.is_tail else views

    def slices(self, task: TaskId) -> list[Slice]:
        """Return all lines of a task, to be stored elsewhere."""
        with self._db.reading() as connection:
            attempts = connection.execute(
                "SELECT fence, attempt, namespace, last, last_us FROM attempts"
                " WHERE task = ? ORDER BY fence",
                (task,),
            ).fetchall()
            lines = connection.execute(
                "SELECT fence, number, at_us, text, level, stream, logger FROM lines"
                " WHERE task = ? ORDER BY fence, number",
                (task,),
            ).fetchall()
        by_fence: dict[int, list[LogLine]] = {}
        for fence, number, at_us, text, level, stream, logger in lines:
            line = LogLine(number, at_us, text, LEVELS_BY_RANK[level], STREAMS[stream], logger)
            by_fence.setdefault(fence, []).append(line)
        return [
            Slice(task, fence, attempt, namespace, by_fence.get(fence, []), last, at_us)
            for fence, attempt, namespace, last, at_us in attempts
        ]

    def close(self) -> None:
        """Close the file; safe to repeat."""
        self._db.close()


def _open(path: Path | None) -> Database:
    return Database(
        path, FORMAT, synchronous="NORMAL", cache_bytes=CACHE_BYTES, wal_bytes_max=WAL_BYTES_MAX
    )


def _terms(wanted: Wanted) -> tuple[str, list[object]]:
    terms: list[str] = []
    values: list[object] = []
    for term, value in (
        ("l.fence = ?", wanted.fence),
        ("a.attempt = ?", wanted.attempt),
        ("l.at_us >= ?", wanted.since_us),
    ):
        if value:
            terms.append(term)
            values.append(value)
    if wanted.after is not None:
        terms.append("(l.fence, l.number) > (?, ?)")
        values += wanted.after
    if wanted.before is not None:
        terms.append("(l.fence, l.number) < (?, ?)")
        values += wanted.before
    if wanted.level is not LogLevel.TRACE:
        terms.append("l.level <= ?")
        values.append(wanted.level.rank)
    if wanted.text:
        terms.append("l.text LIKE ? ESCAPE '!'")
        escaped = wanted.text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
        values.append(f"%{escaped}%")
    return "".join(f" AND {term}" for term in terms), values


def _write_slice(
    connection: sqlite3.Connection, piece: Slice, bytes_max: int
) -> tuple[int, int, int]:
    """Store one slice; return how many lines are new, were pushed out, and the bytes added."""
    key = (piece.task, piece.fence)
    found = connection.execute(
        "SELECT last, lines, bytes FROM attempts WHERE task = ? AND fence = ?", key
    ).fetchone()
    last, lines, size = found or (0, 0, 0)
    before = size
    rows = []
    for line in piece.lines:
        number = line.number or last + 1
        if number <= last:
            continue  # It came before.
        last = number
        size += line_bytes(line)
        rank, stream = line.level.rank, _STREAM_RANKS[line.stream]
        rows.append((*key, number, line.at_us, rank, stream, line.logger, line.text))
    connection.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    pushed = 0
    if size > bytes_max:
        pushed, removed = _push_out(connection, key, size - int(bytes_max * _ROOM))
        size -= removed
    connection.execute(
        "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *key,
            piece.attempt,
            piece.namespace,
            max(last, piece.last),
            lines + len(rows) - pushed,
            size,
            piece.at_us,
        ),
    )
    return len(rows), pushed, size - before


def line_bytes(line: LogLine) -> int:
    """Return about how many bytes a line takes."""
    text = len(line.text) if line.text.isascii() else len(line.text.encode())
    return text + len(line.logger) + LINE_OVERHEAD_BYTES


def _push_out(
    connection: sqlite3.Connection, key: tuple[TaskId, int], excess: int
) -> tuple[int, int]:
    """Remove the oldest lines of an attempt; return how many, and their bytes."""
    pushed = removed = cut = 0
    for number, size in connection.execute(
        "SELECT number, length(CAST(text AS BLOB)) + length(logger) FROM lines"
        " WHERE task = ? AND fence = ? ORDER BY number",
        key,
    ):
        if removed >= excess:
            break
        pushed, removed, cut = pushed + 1, removed + size + LINE_OVERHEAD_BYTES, number
    connection.execute(
        "DELETE FROM lines WHERE task = ? AND fence = ? AND number <= ?", (*key, cut)
    )
    return pushed, removed


def _remove_oldest(connection: sqlite3.Connection, excess: int) -> int:
    """Remove the attempts that wrote longest ago; return their bytes."""
    removed = 0
    while removed < excess:
        found = connection.execute(
            "SELECT task, fence, bytes FROM attempts ORDER BY last_us LIMIT 20"
        ).fetchall()
        if not found:
            break
        for row in found:
            if removed < excess:
                removed += _remove(connection, [row])
    return removed


def _remove(connection: sqlite3.Connection, found: list[tuple[bytes, int, int]]) -> int:
    keys = [(task, fence) for task, fence, _ in found]
    connection.executemany("DELETE FROM lines WHERE task = ? AND fence = ?", keys)
    connection.executemany("DELETE FROM attempts WHERE task = ? AND fence = ?", keys)
    return sum(size for _, _, size in found)

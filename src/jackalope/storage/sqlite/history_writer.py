"""Writing history: changes become rows, in one transaction each.

Owns the statements that change the tables. Reading is in `history`; a process that does nothing but
this is `writer_process`.

Rows are written many to a statement. That is not for the sake of SQLite: Python's module releases
the GIL at each statement and gets it back when another thread yields, which takes long while that
is busy.
"""

# Only names of our own are put into statements; values are always parameters.
# ruff: noqa: S608

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain

import msgspec
from msgspec.structs import astuple

from jackalope.core.ids import TaskId
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.changes import Changes, Counters, Entity
from jackalope.core.task import TaskRow
from jackalope.storage.sqlite.database import Database, Value, chunks_of, execute_in, marks
from jackalope.storage.sqlite.schema import (
    COLUMNS,
    IS_ENDED,
    blobs_of,
    inline_bytes,
    is_kept,
    to_columns,
)

#: About how much a row adds to the WAL besides payload and result: columns and index pages.
_ROW_BYTES = 1024

#: The ended tasks that were to be kept until a time at the latest, but for those that are answers.
PAST = f"""
    FROM tasks INDEXED BY tasks_to_forget
    WHERE {IS_ENDED} AND forget_us <= ? AND id NOT IN (SELECT task FROM answers)
"""

FORGET = f"DELETE FROM tasks WHERE serial IN (SELECT serial {PAST}) RETURNING id"

_encode_json = msgspec.json.Encoder().encode


class Writer:
    """Writes the tables of one file, from one thread at a time."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def write(
        self, sequence: int, changes: Changes, tasks: Iterable[list[TaskRow]] | None = None
    ) -> list[str]:
        """Write changes in one transaction, and return the blobs that became unowned.

        Args:
            sequence: of the last batch in them.
            changes: what to write.
            tasks: the rows of tasks, some at a time, if they are not all in `changes`.
        """
        released = list(changes.blobs)
        with self._db.transaction() as connection:
            removed = changes.gone + _ids_in(connection, changes.queues_gone)
            released += _remove_tasks(connection, removed)
            for rows in [changes.tasks] if tasks is None else tasks:
                released += self._write_tasks(connection, rows)
            _write_entities(connection, changes.entities)
            _write_answers(connection, changes)
            released += self._forget(connection, changes.counters.horizon_us)
            _write_meta(connection, sequence, changes.counters)
            return unowned(connection, released)

    def sync(self) -> None:
        """Make all that was written safe from a power failure."""
        self._db.sync()

    def close(self) -> None:
        """No-op; the owner closes the file."""

    def _forget(self, connection: sqlite3.Connection, horizon_us: int) -> list[str]:
        """Remove ended tasks up to the horizon, and return the blobs that belonged to them."""
        ids = [task for (task,) in connection.execute(FORGET, (horizon_us,)).fetchall()]
        self._db.wal_bytes += _ROW_BYTES * len(ids)
        return _release_blobs(connection, ids)

    def _write_tasks(self, connection: sqlite3.Connection, rows: list[TaskRow]) -> list[str]:
        """Write over what is stored of tasks, and return the blobs that they let go of."""
        kept: list[TaskRow] = []
        dropped: list[TaskRow] = []
        for row in rows:
            (kept if is_kept(row) else dropped).append(row)
        released = _remove_tasks(connection, [row.id for row in dropped])
        released += _release_blobs(connection, [row.id for row in kept])
        released += chain.from_iterable(blobs_of(row) for row in dropped)
        _upsert_tasks(connection, kept)
        connection.executemany(
            "INSERT OR IGNORE INTO blobs VALUES (?, ?)",
            [(blob, row.id) for row in kept for blob in blobs_of(row)],
        )
        self._db.wal_bytes += _ROW_BYTES * len(rows) + sum(map(inline_bytes, kept))
        return released


def _remove_tasks(connection: sqlite3.Connection, ids: Sequence[TaskId]) -> list[str]:
    """Remove tasks, and return the blobs that belonged to them."""
    released = _release_blobs(connection, ids)
    execute_in(connection, "DELETE FROM tasks WHERE id IN ({})", ids)
    return released


def _upsert_tasks(connection: sqlite3.Connection, rows: list[TaskRow]) -> None:
    for chunk in chunks_of(rows):
        values: list[Value] = []
        for row in chunk:
            values += to_columns(row)
        connection.execute(_upsert(len(chunk)), values)


@cache
def _upsert(row_count: int) -> str:
    row = f"({marks(len(COLUMNS))})"
    updates = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "id")
    return (
        f"INSERT INTO tasks ({', '.join(COLUMNS)}) VALUES {', '.join([row] * row_count)}"
        f" ON CONFLICT (id) DO UPDATE SET {updates}"
    )


def _ids_in(connection: sqlite3.Connection, queues: Sequence[tuple[str, str]]) -> list[TaskId]:
    """Return the tasks of queues that are to be removed."""
    sql = "SELECT id FROM tasks WHERE namespace = ? AND queue = ?"
    return [row[0] for queue in queues for row in connection.execute(sql, queue).fetchall()]


def _write_entities(connection: sqlite3.Connection, entities: list[Entity]) -> None:
    connection.executemany(
        "DELETE FROM entities WHERE kind = ? AND namespace = ? AND name = ?",
        [(each.kind, each.namespace, each.name) for each in entities if each.row is None],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO entities VALUES (?, ?, ?, ?)",
        [astuple(each) for each in entities if each.row is not None],
    )


def _write_answers(connection: sqlite3.Connection, changes: Changes) -> None:
    gone = [(task,) for task in changes.answers_gone]
    connection.executemany("DELETE FROM answers WHERE task = ?", gone)
    connection.executemany(
        f"INSERT OR REPLACE INTO answers VALUES ({marks(len(StoredAnswer.__struct_fields__))})",
        [astuple(answer) for answer in changes.answers],
    )


def _write_meta(connection: sqlite3.Connection, sequence: int, counters: Counters) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO meta VALUES ('sequence', ?), ('counters', ?)",
        (sequence, _encode_json(counters).decode()),
    )


def _release_blobs(connection: sqlite3.Connection, tasks: Sequence[bytes]) -> list[str]:
    """Take the blobs away from tasks, and return them."""
    # Most brokers never see one, and spare themselves the look-ups.
    if not tasks or not connection.execute("SELECT EXISTS (SELECT 1 FROM blobs)").fetchone()[0]:
        return []
    released = execute_in(connection, "DELETE FROM blobs WHERE task IN ({}) RETURNING blob", tasks)
    return [blob for (blob,) in released]


def unowned(connection: sqlite3.Connection, blobs: Iterable[str]) -> list[str]:
    """Return those blobs that no stored row names."""
    candidates = dict.fromkeys(blobs)
    owned = execute_in(connection, "SELECT blob FROM blobs WHERE blob IN ({})", candidates)
    names = {blob for (blob,) in owned}
    return [blob for blob in candidates if blob not in names]

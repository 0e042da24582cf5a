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
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain

import msgspec
from msgspec.structs import astuple

from jackalope.core.ids import TaskId
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.changes import Changes, Counters, Entity
from jackalope.core.task import TaskRow
from jackalope.storage.sqlite.database import Database, Value, chunks_of, execute_in, marks
from jackalope.storage.sqlite.rows import (
    COLUMNS,
    USUAL,
    Encoded,
    Head,
    blobs_of,
    decode_heads,
    encode_rows,
    is_kept,
    is_plain,
    to_columns,
    to_plain,
)
from jackalope.storage.sqlite.schema import IS_ENDED

#: About how much a task adds to the WAL besides itself: columns and index pages.
_ROW_BYTES = 768

#: Of an ended task that was to be kept until a time at the latest, unless it is an answer.
IS_PAST = f"{IS_ENDED} AND forget_us <= ? AND id NOT IN (SELECT task FROM answers)"

PAST = f"FROM tasks INDEXED BY tasks_to_forget WHERE {IS_PAST}"

FORGET = f"DELETE FROM tasks WHERE serial IN (SELECT serial {PAST}) RETURNING id"

_encode_json = msgspec.json.Encoder().encode


class Writer:
    """Writes the tables of one file, from one thread at a time."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def write(
        self, sequence: int, changes: Changes, pieces: Iterable[bytes] | None = None
    ) -> list[str]:
        """Write changes in one transaction, and return the blobs that became unowned.

        Args:
            sequence: of the last batch in them.
            changes: what to write.
            pieces: of its tasks, encoded, if they are not in `changes`.
        """
        released = list(changes.blobs)
        with self._db.transaction() as connection:
            removed = changes.gone + _ids_in(connection, changes.queues_gone)
            released += _remove_tasks(connection, removed)
            for piece in encoded_pieces(changes.tasks) if pieces is None else pieces:
                released += self._write_tasks(connection, decode_heads(piece))
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

    def _write_tasks(self, connection: sqlite3.Connection, rows: list[Encoded]) -> list[str]:
        """Write over what is stored of tasks, and return the blobs that they let go of."""
        plain: list[Encoded] = []
        others: list[Encoded] = []
        dropped: list[Head] = []
        for row in rows:
            head = row[0]
            if not is_kept(head):
                dropped.append(head)
            else:
                (plain if is_plain(head) else others).append(row)
        released = _remove_tasks(connection, [head.id for head in dropped])
        released += chain.from_iterable(map(blobs_of, dropped))
        released += _release_blobs(connection, [head.id for head, _ in chain(plain, others)])
        _upsert_tasks(connection, plain, is_plain=True)
        _upsert_tasks(connection, others, is_plain=False)
        owned = [(blob, head.id) for head, _ in others for blob in blobs_of(head)]
        connection.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?)", owned)
        self._db.wal_bytes += sum(_ROW_BYTES + len(encoded) for _, encoded in rows)
        return released


def _remove_tasks(connection: sqlite3.Connection, ids: Sequence[bytes]) -> list[str]:
    """Remove tasks, and return the blobs that belonged to them."""
    released = _release_blobs(connection, ids)
    execute_in(connection, "DELETE FROM tasks WHERE id IN ({})", ids)
    return released


def _upsert_tasks(connection: sqlite3.Connection, rows: list[Encoded], *, is_plain: bool) -> None:
    columns = to_plain if is_plain else to_columns
    for chunk in chunks_of(rows):
        values: list[Value] = []
        for head, row in chunk:
            values += columns(head, row)
        connection.execute(_upsert(len(chunk), is_plain), values)


@cache
def _upsert(row_count: int, is_plain: bool) -> str:
    """Return the statement that writes so many tasks; a plain one has constants in it."""
    constants = USUAL if is_plain else {}
    row = f"({', '.join(constants.get(name, '?') for name in COLUMNS)})"
    updates = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "id")
    return (
        f"INSERT INTO tasks ({', '.join(COLUMNS)}) VALUES {', '.join([row] * row_count)}"
        f" ON CONFLICT (id) DO UPDATE SET {updates}"
    )


#: A piece of a write ends with the task whose bodies reach this, or after so many tasks.
PIECE_BYTES = 1024 * 1024
PIECE_ROWS = 2_000


def encoded_pieces(rows: Iterable[TaskRow]) -> Iterator[bytes]:
    """Encode tasks that are to be written, some at a time."""
    piece: list[TaskRow] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += len(row.payload) if isinstance(row.payload, bytes) else 0
        if row.outcome is not None and isinstance(row.outcome.result, bytes):
            size += len(row.outcome.result)
        if size >= PIECE_BYTES or len(piece) == PIECE_ROWS:
            yield encode_rows(piece)
            piece, size = [], 0
    if piece:
        yield encode_rows(piece)


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

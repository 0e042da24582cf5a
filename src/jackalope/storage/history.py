"""The history in SQLite: `tasks.db`, the latest state of every task.

Owns the file and its tables. People may open it with any tool of SQLite. What a task looks like in
columns is said by `jackalope.storage.rows`, what a list asks for by `jackalope.storage.query`.

Rows are written many to a statement. That is not for the sake of SQLite: Python's module lets go
of the interpreter at each statement and gets it back when the engine's thread yields, which can
take 5 ms while that is busy. With a statement a row, 200 rows a second would remain.
"""

# Only names of our own are put into statements; values are always parameters.
# ruff: noqa: S608

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jackalope.core.access import ApiKey
from jackalope.core.cache import StoredAnswer
from jackalope.core.changes import (
    Changes,
    Counters,
    DefinitionRow,
    LimitRow,
    QueueRow,
    TallyRow,
)
from jackalope.core.durations import NEVER
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.must import must
from jackalope.core.task import TaskRow
from jackalope.core.topology import Binding, Exchange, Rule
from jackalope.storage.ports import BatchSummary, Forgotten, Page, Snapshot, Sort
from jackalope.storage.query import count_query, from_cursor, page_query, to_cursor
from jackalope.storage.rows import (
    COLUMNS,
    WHOLE,
    WITHOUT_BODIES,
    blobs_of,
    from_columns,
    inline_bytes,
    is_kept,
    to_columns,
)
from jackalope.storage.sqlite import Database, Format, Migration, Value

_TALLIES = """CREATE TABLE tallies (
    namespace TEXT NOT NULL, worker TEXT NOT NULL, succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL, at_us INTEGER NOT NULL, PRIMARY KEY (namespace, worker)
) WITHOUT ROWID"""

_API_KEYS = "CREATE TABLE api_keys (id TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID"


def _add_tallies_and_api_keys(connection: sqlite3.Connection) -> None:
    connection.execute(_TALLIES)
    connection.execute(_API_KEYS)


#: The fields of an answer are its columns, in their order.
_ANSWERS = """CREATE TABLE answers (
    namespace TEXT NOT NULL, queue TEXT NOT NULL, identity BLOB NOT NULL, task BLOB PRIMARY KEY,
    name TEXT NOT NULL, version TEXT NOT NULL, worker TEXT NOT NULL, state TEXT NOT NULL,
    size INTEGER NOT NULL, made_us INTEGER NOT NULL, until_us INTEGER NOT NULL,
    rank INTEGER NOT NULL, uses INTEGER NOT NULL, used_us INTEGER NOT NULL,
    used_by TEXT NOT NULL, pinned_by TEXT NOT NULL
) WITHOUT ROWID"""


def _add_answers(connection: sqlite3.Connection) -> None:
    connection.execute(_ANSWERS)


_DEFINITIONS = """CREATE TABLE definitions (
    namespace TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, row TEXT NOT NULL,
    PRIMARY KEY (namespace, kind, name)
) WITHOUT ROWID"""


def _add_definitions(connection: sqlite3.Connection) -> None:
    connection.execute(_DEFINITIONS)


MIGRATIONS: dict[int, Migration] = {
    1: _add_tallies_and_api_keys,
    2: _add_answers,
    3: _add_definitions,
}

_ENDED = "state IN ({})".format(", ".join(f"'{state}'" for state in sorted(ENDED)))

FORMAT = Format(
    version=4,
    schema=(
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
        # The serial stays what it is when a row is written over; cursors rely on that.
        "CREATE TABLE tasks (serial INTEGER PRIMARY KEY, {}, {})".format(
            ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()),
            "id_hex TEXT AS (lower(hex(id))) VIRTUAL",
        ),
        "CREATE INDEX tasks_by_state ON tasks (namespace, state, created_us)",
        "CREATE INDEX tasks_by_queue ON tasks (namespace, queue, state, created_us)",
        "CREATE INDEX tasks_by_batch ON tasks (namespace, queue, batch)",
        # Few tasks are in these.
        "CREATE INDEX tasks_by_parent ON tasks (parent) WHERE parent <> x''",
        "CREATE INDEX tasks_by_alias ON tasks (namespace, alias) WHERE alias <> ''",
        f"CREATE INDEX tasks_to_load ON tasks (rank) WHERE NOT ({_ENDED})",
        f"CREATE INDEX tasks_to_forget ON tasks (forget_us) WHERE {_ENDED}",
        # A result can become the payload of the next task, so that a blob can belong to several.
        """CREATE TABLE blobs (
            blob TEXT NOT NULL, task BLOB NOT NULL, PRIMARY KEY (blob, task)
        ) WITHOUT ROWID""",
        "CREATE INDEX blobs_by_task ON blobs (task)",
        """CREATE TABLE queues (
            namespace TEXT NOT NULL, queue TEXT NOT NULL, row TEXT NOT NULL,
            PRIMARY KEY (namespace, queue)
        ) WITHOUT ROWID""",
        """CREATE TABLE limits (
            namespace TEXT NOT NULL, tag TEXT NOT NULL, max_count INTEGER NOT NULL,
            PRIMARY KEY (namespace, tag)
        ) WITHOUT ROWID""",
        _TALLIES,
        _API_KEYS,
        _ANSWERS,
        _DEFINITIONS,
    ),
    migrations=MIGRATIONS,
)

CACHE_BYTES = 64 * 1024 * 1024
WAL_BYTES_MAX = 32 * 1024 * 1024

#: About how much a row adds to the WAL beside payload and result: columns and index pages.
_ROW_BYTES = 1024

#: Statements come in these sizes only, so that each is prepared once and stays so.
_CHUNK_SIZES = (250, 50, 10, 1)

_LOAD = f"SELECT {WHOLE} FROM tasks INDEXED BY tasks_to_load WHERE NOT ({_ENDED}) ORDER BY rank"

_BATCHES = """
    SELECT batch, state, count(*) FROM tasks INDEXED BY tasks_by_batch
    WHERE namespace = ? AND queue = ? AND batch IN (
        SELECT DISTINCT batch FROM tasks INDEXED BY tasks_by_batch
        WHERE namespace = ? AND queue = ? AND batch < ? ORDER BY batch DESC LIMIT ?
    )
    GROUP BY batch, state ORDER BY batch DESC
"""

_FORGET = f"""
    DELETE FROM tasks WHERE serial IN (
        SELECT serial FROM tasks INDEXED BY tasks_to_forget
        WHERE {_ENDED} AND forget_us <= ? AND id NOT IN (SELECT task FROM answers)
        ORDER BY forget_us LIMIT ?
    )
    RETURNING id
"""

Columns = tuple[Any, ...]
T = TypeVar("T")

_encode_json = msgspec.json.Encoder().encode
_decode_queue = msgspec.json.Decoder(QueueRow).decode
_decode_api_key = msgspec.json.Decoder(ApiKey).decode
_decode_definition = msgspec.json.Decoder(Exchange | Binding | Rule).decode
_decode_counters = msgspec.json.Decoder(Counters).decode


class SqliteHistory:
    """See `jackalope.storage.ports.History`. Without a path it is in memory."""

    def __init__(self, path: Path | None) -> None:
        self._db = Database(
            path,
            FORMAT,
            synchronous="NORMAL",
            cache_bytes=CACHE_BYTES,
            wal_bytes_max=WAL_BYTES_MAX,
        )
        with self._db.reading() as connection:
            self._applied = _read_meta(connection)[0]

    def write(self, sequence: int, changes: Changes) -> list[str]:
        """Write changes in one transaction, and return the blobs that became unowned."""
        must(sequence >= self._applied, "history written backwards", sequence, self._applied)
        kept: list[TaskRow] = []
        dropped: list[TaskRow] = []
        for row in changes.tasks:
            (kept if is_kept(row) else dropped).append(row)
        removed = changes.gone + [row.id for row in dropped]
        with self._db.transaction() as connection:
            removed += _ids_in(connection, changes.queues_gone)
            released = _release_blobs(connection, removed + [row.id for row in kept])
            _execute_in(connection, "DELETE FROM tasks WHERE id IN ({})", removed)
            _upsert_tasks(connection, kept)
            connection.executemany(
                "INSERT OR IGNORE INTO blobs VALUES (?, ?)",
                [(blob, row.id) for row in kept for blob in blobs_of(row)],
            )
            _write_queues(connection, changes)
            _write_limits(connection, changes.limits)
            _write_tallies(connection, changes.tallies)
            _write_api_keys(connection, changes)
            _write_answers(connection, changes)
            _write_definitions(connection, changes.definitions)
            _write_meta(connection, sequence, changes.counters)
            released += changes.blobs
            released += chain.from_iterable(blobs_of(row) for row in dropped)
            unowned = _unowned(connection, released)
            self._db.wal_bytes += _ROW_BYTES * len(changes.tasks) + sum(map(inline_bytes, kept))
        self._applied = sequence
        return unowned

    def applied(self) -> int:
        """Return the sequence of the last write."""
        return self._applied

    def sync(self) -> int:
        """Make all that was written safe from a power failure, and return its sequence."""
        applied = self._applied
        self._db.sync()
        return applied

    def spare_bytes(self) -> int:
        """Return how much of the file is free to be written over."""
        return self._db.spare_bytes()

    def load(self) -> Snapshot:
        """Return all that has not ended."""
        with ExitStack() as stack:
            connection = stack.enter_context(self._db.reading())
            # One transaction, so that all of it is of one moment.
            connection.execute("BEGIN")
            sequence, counters = _read_meta(connection)
            queues = connection.execute("SELECT row FROM queues").fetchall()
            limits = connection.execute("SELECT namespace, tag, max_count FROM limits").fetchall()
            tallies = connection.execute("SELECT * FROM tallies").fetchall()
            api_keys = connection.execute("SELECT row FROM api_keys").fetchall()
            answers = connection.execute("SELECT * FROM answers").fetchall()
            definitions = connection.execute("SELECT * FROM definitions").fetchall()
            live = connection.execute(_LOAD)
            lent = stack.pop_all()
        return Snapshot(
            sequence=sequence,
            counters=counters,
            queues=[_decode_queue(row) for (row,) in queues],
            limits=[LimitRow(*columns) for columns in limits],
            tasks=self._live(live, lent),
            tallies=[TallyRow(*columns) for columns in tallies],
            api_keys=[_decode_api_key(row) for (row,) in api_keys],
            answers=[msgspec.convert(columns, StoredAnswer) for columns in answers],
            definitions=[
                DefinitionRow(namespace, kind, name, _decode_definition(row))
                for namespace, kind, name, row in definitions
            ],
        )

    def _live(self, live: sqlite3.Cursor, lent: ExitStack) -> Iterator[TaskRow]:
        with lent:
            for columns in live:
                yield from_columns(self._db.file, columns)

    def find(self, ids: Iterable[TaskId]) -> list[TaskRow]:
        """Return the stored rows of these tasks."""
        return self._find(f"SELECT {WHOLE} FROM tasks WHERE id IN ({{}})", ids)

    def find_aliases(self, namespace: str, aliases: Iterable[str]) -> list[TaskRow]:
        """Return the stored rows with these aliases."""
        return self._find(
            f"SELECT {WHOLE} FROM tasks INDEXED BY tasks_by_alias"
            " WHERE alias <> '' AND namespace = ? AND alias IN ({})",
            aliases,
            namespace,
        )

    def page(
        self,
        namespace: str,
        wanted: Filter,
        *,
        sort: Sort | str = Sort.CREATED_LAST,
        limit: int = 100,
        cursor: str = "",
        offset: int = 0,
        with_bodies: bool = False,
    ) -> Page:
        """Return the next rows of a list."""
        must(limit > 0, "a page has at least one row", limit)
        sort = Sort(sort)
        after = from_cursor(namespace, wanted, sort, cursor) if cursor else None
        columns = WHOLE if with_bodies else WITHOUT_BODIES
        # One more than asked for tells whether there is a next page.
        sql, params = page_query(
            namespace, wanted, sort, limit=limit + 1, after=after, offset=offset, columns=columns
        )
        with self._db.reading() as connection:
            found = connection.execute(sql, params).fetchall()
        rows = [from_columns(self._db.file, columns) for _, _, *columns in found[:limit]]
        if len(found) <= limit:
            return Page(rows)
        sorted_value, serial, *_ = found[limit - 1]
        return Page(rows, to_cursor(namespace, wanted, sort, (sorted_value, serial)))

    def count(self, namespace: str, wanted: Filter) -> dict[State, int]:
        """Return how many tasks match in each state."""
        sql, params = count_query(namespace, wanted)
        with self._db.reading() as connection:
            return {State(state): count for state, count in connection.execute(sql, params)}

    def batches(
        self, namespace: str, queue: str, *, limit: int = 100, before: int = 0
    ) -> list[BatchSummary]:
        """Return the latest batches of a queue, or those before a number, greatest first."""
        summaries: dict[int, BatchSummary] = {}
        with self._db.reading() as connection:
            for number, state, count in connection.execute(
                _BATCHES, (namespace, queue, namespace, queue, before or NEVER, limit)
            ):
                summary = summaries.setdefault(number, BatchSummary(number, {}))
                summary.counts[State(state)] = count
        return list(summaries.values())

    def forget(self, before_us: int, limit: int) -> Forgotten:
        """Remove ended tasks that were to be kept no longer than this."""
        with self._db.transaction() as connection:
            ids = [task for (task,) in connection.execute(_FORGET, (before_us, limit)).fetchall()]
            self._db.wal_bytes += _ROW_BYTES * len(ids)
            return Forgotten(len(ids), _unowned(connection, _release_blobs(connection, ids)))

    def unowned(self, blobs: Iterable[str]) -> list[str]:
        """Return those of the blobs that no stored row names."""
        with self._db.reading() as connection:
            return _unowned(connection, blobs)

    def close(self) -> None:
        """Close the file; safe to repeat."""
        self._db.close()

    def _find(self, sql: str, wanted: Iterable[Value], *params: Value) -> list[TaskRow]:
        with self._db.reading() as connection:
            found = _execute_in(connection, sql, wanted, *params)
        return [from_columns(self._db.file, columns) for columns in found]


def _upsert_tasks(connection: sqlite3.Connection, rows: list[TaskRow]) -> None:
    for chunk in _chunks(rows):
        values: list[Value] = []
        for row in chunk:
            values += to_columns(row)
        connection.execute(_upsert(len(chunk)), values)


@cache
def _upsert(row_count: int) -> str:
    row = f"({_marks(len(COLUMNS))})"
    updates = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "id")
    return (
        f"INSERT INTO tasks ({', '.join(COLUMNS)}) VALUES {', '.join([row] * row_count)}"
        f" ON CONFLICT (id) DO UPDATE SET {updates}"
    )


def _write_queues(connection: sqlite3.Connection, changes: Changes) -> None:
    connection.executemany(
        "DELETE FROM queues WHERE namespace = ? AND queue = ?", changes.queues_gone
    )
    connection.executemany(
        "INSERT OR REPLACE INTO queues VALUES (?, ?, ?)",
        [(row.namespace, row.queue, _encode_json(row).decode()) for row in changes.queues],
    )


def _ids_in(connection: sqlite3.Connection, queues: Sequence[tuple[str, str]]) -> list[TaskId]:
    """Return the tasks of queues that are to be removed."""
    sql = "SELECT id FROM tasks WHERE namespace = ? AND queue = ?"
    return [row[0] for queue in queues for row in connection.execute(sql, queue).fetchall()]


def _write_limits(connection: sqlite3.Connection, limits: list[LimitRow]) -> None:
    connection.executemany(
        "DELETE FROM limits WHERE namespace = ? AND tag = ?",
        [(row.namespace, row.tag) for row in limits if row.limit < 0],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO limits VALUES (?, ?, ?)",
        [(row.namespace, row.tag, row.limit) for row in limits if row.limit >= 0],
    )


def _write_tallies(connection: sqlite3.Connection, tallies: list[TallyRow]) -> None:
    connection.executemany(
        "DELETE FROM tallies WHERE namespace = ? AND worker = ?",
        [(row.namespace, row.worker) for row in tallies if not (row.succeeded or row.failed)],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO tallies VALUES (?, ?, ?, ?, ?)",
        [
            (row.namespace, row.worker, row.succeeded, row.failed, row.at_us)
            for row in tallies
            if row.succeeded or row.failed
        ],
    )


def _write_api_keys(connection: sqlite3.Connection, changes: Changes) -> None:
    connection.executemany(
        "DELETE FROM api_keys WHERE id = ?", [(key,) for key in changes.api_keys_gone]
    )
    connection.executemany(
        "INSERT OR REPLACE INTO api_keys VALUES (?, ?)",
        [(key.id, _encode_json(key).decode()) for key in changes.api_keys],
    )


def _write_answers(connection: sqlite3.Connection, changes: Changes) -> None:
    gone = [(task,) for task in changes.answers_gone]
    connection.executemany("DELETE FROM answers WHERE task = ?", gone)
    connection.executemany(
        f"INSERT OR REPLACE INTO answers VALUES ({_marks(len(StoredAnswer.__struct_fields__))})",
        [msgspec.structs.astuple(answer) for answer in changes.answers],
    )


def _write_definitions(connection: sqlite3.Connection, rows: list[DefinitionRow]) -> None:
    connection.executemany(
        "DELETE FROM definitions WHERE namespace = ? AND kind = ? AND name = ?",
        [(row.namespace, row.kind, row.name) for row in rows if row.definition is None],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO definitions VALUES (?, ?, ?, ?)",
        [
            (row.namespace, row.kind, row.name, _encode_json(row.definition).decode())
            for row in rows
            if row.definition is not None
        ],
    )


def _write_meta(connection: sqlite3.Connection, sequence: int, counters: Counters) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO meta VALUES ('sequence', ?), ('counters', ?)",
        (sequence, _encode_json(counters).decode()),
    )


def _read_meta(connection: sqlite3.Connection) -> tuple[int, Counters]:
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    return (meta["sequence"], _decode_counters(meta["counters"])) if meta else (0, Counters())


def _release_blobs(connection: sqlite3.Connection, tasks: Sequence[bytes]) -> list[str]:
    """Take the blobs away from tasks, and return them."""
    # Most brokers never see one, and spare themselves the look-ups.
    if not connection.execute("SELECT EXISTS (SELECT 1 FROM blobs)").fetchone()[0]:
        return []
    released = _execute_in(connection, "DELETE FROM blobs WHERE task IN ({}) RETURNING blob", tasks)
    return [blob for (blob,) in released]


def _unowned(connection: sqlite3.Connection, blobs: Iterable[str]) -> list[str]:
    """Return those blobs that no stored row names."""
    candidates = dict.fromkeys(blobs)
    owned = _execute_in(connection, "SELECT blob FROM blobs WHERE blob IN ({})", candidates)
    names = {blob for (blob,) in owned}
    return [blob for blob in candidates if blob not in names]


def _execute_in(
    connection: sqlite3.Connection, sql: str, values: Iterable[Value], *params: Value
) -> list[Columns]:
    """Execute a statement for many values, whose place is marked by {}, and return all rows."""
    rows: list[Columns] = []
    for chunk in _chunks(list(values)):
        statement = sql.format(_marks(len(chunk)))
        rows += connection.execute(statement, (*params, *chunk)).fetchall()
    return rows


def _chunks(items: list[T]) -> Iterator[list[T]]:
    begin = 0
    for size in _CHUNK_SIZES:
        while len(items) - begin >= size:
            yield items[begin : begin + size]
            begin += size


def _marks(count: int) -> str:
    return ", ".join("?" * count)

"""The history in SQLite: `tasks.db`, the latest state of every task.

Owns the way from rows to answers, and what a list asks for. People may open the file with any tool
of SQLite. Its tables are in `schema`, what writes it in `history_writer`.
"""

from __future__ import annotations

import sqlite3
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import msgspec

from jackalope.core.assertions import must
from jackalope.core.durations import NEVER
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.changes import Changes, Counters, Entity
from jackalope.core.task import TaskRow
from jackalope.storage.ports import BadCursor, BatchSummary, Page, Snapshot, Sort
from jackalope.storage.sqlite.database import Value, execute_in
from jackalope.storage.sqlite.history_writer import PAST, Writer, unowned
from jackalope.storage.sqlite.schema import (
    IS_ENDED,
    WHOLE,
    WITHOUT_BODIES,
    from_columns,
    open_history,
)
from jackalope.storage.sqlite.writer_process import WriterProcess

# Only names of our own are put into statements; values are always parameters.
# ruff: noqa: S608


_LOAD = f"SELECT {WHOLE} FROM tasks INDEXED BY tasks_to_load WHERE NOT ({IS_ENDED}) ORDER BY rank"

_BATCHES = """
    SELECT batch, state, count(*) FROM tasks INDEXED BY tasks_by_batch
    WHERE namespace = ? AND queue = ? AND batch IN (
        SELECT DISTINCT batch FROM tasks INDEXED BY tasks_by_batch
        WHERE namespace = ? AND queue = ? AND batch < ? ORDER BY batch DESC LIMIT ?
    )
    GROUP BY batch, state ORDER BY batch DESC
"""

OVERDUE = f"SELECT max(forget_us) FROM (SELECT forget_us {PAST} ORDER BY forget_us LIMIT ?)"

_decode_counters = msgspec.json.Decoder(Counters).decode


class History:
    """The queryable table of tasks, written behind the journal.

    Written from one thread at a time; read from any. A read sees whole writes only.

    Args:
        path: of the file; without one it is in memory.
        lock: the descriptor of the lock on the data folder, for a process of its own to write.
    """

    def __init__(self, path: Path | None, lock: int | None = None) -> None:
        self._db = open_history(path)
        with self._db.reading() as connection:
            self._applied = _read_meta(connection)[0]
        self._writer: Writer | WriterProcess = Writer(self._db)
        if path is not None and lock is not None:
            self._writer = WriterProcess(path, lock, self._writer)

    def write(self, sequence: int, changes: Changes) -> list[str]:
        """Write changes in one transaction, together with the sequence of the last batch in them.

        Gone tasks and the tasks of gone queues are removed before rows are written, so that an id
        in both ends up written. Ended tasks that are to be forgotten at once are not kept, nor are
        those up to the horizon, unless their results are kept as answers.

        Returns:
            The blobs that no stored row names any more, `changes.blobs` included. A task in memory
            whose row is not written yet may still name one.
        """
        must(sequence >= self._applied, "history written backwards", sequence, self._applied)
        unowned = self._writer.write(sequence, changes)
        self._applied = sequence
        return unowned

    def applied(self) -> int:
        """Return the sequence of the last write; 0 before the first."""
        return self._applied

    def sync(self) -> int:
        """Make all that was written safe from a power failure, and return its sequence.

        Only through this sequence may the journal be trimmed. May be called from any thread.
        """
        applied = self._applied
        self._writer.sync()
        return applied

    def spare_bytes(self) -> int:
        """Return how much can be written before more of the disk is needed."""
        return self._db.spare_bytes()

    def load(self) -> Snapshot:
        """Return all that has not ended.

        Raises:
            Corrupt: (while iterating over the tasks) a row is damaged; it names the task.
        """
        with ExitStack() as stack:
            connection = stack.enter_context(self._db.reading())
            # One transaction, so that all of it is of one moment.
            connection.execute("BEGIN")
            sequence, counters = _read_meta(connection)
            found = connection.execute("SELECT kind, namespace, name, row FROM entities")
            entities = [Entity(*columns) for columns in found]
            answers = connection.execute("SELECT * FROM answers").fetchall()
            live = connection.execute(_LOAD)
            lent = stack.pop_all()
        return Snapshot(
            sequence=sequence,
            counters=counters,
            entities=entities,
            tasks=self._live(live, lent),
            answers=[msgspec.convert(columns, StoredAnswer) for columns in answers],
        )

    def _live(self, live: sqlite3.Cursor, lent: ExitStack) -> Iterator[TaskRow]:
        with lent:
            for columns in live:
                yield from_columns(self._db.file, columns)

    def find(self, ids: Iterable[TaskId]) -> list[TaskRow]:
        """Return the stored rows of these tasks, ended ones included, in no order."""
        return self._find(f"SELECT {WHOLE} FROM tasks WHERE id IN ({{}})", ids)

    def find_aliases(self, namespace: str, aliases: Iterable[str]) -> list[TaskRow]:
        """Return the stored rows with these aliases, ended ones included, in no order."""
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
        """Return the next rows of a list.

        A cursor goes on behind the last row of its page. What is stored or removed meanwhile shifts
        nothing; a task whose sorted value changes meanwhile may appear twice or not at all.

        Args:
            namespace: whose tasks.
            wanted: which tasks.
            sort: in which order.
            limit: at most how many.
            cursor: of the page before, with the same namespace, filter and sort.
            offset: how many rows to count off first; a cursor does the same at no cost.
            with_bodies: fill in inline payloads and results, which are left empty otherwise.

        Raises:
            BadCursor: the cursor is not from such a page.
        """
        must(limit > 0, "a page has at least one row", limit)
        sort = Sort(sort)
        after = from_cursor(namespace, wanted, sort, cursor) if cursor else None
        columns = WHOLE if with_bodies else WITHOUT_BODIES
        # One more than asked for shows whether there is a next page.
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
        """Return how many tasks match in each state; states without any are left out."""
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

    def overdue_us(self, now_us: int, limit: int) -> int:
        """Return the horizon up to which about `limit` ended tasks are past their time; 0 if none.

        Those whose results are kept as answers stay until they are no longer.
        """
        with self._db.reading() as connection:
            (found,) = connection.execute(OVERDUE, (now_us, limit)).fetchone()
        return found or 0

    def unowned(self, blobs: Iterable[str]) -> list[str]:
        """Return those of the blobs that no stored row names."""
        with self._db.reading() as connection:
            return unowned(connection, blobs)

    def close(self) -> None:
        """Let go of everything; safe to repeat."""
        self._writer.close()
        self._db.close()

    def _find(self, sql: str, wanted: Iterable[Value], *params: Value) -> list[TaskRow]:
        with self._db.reading() as connection:
            found = execute_in(connection, sql, wanted, *params)
        return [from_columns(self._db.file, columns) for columns in found]


def _read_meta(connection: sqlite3.Connection) -> tuple[int, Counters]:
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    return (meta["sequence"], _decode_counters(meta["counters"])) if meta else (0, Counters())


# Queries: what a filter, a sort and a cursor mean in SQL.

# Only names of our own are put into statements; values are always parameters.
# ruff: noqa: S608


Params = list[Value]
#: The sorted value of the last row of a page, and its serial.
Position = tuple[int, int]

_SORT_COLUMNS = {"created": "created_us", "ended": "ended_us", "priority": "priority"}


def page_query(
    namespace: str,
    wanted: Filter,
    sort: Sort,
    *,
    limit: int,
    after: Position | None,
    offset: int = 0,
    columns: str,
) -> tuple[str, Params]:
    """Return the query for one page: the sorted value, the serial, then the columns."""
    column, direction, beyond = _order_of(sort)
    index = _index_for(wanted)
    where, params = _conditions(namespace, wanted)
    if after is not None:
        where.append(f"({column}, serial) {beyond} (?, ?)")
        params += after
    order = f"ORDER BY sorted {direction}, serial {direction}"
    final_order = f"ORDER BY +sorted {direction}, +serial {direction}"
    walks, all_params = [], Params()
    for state_where, state_params in _states(wanted, is_split=index in _ORDERED_BY_STATE):
        walks.append(
            f"SELECT * FROM (SELECT {column} AS sorted, serial FROM tasks INDEXED BY {index}"
            f" WHERE {' AND '.join([*state_where, *where])} {order} LIMIT ?)"
        )
        all_params += [*state_params, *params, limit + offset]
    sql = (
        f"SELECT sorted, serial, {columns} FROM ("
        f"SELECT * FROM ({' UNION ALL '.join(walks)}) {final_order} LIMIT ? OFFSET ?"
        f") CROSS JOIN tasks USING (serial) {final_order}"
    )
    return sql, [*all_params, limit, offset]


def count_query(namespace: str, wanted: Filter) -> tuple[str, Params]:
    """Return the query for the number of tasks in each state."""
    ((state_where, state_params),) = _states(wanted, is_split=False)
    where, params = _conditions(namespace, wanted)
    sql = (
        f"SELECT state, count(*) FROM tasks INDEXED BY {_index_for(wanted)}"
        f" WHERE {' AND '.join([*state_where, *where])} GROUP BY state"
    )
    return sql, state_params + params


#: Indexes that hold the tasks of one state in the order of their creation.
_ORDERED_BY_STATE = frozenset({"tasks_by_state", "tasks_by_queue"})


def _index_for(wanted: Filter) -> str:
    if wanted.parent:
        return "tasks_by_parent"
    if wanted.queue:
        return "tasks_by_batch" if wanted.batch else "tasks_by_queue"
    return "tasks_by_state"


def _states(wanted: Filter, *, is_split: bool) -> list[tuple[list[str], Params]]:
    """Return the conditions on the state: one for each walk."""
    if is_split:
        # A state named twice must not be walked twice.
        states = dict.fromkeys(wanted.states or State)
        return [(["state = ?"], [str(state)]) for state in states]
    if not wanted.states:
        return [([], [])]
    marks = ", ".join("?" * len(wanted.states))
    return [([f"state IN ({marks})"], [str(state) for state in wanted.states])]


def _conditions(namespace: str, wanted: Filter) -> tuple[list[str], Params]:
    """Return the conditions of a filter, but for the state, and their parameters."""
    where, params = ["namespace = ?"], Params([namespace])
    for column in ("queue", "name", "key", "batch"):
        if value := getattr(wanted, column):
            where.append(f"{column} = ?")
            params.append(value)
    if wanted.queues:
        where.append(f"queue IN ({', '.join('?' * len(wanted.queues))})")
        params += wanted.queues
    if wanted.parent:
        # The second condition is the one of the index, without which SQLite cannot use it.
        where.append("parent = ? AND parent <> x''")
        params.append(wanted.parent)
    if wanted.tag:
        where.append("EXISTS (SELECT 1 FROM json_each(tags) WHERE json_each.value = ?)")
        params.append(wanted.tag)
    if wanted.older_than_us:
        where.append("created_us < ?")
        params.append(wanted.older_than_us)
    if wanted.text:
        text = _fold(wanted.text)
        where.append(
            "(instr(lower(name), ?) OR instr(lower(key), ?) OR instr(lower(alias), ?)"
            " OR instr(id_hex, ?) = 1)"
        )
        params += [text] * 4
    return where, params


def _fold(text: str) -> str:
    """Fold case as SQLite's `lower` does: ASCII only."""
    return text.encode().lower().decode()


def _order_of(sort: Sort) -> tuple[str, str, str]:
    """Return the column of a sort, its direction, and how values further on compare."""
    column = _SORT_COLUMNS[sort.removeprefix("-")]
    return (column, "DESC", "<") if sort.startswith("-") else (column, "ASC", ">")


class _Cursor(msgspec.Struct, array_like=True):
    list_checksum: int
    position: Position


_decode_cursor = msgspec.msgpack.Decoder(_Cursor).decode


def to_cursor(namespace: str, wanted: Filter, sort: Sort, position: Position) -> str:
    """Write down a position in a list."""
    cursor = _Cursor(_list_checksum(namespace, wanted, sort), position)
    return urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode()


def from_cursor(namespace: str, wanted: Filter, sort: Sort, cursor: str) -> Position:
    """Return the position that a cursor stands for."""
    try:
        decoded = _decode_cursor(urlsafe_b64decode(cursor.encode()))
    except (NotBase64, UnicodeError, msgspec.DecodeError) as error:
        raise BadCursor(f"{cursor!r} is not a cursor; use one that a page has returned") from error
    if decoded.list_checksum != _list_checksum(namespace, wanted, sort):
        raise BadCursor("the cursor is of another list; keep namespace, filter and sort the same")
    return decoded.position


def _list_checksum(namespace: str, wanted: Filter, sort: Sort) -> int:
    return crc32(msgspec.msgpack.encode((namespace, wanted, sort)))

"""The history in SQLite: `tasks.db`, the latest state of every task.

Owns the way from rows to answers, and what a list asks for. People may open the file with any tool
of SQLite. Its tables are in `schema`, what writes it in `history_writer`.
"""

from __future__ import annotations

import sqlite3
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from operator import itemgetter
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec
from msgspec.structs import replace

from jackalope.core.assertions import must
from jackalope.core.durations import NEVER
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.changes import Changes, Counters, Entity
from jackalope.core.task import TaskRow
from jackalope.storage.faults import naming_faults
from jackalope.storage.ports import (
    BadCursor,
    BatchSummary,
    Page,
    Position,
    Snapshot,
    Sort,
    Unwritten,
)
from jackalope.storage.sqlite.database import Value, execute_in, marks
from jackalope.storage.sqlite.history_writer import IS_PAST, PAST, Writer, WriterProcess, unowned
from jackalope.storage.sqlite.schema import (
    FLOW_TAGS,
    IS_ENDED,
    WHOLE,
    from_columns,
    open_history,
    with_head,
    without_bodies,
)

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

T = TypeVar("T")

_decode_counters = msgspec.json.Decoder(Counters).decode


class History:
    """The queryable table of tasks, written behind the journal.

    Written from one thread at a time; read from any. A read sees whole writes only. Without a path
    it is in memory. With the descriptor of the lock on the data folder, a process of its own
    writes.
    """

    def __init__(self, path: Path | None, lock: int | None = None) -> None:
        self._path = path
        self._lock = lock
        self._open()

    def _open(self) -> None:
        self._db = open_history(self._path)
        with self._db.reading() as connection:
            self._applied = sequence_in(connection)
        self._writer: Writer | WriterProcess = Writer(self._db)
        if self._path is not None and self._lock is not None:
            self._writer = WriterProcess(self._path, self._lock, self._writer)

    def reopen(self, change: Callable[[], object]) -> None:
        """Let the file be replaced while it is closed. Nothing may be written meanwhile."""
        self.close()
        change()
        self._open()

    def copy_to(self, path: Path, look: Callable[[int], T]) -> tuple[int, T]:
        """Copy everything to another file, as it is at one moment; writing goes on meanwhile.

        Returns:
            The sequence of the copy, and what `look` returned about it at that moment.
        """
        with self._db.reading() as connection, closing(sqlite3.connect(path)) as target:
            connection.execute("BEGIN")
            sequence = sequence_in(connection)
            found = look(sequence)
            with naming_faults(path):
                connection.backup(target)
        return sequence, found

    def write(self, sequence: int, changes: Changes) -> list[str]:
        """Write changes in one transaction, together with the sequence of the last batch in them.

        Gone tasks and the tasks of gone queues are removed before rows are written, so that an id
        in both ends up written. Ended tasks that are to be forgotten at once are not kept, nor are
        those up to the horizon, unless their results are kept as answers. Returns the blobs that no
        stored row names any more, `changes.blobs` included. A task in memory whose row is not
        written yet may still name one.
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

        A damaged row raises `Corrupt`, naming the task, while the tasks are iterated over.
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

    def position(self, namespace: str, wanted: Filter, sort: Sort, cursor: str) -> Position | None:
        """Return behind which place of a list a cursor goes on; None at the beginning."""
        return from_cursor(namespace, wanted, sort, cursor) if cursor else None

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
        payload_head: int = 0,
        unwritten: Unwritten | None = None,
    ) -> Page:
        """Return the next rows of a list.

        A cursor goes on behind the last row of its page. What is stored or removed meanwhile shifts
        nothing; a task whose sorted value changes meanwhile may appear twice or not at all. An
        offset counts rows off first; a cursor does the same at no cost. Inline payloads and results
        are left empty unless `with_bodies`, but for the first `payload_head` bytes of a payload.
        `unwritten` is what memory has in place of what is stored.
        """
        must(limit > 0, "a page has at least one row", limit)
        sort, newer = Sort(sort), unwritten or Unwritten()
        after = self.position(namespace, wanted, sort, cursor)
        # One more than asked for shows whether there is a next page.
        count = offset + limit + 1
        with self._db.reading() as connection:
            connection.execute("BEGIN")  # So that all of it is of one moment.
            newer = _still_unwritten(connection, newer)
            found = _places(
                connection, namespace, wanted, sort=sort, after=after, count=count, newer=newer
            )
            if newer.tasks:
                found += [(value, task, 0) for (value, task), _ in newer.tasks]
                found.sort(key=itemgetter(0, 1), reverse=sort.startswith("-"))
            found = found[offset:count]
            columns = WHOLE if with_bodies else with_head(payload_head)
            sql = f"SELECT {columns} FROM tasks WHERE serial IN ({{}})"
            stored = execute_in(connection, sql, [serial for *_, serial in found[:limit] if serial])
        rows = {row.id: row for row in (from_columns(self._db.file, each) for each in stored)}
        rows |= {row.id: row for _, row in newer.tasks}
        shown = [rows[task] for _, task, _ in found[:limit]]
        if not with_bodies:
            shown = [without_bodies(row, payload_head) for row in shown]
        if len(found) <= limit:
            return Page(shown)
        value, task, _ = found[limit - 1]
        return Page(shown, to_cursor(namespace, wanted, sort, (value, task)))

    def count(
        self, namespace: str, wanted: Filter, unwritten: Unwritten | None = None
    ) -> dict[State, int]:
        """Return how many stored tasks match in each state; states without any are left out.

        Tasks that memory has in place of the stored ones are not among them.
        """
        newer = unwritten or Unwritten()
        with self._db.reading() as connection:
            connection.execute("BEGIN")
            newer = _still_unwritten(connection, newer)
            sql, params = count_query(namespace, wanted, newer.queues_gone)
            counts = Counter(dict(connection.execute(sql, params).fetchall()))
            if newer.horizon_us:
                sql, params = past_query(namespace, wanted, newer.queues_gone, newer.horizon_us)
                past = connection.execute(sql, params)
                counts.subtract(state for task, state in past if task not in newer.hidden)
            newest_us = max(
                connection.execute(_NEWEST, (namespace, str(state))).fetchone()[0] or 0
                for state in (State if newer.hidden else [State.READY])
            )
            # What was created later than all that is stored is not stored.
            hidden = [task for task, created_us in newer.hidden.items() if created_us <= newest_us]
            sql, params = count_query(namespace, wanted, newer.queues_gone, "id IN ({})")
            for state, count in execute_in(connection, sql, hidden, *params):
                counts[state] -= count
        return {State(state): count for state, count in counts.items() if count}

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

    def blobs(self) -> list[str]:
        """Return every blob that a stored row names."""
        with self._db.reading() as connection:
            found = connection.execute("SELECT DISTINCT blob FROM blobs").fetchall()
        return [blob for (blob,) in found]

    def close(self) -> None:
        """Let go of everything; safe to repeat."""
        self._writer.close()
        self._db.close()

    def _find(self, sql: str, wanted: Iterable[Value], *params: Value) -> list[TaskRow]:
        with self._db.reading() as connection:
            found = execute_in(connection, sql, wanted, *params)
        return [from_columns(self._db.file, columns) for columns in found]


def sequence_in(connection: sqlite3.Connection) -> int:
    """Return the sequence of the last write to a file."""
    return _read_meta(connection)[0]


def _read_meta(connection: sqlite3.Connection) -> tuple[int, Counters]:
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    return (meta["sequence"], _decode_counters(meta["counters"])) if meta else (0, Counters())


#: A place in a list, as it is stored: the sorted value, the id, and the serial of the row.
Place = tuple[int, TaskId, int]

#: How many places are read at once beyond those that are asked for, where some are hidden.
_PLACES_MORE = 100


def _places(
    connection: sqlite3.Connection,
    namespace: str,
    wanted: Filter,
    *,
    sort: Sort,
    after: Position | None,
    count: int,
    newer: Unwritten,
) -> list[Place]:
    """Return the first places of a list, without those that memory knows better about."""
    places: list[Place] = []
    step = count + (_PLACES_MORE if newer.hidden else 0)
    while True:
        sql, params = page_query(namespace, wanted, sort, limit=step, after=after, newer=newer)
        found: list[Place] = connection.execute(sql, params).fetchall()
        places += [place for place in found if place[1] not in newer.hidden]
        if len(places) >= count or len(found) < step:
            return places[:count]
        after, step = found[-1][:2], 4 * step


def _still_unwritten(connection: sqlite3.Connection, newer: Unwritten) -> Unwritten:
    """Leave the horizon out if history has come as far."""
    if not newer.horizon_us or newer.horizon_us > _read_meta(connection)[1].horizon_us:
        return newer
    return replace(newer, horizon_us=0)


# Queries: what a filter, a sort and a cursor mean in SQL.

# Only names of our own are put into statements; values are always parameters.
# ruff: noqa: S608


Params = list[Value]

_SORT_COLUMNS = {"created": "created_us", "ended": "ended_us", "priority": "priority"}

_NEWEST = (
    "SELECT max(created_us) FROM tasks INDEXED BY tasks_by_state WHERE namespace = ? AND state = ?"
)


def page_query(
    namespace: str,
    wanted: Filter,
    sort: Sort,
    *,
    limit: int,
    after: Position | None,
    newer: Unwritten | None = None,
) -> tuple[str, Params]:
    """Return the query for the places of one page, without tasks that are gone by now."""
    newer = newer or Unwritten()
    column, direction, beyond = _order_of(sort)
    index = _index_for(wanted)
    where, params = _conditions(namespace, wanted, newer.queues_gone)
    if newer.horizon_us:
        where.append(f"NOT ({IS_PAST})")
        params.append(newer.horizon_us)
    if after is not None:
        where.append(f"({column}, id) {beyond} (?, ?)")
        params += after
    order = f"ORDER BY sorted {direction}, id {direction}"
    walks, all_params = [], Params()
    for state_where, state_params in _states(wanted, is_split=index in _ORDERED_BY_STATE):
        walks.append(
            f"SELECT * FROM (SELECT {column} AS sorted, id, serial FROM tasks INDEXED BY {index}"
            f" WHERE {' AND '.join([*state_where, *where])} {order} LIMIT ?)"
        )
        all_params += [*state_params, *params, limit]
    sql = f"SELECT sorted, id, serial FROM ({' UNION ALL '.join(walks)}) {order} LIMIT ?"
    return sql, [*all_params, limit]


def count_query(
    namespace: str, wanted: Filter, without: Sequence[str] = (), condition: str = ""
) -> tuple[str, Params]:
    """Return the query for the number of tasks in each state.

    Its last parameters are those of a condition more, if there is one.
    """
    ((state_where, state_params),) = _states(wanted, is_split=False)
    where, params = _conditions(namespace, wanted, without)
    # Of all tasks there is an index of what is counted; those of a condition are looked up.
    source = "tasks" if condition else f"tasks INDEXED BY {_index_for(wanted)}"
    all_where = [*state_where, *where, *([condition] if condition else [])]
    sql = f"SELECT state, count(*) FROM {source} WHERE {' AND '.join(all_where)} GROUP BY state"
    return sql, state_params + params


def past_query(
    namespace: str, wanted: Filter, without: Sequence[str], horizon_us: int
) -> tuple[str, Params]:
    """Return the query for ids and states of tasks up to a horizon."""
    ((state_where, state_params),) = _states(wanted, is_split=False)
    where, params = _conditions(namespace, wanted, without)
    conditions = " AND ".join([*state_where, *where])
    return f"SELECT id, state {PAST} AND {conditions}", [horizon_us, *state_params, *params]


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


#: Fields of a filter that are compared as they are.
_PLAIN_CONDITIONS = {
    "queue": "queue = ?",
    "name": "name = ?",
    "key": "key = ?",
    "batch": "batch = ?",
    "older_than_us": "created_us < ?",
    "newer_than_us": "created_us >= ?",
}


def _conditions(namespace: str, wanted: Filter, without: Sequence[str]) -> tuple[list[str], Params]:
    """Return the conditions of a filter, but for the state, and their parameters."""
    where, params = ["namespace = ?"], Params([namespace])
    for field, condition in _PLAIN_CONDITIONS.items():
        if value := getattr(wanted, field):
            where.append(condition)
            params.append(value)
    if wanted.queues:
        where.append(f"queue IN ({', '.join('?' * len(wanted.queues))})")
        params += wanted.queues
    if without:
        where.append(f"queue NOT IN ({marks(len(without))})")
        params += without
    if wanted.parent:
        # The second condition is the one of the index, without which SQLite cannot use it.
        where.append("parent = ? AND parent <> x''")
        params.append(wanted.parent)
    if wanted.is_flow:
        where.append(f"substr(tags, 1, {len(FLOW_TAGS)}) = ?")
        params.append(FLOW_TAGS)
    if wanted.tag:
        where.append("EXISTS (SELECT 1 FROM json_each(tags) WHERE json_each.value = ?)")
        params.append(wanted.tag)
    if wanted.contains:
        # The row holds more than the payload: what SQLite finds there is looked at once more.
        where.append(
            "(instr(lower(error), ?) OR"
            " (instr(row, ?) OR instr(payload, ?)) AND has_in_payload(row, payload, ?))"
        )
        params += [_fold(wanted.contains), *[wanted.contains.encode()] * 3]
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
    try:
        decoded = _decode_cursor(urlsafe_b64decode(cursor.encode()))
    except (NotBase64, UnicodeError, msgspec.DecodeError) as error:
        raise BadCursor(f"{cursor!r} is not a cursor; use one that a page has returned") from error
    if decoded.list_checksum != _list_checksum(namespace, wanted, sort):
        raise BadCursor("the cursor is of another list; keep namespace, filter and sort the same")
    return decoded.position


def _list_checksum(namespace: str, wanted: Filter, sort: Sort) -> int:
    return crc32(msgspec.msgpack.encode((namespace, wanted, sort)))

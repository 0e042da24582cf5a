"""Queries: what a filter, a sort and a cursor mean in SQL.

Owns the meaning of `jackalope.core.filter.Filter` over the table `tasks`; it must agree with the
one in memory. Names the index of every query itself: SQLite has no statistics to choose by.

Lists are walked with a cursor (the last value and serial), so that the thousandth page costs what
the first one costs; whoever insists on an offset pays for it. A list over several states is walked
state by state, each walk along its index and no longer than the page. All that was found is then
sorted, and what is on the page is looked up. The `+` keeps SQLite from merging the walks instead: a
merge opens a temporary table for each of them, which takes twenty times as long as all the rest.
"""

# Only names of our own are put into statements; values are always parameters.
# ruff: noqa: S608

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from zlib import crc32

import msgspec

from jackalope.core.filter import Filter
from jackalope.core.lifecycle import State
from jackalope.storage.ports import BadCursor, Sort
from jackalope.storage.sqlite import Value

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
    """Return the position that a cursor stands for.

    Raises:
        BadCursor: it is none, or it belongs to another list.
    """
    try:
        decoded = _decode_cursor(urlsafe_b64decode(cursor.encode()))
    except (NotBase64, UnicodeError, msgspec.DecodeError) as error:
        raise BadCursor(f"{cursor!r} is not a cursor; use one that a page has returned") from error
    if decoded.list_checksum != _list_checksum(namespace, wanted, sort):
        raise BadCursor("the cursor is of another list; keep namespace, filter and sort the same")
    return decoded.position


def _list_checksum(namespace: str, wanted: Filter, sort: Sort) -> int:
    return crc32(msgspec.msgpack.encode((namespace, wanted, sort)))

"""The tables of the history, `tasks.db`, and a task as a row of them and back.

Owns the columns and what is in them, the schema, its versions and the migrations of older files.
Knows no statement that reads or changes a row.

`row` is the task, encoded; the other columns are what lists look for, and what people like to see.
To bind a value costs more than to store it, and most tasks have nothing in most columns. So there
are two ways to write a task: all columns, or only those of `PLAIN`, the others being constants of
the statement. And a task that arrives encoded is stored as it arrived: of most tasks nothing is
decoded but a `Head`.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path
from sys import intern
from typing import Any

import msgspec
from msgspec.structs import replace

from jackalope.core.filter import error_line
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED
from jackalope.core.shapes.flow import FlowState, NodeState, bodies_in
from jackalope.core.task import NO_OPTIONS, Attempt, BlobRef, Body, Options, Outcome, TaskRow
from jackalope.storage.faults import Corrupt
from jackalope.storage.sqlite.database import Database, Format, Migration, Value

#: What is stored of a task. `payload` and `result` come last: who does not ask for them does not
#: read the pages that large ones fill.
COLUMNS = {
    "id": "BLOB NOT NULL UNIQUE",
    "namespace": "TEXT NOT NULL",
    "queue": "TEXT NOT NULL",
    "name": "TEXT NOT NULL",
    "key": "TEXT NOT NULL",
    "state": "TEXT NOT NULL",
    "priority": "INTEGER NOT NULL",
    "alias": "TEXT NOT NULL",
    "parent": "BLOB NOT NULL",
    "batch": "INTEGER NOT NULL",
    "rank": "INTEGER NOT NULL",
    "created_us": "INTEGER NOT NULL",
    "ended_us": "INTEGER NOT NULL",
    "forget_us": "INTEGER NOT NULL",
    "worker": "TEXT NOT NULL",
    "failures": "INTEGER NOT NULL",
    "crashes": "INTEGER NOT NULL",
    "interruptions": "INTEGER NOT NULL",
    "reason": "TEXT NOT NULL",
    "error": "TEXT NOT NULL",
    "tags": "TEXT NOT NULL",
    "row": "BLOB NOT NULL",
    "row_checksum": "INTEGER NOT NULL",
    "body_checksum": "INTEGER NOT NULL",
    "payload": "BLOB",
    "result": "BLOB",
}

#: What most tasks have in the columns that are not `PLAIN`, as SQL.
USUAL = {
    "alias": "''",
    "parent": "x''",
    "worker": "''",
    "failures": "0",
    "crashes": "0",
    "interruptions": "0",
    "reason": "''",
    "error": "''",
    "tags": "'[]'",
    "body_checksum": "0",
    "payload": "NULL",
    "result": "NULL",
}

#: The columns in which tasks differ.
PLAIN = tuple(name for name in COLUMNS if name not in USUAL)

#: What `from_columns` takes, with and without bodies of columns of their own.
WHOLE = "id, row, row_checksum, body_checksum, payload, result"

#: Payload and result are a part of `row` up to this many bytes, and have columns of their own
#: beyond: lists read every row that they show.
BODIES_IN_ROW_MAX = 1024

#: What stands before the tags of a flow, so that lists find flows. No tag that is given has NUL.
FLOW_TAG = "\0flow"
FLOW_TAGS = msgspec.json.encode([FLOW_TAG]).decode().removesuffix("]")

_NO_OUTCOME = Outcome()

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TaskRow).decode
_decode_options = msgspec.msgpack.Decoder(Options).decode
_encode_json = msgspec.json.Encoder().encode


class Head(msgspec.Struct, array_like=True, gc=False):
    """The beginning of a `TaskRow`: what has columns of its own, and what stands between it."""

    id: bytes
    namespace: str
    queue: str
    name: str
    key: str
    priority: int
    payload: Body
    options: msgspec.Raw
    state: str
    by: msgspec.Raw
    created_us: int
    batch: int
    rank: int
    penalty: int
    due_us: int
    expires_us: int
    waiting_for: msgspec.Raw
    failures: int
    crashes: int
    interruptions: int
    attempts: int
    guardian: msgspec.Raw
    avoid: msgspec.Raw
    attempt: Attempt | None
    outcome: Outcome | None
    history: msgspec.Raw
    envelope: msgspec.Raw = msgspec.Raw(b"\xc0")
    steps: msgspec.Raw = msgspec.Raw(b"\xc0")
    flow: msgspec.Raw = msgspec.Raw(b"\xc0")


#: A task on its way to the disk: what is to be seen of it, and all of it, encoded.
Encoded = tuple[Head, msgspec.Raw]

_decode_head = msgspec.msgpack.Decoder(Head).decode
_decode_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_NOTHING = msgspec.Raw(b"\xc0")
_decode_flow = msgspec.msgpack.Decoder(FlowState | NodeState).decode
_NO_OPTIONS = msgspec.Raw(_encode(NO_OPTIONS))
_ENDED = frozenset(map(str, ENDED))


def encode_rows(rows: list[TaskRow]) -> bytes:
    """Encode tasks for `decode_heads`, which may happen in another process."""
    return _encode(rows)


def decode_heads(encoded: bytes) -> list[Encoded]:
    """Return the tasks of an encoded list, without decoding more of them than is looked at."""
    return [(_decode_head(raw), raw) for raw in _decode_list(encoded)]


def is_kept(head: Head) -> bool:
    """Return whether a task is to be stored: not when it ended and is to be forgotten at once."""
    outcome = head.outcome
    return outcome is None or outcome.forget_us > outcome.ended_us or head.state not in _ENDED


def is_plain(head: Head) -> bool:
    """Return whether a task has the usual values in all columns but `PLAIN`, and no blobs."""
    payload, outcome = head.payload, head.outcome
    if head.options != _NO_OPTIONS or head.attempt is not None or type(payload) is not bytes:
        return False
    if head.failures or head.crashes or head.interruptions:
        return False
    if outcome is None:
        return len(payload) <= BODIES_IN_ROW_MAX
    result = outcome.result
    return (
        type(result) is bytes
        and len(payload) + len(result) <= BODIES_IN_ROW_MAX
        and outcome.error is None
        and outcome.reason is None
    )


def to_plain(head: Head, encoded: bytes | msgspec.Raw) -> tuple[Value, ...]:
    """Return the values of `PLAIN` for a task.

    They are of the few types that Python's module binds as they are: `str`, `int` and `bytearray`.
    For any other, `bytes` included, it first looks for an adapter, which takes longer than binding.
    """
    outcome = head.outcome if head.state in _ENDED else None
    return (
        bytearray(head.id),
        head.namespace,
        head.queue,
        head.name,
        head.key,
        head.state,
        head.priority,
        head.batch,
        head.rank,
        head.created_us,
        outcome.ended_us if outcome is not None else 0,
        outcome.forget_us if outcome is not None else 0,
        bytearray(encoded),
        zlib.crc32(encoded),
    )


def to_columns(head: Head, encoded: bytes | msgspec.Raw) -> tuple[Value, ...]:
    """Return the values of `COLUMNS` for a task, of the same few types."""
    attempt, outcome = head.attempt, head.outcome or _NO_OUTCOME
    options = _decode_options(head.options)
    payload = result = None
    if _inline_bytes(head) > BODIES_IN_ROW_MAX:
        payload, result = _inline(head.payload), _inline(outcome.result)
        encoded = _encode(without_bodies(_decode(encoded)))
    values: dict[str, Value] = dict(zip(PLAIN, to_plain(head, encoded), strict=True))
    values |= {
        "alias": options.alias,
        "parent": bytearray(options.parent),
        "worker": attempt.worker if attempt else "",
        "failures": head.failures,
        "crashes": head.crashes,
        "interruptions": head.interruptions,
        "reason": str(outcome.reason) if outcome.reason else "",
        "error": error_line(outcome.error) if outcome.error else "",
        "tags": _tags(options),
        "body_checksum": _body_checksum(payload, result),
        "payload": None if payload is None else bytearray(payload),
        "result": None if result is None else bytearray(result),
    }
    return tuple(values[name] for name in COLUMNS)


def _tags(options: Options) -> str:
    tags = options.tags if options.flow is None else (FLOW_TAG, *options.tags)
    return _encode_json(tags).decode() if tags else "[]"


def from_columns(file: str, columns: Sequence[Any]) -> TaskRow:
    """Rebuild a task from the columns `WHOLE`, or those of `with_head`.

    A damaged one raises `Corrupt`, naming the task.
    """
    task_id, encoded, row_checksum, body_checksum, payload, result = columns
    try:
        is_sound = zlib.crc32(encoded) == row_checksum and (
            body_checksum is None or _body_checksum(payload, result) == body_checksum
        )
        row = _decode(encoded) if is_sound else None
    except (TypeError, msgspec.DecodeError):
        # A value of another type, or one that matches its checksum and still is not a task.
        row = None
    if row is None or row.id != task_id:
        raise _damaged(file, task_id)
    if payload:
        row.payload = payload
    if result and row.outcome is not None:
        row.outcome = replace(row.outcome, result=result)
    return _shared(row)


def blobs_of(head: Head) -> list[str]:
    """Name the blobs that belong to a task."""
    bodies = [head.payload, head.outcome.result if head.outcome is not None else b""]
    if head.flow != _NOTHING:
        bodies += bodies_in(_decode_flow(head.flow))
    return [body.blob for body in bodies if isinstance(body, BlobRef)]


def with_head(payload_head: int) -> str:
    """Return what `from_columns` takes for a task without bodies but for a part of the payload."""
    return f"id, row, row_checksum, NULL, substr(payload, 1, {payload_head}), NULL"


def without_bodies(row: TaskRow, payload_head: int = 0) -> TaskRow:
    """Return the task without an inline payload, but for its head, and without a result.

    The reference to a blob stays.
    """
    payload, outcome = row.payload, row.outcome
    if isinstance(payload, bytes):
        payload = payload[:payload_head]
    if outcome is not None and isinstance(outcome.result, bytes):
        outcome = replace(outcome, result=b"")
    return replace(row, payload=payload, outcome=outcome)


def _inline_bytes(head: Head) -> int:
    """Return the size of the payload and the result, as far as they are no blobs."""
    result = _inline(head.outcome.result) if head.outcome is not None else None
    return len(_inline(head.payload) or b"") + len(result or b"")


def _inline(body: Body) -> bytes | None:
    return body if isinstance(body, bytes) else None


def _shared(row: TaskRow) -> TaskRow:
    """Let tasks share what is the same in most, for the sake of memory when loading a million."""
    row.namespace = intern(row.namespace)
    row.queue = intern(row.queue)
    row.name = intern(row.name)
    row.key = intern(row.key)
    row.by = intern(row.by)
    if row.options == NO_OPTIONS:
        row.options = NO_OPTIONS
    return row


def has_in_payload(row: bytes, payload: bytes | None, wanted: bytes) -> bool:
    """Return whether the payload of a stored task contains these bytes."""
    if payload is None:
        try:
            body = _decode_head(row).payload
        except msgspec.DecodeError:
            return False  # A read of the task itself reports the damage.
        payload = body if isinstance(body, bytes) else b""
    return wanted in payload


def _body_checksum(payload: bytes | None, result: bytes | None) -> int:
    return zlib.crc32(result or b"", zlib.crc32(payload or b""))


def _damaged(file: str, task_id: object) -> Corrupt:
    name = TaskId(task_id).hex() if isinstance(task_id, bytes) else repr(task_id)
    return Corrupt(
        f"{file}: the row of task {name} does not match its checksum. Check the disk, and "
        "restore the data folder from a backup; or delete its row from the table to give up the "
        "task"
    )


# The tables, and how older files are brought up to date.


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


_ENTITIES = """CREATE TABLE entities (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, row TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) WITHOUT ROWID"""

#: What the entities were before they had one table, by that table.
_BEFORE_ENTITIES = {
    "queues": "'queue', namespace, queue, row",
    "limits": "'limit', namespace, tag, CAST(max_count AS TEXT)",
    "tallies": "'tally', namespace, worker, json_array(succeeded, failed, at_us)",
    "api_keys": "'api_key', '', id, row",
    "definitions": "kind, namespace, name, row",
}


def _gather_entities(connection: sqlite3.Connection) -> None:
    connection.execute(_ENTITIES)
    for table, columns in _BEFORE_ENTITIES.items():
        connection.execute(f"INSERT INTO entities SELECT {columns} FROM {table}")  # noqa: S608
        connection.execute(f"DROP TABLE {table}")


#: The condition under which the partial indexes below are used.
IS_ENDED = "state IN ({})".format(", ".join(f"'{state}'" for state in sorted(ENDED)))

#: The indexes of lists: tasks of the same moment stand in the order of their ids, which tasks have
#: before they are stored, so that a list can be merged from what is stored and what is not yet.
_LIST_INDEXES = (
    "CREATE INDEX tasks_by_state ON tasks (namespace, state, created_us, id)",
    "CREATE INDEX tasks_by_queue ON tasks (namespace, queue, state, created_us, id)",
)


def _order_by_id(connection: sqlite3.Connection) -> None:
    """Build the indexes of lists again; rows stay as they are until they are written again."""
    for statement in _LIST_INDEXES:
        connection.execute(f"DROP INDEX {statement.split()[2]}")
        connection.execute(statement)


MIGRATIONS: dict[int, Migration] = {
    1: _add_tallies_and_api_keys,
    2: _add_answers,
    3: _add_definitions,
    4: _gather_entities,
    5: _order_by_id,
}

FORMAT = Format(
    version=6,
    schema=(
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
        "CREATE TABLE tasks (serial INTEGER PRIMARY KEY, {}, {})".format(
            ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()),
            "id_hex TEXT AS (lower(hex(id))) VIRTUAL",
        ),
        *_LIST_INDEXES,
        "CREATE INDEX tasks_by_batch ON tasks (namespace, queue, batch)",
        # Few tasks are in these.
        "CREATE INDEX tasks_by_parent ON tasks (parent) WHERE parent <> x''",
        "CREATE INDEX tasks_by_alias ON tasks (namespace, alias) WHERE alias <> ''",
        f"CREATE INDEX tasks_to_load ON tasks (rank) WHERE NOT ({IS_ENDED})",
        f"CREATE INDEX tasks_to_forget ON tasks (forget_us) WHERE {IS_ENDED}",
        # A result can become the payload of the next task, so that a blob can belong to several.
        """CREATE TABLE blobs (
            blob TEXT NOT NULL, task BLOB NOT NULL, PRIMARY KEY (blob, task)
        ) WITHOUT ROWID""",
        "CREATE INDEX blobs_by_task ON blobs (task)",
        _ENTITIES,
        _ANSWERS,
    ),
    migrations=MIGRATIONS,
)

CACHE_BYTES = 8 * 1024 * 1024  # of each connection; more did not help lists of a million tasks
WAL_BYTES_MAX = 32 * 1024 * 1024


def open_history(path: Path | None) -> Database:
    """Open the file, and create or migrate its tables. Without a path it is in memory."""
    return Database(
        path,
        FORMAT,
        synchronous="NORMAL",
        cache_bytes=CACHE_BYTES,
        wal_bytes_max=WAL_BYTES_MAX,
        functions={"has_in_payload": has_in_payload},
    )

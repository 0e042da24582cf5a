"""The tables of the history: `tasks.db`, and how it is opened.

Owns the schema, its versions, the migrations of older files, and the mapping of tasks to columns
(`to_columns`, `from_columns`).
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

from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED
from jackalope.core.task import NO_OPTIONS, BlobRef, Body, Error, Outcome, TaskRow
from jackalope.storage.faults import Corrupt
from jackalope.storage.sqlite.database import Database, Format, Migration, Value

# Rows: a task as columns that people can read, and back as exactly the task it was.

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

#: What `from_columns` takes, with and without bodies.
WHOLE = "id, row, row_checksum, body_checksum, payload, result"
WITHOUT_BODIES = "id, row, row_checksum, NULL, NULL, NULL"

_NO_OUTCOME = Outcome()

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TaskRow).decode
_encode_json = msgspec.json.Encoder().encode


def to_columns(row: TaskRow) -> tuple[Value, ...]:
    """Return the values of `COLUMNS` for a task.

    They are of the few types that Python's module binds as they are: `str`, `int` and `bytearray`.
    For any other, `bytes` included, it first looks for an adapter, which takes longer than binding.
    """
    options, attempt, outcome = row.options, row.attempt, row.outcome or _NO_OUTCOME
    is_ended = row.state in ENDED
    payload, result = _inline(row.payload), _inline(outcome.result)
    encoded = _encode(_without_bodies(row))
    return (
        bytearray(row.id),
        row.namespace,
        row.queue,
        row.name,
        row.key,
        str(row.state),
        row.priority,
        options.alias,
        bytearray(options.parent),
        row.batch,
        row.rank,
        row.created_us,
        outcome.ended_us if is_ended else 0,
        outcome.forget_us if is_ended else 0,
        attempt.worker if attempt else "",
        row.failures,
        row.crashes,
        row.interruptions,
        str(outcome.reason) if outcome.reason else "",
        _error_text(outcome.error) if outcome.error else "",
        _encode_json(options.tags).decode() if options.tags else "[]",
        bytearray(encoded),
        zlib.crc32(encoded),
        _body_checksum(payload, result),
        None if payload is None else bytearray(payload),
        None if result is None else bytearray(result),
    )


def from_columns(file: str, columns: Sequence[Any]) -> TaskRow:
    """Rebuild a task from the columns `WHOLE` or `WITHOUT_BODIES`.

    Raises:
        Corrupt: naming the task.
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


def blobs_of(row: TaskRow) -> list[str]:
    """Name the blobs that belong to a task."""
    blobs = []
    if isinstance(row.payload, BlobRef):
        blobs.append(row.payload.blob)
    if row.outcome is not None and isinstance(row.outcome.result, BlobRef):
        blobs.append(row.outcome.result.blob)
    return blobs


def inline_bytes(row: TaskRow) -> int:
    """Return the size of the payload and the result, as far as they are stored in the row."""
    size = len(row.payload) if isinstance(row.payload, bytes) else 0
    if row.outcome is not None and isinstance(row.outcome.result, bytes):
        size += len(row.outcome.result)
    return size


def is_kept(row: TaskRow) -> bool:
    """Return whether a task is to be stored: not when it ended and is to be forgotten at once."""
    outcome = row.outcome
    return row.state not in ENDED or outcome is None or outcome.forget_us > outcome.ended_us


def _inline(body: Body) -> bytes | None:
    return body if isinstance(body, bytes) else None


def _without_bodies(row: TaskRow) -> TaskRow:
    """Return the task without what has a column of its own; the reference to a blob stays."""
    payload, outcome = row.payload, row.outcome
    if isinstance(payload, bytes):
        payload = b""
    if outcome is not None and isinstance(outcome.result, bytes):
        outcome = replace(outcome, result=b"")
    return replace(row, payload=payload, outcome=outcome)


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


def _error_text(error: Error) -> str:
    return f"{error.type}: {error.message}"


def _body_checksum(payload: bytes | None, result: bytes | None) -> int:
    return zlib.crc32(result or b"", zlib.crc32(payload or b""))


def _damaged(file: str, task_id: object) -> Corrupt:
    name = TaskId(task_id).hex() if isinstance(task_id, bytes) else repr(task_id)
    return Corrupt(
        f"{file}: the row of task {name} does not match its checksum. Check the disk, and "
        "restore the data folder from a backup; or delete its row from the table to give up the "
        "task"
    )


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


MIGRATIONS: dict[int, Migration] = {
    1: _add_tallies_and_api_keys,
    2: _add_answers,
    3: _add_definitions,
    4: _gather_entities,
}

#: The condition under which the partial indexes below are used.
IS_ENDED = "state IN ({})".format(", ".join(f"'{state}'" for state in sorted(ENDED)))

FORMAT = Format(
    version=5,
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

CACHE_BYTES = 64 * 1024 * 1024
WAL_BYTES_MAX = 32 * 1024 * 1024


def open_history(path: Path | None) -> Database:
    """Open the file, and create or migrate its tables. Without a path it is in memory."""
    return Database(
        path, FORMAT, synchronous="NORMAL", cache_bytes=CACHE_BYTES, wal_bytes_max=WAL_BYTES_MAX
    )

"""The tables of the history: `tasks.db`, and how it is opened.

Owns the schema, its versions and the migrations of older files. What a task is in these tables is
in `rows`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from jackalope.core.lifecycle import ENDED
from jackalope.storage.sqlite.database import Database, Format, Migration
from jackalope.storage.sqlite.rows import COLUMNS

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
        path, FORMAT, synchronous="NORMAL", cache_bytes=CACHE_BYTES, wal_bytes_max=WAL_BYTES_MAX
    )

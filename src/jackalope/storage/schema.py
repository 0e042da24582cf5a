"""The tables of the history: `tasks.db`, and how it is opened.

Owns the schema, its versions and what brings an older file up to date. What a task looks like in
columns is said by `jackalope.storage.rows`.
"""

import sqlite3
from pathlib import Path

from jackalope.core.lifecycle import ENDED
from jackalope.storage.rows import COLUMNS
from jackalope.storage.sqlite import Database, Format, Migration

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

#: The condition under which the partial indexes below are used.
IS_ENDED = "state IN ({})".format(", ".join(f"'{state}'" for state in sorted(ENDED)))

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
        f"CREATE INDEX tasks_to_load ON tasks (rank) WHERE NOT ({IS_ENDED})",
        f"CREATE INDEX tasks_to_forget ON tasks (forget_us) WHERE {IS_ENDED}",
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


def open_history(path: Path | None) -> Database:
    """Open the file, and create or migrate its tables. Without a path it is in memory."""
    return Database(
        path,
        FORMAT,
        synchronous="NORMAL",
        cache_bytes=CACHE_BYTES,
        wal_bytes_max=WAL_BYTES_MAX,
    )

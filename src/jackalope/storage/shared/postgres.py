"""The shared log in PostgreSQL: one row a message, and one row that says which is the last.

Owns the two tables. Knows no entry.

The row of the end is locked by its writer, in the same statement that inserts the
message, so that a message is stored exactly if its position is the next one. What a commit means is
the server's: with `synchronous_standby_names` it waits for a standby. A commit whose wait was cut
short, by a lost connection or a cancelled query, is in doubt and is told so.
"""

from __future__ import annotations

import select
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from jackalope.core.assertions import must
from jackalope.storage.faults import OutOfReach
from jackalope.storage.shared.log import LogState, Put

#: A row is one value of at most 1 GB; this is what a reader should have in memory at once.
MESSAGE_BYTES_MAX = 8 * 1024 * 1024

#: How often to look for messages of which the server has not told.
_LOOK_EVERY_S = 0.2

#: Also refused: the server is in recovery, shuts down, or has no room.
_NO_ROOM = frozenset({"53100"})


class PostgresEngine:
    """See `jackalope.storage.shared.log.LogEngine`."""

    message_bytes_max = MESSAGE_BYTES_MAX

    def __init__(self, dsn: str, cluster: str, *, shard: int = 0) -> None:
        self._dsn = dsn
        name = f"jackalope_{cluster}_{shard}"
        self._log = sql.Identifier(f"{name}_log")
        self._end = sql.Identifier(f"{name}_end")
        self._channel = sql.Identifier(name)
        self._is_closed = False
        # One to write and read, one to wait with: a wait must not hold a write up.
        self._main = _Connection(dsn, Lock())
        self._ear = _Connection(dsn, Lock())

    def open(self) -> None:
        """Make the tables if there are none.

        Raises:
            OutOfReach: the server does not answer.
        """
        with self._main as connection, connection.transaction():
            # Two nodes that start at once must not both make them.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('jackalope'))")
            connection.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (position bigint PRIMARY KEY,"
                    " message bytea STORAGE EXTERNAL NOT NULL)"
                    if connection.info.server_version >= 160_000
                    else "CREATE TABLE IF NOT EXISTS {} (position bigint PRIMARY KEY,"
                    " message bytea NOT NULL)"
                ).format(self._log)
            )
            connection.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (last bigint NOT NULL);"
                    "INSERT INTO {} SELECT 0 WHERE NOT EXISTS (SELECT FROM {})"
                ).format(self._end, self._end, self._end)
            )
        with self._ear as connection:
            connection.execute(sql.SQL("LISTEN {}").format(self._channel))

    def put(self, position: int, message: bytes, timeout_s: float) -> Put:
        statement = sql.SQL(
            "WITH next AS (UPDATE {} SET last = {} WHERE last = {} RETURNING last)"
            " INSERT INTO {} SELECT last, {} FROM next"
        ).format(
            self._end,
            sql.Literal(position),
            sql.Literal(position - 1),
            self._log,
            sql.Placeholder(),
        )
        try:
            with self._main as connection, connection.transaction():
                timeout = sql.Literal(f"{int(timeout_s * 1_000)}ms")
                connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(timeout))
                found = connection.execute(statement, (message,))
                is_stored = found.rowcount == 1
                if is_stored:
                    connection.execute(sql.SQL("NOTIFY {}").format(self._channel))
        except OutOfReach as error:
            cause = error.__cause__
            code = cause.sqlstate if isinstance(cause, psycopg.Error) else None
            return Put.FULL if code in _NO_ROOM else Put.UNKNOWN
        if self._main.is_in_doubt or not is_stored:
            # What stands there may be ours, and only here: a later commit waits for it as well.
            self._main.is_in_doubt = False
            with suppress(OutOfReach), self._main as connection:
                connection.execute("SELECT pg_logical_emit_message(true, 'jackalope', '')")
                is_sure = not self._main.is_in_doubt
                return Put.UNKNOWN if not is_sure else Put.STORED if is_stored else Put.TAKEN
            return Put.UNKNOWN
        return Put.STORED

    def get(self, position: int) -> bytes | None:
        rows = self._select("SELECT message FROM {} WHERE position = %s", position)
        return bytes(rows[0][0]) if rows else None

    def read(self, after: int, count_max: int) -> list[tuple[int, bytes]]:
        rows = self._select(
            "SELECT position, message FROM {} WHERE position > %s ORDER BY position LIMIT %s",
            after,
            count_max,
        )
        return [(position, bytes(message)) for position, message in rows]

    def wait(self, after: int, timeout_s: float) -> bool:
        del after  # Whether it has come is seen by reading.
        end = monotonic() + min(timeout_s, _LOOK_EVERY_S)
        with suppress(OutOfReach), self._ear as connection:
            while not self._is_closed and (left := end - monotonic()) > 0:
                if select.select([connection], [], [], left)[0]:
                    for _ in connection.notifies(timeout=0):
                        return True
        return True

    def start(self) -> int:
        ((start,),) = self._select("SELECT min(position) FROM {}")
        return self.end() + 1 if start is None else int(start)

    def end(self) -> int:
        with self._main as connection:
            row = connection.execute(sql.SQL("SELECT last FROM {}").format(self._end)).fetchone()
        must(row is not None, "the row of the end is there")
        return int(row[0])  # type: ignore[index]  # Checked above.

    def cut(self, through: int) -> None:
        with self._main as connection:
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE position <= %s").format(self._log), (through,)
            )

    def state(self) -> LogState:
        with self._main as connection:
            size = connection.execute(
                sql.SQL("SELECT pg_total_relation_size({}::regclass)").format(
                    sql.Literal(self._log.as_string(connection))
                )
            ).fetchone()
            server = f"PostgreSQL {connection.info.server_version // 10_000}"
            host = connection.info.host
        return LogState(server, self.start(), self.end(), int(size[0]) if size else 0, host)

    def close(self) -> None:
        self._is_closed = True
        self._main.close()
        self._ear.close()

    def _select(self, statement: LiteralString, *values: int) -> list[tuple[Any, ...]]:
        with self._main as connection:
            return connection.execute(sql.SQL(statement).format(self._log), values).fetchall()


class _Connection:
    """A connection for one thread at a time, made again when it is lost."""

    def __init__(self, dsn: str, lock: Lock) -> None:
        self._dsn = dsn
        self._lock = lock
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._is_closed = False
        self.is_in_doubt = False  # whether a commit may not have reached a standby

    def __enter__(self) -> psycopg.Connection[tuple[Any, ...]]:
        self._lock.acquire()
        try:
            return self._connected()
        except psycopg.Error as error:
            self._lock.release()
            raise OutOfReach(f"PostgreSQL does not answer: {error}") from error
        except BaseException:
            self._lock.release()
            raise

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._is_closed:
            raise OutOfReach("the shared log is closed")
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._dsn, autocommit=True, connect_timeout=2, application_name="jackalope"
            )
            self._connection.add_notice_handler(self._note)
        return self._connection

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        """Note that a commit did not wait for the standby, because its wait was cancelled."""
        if "synchronous replication" in (notice.message_primary or ""):
            self.is_in_doubt = True

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, psycopg.Error | OSError) and self._connection is not None:
            self._connection.close()  # What it was about to do is in doubt.
        self._lock.release()
        if isinstance(error, psycopg.Error | OSError):
            raise OutOfReach(f"PostgreSQL does not answer: {error}") from error

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()

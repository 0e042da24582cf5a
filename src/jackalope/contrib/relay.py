"""The relay: moves tasks from the table of an outbox to the broker.

Owns the order of the two steps: a row is deleted when the broker has acknowledged its task, never
before. Several relays may work on one table; a task that two of them submit is one task, by its id.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import msgspec
import structlog

from jackalope.client.app import Jackalope
from jackalope.contrib.outbox import TABLE
from jackalope.core.refusals import Code
from jackalope.core.task import TaskSpec
from jackalope.errors import ConfigError

log = structlog.get_logger(component="relay")

#: How many rows are moved at once.
ROWS_MAX = 500
#: How long the relay waits when the table is empty, and after a failure at first and at most.
_LOOK_S = 0.2
_AGAIN_MIN_S = 0.5
_AGAIN_MAX_S = 30.0

Row = tuple[int, bytes]

_SELECT = f"SELECT seq, body FROM {TABLE} WHERE error = '' ORDER BY seq LIMIT {ROWS_MAX}"  # noqa: S608  constants

#: Refusals of a task that trying again does not change.
_FOR_GOOD = frozenset(
    {
        Code.INVALID,
        Code.TOO_LARGE,
        Code.UNKNOWN_DEPENDENCY,
        Code.ID_CONFLICT,
        Code.DUPLICATE_ALIAS,
        Code.PARENT_ENDED,
        Code.UNKNOWN_BLOB,
    }
)


class Table(Protocol):
    """The table of an outbox, over a connection of the relay's own."""

    def rows(self) -> list[Row]:
        """Return the first rows that wait."""

    def settle(self, moved: Sequence[int], refused: Sequence[tuple[str, int]]) -> None:
        """Delete the rows that were moved, and note why others are refused."""

    def close(self) -> None:
        """Close the connection."""


class SqliteTable:
    """An outbox in a file of SQLite."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(
            f"file:{path}?mode=rw", uri=True, timeout=30, check_same_thread=False
        )

    def rows(self) -> list[Row]:
        return [(seq, bytes(body)) for seq, body in self._connection.execute(_SELECT)]

    def settle(self, moved: Sequence[int], refused: Sequence[tuple[str, int]]) -> None:
        with self._connection as connection:
            connection.executemany(f"DELETE FROM {TABLE} WHERE seq = ?", [(s,) for s in moved])  # noqa: S608
            connection.executemany(f"UPDATE {TABLE} SET error = ? WHERE seq = ?", refused)  # noqa: S608

    def close(self) -> None:
        self._connection.close()


class PostgresTable:
    """An outbox in PostgreSQL."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg  # noqa: PLC0415  an extra
        except ImportError:
            raise ConfigError(
                "relay: psycopg is not installed; pip install 'jackalope[postgres]'"
            ) from None
        self._connection: Any = psycopg.connect(url, autocommit=True)

    def rows(self) -> list[Row]:
        return [(seq, bytes(body)) for seq, body in self._connection.execute(_SELECT)]

    def settle(self, moved: Sequence[int], refused: Sequence[tuple[str, int]]) -> None:
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {TABLE} WHERE seq = ANY(%s)", (list(moved),))  # noqa: S608
            if refused:
                cursor.executemany(f"UPDATE {TABLE} SET error = %s WHERE seq = %s", refused)  # noqa: S608

    def close(self) -> None:
        self._connection.close()


def open_table(url: str) -> Table:
    """Open the outbox of a database: `sqlite:///path` or `postgresql://user@host/name`.

    Raises:
        ConfigError: there is no such kind of database here.
    """
    scheme = urlsplit(url).scheme.partition("+")[0]
    if scheme == "sqlite":
        path = url.partition("://")[2].removeprefix("/")
        return SqliteTable(unquote(path))
    if scheme in ("postgresql", "postgres"):
        return PostgresTable("postgresql" + url[len(urlsplit(url).scheme) :])
    raise ConfigError(f"relay: {url!r} is no sqlite:///path and no postgresql://user@host/name")


class Relay:
    """Moves rows until it is stopped."""

    def __init__(self, app: Jackalope, open_: Callable[[], Table]) -> None:
        self._app = app
        self._open = open_
        self.stopped = asyncio.Event()
        self.moved = 0  # how many tasks the broker has acknowledged
        self.refused = 0  # how many it does not take, whatever is tried

    async def run(self, *, once: bool = False) -> None:
        """Move rows as they come; with `once`, until there are none.

        A database or a broker that is away is tried again, ever less often; with `once` that is
        raised.
        """
        wait_s = _AGAIN_MIN_S
        while not self.stopped.is_set():
            try:
                with closing(await asyncio.to_thread(self._open)) as table:
                    while not self.stopped.is_set():
                        await self._move_all(table)
                        wait_s = _AGAIN_MIN_S
                        if once:
                            return
                        await self._rest(_LOOK_S)
            except ConfigError:
                raise
            except Exception as error:
                if once:
                    raise
                log.warning("cannot move tasks now", why=str(error), again_in_s=wait_s)
                await self._rest(wait_s)
                wait_s = min(2 * wait_s, _AGAIN_MAX_S)

    async def _move_all(self, table: Table) -> None:
        while not self.stopped.is_set() and (rows := await asyncio.to_thread(table.rows)):
            moved, refused = await self._submit(rows)
            await asyncio.to_thread(table.settle, moved, refused)
            self.moved += len(moved)
            self.refused += len(refused)

    async def _submit(self, rows: list[Row]) -> tuple[list[int], list[tuple[str, int]]]:
        """Submit rows; return those that the broker has, and why it does not take the others."""
        specs: list[tuple[int, TaskSpec]] = []
        refused: list[tuple[str, int]] = []
        for seq, body in rows:
            try:
                specs.append((seq, msgspec.msgpack.decode(body, type=TaskSpec)))
            except msgspec.DecodeError as why:
                refused.append((f"it is no task: {why}", seq))
        answers = await self._app.session().submit_many(
            [spec for _, spec in specs], wait_for_room=True, timeout_s=self._app.timeout_s
        )
        for error in answers.values():
            if error.code not in _FOR_GOOD:
                raise error  # It may be taken later; those that were taken are known by their ids.
        moved = [seq for at, (seq, _) in enumerate(specs) if at not in answers]
        refused += [(str(error), specs[at][0]) for at, error in answers.items()]
        for text, seq in refused:
            log.error("the broker refuses a task for good", row=seq, why=text)
        return moved, refused

    async def _rest(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.stopped.wait(), seconds)
        except TimeoutError:
            return

"""The outbox: tasks that are submitted if, and only if, the user's transaction commits.

Owns the table of the outbox in the user's database, and how a task is put into it with what the
user works with: SQLAlchemy, psycopg, Django or the standard library's sqlite3. The relay
(`jackalope.contrib.relay`, `jackalope relay`) moves its rows to the broker.

Theory of operation: a row holds the task as it would have been sent, with the id that it will have.
The relay submits rows and then deletes them. If it dies between the two, the row is submitted
again: the broker knows the id, and nothing runs twice.
"""

from __future__ import annotations

from typing import Any, Literal, ParamSpec, TypeVar

import msgspec

from jackalope.client import option_checks
from jackalope.client.handle import Handle
from jackalope.client.session.outbox import Uploaded
from jackalope.client.task import Task
from jackalope.core.ids import id_text
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.task import TaskSpec
from jackalope.errors import ConfigError
from jackalope.tasks.dependencies import run_section
from jackalope.tasks.middleware import HookedSubmit

P = ParamSpec("P")
R = TypeVar("R")

Dialect = Literal["sqlite", "postgresql"]

TABLE = "jackalope_outbox"

#: How many bytes the arguments of a task in an outbox may have: what a broker takes in one frame.
PAYLOAD_BYTES_MAX = 16 * INLINE_BYTES_MAX

_SCHEMA = {
    "sqlite": (
        f"CREATE TABLE IF NOT EXISTS {TABLE} ("
        "seq INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT NOT NULL UNIQUE, "
        "body BLOB NOT NULL, error TEXT NOT NULL DEFAULT '')"
    ),
    "postgresql": (
        f"CREATE TABLE IF NOT EXISTS {TABLE} ("
        "seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, task TEXT NOT NULL UNIQUE, "
        "body BYTEA NOT NULL, error TEXT NOT NULL DEFAULT '')"
    ),
}

_INSERT = f"INSERT INTO {TABLE} (task, body) VALUES "  # noqa: S608  a constant


def schema(dialect: Dialect) -> str:
    """Return the statement that makes the table, for your migrations.

    Raises:
        ConfigError: there is none for this kind of database.
    """
    if dialect not in _SCHEMA:
        raise ConfigError(f"outbox: for {' and '.join(_SCHEMA)}, not {dialect!r}")
    return _SCHEMA[dialect]


def create_table(session: Any) -> None:
    """Make the table, if it is not there, in the transaction of a session or connection."""
    line = _line(session)
    line.execute(schema(line.dialect), {})


def submit(session: Any, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
    """Submit a task when the transaction commits, and not at all if it is rolled back.

        with Session(engine) as session, session.begin():
            session.add(order)
            outbox.submit(session, send_receipt, order.id)

    Args:
        session: of the transaction: a session or connection of SQLAlchemy, a connection of
            psycopg or sqlite3, or a connection of Django.
        task: the task, with its options: `send_receipt.options(delay=60)`.
        args: its arguments.
        kwargs: the same by name.

    Returns:
        Its handle. The broker knows the task when the relay has moved it.

    Raises:
        ConfigError: this is no connection, or the task cannot be kept in a table.
        EncodeFailed: an argument cannot be sent.
    """
    spec = _spec(task, args, kwargs)
    _line(session).insert(id_text(spec.id), msgspec.msgpack.encode(spec))
    return Handle(task.app, spec.id, task.definition.result)


async def submit_async(
    session: Any, task: Task[P, R], *args: P.args, **kwargs: P.kwargs
) -> Handle[R]:
    """Do the same with an async session of SQLAlchemy, or an async connection of psycopg."""
    spec = _spec(task, args, kwargs)
    name, body = id_text(spec.id), msgspec.msgpack.encode(spec)
    if type(session).__module__.partition(".")[0] == "sqlalchemy":
        from sqlalchemy import text  # noqa: PLC0415  only for who has it

        await session.execute(text(f"{_INSERT}(:task, :body)"), {"task": name, "body": body})
    elif type(session).__module__.partition(".")[0] == "psycopg":
        await session.execute(f"{_INSERT}(%s, %s)", (name, body))
    else:
        raise _no_connection(session)
    return Handle(task.app, spec.id, task.definition.result)


def _spec(task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskSpec:
    spec = task.prepare(*args, **kwargs)
    payload: Any = spec.payload
    if isinstance(payload, Uploaded):
        raise ConfigError("outbox: a stream cannot be kept in a table; submit a reference to it")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ConfigError(
            f"outbox: the arguments have {len(payload)} bytes, at most {PAYLOAD_BYTES_MAX} are "
            "kept; store them elsewhere and submit a reference"
        )
    if task.app.middlewares:
        run_section(_hooked(task, spec), is_async=False)
    return spec


async def _hooked(task: Task[..., Any], spec: TaskSpec) -> None:
    """Run the hooks of a submit: what is in the table counts as accepted."""
    hooks = HookedSubmit(task.app.middlewares, option_checks.headers, is_async=False)
    async with hooks:
        await hooks.begin(spec)


# Connections: how each library takes a statement.


class _Line:
    """A connection to a database, with statements in its own form."""

    dialect: Any = "sqlite"
    marks = "(?, ?)"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def insert(self, task: str, body: bytes) -> None:
        self._connection.execute(_INSERT + self.marks, (task, body))

    def execute(self, statement: str, _: Any) -> None:
        self._connection.execute(statement)


class _Psycopg(_Line):
    dialect = "postgresql"
    marks = "(%s, %s)"


class _Django(_Line):
    marks = "(%s, %s)"

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.dialect = connection.vendor

    def insert(self, task: str, body: bytes) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(_INSERT + self.marks, (task, body))

    def execute(self, statement: str, _: Any) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)


class _SqlAlchemy(_Line):
    def __init__(self, session: Any) -> None:
        super().__init__(session)
        bind = session.get_bind() if hasattr(session, "get_bind") else session
        self.dialect = bind.dialect.name

    def insert(self, task: str, body: bytes) -> None:
        self.execute(f"{_INSERT}(:task, :body)", {"task": task, "body": body})

    def execute(self, statement: str, values: Any) -> None:
        from sqlalchemy import text  # noqa: PLC0415  only for who has it

        self._connection.execute(text(statement), values)


_LINES: dict[str, type[_Line]] = {
    "sqlite3": _Line,
    "psycopg": _Psycopg,
    "sqlalchemy": _SqlAlchemy,
    "django": _Django,
}


def _line(session: Any) -> _Line:
    kind = type(session)
    if kind.__name__ == "ConnectionProxy":  # Django's `connection` stands for one of its own.
        return _Django(session)
    for base in kind.__mro__:
        line = _LINES.get(base.__module__.partition(".")[0])
        if line is not None and not base.__name__.startswith("Async"):
            return line(session)
    raise _no_connection(session)


def _no_connection(session: Any) -> ConfigError:
    kind = f"{type(session).__module__}.{type(session).__name__}"
    return ConfigError(
        f"outbox: {kind} is no connection that is known here; pass one of SQLAlchemy, psycopg, "
        "sqlite3 or Django (async ones to submit_async)"
    )

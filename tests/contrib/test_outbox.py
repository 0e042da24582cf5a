"""The outbox: a task is submitted with the user's transaction, once, whatever dies."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jackalope import ConfigError, Jackalope, Middleware, Submission
from jackalope.contrib import outbox
from jackalope.contrib.outbox import PAYLOAD_BYTES_MAX, TABLE
from jackalope.contrib.relay import Relay, open_table
from jackalope.core.task import TaskSpec
from jackalope.embedded import EmbeddedBroker
from tests.contrib.outbox_writer import connect, send
from tests.ports import free_port
from tests.storage.shared.servers import has_postgres, postgres

sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
Session = pytest.importorskip("sqlalchemy.orm").Session
sessions = pytest.importorskip("sqlalchemy.ext.asyncio")

WAIT_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if not has_postgres():
        pytest.skip("PostgreSQL is not installed")
    with postgres() as where:
        fields = dict(part.split("=") for part in where.split())
        yield f"postgresql://postgres@127.0.0.1:{fields['port']}/postgres"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    url: str = request.getfixturevalue("server")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}, orders")
    return url


def engine_of(url: str) -> Any:
    return sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def waiting(url: str) -> int:
    with connect(url) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {TABLE}").fetchone()[0])


def move(url: str, address: str) -> Relay:
    async def run() -> Relay:
        client = Jackalope(address)
        relay = Relay(client, lambda: open_table(url))
        await relay.run(once=True)
        await client.close()
        return relay

    return asyncio.run(run())


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker()
    yield broker
    broker.stop()


def test_a_task_goes_with_the_transaction_of_sqlalchemy(
    database: str, broker: EmbeddedBroker
) -> None:
    engine = engine_of(database)
    with Session(engine) as session, session.begin():
        outbox.create_table(session)
        outbox.create_table(session)
    with Session(engine) as session:
        outbox.submit(session, send, 1)
        session.rollback()
    with engine.begin() as connection:
        kept = outbox.submit(connection, send.options(priority=7), number=2)
    with Session(engine) as session, session.begin():
        outbox.submit(session, send, 3)
    engine.dispose()
    assert waiting(database) == 2
    relay = move(database, broker.address)
    assert (relay.moved, relay.refused, waiting(database)) == (2, 0, 0)
    client = Jackalope(broker.address)
    with client.sync as sync:
        assert sync(client.handle(kept.id).status()).priority == 7
        assert len(list(sync.iterate(client.tasks()))) == 2


def test_a_plain_connection_does_as_well(database: str) -> None:
    with connect(database) as connection:
        outbox.create_table(connection)
        connection.commit()
        outbox.submit(connection, send, 1)
        connection.rollback()
        outbox.submit(connection, send, 2)
        connection.commit()
    assert waiting(database) == 1


def test_async_connections_do_as_well(server: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        outbox.create_table(connection)

    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(server) as connection:
            await outbox.submit_async(connection, send, 1)
        engine = sessions.create_async_engine(
            server.replace("postgresql://", "postgresql+psycopg://")
        )
        async with sessions.AsyncSession(engine) as session, session.begin():
            await outbox.submit_async(session, send, 2)
        await engine.dispose()
        with pytest.raises(ConfigError, match=r"builtins.int is no connection"):
            await outbox.submit_async(3, send, 2)

    asyncio.run(run())
    assert waiting(server) == 2


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    raw = Jackalope("jackalope://nowhere.invalid")

    @raw.task(content="bytes")
    def take(data: bytes) -> None: ...

    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        outbox.create_table(connection)
        outbox.submit(connection, take, bytes(PAYLOAD_BYTES_MAX))
        with pytest.raises(ConfigError, match="store them elsewhere"):
            outbox.submit(connection, take, bytes(PAYLOAD_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match="is no connection that is known here"):
        outbox.submit(object(), send, 1)
    with pytest.raises(ConfigError, match="not 'mysql'"):
        outbox.schema("mysql")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no sqlite:///path"):
        open_table("mysql://there")


def test_hooks_of_a_submit_run_when_the_row_is_made(tmp_path: Path) -> None:
    mine = Jackalope("jackalope://nowhere.invalid")

    @mine.middleware
    class Tenancy(Middleware):
        async def around_submit(self, submission: Submission) -> None:
            await asyncio.sleep(0)
            submission.headers["tenant"] = "acme"

    @mine.task
    def work() -> None: ...

    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        outbox.create_table(connection)
        outbox.submit(connection, work)
        (body,) = connection.execute(f"SELECT body FROM {TABLE}").fetchone()
    options = msgspec.msgpack.decode(body, type=TaskSpec).options
    assert options is not None
    assert options.headers == {"tenant": "acme"}


def test_a_task_that_the_broker_does_not_take_stays_with_the_reason(
    tmp_path: Path, broker: EmbeddedBroker
) -> None:
    url = f"sqlite:///{tmp_path / 'db'}"
    with connect(url) as connection:
        outbox.create_table(connection)
        outbox.submit(connection, send.options(depends_on=[bytes(15) + b"x"]), 1)
        connection.execute(f"INSERT INTO {TABLE} (task, body) VALUES ('x', x'c1')")
        outbox.submit(connection, send, 2)
        connection.commit()
    relay = move(url, broker.address)
    assert (relay.moved, relay.refused) == (1, 2)
    with connect(url) as connection:
        errors = [row[0] for row in connection.execute(f"SELECT error FROM {TABLE} ORDER BY seq")]
    assert "unknown_dependency" in errors[0] or "depend" in errors[0]
    assert "it is no task" in errors[1]
    assert move(url, broker.address).refused == 0  # They are not tried for ever.


# Whatever dies.


def orders_in(url: str) -> list[int]:
    with connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT number FROM orders ORDER BY number")]


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_doubled_when_writer_relay_and_broker_are_killed(
    database: str, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    port, data = free_port(), tmp_path / "data"
    serve = [sys.executable, "-m", "jackalope", "serve", "--data", str(data)]
    serve += ["--port", str(port), "--no-http"]
    relay = [sys.executable, "-m", "jackalope", "--broker", f"127.0.0.1:{port}", "relay", database]
    started: list[subprocess.Popen[bytes]] = []

    def start(command: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started.append(process)
        return process

    def kill(process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    with connect(database) as connection:
        outbox.create_table(connection)
        connection.execute("CREATE TABLE orders (number INTEGER)")
        connection.commit()
    try:
        broker, mover = start(serve), start(relay)
        writer = start([sys.executable, "-m", "tests.contrib.outbox_writer", database, "100000"])
        until(lambda: orders_in(database))
        for _ in range(3):
            time.sleep(chance.uniform(0.5, 1.5))
            kill(mover)
            mover = start(relay)
            time.sleep(chance.uniform(0.1, 0.5))
            kill(broker)
            broker = start(serve)
        time.sleep(chance.uniform(0.0, 1.0))
        kill(writer)  # In the middle, or at its end.
        until(lambda: waiting(database) == 0)
        orders = orders_in(database)
        client = Jackalope(f"jackalope://127.0.0.1:{port}")

        async def numbers() -> list[int]:
            async with client:
                return [int(task.tags[0]) async for task in client.tasks()]

        found = asyncio.run(numbers())
        assert sorted(found) == orders
        assert len(orders) > 10
        mover.send_signal(signal.SIGTERM)
        assert mover.wait(WAIT_S) == 0
    finally:
        for process in started:
            if process.poll() is None:
                kill(process)

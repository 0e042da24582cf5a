"""The engines of a shared log, each with a log of its own for every test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from jackalope.storage.shared.log import LogEngine
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from jackalope.storage.shared.postgres import PostgresEngine
from tests.storage.shared.servers import has_postgres, postgres

OpenEngine = Callable[[], LogEngine]

ENGINES = ["memory", "jetstream", "postgres"]

_numbers = count(1)


@pytest.fixture(scope="session")
def database() -> Iterator[str]:
    if not has_postgres():
        pytest.skip("PostgreSQL is not installed")
    with postgres() as dsn:
        yield dsn


@pytest.fixture(params=ENGINES)
def open_engine(request: pytest.FixtureRequest) -> Iterator[OpenEngine]:
    """Return what opens another client of the same log each time."""
    log, name = MemoryLog(), f"t{next(_numbers)}"

    def open_one() -> LogEngine:
        engine: LogEngine
        if request.param == "memory":
            engine = MemoryEngine(log)
        elif request.param == "jetstream":
            engine = request.getfixturevalue("servers").engine(name)
        else:
            engine = PostgresEngine(request.getfixturevalue("database"), name)
            engine.open()
        opened.callback(engine.close)
        return engine

    with ExitStack() as opened:
        yield open_one


@pytest.fixture
def engine(open_engine: OpenEngine) -> LogEngine:
    return open_engine()

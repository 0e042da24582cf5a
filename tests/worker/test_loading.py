"""A worker that loads something before its first task: it is seen to load, then to be ready."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from jackalope import Jackalope


@pytest.fixture
def app() -> Iterator[Jackalope]:
    app = Jackalope.embedded()
    yield app
    app.stop()


async def until(app: Jackalope, state: str) -> None:
    """Wait until there is one worker, and it is in this state."""
    async with asyncio.timeout(60):
        while [each.state for each in await app.workers()] != [state]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def test_tasks_wait_until_a_worker_has_loaded(app: Jackalope) -> None:
    gate, loaded = threading.Event(), []

    @app.on_start
    def load(keys: tuple[str, ...]) -> None:
        gate.wait(60)
        loaded.append(keys)

    @app.on_start
    async def load_more(keys: tuple[str, ...]) -> None:
        loaded.append(keys)

    @app.task(queue="core", name="look")
    async def look() -> int:
        return len(loaded)

    app.work()

    async def ask() -> int:
        async with app:
            await until(app, "idle")
            handle = await look.submit()
            assert (await handle.status()).state == "ready"
            causes = [cause.why for cause in (await handle.explain()).causes]
            assert causes == ["workers_busy"]
            gate.set()
            return await handle.result(60)

    assert asyncio.run(ask()) == 2


def test_a_worker_that_cannot_load_goes(app: Jackalope) -> None:
    gate = threading.Event()

    @app.on_start
    def load(keys: tuple[str, ...]) -> None:
        gate.wait(60)
        raise FileNotFoundError("no such infra")

    @app.task(queue="core", name="look")
    async def look() -> None: ...

    app.work()

    async def ask() -> str:
        async with app:
            await until(app, "idle")
            gate.set()
            await until(app, "gone")
            handle = await look.submit()
            return str((await handle.status()).state)

    assert asyncio.run(ask()) == "ready"

"""Calls: always an answer, an error of the application, or the reason why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from jackalope import (
    CallExpired,
    CallRejected,
    Jackalope,
    MaxLength,
    Reject,
    TaskFailed,
    Timeout,
    current,
)


@pytest.fixture
def app() -> Iterator[Jackalope]:
    app = Jackalope.embedded()

    @app.task(queue="core", name="double")
    async def double(number: int, times: int = 2) -> int:
        return number * times

    @app.task(queue="core", name="fail", retries=0)
    async def fail() -> None:
        raise ValueError("no such infra")

    @app.task(queue="core", name="reject")
    async def reject() -> None:
        raise Reject("not mine")

    @app.task(queue="core", name="hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    @app.task(queue="core", name="count")
    async def count(to: int) -> str:
        for number in range(to):
            await app.send_part({"number": number, "key": current().key})
        return "done"

    app.work()
    yield app
    app.stop()


def test_the_answer_is_what_the_function_returns(app: Jackalope) -> None:
    async def ask() -> list[object]:
        async with app:
            return [
                await app.call("core", "k", 4, name="double"),
                await app.call("core", "", [4, 3], name="double"),
                await app.call("core", "ü/=", {"number": 5, "times": 5}, name="double"),
            ]

    assert asyncio.run(ask()) == [8, 12, 25]


def test_an_error_of_the_application_is_told(app: Jackalope) -> None:
    async def ask() -> None:
        async with app:
            await app.declare_queue("core", preset="pool")
            await app.call("core", "k", name="fail")

    with pytest.raises(TaskFailed, match="ValueError: no such infra"):
        asyncio.run(ask())


def test_a_call_that_the_worker_refuses_is_rejected(app: Jackalope) -> None:
    async def ask() -> None:
        async with app:
            await app.call("core", "k", name="reject")

    with pytest.raises(CallRejected, match="not mine") as caught:
        asyncio.run(ask())
    assert caught.value.status == "rejected"


def test_a_call_that_nobody_begins_expires(app: Jackalope) -> None:
    async def ask() -> None:
        async with app:
            await app.call("empty", "k", timeout=0.2)

    with pytest.raises(CallExpired, match="'empty'") as caught:
        asyncio.run(ask())
    assert caught.value.status == "expired"


def test_a_call_to_a_full_pool_is_refused(app: Jackalope) -> None:
    async def ask() -> None:
        async with app:
            await app.declare_queue("full", changes={"depth_limit": 1})
            await app.submit("full")
            await app.call("full", "k")

    with pytest.raises(MaxLength) as caught:
        asyncio.run(ask())
    assert caught.value.status == "maxlen"


def test_what_nobody_waits_for_any_more_is_killed(app: Jackalope) -> None:
    async def ask() -> list[str]:
        async with app:
            with pytest.raises(Timeout):
                await app.call("core", "k", name="hang", timeout=0.1)
            tasks = [task async for task in app.tasks(queue="core")]
            await app.handle(tasks[0].id).wait(30)
            return [str(task.state) async for task in app.tasks(queue="core")]

    assert asyncio.run(ask()) == ["killed"]


def test_an_answer_comes_in_parts(app: Jackalope) -> None:
    async def ask() -> list[object]:
        async with app:
            return [part async for part in app.stream("core", "k", 3, name="count")]

    parts: list[object] = [{"number": number, "key": "k"} for number in range(3)]
    assert asyncio.run(ask()) == [*parts, "done"]


def test_a_stream_ends_with_the_error_of_the_application(app: Jackalope) -> None:
    async def ask() -> None:
        async with app:
            await app.declare_queue("core", preset="pool")
            async for _ in app.stream("core", "k", name="fail"):
                pytest.fail("there are no parts")

    with pytest.raises(TaskFailed, match="no such infra"):
        asyncio.run(ask())

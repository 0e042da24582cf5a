"""Progress: pushed by the broker to those who follow a task, and to nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from jackalope import Handle, Rejected, State
from jackalope.core.commands import WatchTasks
from jackalope.core.effects import TaskEnded, TaskProgressed
from jackalope.core.ids import TaskId
from jackalope.wire.messages import AnyMessage, Ended, Nack, Query
from jackalope.wire.views import ProgressView
from tests.client.harness import Hand, House, open_house
from tests.client.peer import ScriptedBroker, run, until

TASK = TaskId(bytes(16))
THE_END = Ended([TaskEnded(TASK, State.SUCCEEDED, b"\xc0")])

Follow = Callable[[ScriptedBroker, "Handle[Any]"], Coroutine[Any, Any, None]]


def with_handle(test: Follow) -> None:
    """Run a test with a handle of the task at a scripted broker."""

    async def scripted() -> None:
        async with ScriptedBroker() as broker, broker.app() as app:
            await test(broker, app.handle(TASK))

    run(scripted())


def step(number: int) -> TaskProgressed:
    return TaskProgressed(TASK, number, 10.0 * number, f"step {number}")


def asked(broker: ScriptedBroker) -> list[bool]:
    """Return for each time that the task was asked for whether its progress was wanted."""
    return [message.progress for message in broker.of(WatchTasks)]


async def percents(steps: AsyncIterator[ProgressView]) -> list[float | None]:
    return [each.percent async for each in steps]


def test_steps_are_pushed_and_nothing_is_asked_twice() -> None:
    async def test(broker: ScriptedBroker, handle: Handle[Any]) -> None:
        steps = aiter(handle.progress())
        for number in (1, 2):
            coming = asyncio.ensure_future(anext(steps))
            await until(lambda: asked(broker))
            broker.push(step(number))
            assert await coming == ProgressView(number, 10.0 * number, f"step {number}")
        broker.push(THE_END)
        assert await percents(steps) == []
        assert handle.end is not None
        assert await handle.wait() is State.SUCCEEDED
        assert asked(broker) == [True]
        assert broker.of(Query) == []

    with_handle(test)


def test_last_steps_are_told_before_the_end() -> None:
    async def test(broker: ScriptedBroker, handle: Handle[Any]) -> None:
        steps = asyncio.ensure_future(percents(handle.progress()))
        await until(lambda: asked(broker))
        for message in (step(1), step(1), step(2), THE_END):
            broker.push(message)
        assert await steps == [10.0, 20.0]

    with_handle(test)


def test_whoever_only_waits_is_not_told() -> None:
    async def test(broker: ScriptedBroker, handle: Handle[Any]) -> None:
        waiting = asyncio.ensure_future(handle.wait())
        await until(lambda: asked(broker))
        assert asked(broker) == [False]
        steps = asyncio.ensure_future(percents(handle.progress()))
        await until(lambda: asked(broker) == [False, True])
        broker.push(step(1))
        broker.push(THE_END)
        assert await steps == [10.0]
        assert await waiting is State.SUCCEEDED

    with_handle(test)


def test_broker_is_told_when_nobody_follows_any_more() -> None:
    async def test(broker: ScriptedBroker, handle: Handle[Any]) -> None:
        first, second = handle.progress(), handle.progress()
        coming = [asyncio.ensure_future(anext(steps)) for steps in (first, second)]
        await until(lambda: asked(broker))
        broker.push(step(1))
        assert [each.percent for each in await asyncio.gather(*coming)] == [10.0, 10.0]
        await first.aclose()
        again = asyncio.ensure_future(anext(second))
        broker.push(step(2))
        assert (await again).percent == 20.0
        assert False not in asked(broker)
        await second.aclose()
        await until(lambda: asked(broker)[-1] is False)

    with_handle(test)


def test_progress_is_asked_for_again_after_a_lost_connection() -> None:
    async def test(broker: ScriptedBroker, handle: Handle[Any]) -> None:
        steps = aiter(handle.progress())
        coming = asyncio.ensure_future(anext(steps))
        await until(lambda: asked(broker))
        broker.push(step(1))
        await coming
        broker.drop()
        rest = asyncio.ensure_future(percents(steps))
        await until(lambda: asked(broker) == [True, True])
        for message in (step(1), step(2), THE_END):
            broker.push(message)
        assert await rest == [20.0]  # What was told before is not told again.

    with_handle(test)


def test_unknown_task_has_no_progress() -> None:
    async def test(broker: ScriptedBroker, handle: Handle[Any]) -> None:
        def script(message: AnyMessage) -> list[AnyMessage] | None:
            if not isinstance(message, WatchTasks):
                return None
            return [Nack(message.ref, "unknown_task", "no such task")]

        broker.script = script
        with pytest.raises(Rejected, match="no such task"):
            await percents(handle.progress())

    with_handle(test)


# With a real broker.


def double(number: int) -> int:
    return 2 * number


def test_every_step_of_a_worker_is_heard() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as app:
            handle = await app.task(queue="images")(double).submit(1)
            steps = asyncio.ensure_future(percents(handle.progress()))
            plain = asyncio.ensure_future(handle.result())
            await until(lambda: followers(house) == [True])
            hand = Hand(app, "images")
            hand.progress = [10.0, 90.0]
            async with hand:
                assert await steps == [10.0, 90.0]
            assert await plain == 2
            assert followers(house) == []

    run(test())


def test_late_follower_begins_with_what_is_known() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as app, house.app() as other:
            task = app.task(queue="images")(double)
            async with Hand(app, "images") as hand:
                hand.progress, hand.is_slow = [40.0], True
                handle = await task.submit(1)
                first = await anext(handle.progress())
                assert first.percent == 40.0
                late = other.handle(handle.id).progress()
                assert await anext(late) == first
                hand.finish()
                assert await percents(late) == []

    run(test())


def followers(house: House) -> list[bool]:
    """Return for each session that watches a task whether it hears of its progress."""
    watched = house.broker.engine.core.watches.by_task.values()
    return [is_wanted for sessions in watched for is_wanted in sessions.values()]

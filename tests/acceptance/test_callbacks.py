"""Callbacks and `kill -9`: a broker that is killed after an end delivers what tells of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jackalope import Flow, Jackalope
from jackalope.core.ids import id_text
from tests.acceptance.harness import House
from tests.callbacks.receiver import HANG, receiving


def test_a_broker_that_is_killed_before_the_answer_delivers_again(tmp_path: Path) -> None:
    """The receiver has the request and never answers: nobody knows that it was delivered."""
    house = House(tmp_path)
    house.environment["JACKALOPE_CALLBACKS__ALLOW"] = "127.0.0.1"

    async def check() -> None:
        async with receiving(HANG) as receiver:
            await asyncio.to_thread(house.start_broker)
            async with Jackalope(house.address) as app:
                handle = await app.submit("q", held=True, callback=receiver.url())
                await handle.kill()
                await receiver.until(1)
            house.kill(house.broker)
            await asyncio.to_thread(house.start_broker)
            first, second = (await receiver.until(2, 60))[:2]
            assert first.body == second.body
            assert first.event["type"] == "jackalope.task.killed"
            assert first.event["subject"] == id_text(handle.id)

    try:
        asyncio.run(check())
    finally:
        house.close()


def test_the_end_of_a_flow_is_posted(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.environment["JACKALOPE_CALLBACKS__ALLOW"] = "127.0.0.1"
    work = Jackalope(house.address)

    @work.task(queue="q")
    async def double(number: int) -> int:
        return 2 * number

    async def check() -> None:
        async with receiving() as receiver:
            await asyncio.to_thread(house.start_broker)
            work.address = Jackalope(house.address).address
            async with work:
                flow = Flow("twice", double.step(2) >> double.step(), callback=receiver.url())
                handle = await flow.submit()
                await handle.kill()
                (got,) = await receiver.until(1)
            assert got.event["type"] == "jackalope.task.killed"
            assert got.event["subject"] == id_text(handle.id)
            assert got.event["data"]["name"] == "twice"

    try:
        asyncio.run(check())
    finally:
        house.close()

"""A client of several brokers, of which some are not there."""

import asyncio
from pathlib import Path

import pytest

from jackalope.client.app import Jackalope
from jackalope.errors import ConnectionLost, Timeout
from tests.client.harness import BrokerProcess, open_house, run


def test_client_goes_on_with_the_broker_that_is_alive(tmp_path: Path) -> None:
    async def test() -> None:
        dying = BrokerProcess(tmp_path)
        dying.start()
        async with open_house() as house:
            address = f"jackalope://127.0.0.1:{dying.port},127.0.0.1:{house.port}"
            async with Jackalope(address) as app, app.events() as events:
                await app.declare_queue("of the first")
                dying.kill()
                await app.declare_queue("of the second")
                assert [queue.queue for queue in await app.queues()] == ["of the second"]
                waiting = asyncio.ensure_future(anext(events))
                async with house.app() as other:
                    while not waiting.done():
                        await other.submit("of the second")
                        await asyncio.sleep(0.05)
                assert (await waiting).queue == "of the second"
                assert events.gaps == 1

    run(test())


def test_broker_that_is_not_there_is_passed_over() -> None:
    async def test() -> None:
        async with open_house() as gone:
            port = gone.port
        async with open_house() as house:
            app = Jackalope(f"jackalope://127.0.0.1:{port},127.0.0.1:{house.port}")
            await app.connect(wait=False)
            assert await app.queues() == []
            await app.close()

    run(test())


def test_errors_name_every_address_and_what_was_wrong() -> None:
    async def test() -> None:
        app = Jackalope("jackalope://127.0.0.1:1,[::1]:2/lab", timeout=0.2)
        with pytest.raises(ConnectionLost) as failed:
            await app.connect(wait=False)
        for place in ("jackalope://127.0.0.1:1/lab", "jackalope://[::1]:2/lab"):
            assert f"cannot reach {place}: " in str(failed.value)
        with pytest.raises(Timeout, match=r"no answer from jackalope://127.0.0.1:1,\[::1\]:2/lab"):
            await app.queues()
        await app.close()

    run(test())

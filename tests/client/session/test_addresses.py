"""A client of several brokers, of which some are not there."""

import asyncio
from pathlib import Path

import pytest

from jackalope.client.app import Jackalope
from jackalope.errors import ConnectionLost, ProtocolError, Timeout
from jackalope.wire.messages import AnyMessage, Hello, Moved, Welcome
from tests.client.harness import BrokerProcess, open_house, run
from tests.client.peer import ScriptedBroker


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


# Clusters.


def answering(answer: AnyMessage) -> ScriptedBroker:
    """Something that listens, and answers to HELLO as a member of a cluster does."""
    return ScriptedBroker(lambda message: [answer] if isinstance(message, Hello) else None)


def test_client_goes_where_it_is_sent() -> None:
    async def test() -> None:
        async with open_house() as house:
            leader = f"127.0.0.1:{house.port}"
            async with (
                answering(Moved(leader, 3)) as one,
                answering(Moved(f"127.0.0.1:{one.port}")) as two,
                two.app() as app,
                house.app() as other,
            ):
                await app.declare_queue("there")
                assert [queue.queue for queue in await other.queues()] == ["there"]
                assert one.of(Hello)[0].follows
                assert (one.hellos, two.hellos) == (1, 1)

    run(test())


def test_redirects_without_end_are_given_up() -> None:
    async def test() -> None:
        async with ScriptedBroker() as one, ScriptedBroker() as two:
            for broker, other in ((one, two), (two, one)):
                broker.script = answering(Moved(f"127.0.0.1:{other.port}")).script
            with pytest.raises(ConnectionLost, match="redirected too often") as failed:
                await one.app().connect(wait=False)
            for broker in (one, two):
                assert f"127.0.0.1:{broker.port}" in str(failed.value)
                assert broker.hellos == 3
            await asyncio.sleep(0.2)
            assert one.hellos + two.hellos == 6

    run(test())


def test_errors_name_who_has_sent_the_client_there() -> None:
    async def test() -> None:
        async with answering(Moved("127.0.0.1:1")) as broker:
            with pytest.raises(ConnectionLost) as failed:
                await broker.app().connect(wait=False)
            member = f"jackalope://127.0.0.1:{broker.port}"
            assert "cannot reach jackalope://127.0.0.1:1: " in str(failed.value)
            assert f"{member} says that the broker is at 127.0.0.1:1" in str(failed.value)
        async with answering(Moved("nowhere:port")) as broker:
            with pytest.raises(ProtocolError, match="nowhere:port"):
                await broker.app().connect(wait=False)

    run(test())


def test_members_that_a_broker_names_are_tried_after_those_that_were_given() -> None:
    async def test() -> None:
        async with open_house() as house, ScriptedBroker() as given:
            members = ("nowhere:port", f"127.0.0.1:{given.port}", f"127.0.0.1:{house.port}")
            welcome = Welcome(1, 1, "pulse", 10_000_000, 2**24, "scripted", 0, members, 7)
            given.script = answering(welcome).script
            async with given.app() as app:
                await given.stop()
                assert await app.queues() == []

    run(test())

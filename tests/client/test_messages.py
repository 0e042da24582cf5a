"""Calls and broadcasts of an application: quick, not kept, and back after a lost connection."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from jackalope import (
    BroadcastMessage,
    CallFailed,
    ConfigError,
    ConnectionLost,
    Jackalope,
    Rejected,
    Timeout,
)
from jackalope.client.messages import BROADCASTS_MAX
from tests.client.harness import House, open_house, run
from tests.client.peer import until


async def echo(value: Any) -> Any:
    return value


def test_a_call_is_answered() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as caller, house.app() as clerk:
            await clerk.rpc_subscribe("clerk", echo)
            assert await caller.rpc("clerk", {"who": [1, None]}) == {"who": [1, None]}
            assert await caller.rpc("clerk") is None

    run(test())


def test_a_plain_function_answers_in_a_thread() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as app:
            await app.rpc_subscribe("clerk", lambda _: threading.current_thread().name)
            assert await app.rpc("clerk") != threading.current_thread().name

    run(test())


def test_nobody_there_is_said_at_once() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as app:
            with pytest.raises(Rejected, match="'nobody'") as caught:
                await app.rpc("nobody", timeout=None)
            assert caught.value.code == "unknown_recipient"

    run(test())


def test_what_the_recipient_raises_the_caller_gets() -> None:
    def spoil(value: Any) -> None:
        raise KeyError(value)

    async def test() -> None:
        async with open_house() as house, house.app() as app:
            await app.rpc_subscribe("clerk", spoil)
            with pytest.raises(CallFailed, match="KeyError: 'x'") as caught:
                await app.rpc("clerk", "x")
            assert caught.value.recipient == "clerk"
            assert "in spoil" in caught.value.__notes__[0]

    run(test())


def test_a_result_without_an_encoding_fails_for_the_caller() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as app:
            await app.rpc_subscribe("clerk", lambda _: object())
            with pytest.raises(CallFailed, match="EncodeFailed"):
                await app.rpc("clerk")

    run(test())


def test_a_result_that_is_too_large_fails_for_the_caller() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as app:
            await app.rpc_subscribe("clerk", lambda _: bytes(1024 * 1024))
            with pytest.raises(CallFailed, match="send a task instead"):
                await app.rpc("clerk")

    run(test())


def test_a_name_is_answered_to_once() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as app:
            await app.rpc_subscribe("clerk", echo)
            with pytest.raises(ConfigError, match="already"):
                await app.rpc_subscribe("clerk", echo)
            await app.rpc_unsubscribe("clerk")
            with pytest.raises(ConfigError, match="not taken"):
                await app.rpc_unsubscribe("clerk")
            with pytest.raises(Rejected):
                await app.rpc("clerk")

    run(test())


def test_a_recipient_that_goes_away_fails_the_call() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as caller:
            clerk, asked = house.app(), asyncio.Event()

            async def never(_: Any) -> None:
                asked.set()
                await asyncio.Event().wait()

            await clerk.rpc_subscribe("clerk", never)
            call = asyncio.create_task(caller.rpc("clerk"))
            await asked.wait()
            await clerk.close()
            with pytest.raises(CallFailed, match="disconnected"):
                await call

    run(test())


def test_a_call_that_takes_too_long_is_given_up() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as app:
            gate = asyncio.Event()

            async def slow(_: Any) -> None:
                await gate.wait()

            await app.rpc_subscribe("clerk", slow)
            with pytest.raises(Timeout, match="no answer from 'clerk'"):
                await app.rpc("clerk", timeout=0.05)
            gate.set()
            assert app.session().messages._waiters == {}

    run(test())


def test_broadcasts_go_to_those_who_listen() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as loud, house.app() as ear:
            assert await loud.broadcast("nobody hears it") == 0
            async with (
                ear.broadcasts(subject="door.*") as doors,
                ear.broadcasts(sender="ada") as ada,
            ):
                assert await loud.broadcast(1, subject="door.open", sender="bob") == 1
                assert await loud.broadcast(2, subject="wind", sender="ada") == 1
                assert await loud.broadcast(3, subject="door.shut", sender="ada") == 1
                assert await anext(doors) == BroadcastMessage(1, "door.open", "bob")
                assert await anext(doors) == BroadcastMessage(3, "door.shut", "ada")
                assert [(await anext(ada)).value for _ in range(2)] == [2, 3]
            assert await loud.broadcast("again") == 0

    run(test())


def test_a_slow_listener_hears_how_much_it_missed() -> None:
    async def test() -> None:
        async with open_house() as house, house.app() as app, app.broadcasts() as stream:
            messages = app.session().messages
            for _ in range(BROADCASTS_MAX // 100 + 1):
                said = [messages.broadcast("", "", b"\xc0", timeout_s=None) for _ in range(100)]
                await asyncio.gather(*said)
            await until(lambda: stream.missed == 100)
            assert (await anext(stream)).value is None

    run(test())


def test_listeners_are_back_after_the_broker_restarted(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house, house.app() as app, house.app() as other:
            await app.rpc_subscribe("clerk", echo)
            async with app.broadcasts() as stream:
                await house.stop()
                await house.start()
                await until_answered(other, "clerk")
                assert await other.broadcast("back") == 1
                assert (await anext(stream)).value == "back"

    run(test())


async def until_answered(app: Jackalope, recipient: str) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                await app.rpc(recipient)
            except (Rejected, ConnectionLost):
                await asyncio.sleep(0.01)  # It is on its way back.
            else:
                return


def test_a_call_is_not_repeated_when_the_connection_is_lost() -> None:
    async def test() -> None:
        house = House(None)
        await house.start()
        async with house.app() as caller, house.app() as clerk:
            asked = asyncio.Event()

            async def never(_: Any) -> None:
                asked.set()
                await asyncio.Event().wait()

            await clerk.rpc_subscribe("clerk", never)
            call = asyncio.create_task(caller.rpc("clerk"))
            await asked.wait()
            await house.stop()
            with pytest.raises((ConnectionLost, CallFailed)):
                await call

    run(test())


def test_code_without_a_loop_has_them_too() -> None:
    app = Jackalope.embedded()
    try:
        with app.sync as sync:
            sync(app.rpc_subscribe("clerk", lambda value: value * 2))
            assert sync(app.rpc("clerk", 4)) == 8
            assert sync(app.broadcast("anybody?")) == 0
            broadcasts = app.broadcasts()
            sync(broadcasts.__aenter__())
            sync(app.broadcast("you!"))
            for broadcast in sync.iterate(broadcasts):
                assert broadcast.value == "you!"
                break
            assert sync(app.broadcast("anybody?")) == 0
    finally:
        app.stop()

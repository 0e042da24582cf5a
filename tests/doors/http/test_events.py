"""Live events over WebSocket and server-sent events, for quick readers and for slow ones."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from jackalope.broker.access import Access
from jackalope.broker.client_session import EVENTS_WAITING_MAX, TOPICS_MAX
from jackalope.core.api_key import Permission
from jackalope.core.commands import CreateApiKey
from jackalope.doors.http.listener import Gathering
from tests.doors.harness import run
from tests.doors.http.harness import HttpHouse, open_http
from tests.doors.http.rest.test_tasks import claim, finish, submit
from tests.doors.http.rest.test_worker_api import until
from tests.doors.native.test_access import make_key


async def hear(socket: ClientConnection) -> Any:
    async with asyncio.timeout(10):
        return json.loads(await socket.recv())


async def hear_until(socket: ClientConnection, what: str) -> list[Any]:
    heard = [await hear(socket)]
    while heard[-1].get("what") != what:
        heard.append(await hear(socket))
    return heard


@asynccontextmanager
async def listening(house: HttpHouse, query: str = "") -> AsyncIterator[ClientConnection]:
    async with connect(f"{house.socket_url}/api/v1/events{query}") as socket:
        assert (await hear(socket))["type"] == "subscribed"
        yield socket


def test_socket_tells_the_life_of_a_task() -> None:
    async def check() -> None:
        async with open_http() as house, listening(house) as socket:
            task_id = await submit(house.client)
            await finish(house.client, await claim(house.client), b"")
            heard = await hear_until(socket, "finish")
            told = [(event["what"], event["state"], event["name"]) for event in heard]
            assert told == [
                ("submit", "ready", "resize"),
                ("assign", "assigned", "resize"),
                ("start", "running", "resize"),
                ("finish", "succeeded", "resize"),
            ]
            assert not any("status" in event for event in heard)
            assert {event["task"] for event in heard} == {task_id}
            assert heard[1]["by"] == "w1"

    run(check())


def test_socket_of_a_queue_and_of_a_task() -> None:
    async def check() -> None:
        async with open_http() as house:
            wanted = await submit(house.client, queue="a")
            async with (
                listening(house, "?queue=b") as of_queue,
                listening(house, f"?task={wanted}") as of_task,
                listening(house, "?namespace=team") as of_team,
            ):
                other = await submit(house.client, queue="b")
                await house.client.post(f"/api/v1/tasks/{wanted}/pause")
                team = {"X-Jackalope-Namespace": "team"}
                await house.client.post("/api/v1/tasks", json={"name": "t"}, headers=team)
                assert (await hear(of_queue))["task"] == other
                event = await hear(of_task)
                assert (event["task"], event["what"]) == (wanted, "pause")
                assert (await hear(of_team))["what"] == "submit"
                await house.client.post(f"/api/v1/tasks/{other}/pause")
                assert (await hear(of_queue))["what"] == "pause"

    run(check())


def test_socket_tells_of_steps_and_events() -> None:
    async def check() -> None:
        async with open_http() as house:
            task = await submit(house.client, queue="a")
            async with listening(house, f"?task={task}") as socket:
                claim = {"queues": ["a"], "wait": 5}
                given = (await house.client.post("/api/v1/workers/w/claim", json=claim)).json()
                where = {"worker": "w", "fence": given["tasks"][0]["fence"]}
                for what, body in (
                    ("step", {"index": 0, "name": "charge"}),
                    ("suspend", {"index": 1, "name": "wait for ok", "event": "ok"}),
                ):
                    path = f"/api/v1/attempts/{task}/{what}"
                    answer = await house.client.post(path, params=where, json=body)
                    assert answer.is_success, answer.text
                await house.client.post(f"/api/v1/tasks/{task}/events/ok", json={"data": 1})
                told = [await hear(socket) for _ in range(7)]
                assert [(each["what"], each["detail"]) for each in told[2:6]] == [
                    ("step", "charge"),
                    ("wait", "wait for ok"),
                    ("suspend", ""),
                    ("event", "ok"),
                ]

    run(check())


def test_updates_of_the_task_api() -> None:
    async def check() -> None:
        async with open_http() as house, connect(f"{house.socket_url}/ws/updates") as socket:
            first, second = await submit(house.client), await submit(house.client)
            await socket.send(json.dumps({"action": "subscribe", "task_id": second}))
            assert (await hear(socket))["task_id"] == second
            await house.client.delete(f"/api/v1/tasks/{first}")
            await house.client.delete(f"/api/v1/tasks/{second}")
            event = await hear(socket)
            assert (event["task_id"], event["status"]) == (second, "failed")
            await socket.send(json.dumps({"action": "unsubscribe", "task_id": second}))
            await socket.send("{}")
            assert (await hear(socket))["error"]["reason"] == "invalid"
            for number in range(TOPICS_MAX + 1):
                await socket.send(json.dumps({"action": "subscribe", "queue": f"q{number}"}))
            heard = [await hear(socket) for _ in range(TOPICS_MAX + 1)]
            assert [each["type"] for each in heard] == ["subscribed"] * TOPICS_MAX + ["error"]
            assert heard[-1]["error"]["reason"] == "too_many"

    run(check())


def test_bad_question_is_answered_in_place_of_the_socket() -> None:
    async def check() -> None:
        async with open_http() as house:
            with pytest.raises(websockets.InvalidStatus) as refused:
                async with connect(f"{house.socket_url}/api/v1/events?color=red"):
                    pass
            told = refused.value.response
            assert (told.status_code, json.loads(told.body or b"")["reason"]) == (400, "invalid")
            await until(lambda: not house.door.feeds)

    run(check())


@asynccontextmanager
async def streaming(house: HttpHouse, query: str = "") -> AsyncIterator[AsyncIterator[str]]:
    async with (
        httpx.AsyncClient(base_url=house.url, timeout=10) as client,
        client.stream("GET", f"/api/v1/events{query}") as stream,
    ):
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.aiter_lines()
        assert await anext(lines) == ": listening"
        yield lines


async def next_event(lines: AsyncIterator[str]) -> tuple[str, Any]:
    kind = ""
    async for line in lines:
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            return kind, json.loads(line.removeprefix("data: "))
    raise EOFError


def test_server_sent_events() -> None:
    async def check() -> None:
        async with open_http() as house:
            async with streaming(house, "?queue=default") as lines:
                await submit(house.client, queue="other")
                task_id = await submit(house.client)
                kind, event = await next_event(lines)
                assert (kind, event["task"], event["what"]) == ("event", task_id, "submit")
            await until(lambda: not house.door.feeds)
            assert not house.broker.events._subscriptions

    run(check())


def test_slow_reader_is_told_what_it_missed_and_costs_little() -> None:
    async def check() -> None:
        async with open_http() as house:
            batch = {"tasks": [{"name": "t" * 200}] * 5_000}
            async with streaming(house) as lines:
                for _ in range(4):
                    await house.client.post("/api/v1/tasks/batch", json=batch)
                (feed,) = house.door.feeds
                assert len(feed._waiting) <= EVENTS_WAITING_MAX
                told = missed = 0
                while told + missed < 20_000:
                    kind, event = await next_event(lines)
                    if kind == "missed":
                        missed += event["count"]
                    else:
                        told += 1
                assert told + missed == 20_000
                assert missed > 0
                await submit(house.client, name="after")
                assert (await next_event(lines))[1]["what"] == "submit"

    run(check())


def test_reader_that_departs_before_an_event_is_written_is_no_fault() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        faults: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: faults.append(context))
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        transport, _ = await loop.create_connection(asyncio.Protocol, *address)
        transport.abort()
        Gathering(transport, loop).write(b"event: event\n\n")
        for _ in range(3):
            await asyncio.sleep(0)
        server.close()
        assert faults == []

    run(check())


def test_door_that_closes_ends_streams_and_sockets() -> None:
    async def check() -> None:
        async with open_http() as house, listening(house) as socket, streaming(house) as lines:
            async with asyncio.timeout(2):
                await house.door.stop()
            with pytest.raises(websockets.ConnectionClosed):
                await hear(socket)
            with pytest.raises(EOFError):
                await next_event(lines)

    run(check())


def test_key_of_some_queues_hears_of_no_others_and_of_nothing_once_it_is_revoked() -> None:
    async def check() -> None:
        boss, boss_key = make_key(Permission.ADMIN)
        token, key = make_key(Permission.READ_TASKS, queues=("images",))
        async with open_http(access=Access([boss_key])) as house:
            client = house.client
            client.headers["Authorization"] = f"Bearer {boss}"
            await house.door.client_session.ask(CreateApiKey(key=key, by="test"))
            headers = {"Authorization": f"Bearer {token}"}
            url = f"{house.socket_url}/api/v1/events"
            async with connect(url, additional_headers=headers) as socket:
                assert (await hear(socket))["type"] == "subscribed"
                await submit(client, queue="sounds")
                wanted = await submit(client, queue="images")
                assert (await hear(socket))["task"] == wanted
                assert (await client.delete(f"/api/v1/keys/{key.id}")).status_code == 204
                await submit(client, queue="images")
                with pytest.raises(websockets.ConnectionClosed):
                    await hear(socket)

    run(check())

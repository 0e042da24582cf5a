"""A key that is revoked or expires ends at once whatever waits for its bearer, at every door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from jackalope.broker.access import Access, hash_of, id_of, new_token
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands import CreateApiKey, RevokeApiKey
from jackalope.core.durations import MILLISECOND
from tests.doors.http.harness import HttpHouse, open_http, until

ADMIN = new_token()

#: Far longer than anything here takes, and far shorter than what is waited for.
AT_ONCE_S = 3.0
WAIT_S = 25


def key_of(token: str, **terms: Any) -> ApiKey:
    return ApiKey(id_of(token), hash_of(token), "bob", tuple(Permission), **terms)


class Bearer:
    """A client with a key of its own."""

    def __init__(self, house: HttpHouse, token: str) -> None:
        self.house = house
        self.token = token
        self.headers = {"Authorization": f"Bearer {token}"}

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.house.url, timeout=WAIT_S + 5) as client:
            return await client.request(method, path, headers=self.headers, **more)


@asynccontextmanager
async def housed() -> AsyncIterator[tuple[HttpHouse, Bearer]]:
    async with open_http(access=Access([key_of(ADMIN)])) as house:
        bob = Bearer(house, new_token())
        await house.door.client_session.ask(CreateApiKey(key=key_of(bob.token)))
        yield house, bob


async def revoke(house: HttpHouse, bob: Bearer) -> None:
    await house.door.client_session.ask(RevokeApiKey(key=id_of(bob.token)))


async def expire(house: HttpHouse, bob: Bearer) -> None:
    """Nothing is done: the key ends by itself."""


async def waits_for_a_claim(bob: Bearer) -> None:
    body = {"queues": ["q"], "wait": WAIT_S}
    answer = await bob.ask("POST", "/api/v1/workers/w/claim", json=body)
    assert (answer.status_code, answer.json()["reason"]) == (401, "unauthorised")


async def waits_for_a_result(bob: Bearer) -> None:
    made = await bob.ask("POST", "/api/v1/tasks", json={"queue": "slow", "name": "t"})
    task = made.json()["id"]
    answer = await bob.ask("GET", f"/api/v1/tasks/{task}/result?wait={WAIT_S}")
    assert (answer.status_code, answer.json()["reason"]) == (401, "unauthorised")


async def uploads(bob: Bearer) -> None:
    """Send a part of a body, and read the answer that comes before the rest is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bob.house.door.port)
    head = (
        "POST /api/v1/tasks/raw?queue=up&name=t HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {bob.token}\r\nContent-Length: 1000000\r\n\r\n"
    )
    writer.write(head.encode() + b"x" * 100_000)
    answer = await reader.read()  # Until the door closes the connection.
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")


async def reads_events(bob: Bearer) -> None:
    async with (
        httpx.AsyncClient(base_url=bob.house.url, timeout=WAIT_S + 5) as client,
        client.stream("GET", "/api/v1/events", headers=bob.headers) as stream,
    ):
        assert stream.status_code == 200
        async for _ in stream.aiter_bytes():
            pass


async def _listens(bob: Bearer, path: str) -> None:
    async with connect(f"{bob.house.socket_url}{path}", additional_headers=bob.headers) as socket:
        await _closed(socket)


async def _closed(socket: ClientConnection) -> None:
    with suppress(ConnectionClosed):
        while True:
            await socket.recv()
    assert socket.close_code == 1008


async def listens_to_events(bob: Bearer) -> None:
    await _listens(bob, "/api/v1/events")


async def listens_to_the_pulse(bob: Bearer) -> None:
    await _listens(bob, "/api/v1/pulse")


async def works_for_gridlike(bob: Bearer) -> None:
    async with connect(f"{bob.house.socket_url}/api/worker") as socket:
        hello = {"code": 0, "name": "n", "id": "w-1", "token": bob.token}
        await socket.send(json.dumps(hello))
        await _closed(socket)


WAITING: list[Callable[[Bearer], Awaitable[None]]] = [
    waits_for_a_claim,
    waits_for_a_result,
    uploads,
    reads_events,
    listens_to_events,
    listens_to_the_pulse,
    works_for_gridlike,
]


def run(test: Awaitable[None]) -> None:
    async def whole() -> None:
        await test

    asyncio.run(whole())


def _stays(house: HttpHouse, token: str) -> int:
    """Return how much goes on for the bearer of a token."""
    stays = house.broker.access._stays
    return sum(
        stay.principal.key is not None and stay.principal.key.id == id_of(token) for stay in stays
    )


@pytest.mark.parametrize("wait", WAITING, ids=lambda wait: wait.__name__)
def test_what_waits_ends_when_the_key_is_revoked(wait: Callable[[Bearer], Awaitable[None]]) -> None:
    async def test() -> None:
        async with housed() as (house, bob):
            waiting = asyncio.ensure_future(wait(bob))
            await until(lambda: waiting.done() or _is_waiting(house, bob, wait))
            assert not waiting.done()
            await revoke(house, bob)
            async with asyncio.timeout(AT_ONCE_S):
                await waiting
            await until(lambda: not _stays(house, bob.token))

    run(test())


def _is_waiting(house: HttpHouse, bob: Bearer, wait: Callable[[Bearer], Awaitable[None]]) -> bool:
    """Tell whether what is to be cut off has begun, beyond the requests before it."""
    core = house.broker.engine.core
    if wait is waits_for_a_result:
        return bool(core.watches.by_task)
    if wait is waits_for_a_claim:
        return any(worker.claims for worker in core.roster.workers.values())
    if wait is works_for_gridlike:
        return bool(core.roster.workers)
    return bool(_stays(house, bob.token))


@pytest.mark.parametrize("wait", WAITING, ids=lambda wait: wait.__name__)
def test_what_waits_ends_when_the_key_expires(wait: Callable[[Bearer], Awaitable[None]]) -> None:
    async def test() -> None:
        async with open_http(access=Access([key_of(ADMIN)])) as house:
            bob = Bearer(house, new_token())
            until_us = house.broker.now_us() + 700 * MILLISECOND
            await house.door.client_session.ask(
                CreateApiKey(key=key_of(bob.token, expires_us=until_us))
            )
            async with asyncio.timeout(AT_ONCE_S):
                await wait(bob)
            assert house.broker.now_us() >= until_us

    run(test())


def test_a_task_that_comes_after_the_revocation_is_given_to_nobody() -> None:
    async def test() -> None:
        async with housed() as (house, bob):
            claim = asyncio.ensure_future(waits_for_a_claim(bob))
            await until(lambda: _is_waiting(house, bob, waits_for_a_claim))
            admin = Bearer(house, ADMIN)
            gone = asyncio.ensure_future(revoke(house, bob))
            made = await admin.ask("POST", "/api/v1/tasks", json={"queue": "q", "name": "t"})
            await asyncio.gather(gone, claim)
            task = made.json()["id"]
            shown = (await admin.ask("GET", f"/api/v1/tasks/{task}")).json()
            assert shown["state"] == "ready"

    run(test())


def test_who_makes_the_first_key_or_revokes_its_own_has_its_answer() -> None:
    async def test() -> None:
        async with open_http() as house:
            body = {"name": "root", "permissions": ["admin"]}
            made = await house.client.post("/api/v1/keys", json=body)
            assert made.status_code == 201
            own = Bearer(house, made.json()["token"])
            assert (await house.client.get("/api/v1/stats")).status_code == 401
            gone = await own.ask("DELETE", f"/api/v1/keys/{made.json()['id']}")
            assert gone.status_code in (200, 204)

    run(test())


def test_the_first_key_ends_what_waits_without_one() -> None:
    async def test() -> None:
        async with open_http() as house:
            body = {"queues": ["q"], "wait": WAIT_S}
            claim = asyncio.ensure_future(house.client.post("/api/v1/workers/w/claim", json=body))
            workers = house.broker.engine.core.roster.workers
            await until(lambda: any(worker.claims for worker in workers.values()))
            await house.door.client_session.ask(CreateApiKey(key=key_of(ADMIN)))
            async with asyncio.timeout(AT_ONCE_S):
                assert (await claim).status_code == 401

    run(test())

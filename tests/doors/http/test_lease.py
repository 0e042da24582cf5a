"""A worker that is sending or fetching a body is alive, however long that takes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tests.doors.harness import run
from tests.doors.http.harness import HttpHouse, open_http

LARGE = bytes(1024 * 1024)
LEASE_S = 1
#: Longer than two leases, in steps much shorter than one.
STEPS = 12
STEP_S = 0.2


async def claimed(house: HttpHouse, payload: bytes) -> tuple[str, dict[str, Any]]:
    path = "/api/v1/tasks/raw?name=t&queue=q"
    task: str = (await house.client.post(path, content=payload)).json()["id"]
    claim = {"queues": ["q"], "lease_seconds": LEASE_S}
    tasks = (await house.client.post("/api/v1/workers/w/claim", json=claim)).json()["tasks"]
    return task, {"worker": "w", "fence": tasks[0]["fence"]}


def test_result_that_takes_longer_than_the_lease() -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(STEPS):
            await asyncio.sleep(STEP_S)
            yield LARGE[:10_000]

    async def test() -> None:
        async with open_http() as house:
            task, attempt = await claimed(house, b"small")
            finish = f"/api/v1/attempts/{task}/finish"
            done = await house.client.post(finish, params=attempt, content=slowly())
            assert done.status_code == 200, done.text

    run(test())


def test_payload_that_takes_longer_than_the_lease() -> None:
    async def test() -> None:
        async with open_http() as house:
            task, attempt = await claimed(house, LARGE * 32)
            query = f"worker=w&fence={attempt['fence']}"
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", house.door.port, limit=64 * 1024
            )
            writer.write(
                f"GET /api/v1/attempts/{task}/payload?{query} HTTP/1.1\r\n"
                "Host: 127.0.0.1\r\n\r\n".encode()
            )
            await reader.readuntil(b"\r\n\r\n")
            for _ in range(STEPS):
                await asyncio.sleep(STEP_S)
                await reader.readexactly(len(LARGE) * 32 // STEPS)
            writer.close()
            finish = f"/api/v1/attempts/{task}/finish"
            done = await house.client.post(finish, params=attempt, content=b"done")
            assert done.status_code == 200, done.text

    run(test())


def test_result_for_a_lost_lease_is_refused_before_it_is_sent() -> None:
    async def test() -> None:
        async with open_http() as house:
            task, attempt = await claimed(house, b"small")
            reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
            query = f"worker=w&fence={attempt['fence'] + 1}"
            writer.write(
                f"POST /api/v1/attempts/{task}/finish?{query} HTTP/1.1\r\n"
                "Host: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n".encode()
            )
            answer = await reader.readuntil(b"stale_fence")
            assert b" 409 " in answer
            writer.close()

    run(test())

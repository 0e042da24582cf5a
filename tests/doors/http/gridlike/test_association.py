"""Whatever happens, a result is that of its job.

Honest workers do all that can happen to them, at random: they answer late or not at all, give up,
fail, lose their connection and come back with what they had. Jobs are deleted under them, and the
broker restarts. Some of them share an id, some keep track of their attempts. In the end each job
that is done must have the result that was made of its own payload, and no worker was ever given a
job while it had one.
"""

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.doors.harness import run
from tests.doors.http.gridlike.harness import (
    BUSY,
    DONE,
    FAILED,
    NO_ATTEMPT,
    READY,
    declare,
    open_grid,
    submit,
)
from tests.doors.http.harness import HttpHouse

JOBS = 40
IDS = ["own-1", "own-2", "own-3", "shared", "shared"]


class Honest:
    """A worker that never says what is not so, at the time when it says it."""

    def __init__(self, urls: list[str], worker_id: str, luck: Random) -> None:
        self._urls = urls
        self._id = worker_id
        self._luck = luck
        #: What it says of its attempt when it registers; nothing if it does not keep track of them.
        self._attempt: dict[str, Any] = luck.choice([{}, NO_ATTEMPT])
        self._late: list[dict[str, Any]] = []
        self.payload: bytes | None = None
        self.is_patient = False

    async def work(self) -> None:
        while True:
            self._late = []
            try:
                async with connect(self._urls[-1], ping_interval=None) as socket:
                    await self._talk(socket)
            except (ConnectionClosed, OSError):
                # Refused now and then, when very many come and go. Who comes back is let in.
                await asyncio.sleep(0.01)

    async def _talk(self, socket: ClientConnection) -> None:
        hello = {"code": 0, "name": "", "id": self._id, "token": ""}
        if self._attempt and self.payload is None:
            self._attempt = NO_ATTEMPT
        await _say(socket, hello | self._attempt)
        if self.payload is not None and self._chance(0.3):
            await self._send_result(socket)
        while True:
            try:
                async with asyncio.timeout(self._luck.uniform(0.001, 0.02)):
                    message = await socket.recv()
            except TimeoutError:
                if not await self._do_something(socket):
                    return
                continue
            if isinstance(message, bytes):
                assert self.payload is None, "a job while it has one"
                self.payload = message
            elif (said := json.loads(message))["code"] == 5:
                assert self._attempt, "told of an attempt unasked"
                self._attempt = {"job": said["job"], "attempt": said["attempt"]}
            else:
                await self._answer(socket)

    async def _answer(self, socket: ClientConnection) -> None:
        answer = READY if self.payload is None else BUSY
        if self._chance(0.3):
            self._late.append(answer)
        else:
            await self._say_late(socket)
            await _say(socket, answer)

    async def _do_something(self, socket: ClientConnection) -> bool:
        """Do one thing, and tell whether the connection is still there."""
        await self._say_late(socket)
        if self.payload is None:
            return True
        if self.is_patient or self._chance(0.6):
            await self._send_result(socket)
        elif self._chance(0.3):
            self.payload = None
            await _say(socket, {"code": 4, "info": "bad luck"})
        elif self._chance(0.3):
            # Unasked, and so perhaps across a question that is on its way.
            self.payload = None
            await _say(socket, READY)
        elif self._chance(0.5):
            socket.transport.abort()
            return False
        return True

    async def _send_result(self, socket: ClientConnection) -> None:
        payload, self.payload = self.payload, None
        assert payload is not None
        await socket.send(result_of(payload))

    async def _say_late(self, socket: ClientConnection) -> None:
        late, self._late = self._late, []
        for answer in late:
            await _say(socket, answer)

    def _chance(self, chance: float) -> bool:
        return not self.is_patient and self._luck.random() < chance


async def _say(socket: ClientConnection, message: dict[str, Any]) -> None:
    await socket.send(json.dumps(message))


def payload_of(key: str) -> bytes:
    """Return the payload of a job: of every third one, so large that it is a blob."""
    return key.encode() * (1 if int(key) % 3 else 70_000)


def result_of(payload: bytes) -> bytes:
    return b"result of " + payload


async def delete_some(house: HttpHouse, luck: Random) -> set[str]:
    """Delete one job in five, while all are worked on."""
    deleted = set()
    for key in luck.sample([f"{number}" for number in range(JOBS)], JOBS // 5):
        await asyncio.sleep(luck.uniform(0, 0.1))
        answer = await house.client.delete(f"/api/jobs/{key}")
        assert answer.status_code in {202, 404}, answer.text
        deleted.add(key)
    return deleted


@pytest.mark.parametrize("grace_us", [0, 300_000])
@pytest.mark.parametrize("seed", range(3))
def test_every_result_is_that_of_its_job(tmp_path: Path, seed: int, grace_us: int) -> None:
    async def check() -> None:
        luck, urls = Random(seed), ["ws://127.0.0.1:9"]
        workers = [Honest(urls, worker_id, Random(luck.random())) for worker_id in IDS]
        working = [asyncio.create_task(worker.work()) for worker in workers]
        settings: dict[str, Any] = {"ask_every_us": 100_000, "reconnect_grace_us": grace_us}
        async with open_grid(tmp_path, **settings) as house:
            changes: dict[str, Any] = {"crash_limit": 0, "interruption_limit": 0, "retries": 1_000}
            await declare(house, "jobs", restart_grace_us=1_000_000, **changes)
            for number in range(JOBS):
                await submit(house, payload_of(f"{number}"), key=f"{number}")
            urls.append(f"{house.socket_url}/api/worker")
            deleted = await delete_some(house, luck)
        async with open_grid(tmp_path, **settings) as house:
            urls.append(f"{house.socket_url}/api/worker")
            deleted |= await delete_some(house, luck)
            for worker in workers:
                worker.is_patient = True
            jobs = await all_ended(house, working)
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            assert len(jobs) == JOBS - len(deleted)
            for job in jobs:
                result = await house.client.get(f"/api/jobs/{job['key']}/result")
                assert result.content == result_of(payload_of(job["key"]))

    run(check())


async def all_ended(house: HttpHouse, working: list[asyncio.Task[None]]) -> list[dict[str, Any]]:
    async with asyncio.timeout(30):
        while True:
            jobs: list[dict[str, Any]] = (await house.client.get("/api/jobs")).json()
            for task in working:
                if task.done():
                    task.result()  # A worker never ends by itself.
            assert not any(job["status"] == FAILED for job in jobs)
            if all(job["status"] == DONE for job in jobs):
                return jobs
            await asyncio.sleep(0.02)

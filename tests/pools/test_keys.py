"""Many keys, a skewed load, and real processes that are killed: every call is answered once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackalope import DeliveryLimit, Jackalope
from tests.acceptance.harness import wait_until
from tests.pools.harness import PoolHouse

KEYS = [f"infra={number},ü/{number % 7}" for number in range(199)] + [""]
CALLS = 500
AT_ONCE = 60


@pytest.fixture
def house(tmp_path: Path) -> Iterator[PoolHouse]:
    delays = {"unbind_delay": "1s", "stop_delay": "1s", "shrink_delay": "1s"}
    house = PoolHouse(
        tmp_path, {"core": {"groups_max": 5, "workers_max": 2, "tasks_per_worker": 8, **delays}}
    )
    house.start()
    yield house
    house.stop()


@pytest.mark.feature("O15")
@pytest.mark.timeout(300)
def test_every_call_is_answered_once_and_nothing_is_left(house: PoolHouse) -> None:
    answered = asyncio.run(call_all(house))
    assert answered == CALLS
    wait_until(lambda: not house.workers(), "no worker is left", 60)


async def call_all(house: PoolHouse) -> int:
    rng = random.Random(8)
    app = Jackalope(house.address, timeout=120)
    weights = [1 / (rank + 1) for rank in range(len(KEYS))]
    keys = KEYS + rng.choices(KEYS, weights, k=CALLS - len(KEYS))
    rng.shuffle(keys)
    room = asyncio.Semaphore(AT_ONCE)
    answers = 0
    turns = {CALLS * part // 8: asyncio.Event() for part in range(1, 6)}

    async def call(number: int, key: str) -> None:
        nonlocal answers
        async with room:
            answer = await app.call("core", key, str(number).encode(), timeout=None)
        assert answer == f"{key}|{number}".encode()
        answers += 1
        if answers in turns:
            turns[answers].set()

    async with app, asyncio.TaskGroup() as group:
        for number, key in enumerate(keys):
            group.create_task(call(number, key))
        for part, turn in enumerate(turns.values(), 1):
            await turn.wait()
            if part == 3:
                await asyncio.to_thread(house.kill)
                await asyncio.to_thread(house.start)
            else:
                kill_one(house, rng)
    return answers


def kill_one(house: PoolHouse, rng: random.Random) -> None:
    workers = house.workers()
    if workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)


@pytest.mark.timeout(120)
def test_a_call_that_kills_its_workers_is_answered_and_listed(house: PoolHouse) -> None:
    asyncio.run(poison(house))


async def poison(house: PoolHouse) -> None:
    async with Jackalope(house.address) as app:
        with pytest.raises(DeliveryLimit) as caught:
            await app.call("core", "poisoned", b"die", timeout=60)
        assert caught.value.status == "delivery_limit"
        listed = [task async for task in app.tasks(queue="core", states=("dead",))]
        assert [(task.id, task.reason) for task in listed] == [(caught.value.task, "crashed")]
        assert await app.call("core", "sound", b"1", timeout=60) == b"sound|1"

"""Schedules and `kill -9`: a broker that is killed around its slots fires each of them once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

from jackalope import Jackalope
from jackalope.core.shapes.schedule import run_id, schedule_of
from jackalope.core.task import Options
from jackalope.wire.views import TaskView
from tests.client.harness import BrokerProcess

KILLS = 6


async def _tasks(app: Jackalope) -> list[TaskView]:
    return [view async for view in app.tasks(queue="q")]


async def _until(app: Jackalope, count: int) -> None:
    """Wait until the schedule has fired so many times."""
    async with asyncio.timeout(60):
        while True:
            view = await app.schedule_of("beat")
            if view.fired >= count:
                return
            await asyncio.sleep(0.05)


def test_each_slot_has_one_task_when_the_broker_is_killed(tmp_path: Path) -> None:
    broker, rng = BrokerProcess(tmp_path), random.Random(7)

    async def check() -> None:
        app = broker.app()
        await app.declare_schedule("beat", queue="q", task="t", every=1, catch_up="all")
        for number in range(KILLS):
            await _until(app, 2 * number + 1)
            # The next slot is up to a second away: it is killed before, in or after its batch.
            await asyncio.sleep(rng.random())
            broker.kill()
            broker.start()
        await _until(app, 2 * KILLS + 1)
        await app.pause_schedule("beat")
        view, tasks = await app.schedule_of("beat"), await _tasks(app)
        await app.close()
        found = [schedule_of_view(task) for task in tasks]
        counts = Counter(slot_us for _, slot_us in found)
        assert set(counts.values()) == {1}
        assert len(found) == view.fired
        slots = sorted(counts)
        # Those that passed while it was down are caught up on: no second is missing.
        assert {after - before for before, after in pairwise(slots)} == {1_000_000}
        assert view.missed == 0
        assert {task.id for task in tasks} == {run_id("default", "beat", slot) for slot in slots}

    broker.start()
    try:
        asyncio.run(check())
    finally:
        broker.kill()


def schedule_of_view(view: TaskView) -> tuple[str, int]:
    found = schedule_of(Options(headers=view.headers))
    assert found is not None
    return found

"""Lists while everything comes and goes: each is whole, and has all that was there throughout.

Queues are made and deleted and tasks are submitted and purged in one go, while every list is read
again and again. A list that is streamed has begun before it knows what its later pages name.
"""

import asyncio
from random import Random
from typing import Any
from uuid import UUID

import pytest

from jackalope.core.commands import Action, ActOnTasks, DeclareQueue, DeleteQueue, SubmitTasks
from jackalope.core.ids import TaskId
from jackalope.core.task import TaskSpec
from jackalope.task_ids import fresh_task_id
from tests.doors.harness import run
from tests.doors.http.gridlike.harness import open_grid
from tests.doors.http.harness import HttpHouse

#: More than two pages of a streamed list.
STAYING = 1_100
ROUNDS = 4
NAMES = ("a", "b", "c", "d")

LISTS = (
    "/api/jobs",
    "/api/jobs?status=pending",
    "/api/jobs?type=a",
    "/api/batches",
    "/api/batches/1",
    "/api/workers",
    "/api/v1/queues",
    "/api/v1/workers",
    "/api/v1/tasks?limit=1000",
    "/api/v1/stats",
)


async def come_and_go(house: HttpHouse, luck: Random) -> None:
    """Make and delete queues and tasks until cancelled."""
    ask = house.door.client_session.ask
    there: dict[str, tuple[TaskId, ...]] = {}
    while True:
        queue = luck.choice(NAMES)
        tasks = [TaskSpec(fresh_task_id(house.broker.now_us()), queue) for _ in range(20)]
        await ask(DeclareQueue(queue=queue))
        await ask(SubmitTasks(ref=0, tasks=tasks))
        there[queue] = there.get(queue, ()) + tuple(task.id for task in tasks)
        if luck.random() < 0.7:
            ids = there.pop(queue)
            for action in (Action.KILL, Action.PURGE):
                await ask(ActOnTasks(ref=0, action=action, tasks=ids))
            await ask(DeleteQueue(queue=queue))


async def read(house: HttpHouse, path: str) -> Any:
    answer = await house.client.get(path)
    allowed = {200, 404} if "type=" in path else {200}
    assert answer.status_code in allowed, (path, answer.text)
    return answer.json()


@pytest.mark.parametrize("seed", range(2))
def test_lists_are_whole_while_queues_and_tasks_come_and_go(seed: int) -> None:
    async def check() -> None:
        luck = Random(seed)
        async with open_grid() as house:
            ids = [fresh_task_id(house.broker.now_us()) for _ in range(STAYING)]
            tasks = [TaskSpec(task_id, "jobs") for task_id in ids]
            await house.door.client_session.ask(SubmitTasks(ref=0, tasks=tasks))
            staying = {str(UUID(bytes=task_id)) for task_id in ids}
            changing = asyncio.create_task(come_and_go(house, luck))
            for _ in range(ROUNDS):
                for path in luck.sample(LISTS, len(LISTS)):
                    await read(house, path)
                listed = [job["id"] for job in await read(house, "/api/jobs")]
                assert staying.issubset(listed)
                assert len(listed) == len(set(listed))
            assert not changing.done(), changing
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)

    run(check())

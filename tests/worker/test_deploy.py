"""A rolling deploy: workers with old and new code serve one queue, and nothing fails of it."""

from pathlib import Path

import msgspec

from jackalope.core.commands import SubmitTasks
from jackalope.core.lifecycle import State
from jackalope.core.task import Options, TaskSpec
from jackalope.task_ids import new_task_id
from jackalope.wire.messages import Query
from tests.worker.harness import NO_RETRY, House, in_house

OLD = "tests.worker.old_application:app"
WIDE = "tests.worker.wide_application:app"


def test_tasks_wait_for_a_worker_that_knows_them(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(name="old", application=OLD)
        await house.joined()
        once = Options(retry=NO_RETRY)
        new = await house.submit_many([("add_later", (n, 1)) for n in range(20)], options=once)
        both = await house.submit_many([("add", (n, 1)) for n in range(20)], options=once)
        assert [await house.value(task) for task in both] == list(range(1, 21))
        assert (await house.view(new[0])).state is State.READY
        assert (await house.explain(new[0]))[0].startswith(
            "name_unknown: no worker that serves its queue implements task 'add_later'"
        )
        house.worker(name="new")
        assert [await house.value(task) for task in new] == list(range(1, 21))
        mixed = await house.submit_many(
            [("add" if n % 2 else "add_later", (n, 1)) for n in range(200)], options=once
        )
        assert [await house.value(task) for task in mixed] == list(range(1, 201))
        view = await house.view(new[0])
        assert (view.attempts, view.failures) == (1, 0)

    in_house(story, tmp_path)


def test_calls_fit_the_workers_that_are_there(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async def accepts(*args: object) -> bool:
            payload = msgspec.msgpack.encode((args, {}))
            task = TaskSpec(new_task_id(), "default", name="add", payload=payload)
            answer = await house.client.request(SubmitTasks(0, [task]))
            return not answer["refused"]

        old = house.worker(name="old", application=OLD)
        await house.joined()
        await house.until(lambda: knows(house, 1))
        assert await accepts(1, 2)
        assert not await accepts(1, "two")
        assert not await accepts(1, 2, 3)
        house.worker(name="wide", application=WIDE)
        await house.until(lambda: knows(house, 2))
        assert await accepts(1, 2)
        assert await accepts(1, 2, 3)
        old.terminate()
        assert await house.exit_code(old) == 0
        await house.until(lambda: knows(house, 1))
        assert not await accepts(1, 2)
        assert await accepts(1, 2, 3)

    async def knows(house: House, versions: int) -> bool:
        found = await house.client.request(Query(0, "contracts", {"name": "add"}))
        return [len(each["versions"]) for each in found] == [versions]

    in_house(story, tmp_path)


def test_worker_with_one_function_takes_tasks_without_a_name(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(name="old", application=OLD)
        task = await house.submit("", options=Options(retry=NO_RETRY))
        ended = await house.end(task)
        assert ended.error is not None
        assert ended.error.type.endswith("DecodeFailed")  # It was called, with no arguments.

    in_house(story, tmp_path)

"""Tasks that spawn others and wait for them: no slot is held meanwhile, and nothing runs twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackalope import Jackalope, TaskFailed, as_completed, current, gather
from jackalope.worker.attempt import Finished
from jackalope.worker.workload import RESTING_MAX
from tests.worker.application import is_marked, mark
from tests.worker.harness import House, in_house
from tests.worker.test_workload import Stage, on_stage

WAIT_S = 60.0


class Family:
    """An application whose tasks have children, and how often each of those ran."""

    def __init__(self) -> None:
        self.app = app = Jackalope.embedded()
        self.runs: Counter[Any] = Counter()

        @app.task
        async def square(number: int) -> int:
            self.runs[number] += 1
            return number * number

        @app.task
        def square_in_thread(number: int) -> int:
            self.runs[number] += 1
            return number * number

        @app.task
        async def squares(count: int) -> list[int]:
            context = current()
            return await gather([await context.spawn(square, number) for number in range(count)])

        @app.task
        def squares_in_thread(count: int) -> int:
            context = current()
            spawned = [app.sync(context.spawn(square_in_thread, n)) for n in range(count)]
            return sum(app.sync(handle.result()) for handle in spawned)

        @app.task
        async def fibonacci(number: int) -> int:
            if number < 2:
                return number
            context, total = current(), 0
            handles = [await context.spawn(fibonacci, number - back) for back in (1, 2)]
            async for handle in as_completed(handles):
                total += await handle.result()
            return total

        self.squares, self.fibonacci = squares, fibonacci
        self.squares_in_thread = squares_in_thread
        self._have_trouble(square)

    def _have_trouble(self, square: Any) -> None:
        app = self.app

        @app.task(retries=1, retry_delay=0)
        async def forgetful(count: int) -> int:
            """Fail once, when all the children have run."""
            context = current()
            total: int = sum(
                [await (await context.spawn(square, n % 2)).result() for n in range(count)]
            )
            if context.attempt == 1:
                raise RuntimeError("forgot everything")
            return total

        @app.task(retries=0)
        async def moody(name: str) -> int:
            self.runs[name] += 1
            if self.runs[name] == 1:
                raise ValueError("not in the mood")
            return self.runs[name]

        @app.task(retries=1, retry_delay=0)
        async def patient() -> int:
            mood: int = await (await current().spawn(moody, "moody")).result()
            return mood

        self.forgetful, self.patient = forgetful, patient


@pytest.fixture
def family() -> Iterator[Family]:
    family = Family()
    family.app.work(concurrency=1)
    yield family
    family.app.sync.close()
    family.app.stop()


@pytest.mark.feature("T22")
def test_one_slot_is_enough_for_a_parent_and_its_children(family: Family) -> None:
    assert family.app.sync(family.squares.run(5), WAIT_S) == [0, 1, 4, 9, 16]


def test_one_slot_is_enough_for_parents_that_block(family: Family) -> None:
    assert family.app.sync(family.squares_in_thread.run(5), WAIT_S) == 30


def test_one_slot_is_enough_for_a_family_tree(family: Family) -> None:
    assert family.app.sync(family.fibonacci.run(7), WAIT_S) == 13


def test_a_parent_that_is_tried_again_finds_its_children(family: Family) -> None:
    assert family.app.sync(family.forgetful.run(6), WAIT_S) == 3
    # The same arguments in one attempt are different children; in the next they are the same.
    assert family.runs == {0: 3, 1: 3}


def test_a_child_that_failed_is_tried_again_with_its_parent(family: Family) -> None:
    assert family.app.sync(family.patient.run(), WAIT_S) == 2
    assert family.runs == {"moody": 2}


@pytest.mark.feature("T29")
def test_killing_a_parent_kills_its_children(tmp_path: Path) -> None:
    app = Jackalope.embedded()

    @app.task
    async def for_ever(begun: str) -> None:
        mark(begun)
        await asyncio.Event().wait()

    @app.task
    async def parent(begun: str) -> None:
        await (await current().spawn(for_ever, begun)).result()

    app.work(concurrency=1)
    try:
        begun = tmp_path / "begun"
        handle = app.sync(parent.submit(str(begun)))
        app.sync(until(str(begun)))
        app.sync(handle.kill())
        with pytest.raises(TaskFailed, match="killed"):
            app.sync(handle.result(WAIT_S))
        [child] = app.sync(ended_children(app, handle))
        assert child == "killed"
    finally:
        app.sync.close()
        app.stop()


async def until(path: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_marked(path):  # noqa: ASYNC110  another thread makes it
            await asyncio.sleep(0.01)


async def ended_children(app: Jackalope, parent: Any) -> list[str]:
    children = [view async for view in app.tasks(parent=parent.id)]
    return [str(await app.handle(child.id).wait(WAIT_S)) for child in children]


def test_a_task_in_a_process_gives_its_slot_back_while_it_waits(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(concurrency=1)
        rest, go = tmp_path / "rest", tmp_path / "go"
        resting = await house.submit("isolated_rest", str(rest), str(go))
        other = await house.submit("touch", str(go))
        assert await house.value(other) == "touched"
        assert await house.value(resting) == "rested"

    in_house(story, tmp_path / "data")


def test_what_rests_needs_no_slot_and_each_rest_ends() -> None:
    async def story(stage: Stage) -> None:
        changes = []
        workload = stage.workload
        workload.on_slots_changed = lambda: changes.append(workload.slots)
        await stage.assign(2)
        first, second = stage.puppet.runs[0], workload.attempts[1]
        assert workload.slots == 1
        assert not second.is_running
        first.listener.rested(first, is_resting=True)
        first.listener.rested(first, is_resting=True)
        await stage.settle()
        assert (workload.slots, second.is_running, changes) == (2, True, [2])
        first.listener.rested(first, is_resting=False)
        await stage.settle()
        assert workload.slots == 2
        first.listener.rested(first, is_resting=False)
        await stage.settle()
        assert (workload.slots, changes) == (1, [2, 1])
        first.listener.rested(first, is_resting=True)
        await stage.settle()
        await stage.end(Finished(b""))
        assert (workload.slots, changes) == (1, [2, 1, 2, 1])
        first.listener.rested(first, is_resting=False)  # Too late to matter.
        await stage.settle()
        assert workload.slots == 1

    on_stage(story, concurrency=1)


def test_only_so_many_slots_are_given_away() -> None:
    async def story(stage: Stage) -> None:
        await stage.assign(RESTING_MAX + 1)
        for attempt in stage.workload.attempts[:RESTING_MAX]:
            attempt.listener.rested(attempt, is_resting=True)
        await stage.settle()
        slots = 2 * RESTING_MAX + 1
        assert stage.workload.slots == slots
        last = stage.workload.attempts[-1]
        last.listener.rested(last, is_resting=True)
        await stage.settle()
        assert stage.workload.slots == slots

    on_stage(story, concurrency=RESTING_MAX + 1)

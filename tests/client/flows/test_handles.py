"""Flows that are held by their submitter: open groups, actions, compensation and views."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jackalope import ConfigError, Flow, FlowHandle, Jackalope, Rejected, State, TaskFailed, group
from jackalope.testing import embedded

PATIENCE_S = 30
app = Jackalope("jackalope://nowhere.invalid")
undone: list[Any] = []


@app.task(retries=0)
def step(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("fail"):
        raise ValueError(value)
    return value


@app.task(retries=0)
def flaky(path: str) -> str:
    if not Path(path).exists():
        raise FileNotFoundError(path)
    return "found"


@app.task
async def join(values: list[Any]) -> list[Any]:
    return values


@app.task
def undo(value: Any, reason: str = "") -> None:
    undone.append((value, reason))


@app.task
async def grow(flow: str, depth: int) -> int:
    """Add two steps to the group that it is a member of, until it is deep enough."""
    if depth:
        handle = app.flow_handle(flow)
        await handle.add("pages", grow.step(flow, depth - 1), grow.step(flow, depth - 1))
    return depth


@pytest.fixture(autouse=True)
def _running() -> Any:
    undone.clear()
    with embedded(app):
        yield


def test_nodes_are_added_while_it_runs() -> None:
    async def check() -> None:
        async with app:
            pages = group(step.step(1), name="pages", open=True)
            handle = await Flow("open", pages >> join.step()).submit()
            first, second = await handle.add(pages, step.step(2), step.step(3))
            assert await first.result(PATIENCE_S) == 2
            [again] = await app.flow_handle(handle.id).add("pages", step.step(2))
            assert again.id == first.id  # By what it does.
            view = await handle.view()
            assert (view.total, view.groups[0].is_open) == (4, True)
            await handle.close(pages)
            assert await handle.result(PATIENCE_S) == [1, 2, 3]
            assert second == handle.node(_step_of(handle, 3))
            with pytest.raises(Rejected):
                await handle.add(pages, step.step(4))
            with pytest.raises(Rejected):
                await handle.close("nobody")
            with pytest.raises(ConfigError):
                await handle.add(group(step.step(1)), step.step(5))
            with pytest.raises(ConfigError):
                handle.node(step.step(1))

    asyncio.run(check())


def _step_of(handle: FlowHandle[Any], value: int) -> Any:
    return next(each for each in handle.names if each.args == (value,))


def test_a_task_of_the_flow_adds_to_it() -> None:
    async def check() -> None:
        async with app:
            flow_id = "0193b5c27d1e7c3a9f002b1c3d4e5f60"
            pages = group(grow.step(flow_id, 3), name="pages", open=True)
            handle = await Flow("grow", pages >> join.step(), id=flow_id).submit()
            async with asyncio.timeout(PATIENCE_S):
                while (await handle.view()).total < 1 + 1 + 2 + 4 + 8:  # noqa: ASYNC110  of others
                    await asyncio.sleep(0.05)
            await handle.close("pages")
            found = await handle.result(PATIENCE_S)
            assert sorted(found) == sorted([3, 2, 2] + [1] * 4 + [0] * 8)

    asyncio.run(check())


def test_a_flow_is_submitted_once() -> None:
    async def check() -> None:
        async with app:
            flow_id = "0193b5c27d1e7c3a9f002b1c3d4e5f61"
            flow = Flow("once", step.step(1) >> join.step([2]), id=flow_id)
            await flow.submit()
            handle = await flow.submit()
            assert await handle.result(PATIENCE_S) == [2]
            with pytest.raises(Rejected) as caught:
                await Flow("once", step.step(7), id=flow_id).submit()
            assert caught.value.code == "id_conflict"

    asyncio.run(check())


def test_a_failed_flow_is_undone_and_says_why() -> None:
    async def check() -> None:
        async with app:
            trip = (
                step.step("flight").compensate_with(undo.step(reason="no car"))
                >> step.step("hotel").compensate_with(undo.step())
                >> step.step("fail: no car")
            )
            handle = await Flow("trip", trip).submit()
            with pytest.raises(TaskFailed, match="no car"):
                await handle.result(PATIENCE_S)
            assert undone == [("hotel", ""), ("flight", "no car")]
            view = await handle.view()
            assert (view.state, view.dead) == (State.DEAD, 1)
            assert {node.compensates for node in view.nodes} == {"", "step", "step-2"}

    asyncio.run(check())


def test_fail_fast_kills_the_rest() -> None:
    async def check() -> None:
        async with app:
            slow = step.options(delay=3600).step("later")
            parts = group(step.step("fail"), slow)
            handle = await Flow("fast", parts, on_failure="fail_fast").submit()
            assert await handle.wait(PATIENCE_S) is State.DEAD
            assert await handle.node(slow).wait(PATIENCE_S) is State.KILLED

    asyncio.run(check())


def test_a_flow_is_killed_and_retried(tmp_path: Path) -> None:
    async def check() -> None:
        async with app:
            mark = tmp_path / "mark"
            first, second = step.step(1), flaky.step(str(mark))
            handle = await Flow("retry", join.step([first.result, second.result])).submit()
            assert await handle.wait(PATIENCE_S) is State.DEAD
            mark.touch()
            await handle.retry()
            assert await handle.result(PATIENCE_S) == [1, "found"]
            assert (await handle.node(first).status()).attempts == 1
            later = step.options(delay=3600).step("later")
            handle = await Flow("kill", later >> join.step([1])).submit()
            await handle.kill()
            assert await handle.wait(PATIENCE_S) is State.KILLED

    asyncio.run(check())


def test_a_paused_flow_goes_on_when_played() -> None:
    async def check() -> None:
        async with app:
            first = step.options(held=True).step(1)
            handle = await Flow("pause", first >> join.step([1])).submit()
            await handle.pause()
            assert (await handle.status()).state is State.PAUSED
            await handle.play()
            await handle.node(first).play()
            assert await handle.result(PATIENCE_S) == [1]

    asyncio.run(check())


def test_flows_are_listed() -> None:
    async def check() -> None:
        async with app:
            for name in ("one", "two"):
                await Flow(name, step.step(1)).run(PATIENCE_S)
            await step.run(1)
            assert [view.name async for view in app.flows()] == ["two", "one"]
            assert [view.name async for view in app.flows(name="one")] == ["one"]
            assert [view.done async for view in app.flows(states=["succeeded"])] == [1, 1]

    asyncio.run(check())


def test_large_payloads_go_before_the_flow() -> None:
    async def check() -> None:
        async with app:
            large = "x" * 3_000_000
            steps = [step.step(f"{n}{large}") for n in range(3)]
            result = await Flow("large", group(steps)).run(PATIENCE_S)
            assert [len(each) for each in result] == [3_000_001] * 3

    asyncio.run(check())


def test_a_flow_without_steps() -> None:
    with pytest.raises(ConfigError, match="has no steps"):
        app.sync(Flow("empty").submit())
    with pytest.raises(Rejected, match="has no node"):
        app.sync(Flow("empty", group([], name="g") >> join.step()).submit())

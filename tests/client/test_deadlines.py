"""One timer for many futures."""

import asyncio

import pytest

from jackalope.client.deadlines import Deadlines, Within
from jackalope.core.ids import TaskId
from jackalope.errors import Timeout
from tests.client.peer import run

TASK = TaskId(bytes(16))


def late(_: TaskId, timeout_s: float) -> Timeout:
    return Timeout(f"late after {timeout_s:g} s")


def test_only_what_is_not_done_in_time_fails() -> None:
    async def test() -> None:
        loop, deadlines = asyncio.get_running_loop(), Deadlines(late)
        futures = [deadlines.add(loop.create_future(), 0.02, TASK) for _ in range(3)]
        patient = deadlines.add(loop.create_future(), 60, TASK)
        forever = deadlines.add(loop.create_future(), None, TASK)
        futures[1].set_result("in time")
        for future in (futures[0], futures[2]):
            with pytest.raises(Timeout, match=r"late after 0\.02 s"):
                await future
        assert await futures[1] == "in time"
        assert not patient.done()
        assert not forever.done()
        again = deadlines.add(loop.create_future(), 0.02, TASK)
        with pytest.raises(Timeout):
            await again

    run(test())


def test_what_is_done_is_not_kept() -> None:
    async def test() -> None:
        loop, deadlines = asyncio.get_running_loop(), Deadlines(late)
        for _ in range(1_000):
            deadlines.add(loop.create_future(), 60, TASK).set_result(None)
        assert sum(map(len, deadlines._by_timeout.values())) == 1

    run(test())


def test_own_timeouts_of_what_is_waited_for_pass_through() -> None:
    async def test() -> None:
        with pytest.raises(TimeoutError, match="theirs"):
            async with Within(5, "ours"):
                raise TimeoutError("theirs")
        async with Within(None, "never"):
            await asyncio.sleep(0)
        with pytest.raises(Timeout, match=r"it did not come within 0 s"):
            async with Within(0, lambda: "it did not come"):
                await asyncio.sleep(10)

    run(test())

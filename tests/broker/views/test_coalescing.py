"""Sharing: who asks the same before it is asked has the same answer, and nobody an old one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from jackalope.broker.views.lists import Shared


class Desk:
    """Does jobs one after the other, when it is told to, and counts them."""

    def __init__(self) -> None:
        self.done = 0
        self._open = asyncio.Event()

    def work(self) -> None:
        """Begin with what waits."""
        self._open.set()

    async def look(self, begin: Callable[[], None]) -> int:
        """Return which job of the desk this is, when the desk is open."""
        await self._open.wait()
        begin()
        self.done += 1
        return self.done


def run(check: Callable[[Shared[int], Desk], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await check(Shared(), Desk())

    asyncio.run(whole())


async def ask(shared: Shared[int], desk: Desk, what: str) -> asyncio.Task[int]:
    """Ask, and return while it waits."""
    asking = asyncio.create_task(shared.ask(what, desk.look))
    await asyncio.sleep(0)
    return asking


def test_the_same_is_asked_once() -> None:
    async def check(shared: Shared[int], desk: Desk) -> None:
        same = [await ask(shared, desk, "a") for _ in range(3)]
        other = await ask(shared, desk, "b")
        desk.work()
        answers = {await each for each in same}
        assert answers | {await other} == {1, 2}
        assert len(answers) == 1
        assert desk.done == 2

    run(check)


def test_who_comes_after_it_was_asked_has_a_new_answer() -> None:
    async def check(shared: Shared[int], desk: Desk) -> None:
        late: list[asyncio.Task[int]] = []

        async def look(begin: Callable[[], None]) -> int:
            begin()
            # The question is being answered: from here on nobody may join it.
            late.append(asyncio.create_task(shared.ask("a", desk.look)))
            await asyncio.sleep(0.01)
            return 0

        desk.work()
        assert await shared.ask("a", look) == 0
        assert await late[0] == 1

    run(check)


def test_who_goes_takes_nothing_away() -> None:
    async def check(shared: Shared[int], desk: Desk) -> None:
        first, second = await ask(shared, desk, "a"), await ask(shared, desk, "a")
        first.cancel()
        await asyncio.sleep(0)
        desk.work()
        assert await second == 1

    run(check)


def test_those_who_share_go_on_one_after_the_other() -> None:
    async def check(shared: Shared[int], desk: Desk) -> None:
        rounds = 0
        went: list[int] = []

        async def count() -> None:
            nonlocal rounds
            while len(went) < 5:
                rounds += 1
                await asyncio.sleep(0)

        async def one() -> None:
            await shared.ask("a", desk.look)
            went.append(rounds)

        desk.work()
        await asyncio.gather(count(), *(one() for _ in range(5)))
        assert desk.done == 1
        assert len(set(went)) == 5

    run(check)


def test_an_error_is_everybodys_and_is_not_kept() -> None:
    async def check(shared: Shared[int], desk: Desk) -> None:
        async def refuse(_: Callable[[], None]) -> int:
            raise ValueError("no")

        askers = [asyncio.create_task(shared.ask("a", refuse)) for _ in range(2)]
        for asking in askers:
            with pytest.raises(ValueError, match="no"):
                await asking
        desk.work()
        assert await shared.ask("a", desk.look) == 1

    run(check)

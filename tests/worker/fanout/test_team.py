"""Maps of one fan-out after another, and loops over them that are left early."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from jackalope import ConfigError, Jackalope, JackalopeError, current


@pytest.fixture
def app() -> Iterator[Jackalope]:
    app = Jackalope.embedded()
    yield app
    app.sync.close()
    app.stop()


async def _numbers() -> AsyncIterator[int]:
    for number in range(1_000):
        yield number


@pytest.mark.parametrize("is_async_items", [False, True], ids=["items", "async items"])
def test_next_map_after_a_loop_that_is_left_early(app: Jackalope, is_async_items: bool) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    async def owner() -> list[int]:
        seen = []
        async with current().helpers(max=0) as helpers:
            for _ in range(5):
                items = _numbers() if is_async_items else range(1_000)
                async for result in helpers.map(double, items):
                    seen.append(result)
                    break
            seen += [result async for result in helpers.map(double, range(3))]
        return seen

    @app.task
    def plain_owner() -> list[int]:
        seen = []
        with current().helpers(max=0) as helpers:
            for _ in range(5):
                for result in helpers.map(double, range(1_000)):
                    seen.append(result)
                    break
            seen += list(helpers.map(double, range(3)))
        return seen

    app.work(2)
    assert app.sync(owner.run(), timeout=30) == [0, 0, 0, 0, 0, 0, 2, 4]
    assert app.sync(plain_owner.run(), timeout=30) == [0, 0, 0, 0, 0, 0, 2, 4]


def test_maps_that_are_not_over(app: Jackalope) -> None:
    """One that nobody reads is forgotten; one that is being read is not."""

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    async def owner() -> list[str]:
        errors = []
        async with current().helpers(max=0) as helpers:
            unread = helpers.map(double, range(3))
            reading = aiter(helpers.map(double, range(1_000)))
            await anext(reading)
            try:
                helpers.map(double, range(3))
            except ConfigError as error:
                errors.append(str(error))
            del reading
            try:
                [result async for result in unread]
            except JackalopeError as error:
                errors.append(str(error))
        return errors

    app.work(2)
    first, second = app.sync(owner.run(), timeout=30)
    assert "is not over" in first
    assert "was called since" in second

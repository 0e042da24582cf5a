"""Paces of tasks: what a user may write, with a broker on virtual time and with a real one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jackalope import (
    ConfigError,
    Debounce,
    Handle,
    Jackalope,
    PartlyRejected,
    Rejected,
    Replace,
    State,
    Throttle,
)
from jackalope.core.shapes.pace import Pace, Pacing
from jackalope.core.task import NO_OPTIONS
from jackalope.testing import VirtualBroker

app = Jackalope("jackalope://nowhere.invalid")
ran: list[object] = []


@app.task(queue="search", pace=Debounce(quiet=5, at_most=12, key=("user", "lang")))
def index(user: int, text: str, lang: str = "en") -> None:
    ran.append((user, text, lang))


@app.task(queue="mail", pace=Throttle(per=60, key=["user"]))
def remind(user: str) -> None:
    ran.append(user)


@app.task(queue="mail", pace=Throttle(per=60, drop=True))
def digest(text: str) -> None:
    ran.append(text)


@app.task(queue="pictures", pace=Replace(key=("name",)))
def render(name: str, size: int) -> None:
    ran.append((name, size))


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


# On virtual time.


def test_a_debounced_task_runs_when_it_is_quiet() -> None:
    broker = VirtualBroker()
    first = broker.submit(index, 7, "a")
    broker.advance(4)
    assert broker.submit(index, user=7, text="b").id == first.id
    assert broker.submit(index, 8, "other").id != first.id
    assert broker.submit(index, 7, "c", lang="de").id != first.id
    assert ran == []
    broker.advance(4)
    broker.restart()
    assert broker.submit(index, 7, "d").id == first.id
    broker.advance(4)
    assert ran == [(8, "other", "en"), (7, "c", "de"), (7, "d", "en")]
    assert first.state is State.SUCCEEDED


def test_a_throttled_task_is_refused_or_dropped() -> None:
    broker = VirtualBroker()
    broker.submit(remind, "ada")
    broker.submit(remind, "bob")
    with pytest.raises(Rejected, match="accepted in 1m") as caught:
        broker.submit(remind, "ada")
    assert (caught.value.code, caught.value.retry_after_us) == ("throttled", 60_000_000)
    kept = broker.submit(digest, "one")
    broker.run()
    assert broker.submit(digest, "two").id == kept.id
    broker.advance(60)
    broker.submit(remind, "ada")
    broker.submit(digest, "three")
    broker.run()
    assert sorted(map(str, ran)) == ["ada", "ada", "bob", "one", "three"]


def test_a_queued_task_is_replaced() -> None:
    broker = VirtualBroker()
    first = broker.submit(render, "cat", 1)
    assert broker.submit(render, "cat", size=2).id == first.id
    broker.submit(render, "dog", 3)
    broker.run()
    assert ran == [("cat", 2), ("dog", 3)]
    assert broker.submit(render, "cat", 4).id != first.id


# With a real broker.


async def until_ready(handle: Handle[Any]) -> None:
    async with asyncio.timeout(30):
        while True:
            if (await handle.status()).state is State.READY:
                return
            await asyncio.sleep(0.05)


def test_many_at_once_and_a_pace_of_ones_own(tmp_path: Path) -> None:
    real = Jackalope.embedded(tmp_path)

    @real.task(queue="q")
    async def work(number: int) -> int:
        return number

    async def check() -> None:
        one = work.options(pace=Replace(key=("number",)))
        handles = await one.submit_many([(1,), (2,), (1,)])
        assert handles[0].id == handles[2].id != handles[1].id
        throttled = work.options(pace=Throttle(per=60))
        with pytest.raises(PartlyRejected) as caught:
            await throttled.submit_many([(1,), (2,)])
        assert [each.code for each in caught.value.refused.values()] == ["throttled"]
        pace = Debounce(quiet=0.2, key="mine")
        own = [await real.submit("raw", body, pace=pace) for body in (b"a", b"b")]
        assert own[0].id == own[1].id
        why = await own[0].explain()
        assert {cause.why for cause in why.causes} == {"debounced", "replaced"}
        await until_ready(own[0])
        assert [entry.what for entry in await own[0].history()] == ["submit", "replaced", "due"]

    try:
        real.sync(check())
    finally:
        real.stop()
        real.sync.close()


# What may be written.


def pace_of(task: Any, *args: Any, **kwargs: Any) -> Pace | None:
    return (task._spec(task.plan, args, kwargs).options or NO_OPTIONS).pace


def test_the_key_is_made_of_arguments() -> None:
    assert pace_of(index, 7, "a") == Pace(Pacing.DEBOUNCE, '[7,"en"]', 5_000_000, 12_000_000)
    assert pace_of(digest, "a") == Pace(Pacing.THROTTLE, "", 60_000_000, drops=True)
    long = pace_of(render, "x" * 1_000, 1)
    assert long is not None
    assert len(long.key) == 64
    assert long == pace_of(render, "x" * 1_000, 2)
    assert pace_of(render.options(pace=Replace("all")), "cat", 1) == Pace(Pacing.REPLACE, "all")


def test_arguments_of_any_name() -> None:
    @app.task(name="any", pace=Replace(key=("b",)))
    def anything(*a: int, **others: int) -> None: ...

    pace = pace_of(anything, 1, b=2, c=3)
    assert pace is not None
    assert pace.key == "[2]"


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"pace": Debounce(quiet=0)}, ["pace: quiet: must be more than 0"]),
        ({"pace": Debounce(quiet=5, at_most=4)}, ["at_most: must be at least as long"]),
        ({"pace": Throttle(per=-1)}, ["pace: per: must not be negative"]),
        ({"pace": "debounce"}, ["pace: must be a Debounce, Throttle or Replace, not"]),
        (
            {
                "pace": Debounce(quiet=0, at_most=-1, key=("user", "nobody")),
                "same": "cached",
                "alias": "a",
                "delay": 5,
                "depends_on": ["x"],
            },
            [
                "key: no argument 'nobody'; there are user",
                "quiet: must be more",
                "at_most: must not be negative",
                "same: cannot go with debounce",
                "alias: cannot go",
                "delay: cannot go",
                "depends_on: cannot go",
            ],
        ),
        ({"pace": Replace(key=(1,))}, ["pace: key: must be text"]),  # type: ignore[arg-type]
        ({"pace": Replace(key="k" * 257)}, ["pace: key: must have 0 to 256"]),
        ({"pace": Throttle(per=1, drop="yes")}, ["drop: must be True"]),  # type: ignore[arg-type]
    ],
)
def test_all_problems_are_listed_where_a_task_is_defined(
    choices: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:

        @app.task(**choices)
        def wrong(user: int) -> None: ...

    assert [word for word in words if word not in str(caught.value)] == []


def test_names_of_arguments_need_a_function() -> None:
    with pytest.raises(ConfigError, match="key: must be text where no arguments are known"):
        app.sync(app.submit("q", pace=Replace(key=("user",))))
    with pytest.raises(ConfigError, match="no argument 'nobody'"):
        render.options(pace=Replace(key=("nobody",)))


def test_a_schedule_has_no_pace() -> None:
    with pytest.raises(ConfigError, match="cannot have pace"):
        app.schedule("@daily", args=["ada"])(remind)

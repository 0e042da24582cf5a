"""Limits of tasks: what a user may write, on virtual time, and with a real broker and worker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from jackalope import ConfigError, Jackalope, Limit, State, Throttled
from jackalope.testing import VirtualBroker
from jackalope.wire.views import KeyLimitView

app = Jackalope("jackalope://nowhere.invalid")
ran: list[object] = []
calls: list[int] = []


@app.task(queue="mail", name="send", limits=[Limit(key="user", rate=2, per="1m")])
def send(user: int, text: str) -> None:
    ran.append((user, text))


@app.task(queue="api", name="fetch", limits=Limit(key="host", concurrency=5, name="hosts"))
def fetch(host: str) -> str:
    calls.append(1)
    if len(calls) == 1:
        raise Throttled("host", retry_after=30)
    return host


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()
    calls.clear()


def test_an_argument_by_place_is_limited_by_its_value() -> None:
    broker = VirtualBroker()
    broker.declare_limits(app)
    for text in "abc":
        broker.submit(send, 1, text)
    broker.submit(send, 2, "other")
    broker.run()
    assert sorted(ran, key=str) == [(1, "a"), (1, "b"), (2, "other")]
    broker.advance(60)
    assert (1, "c") in ran


def test_a_throttled_attempt_closes_its_key_and_is_no_failure() -> None:
    broker = VirtualBroker()
    broker.declare_limits(app)
    first = broker.submit(fetch, "a.example")
    broker.run()
    same, other = broker.submit(fetch, "a.example"), broker.submit(fetch, "b.example")
    broker.run()
    assert (first.state, same.state, other.state) == (State.READY, State.READY, State.SUCCEEDED)
    broker.advance(31)
    assert (first.state, same.state) == (State.SUCCEEDED, State.SUCCEEDED)
    assert first.result() == "a.example"


def test_limits_have_names_and_all_settings() -> None:
    assert app.limited["send:user"] == {
        "queue": "",
        "task": "send",
        "keys": ("user",),
        "concurrency": -1,
        "rate": 2,
        "per_us": 60_000_000,
        "burst": 0,
        "cost": 1,
        "cost_key": "",
        "on_full": "wait",
    }
    assert app.limited["hosts"]["concurrency"] == 5


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([Limit()], "give concurrency, rate, or both"),
        ([Limit(rate=1, per="soon")], "per: "),
        ([Limit(rate=1, per="365d")], "per: must be 1us to 31d, got 365d"),
        ([Limit(rate=1, cost="")], "cost: must have 1"),
        ([Limit(concurrency=1, key="")], "key: must have 1"),
        ([Limit(concurrency=1, key=cast("str", 5))], "key: several keys"),
        ([Limit(concurrency=1, name=cast("str", 5))], "name: must be text, not int"),
        ([Limit(rate=2, cost=3)], "raise burst"),
        ([Limit(concurrency=-2)], "concurrency: must be"),
        ([Limit(concurrency=1, key="nobody")], "no argument 'nobody'; there are user"),
        ([Limit(concurrency=1), Limit(concurrency=2)], "two are called"),
        (["user"], "each must be a Limit, not"),
    ],
)
def test_what_is_wrong_is_said_where_a_task_is_defined(limits: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:

        @app.task(limits=limits)
        def wrong(user: int) -> None: ...

    assert words in str(caught.value)


def test_no_key_is_one_count_of_all() -> None:
    assert Limit(concurrency=1, key=None).settings() == Limit(concurrency=1).settings()
    assert Limit(concurrency=1).keys == ()


def test_throttled_wants_one_time() -> None:
    with pytest.raises(TypeError, match="until must be a datetime, not int"):
        Throttled("user", until=cast("datetime", 5))
    with pytest.raises(TypeError, match="one of retry_after and until"):
        Throttled("user")
    with pytest.raises(ValueError, match="no time zone"):
        Throttled("user", until=datetime(2030, 1, 1))  # noqa: DTZ001
    soon = Throttled("user", until=datetime.now(UTC) + timedelta(seconds=60))
    assert 50_000_000 < soon.retry_after_us <= 60_000_000


def test_a_worker_declares_the_limits_of_its_application(tmp_path: Path) -> None:
    real = Jackalope.embedded(tmp_path)
    tried: list[str] = []
    try:

        @real.task(queue="q", name="work", limits=[Limit(key="user", concurrency=1)])
        def work(user: str) -> int:
            tried.append(user)
            if len(tried) == 1:
                raise Throttled("user", retry_after=0.2)
            return len(tried)

        async def declared() -> list[KeyLimitView]:
            async with asyncio.timeout(30):
                while True:
                    if views := await real.key_limits():
                        return views
                    await asyncio.sleep(0.02)

        real.work(concurrency=2)
        [view] = real.sync(declared())
        assert (view.name, view.settings.keys, view.settings.task) == (
            "work:user",
            ("user",),
            "work",
        )
        handle = real.sync(work.submit("ada"))
        assert real.sync(handle.result(timeout=30)) == 2
        assert real.sync(handle.status()).failures == 0
        real.sync(real.declare_limit("all", Limit(rate=10, per=60), queue="q"))
        assert [each.name for each in real.sync(real.key_limits())] == ["all", "work:user"]
        real.sync(real.delete_limit("all"))
        assert [each.name for each in real.sync(real.key_limits())] == ["work:user"]
    finally:
        real.stop()
        real.sync.close()

"""The clock goes on from where it was before a restart, unless it was wrong then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic_ns, sleep, time_ns

import pytest
from structlog.testing import capture_logs

from jackalope.broker.access import THE_BROKER
from jackalope.broker.clock import Clock, wrong_clocks
from jackalope.broker.service import Broker
from jackalope.core.commands import DeclareQueue
from jackalope.core.durations import HOUR, MINUTE, SECOND
from jackalope.storage import Storage

Patch = pytest.MonkeyPatch


def test_it_goes_on_from_a_time_that_was_reached() -> None:
    ticking = Clock()
    reached_us = ticking.now_us() + 30 * SECOND
    assert ticking.raise_to(reached_us)
    now_us = ticking.now_us()
    assert reached_us <= now_us < reached_us + 10 * SECOND
    assert ticking.now_us() >= now_us


def test_a_time_that_is_over_changes_nothing() -> None:
    ticking = Clock()
    before_us = ticking.now_us()
    assert ticking.raise_to(before_us - HOUR)
    assert ticking.raise_to(0)
    assert before_us <= ticking.now_us() < before_us + 10 * SECOND


def test_a_clock_that_was_wrong_is_not_followed() -> None:
    ticking = Clock()
    before_us = ticking.now_us()
    assert not ticking.raise_to(before_us + 2 * MINUTE)
    assert ticking.now_us() < before_us + MINUTE


async def record(folder: Path, queue: str) -> int:
    """Run a broker that makes a record, and return when that was made."""
    broker = Broker(Storage.open(folder))
    await broker.start()
    broker.post(DeclareQueue(queue=queue), THE_BROKER)
    made_us = await broker.read(lambda engine: engine.core.book.counters.latest_us)
    await broker.stop()
    return made_us


@pytest.mark.parametrize(("back_us", "is_followed"), [(30 * SECOND, False), (HOUR, True)])
def test_a_broker_starts_with_a_clock_that_is_behind(
    tmp_path: Path, monkeypatch: Patch, back_us: int, *, is_followed: bool
) -> None:
    first_us = asyncio.run(record(tmp_path, "first"))
    monkeypatch.setattr("jackalope.broker.clock.time_ns", lambda: time_ns() - back_us * 1_000)
    with capture_logs() as logs:
        second_us = asyncio.run(record(tmp_path, "second"))
    assert (second_us < first_us) is is_followed
    warned = [line for line in logs if line["event"].startswith("clock was ahead")]
    assert bool(warned) is is_followed


def test_a_process_of_a_test_can_have_a_wrong_clock() -> None:
    """As tests of clusters need it; without the variables it has those of the system."""
    assert wrong_clocks({}) == (monotonic_ns, time_ns)
    variables = {"JACKALOPE_CLOCK_OFFSET_US": str(HOUR), "JACKALOPE_CLOCK_RATE": "1.5"}
    steady_ns, wall_ns = wrong_clocks(variables)
    first_ns, real_ns = steady_ns(), monotonic_ns()
    assert HOUR <= wall_ns() // 1_000 - time_ns() // 1_000 < HOUR + 10 * SECOND
    sleep(0.05)
    passed_ns, real_ns = steady_ns() - first_ns, monotonic_ns() - real_ns
    assert passed_ns > 1.2 * real_ns

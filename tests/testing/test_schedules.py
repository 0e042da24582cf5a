"""Schedules on virtual time: as fast as they can be, over changes of the clock and restarts."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from jackalope import ConfigError, Jackalope
from jackalope.calendar import CronCalendar
from jackalope.core.durations import SECOND
from jackalope.core.records import ScheduleFired, SlotsMissed, TaskSubmitted
from jackalope.testing import VirtualBroker

DAY_S = 24 * 3600


def us(text: str, zone: str = "UTC") -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))
    return round(moment.timestamp() * SECOND)


def test_a_schedule_runs_at_once_on_virtual_time() -> None:
    app, ran = Jackalope(), []

    @app.schedule("0 3 * * *", tz="Europe/Berlin", args=["all"], kwargs={"days": 2})
    @app.task(queue="reports", retries=1)
    def report(what: str, days: int = 1) -> None:
        ran.append((what, days))

    with VirtualBroker() as broker:
        broker.declare_schedules(app)
        assert broker.advance(3 * DAY_S) == 3
    assert ran == [("all", 2)] * 3


#: Two changes of the clock: Berlin's in October, New York's a week later.
SCHEDULES = {
    "berlin": ("30 2 * * *", "Europe/Berlin"),
    "berlin-hourly": ("15 * * * *", "Europe/Berlin"),
    "new-york": ("30 1 * * *", "America/New_York"),
    "new-york-often": ("*/10 1-2 * * *", "America/New_York"),
    "lord-howe": ("0 45 1 * * *", "Australia/Lord_Howe"),
    "seconds": ("30 */20 * * * *", "UTC"),
}


@pytest.mark.parametrize("begin", ["2026-10-24T12:00", "2026-10-31T00:00", "2026-03-28T00:00"])
def test_each_slot_fires_once_over_changes_of_the_clock_and_fifty_restarts(begin: str) -> None:
    """Three days, in which the broker is restarted fifty times."""
    app = Jackalope()
    for name, (cron, zone) in SCHEDULES.items():

        @app.schedule(cron, tz=zone, name=name)
        @app.task(name=name, queue="q")
        def work() -> None: ...

    broker, begin_us = VirtualBroker(), us(begin)
    broker.now_us = begin_us
    step_s = 3 * DAY_S / 50
    with broker:
        broker.declare_schedules(app)
        for _ in range(50):
            broker.advance(step_s)
            broker.restart()
            broker.declare_schedules(app)  # As workers do that come back.
        broker.advance(1)
    fired = [record for record in broker._records if isinstance(record, ScheduleFired)]
    submitted = {each.spec.id for each in broker._records if isinstance(each, TaskSubmitted)}
    assert {record.task for record in fired} == submitted
    assert not [record for record in broker._records if isinstance(record, SlotsMissed)]
    counts = Counter((record.name, record.slot_us) for record in fired)
    assert set(counts.values()) == {1}
    calendar, end_us = CronCalendar(), broker.now_us
    for name, (cron, zone) in SCHEDULES.items():
        expected, slot_us = [], calendar.next_us(cron, zone, begin_us)
        while slot_us <= end_us:
            expected.append(slot_us)
            slot_us = calendar.next_us(cron, zone, slot_us)
        assert [each.slot_us for each in fired if each.name == name] == expected
        assert len(expected) >= 3


def test_what_cannot_be_scheduled_is_told_where_it_is_defined() -> None:
    app = Jackalope()

    @app.task
    def work(number: int = 0) -> None: ...

    with pytest.raises(ConfigError, match=r"bad hour.*no time zone"):
        app.schedule("0 25 * * *", tz="Mars")
    with pytest.raises(ConfigError, match="give one of a cron expression"):
        app.schedule("@daily", every=5)
    with pytest.raises(ConfigError, match="give one of a cron expression"):
        app.schedule()
    with pytest.raises(ConfigError, match="unknown color"):
        app.schedule("@daily", color="red")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="cannot have alias"):
        app.schedule("@daily")(work.options(alias="a"))
    with pytest.raises(ConfigError, match="time zone"):
        app.schedule(times=[datetime(2030, 1, 1)])  # noqa: DTZ001
    with pytest.raises(ConfigError, match=r"stands above @app\.task"):
        app.schedule("@daily")(test_what_cannot_be_scheduled_is_told_where_it_is_defined)  # type: ignore[type-var]
    app.schedule("@daily", name="a")(work)
    app.schedule(every="1h", name="b", start=datetime(2030, 1, 1, tzinfo=UTC))(work)
    assert list(app.planned) == ["a", "b"]

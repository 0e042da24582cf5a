"""When cron expressions fire, above all where clocks change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackalope.calendar import CronCalendar
from jackalope.core.durations import SECOND

CALENDAR = CronCalendar()

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def us(moment: datetime) -> int:
    return round(moment.timestamp() * SECOND)


def local(moment_us: int, zone: str) -> str:
    """Tell a moment as the clock shows it, with its offset, which says which of two it is."""
    at = datetime.fromtimestamp(moment_us / SECOND, UTC).astimezone(ZoneInfo(zone))
    return at.strftime("%d %H:%M:%S %z")


def fires(cron: str, zone: str, after: str, count: int) -> list[str]:
    moment_us = us(datetime.fromisoformat(after).replace(tzinfo=ZoneInfo(zone)))
    found = []
    for _ in range(count):
        moment_us = CALENDAR.next_us(cron, zone, moment_us)
        found.append(local(moment_us, zone))
    return found


# Each is tried with 5 fields and, with a leading 0, with 6: the rules are the same.
CHANGES = [
    # A slot that does not exist fires at the first moment after the gap.
    (
        BERLIN,
        "30 2 * * *",
        "2026-03-28T00:00",
        ["28 02:30:00 +0100", "29 03:00:00 +0200", "30 02:30:00 +0200"],
    ),
    (
        NEW_YORK,
        "15 2 * * *",
        "2026-03-07T00:00",
        ["07 02:15:00 -0500", "08 03:00:00 -0400", "09 02:15:00 -0400"],
    ),
    (
        LORD_HOWE,
        "10 2 * * *",
        "2026-10-03T00:00",
        ["03 02:10:00 +1030", "04 02:30:00 +1100", "05 02:10:00 +1100"],
    ),
    # Several in one gap fire once.
    (
        BERLIN,
        "0,15,30 2,3 29 3 *",
        "2026-03-29T00:00",
        ["29 03:00:00 +0200", "29 03:15:00 +0200", "29 03:30:00 +0200"],
    ),
    # One that exists twice fires at its first.
    (
        BERLIN,
        "30 2 * * *",
        "2026-10-24T00:00",
        ["24 02:30:00 +0200", "25 02:30:00 +0200", "26 02:30:00 +0100"],
    ),
    (
        NEW_YORK,
        "30 1 * * *",
        "2026-10-31T00:00",
        ["31 01:30:00 -0400", "01 01:30:00 -0400", "02 01:30:00 -0500"],
    ),
    (
        LORD_HOWE,
        "45 1 * * *",
        "2026-04-04T00:00",
        ["04 01:45:00 +1100", "05 01:45:00 +1100", "06 01:45:00 +1030"],
    ),
    # With an hour field that begins with a star, each real hour.
    (
        BERLIN,
        "30 * * * *",
        "2026-03-29T01:00",
        ["29 01:30:00 +0100", "29 03:30:00 +0200", "29 04:30:00 +0200"],
    ),
    (
        BERLIN,
        "30 * * * *",
        "2026-10-25T01:45",
        ["25 02:30:00 +0200", "25 02:30:00 +0100", "25 03:30:00 +0100"],
    ),
    (
        BERLIN,
        "*/30 */1 * * *",
        "2026-10-25T02:00",
        ["25 02:30:00 +0200", "25 02:00:00 +0100", "25 02:30:00 +0100", "25 03:00:00 +0100"],
    ),
    (
        NEW_YORK,
        "0 * * * *",
        "2026-11-01T00:30",
        ["01 01:00:00 -0400", "01 01:00:00 -0500", "01 02:00:00 -0500"],
    ),
    (
        LORD_HOWE,
        "*/15 * * * *",
        "2026-04-05T01:25",
        ["05 01:30:00 +1100", "05 01:45:00 +1100", "05 01:30:00 +1030", "05 01:45:00 +1030"],
    ),
    (
        LORD_HOWE,
        "*/15 * * * *",
        "2026-10-04T01:40",
        ["04 01:45:00 +1030", "04 02:30:00 +1100", "04 02:45:00 +1100"],
    ),
]


@pytest.mark.parametrize("prefix", ["", "0 "], ids=["5 fields", "6 fields"])
@pytest.mark.parametrize(("zone", "cron", "after", "expected"), CHANGES)
def test_clocks_that_change(
    prefix: str, zone: str, cron: str, after: str, expected: list[str]
) -> None:
    assert fires(prefix + cron, zone, after, len(expected)) == expected


def test_a_time_that_comes_back_is_found_although_the_next_is_far() -> None:
    """Havana's clocks go from 01:00 back to 00:00."""
    zone, cron = "America/Havana", "30 */24 1 11 *"
    assert fires(cron, zone, "2026-10-31T00:00", 3) == [
        "01 00:30:00 -0400",
        "01 00:30:00 -0500",
        "01 00:30:00 -0400",
    ]


def test_seconds_nicknames_names_ranges_and_steps() -> None:
    assert fires("*/20 * * * * *", "UTC", "2026-01-01T00:00", 4) == [
        "01 00:00:20 +0000",
        "01 00:00:40 +0000",
        "01 00:01:00 +0000",
        "01 00:01:20 +0000",
    ]
    assert fires("@daily", BERLIN, "2026-01-01T12:00", 1) == ["02 00:00:00 +0100"]
    assert fires("@Hourly", "UTC", "2026-01-01T12:30", 1) == ["01 13:00:00 +0000"]
    assert fires("0 9-17/4 * JAN mon-wed", "UTC", "2026-01-01T00:00", 4) == [
        "05 09:00:00 +0000",
        "05 13:00:00 +0000",
        "05 17:00:00 +0000",
        "06 09:00:00 +0000",
    ]
    assert fires("0 0 29 2 *", "UTC", "2026-01-01T00:00", 1) == ["29 00:00:00 +0000"]


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("0 25 * * *", "UTC", ["cron: bad hour"]),
        ("* * * *", "UTC", ["cron: must have 5 fields"]),
        ("@noon", "UTC", ["cron: no '@noon'; use @yearly"]),
        ("0 0 30 2 *", "UTC", ["cron: bad day-of-month"]),
        ("0 0 * * 1L/2", "UTC", ["cron: bad"]),
        ("0 0 * * *" + "9" * 5_000, "UTC", ["cron: must have at most"]),
        ("x", "Europe/Berlim", ["cron: must", "did you mean Europe/Berlin?"]),
        ("@daily", "", ["zone: no time zone ''"]),
        ("@daily", "../../etc/passwd", ["zone: no time zone"]),
    ],
)
def test_what_is_wrong_is_told(cron: str, zone: str, words: list[str]) -> None:
    problems = CALENDAR.problems(cron, zone)
    assert len(problems) == len(words)
    assert all(word in problem for word, problem in zip(words, problems, strict=True))


def test_what_never_fires_has_no_next_time() -> None:
    assert CALENDAR.next_us("0 0 * 2 MON#5", "UTC", 0) > 0
    assert CALENDAR.next_us("0 0 29 2 *", "UTC", us(datetime(9_890, 1, 1, tzinfo=UTC))) > 0
    assert CALENDAR.next_us("0 0 29 2 *", "UTC", us(datetime(9_999, 1, 1, tzinfo=UTC))) == 0


# Properties.

ZONES = [BERLIN, NEW_YORK, LORD_HOWE, "UTC", "America/Havana", "Asia/Kathmandu"]


@st.composite
def crons(draw: st.DrawFn) -> str:
    minute = draw(st.sampled_from(["0", "30", "*/15", "5,50", "59"]))
    hour = draw(st.sampled_from(["*", "*/2", "*/3", "0", "1", "2", "1-3", "2,14", "23"]))
    seconds = draw(st.sampled_from(["", "0 ", "30 "]))
    return f"{seconds}{minute} {hour} * * *"


@settings(max_examples=150, deadline=None)
@given(crons(), st.sampled_from(ZONES), st.integers(0, 365), st.integers(0, 86_399))
def test_slots_only_grow_and_no_day_is_lost(cron: str, zone: str, day: int, second: int) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day, seconds=second)
    last_us, days = us(begin), []
    end_us = last_us + 6 * 86_400 * SECOND
    while last_us < end_us:
        next_us = CALENDAR.next_us(cron, zone, last_us)
        assert next_us > last_us
        # Whatever lies between, the answer is the same: it does not depend on who asks when.
        assert CALENDAR.next_us(cron, zone, (last_us + next_us) // 2) == next_us
        last_us = next_us
        days.append(datetime.fromtimestamp(last_us / SECOND, UTC).astimezone(ZoneInfo(zone)).date())
    seen = sorted(set(days))
    whole = [seen[0] + timedelta(days=n) for n in range((seen[-1] - seen[0]).days + 1)]
    assert seen == whole


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["0", "30", "*/20"]), st.sampled_from(ZONES), st.integers(0, 364))
def test_on_the_clock_each_day_has_as_many_slots(minute: str, zone: str, day: int) -> None:
    """A slot on the clock fires once a day, whatever the clock does, unless a gap joins some."""
    first = date(2026, 1, 1) + timedelta(days=day)
    begin = datetime.combine(first, datetime.min.time(), ZoneInfo(zone))
    at_us = us(begin) - 1
    count = 0
    end_us = us(begin.replace(tzinfo=None).replace(tzinfo=ZoneInfo(zone)) + timedelta(days=1))
    while (at_us := CALENDAR.next_us(f"{minute} 12 * * *", zone, at_us)) < end_us:
        count += 1
    assert count == {"0": 1, "30": 1, "*/20": 3}[minute]

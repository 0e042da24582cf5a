"""The calendar: when a cron expression fires in a time zone.

Owns cron expressions, time zones, and what happens when clocks are changed. The core is handed it
(`core.shapes.schedule.Calendar`), because the core knows no dates; a record has the times that
follow from it, so that no other node and no restart depends on the same table of time zones.

When clocks change, the hour field decides. If it begins with `*`, the expression is about time
that passes: it fires at every moment that matches, so in an hour that comes twice it does so in
both. Any other is about the time on the clock: what falls into a gap fires once, at the first
moment after it, and what comes twice fires the first time. cronsim is given times without a zone
alone, and all of this is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, available_timezones

from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.core.settings import did_you_mean

if TYPE_CHECKING:
    from cronsim import CronSim

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND, _SECOND = timedelta(microseconds=1), timedelta(seconds=1)

#: Times that come twice do so within less than this after the first.
_LOOK_AHEAD = timedelta(hours=26)

_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = "5 fields (minute hour day month weekday), or 6 with the seconds first"


class CronCalendar:
    """Finds the times of cron expressions. It has no state; what is parsed is cached."""

    def problems(self, cron: str, zone: str) -> list[str]:
        """Return what is wrong with an expression and a time zone."""
        found = []
        for name, check in (("cron", lambda: _parsed(cron)), ("zone", lambda: _zone(zone))):
            try:
                check()
            except ValueError as error:
                found.append(f"{name}: {error}")
        return found

    def next_us(self, cron: str, zone: str, after_us: int) -> int:
        """Return when an expression next fires after a moment; 0 for never.

        Raises:
            ValueError: the expression or the time zone is not known.
        """
        parsed, tz = _parsed(cron), _zone(zone)
        find = _next_real if _is_real_time(cron) else _next_on_clock
        found = find(parsed, tz, _EPOCH + timedelta(microseconds=after_us))
        return 0 if found is None else (found - _EPOCH) // _MICROSECOND


def _is_real_time(cron: str) -> bool:
    return _plain(cron).split()[-4].startswith("*")


def _next_on_clock(parsed: CronSim, tz: tzinfo, after: datetime) -> datetime | None:
    for wall in _walls(parsed, after.astimezone(tz).replace(tzinfo=None, fold=0)):
        moment = _first_moment(wall, tz)
        if moment > after:
            return moment
    return None


def _next_real(parsed: CronSim, tz: tzinfo, after: datetime) -> datetime | None:
    """Return the next moment at which the clock shows a time that matches.

    Between two changes of the clock its time is another by the same offset, so a match is looked
    for with the offset of now, and if that is another by then, again from the change on.
    """
    at, offset = after, _offset(tz, after)
    wall = (at + offset).replace(tzinfo=None)
    while (found := next(_walls(parsed, wall), None)) is not None:
        moment = found.replace(tzinfo=UTC) - offset
        # A change soon may bring back a time before the one found.
        ends = (min(moment, at + _LOOK_AHEAD), moment)
        changed = next((end for end in ends if _offset(tz, end) != offset), None)
        if changed is None:
            return moment
        at = _change(tz, at, changed)
        offset = _offset(tz, at)
        wall = (at + offset).replace(tzinfo=None) - _SECOND
    return None


def _walls(parsed: CronSim, after: datetime) -> Iterator[datetime]:
    """Yield the times after one, without a zone, that match."""
    times = copy(parsed)
    times.dt = after.replace(microsecond=0)
    while True:
        try:
            yield next(times)
        except (StopIteration, OverflowError):
            return


def _first_moment(wall: datetime, tz: tzinfo) -> datetime:
    """Return when the clock first shows a time, or the first moment after the gap it falls into."""
    moment = wall.replace(tzinfo=tz).astimezone(UTC)
    if tz is UTC or moment.astimezone(tz).replace(tzinfo=None, fold=0) == wall:
        return moment
    return _change(tz, wall.replace(tzinfo=tz, fold=1).astimezone(UTC), moment)


def _change(tz: tzinfo, before: datetime, after: datetime) -> datetime:
    """Return the moment between two at which the offset became another."""
    offset = _offset(tz, before)
    low, high = 0, -((before - after) // _SECOND)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(tz, before + middle * _SECOND) == offset:
            low = middle
        else:
            high = middle
    return (before + high * _SECOND).replace(microsecond=0)


def _offset(tz: tzinfo, moment: datetime) -> timedelta:
    return moment.astimezone(tz).utcoffset() or timedelta()


def _plain(cron: str) -> str:
    return _NICKNAMES.get(cron.strip().lower(), cron)


@lru_cache(10_000)
def _parsed(cron: str) -> CronSim:
    # Only a broker with such schedules needs it.
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    expression = _plain(cron)
    if len(expression) > NAME_CHARS_MAX:
        raise ValueError(f"must have at most {NAME_CHARS_MAX} characters, got {len(expression)}")
    if expression.startswith("@"):
        raise ValueError(f"no {expression!r}; use {', '.join(_NICKNAMES)}, or {_FIELDS}")
    count = len(expression.split())
    if count not in (5, 6):
        raise ValueError(f"must have {_FIELDS}, got {count}: {expression!r}")
    try:
        return CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001
    except (CronSimError, AssertionError, TypeError, ValueError) as error:
        what = str(error).lower() or "bad step"
        raise ValueError(f"{what} in {expression!r}; it has {_FIELDS}") from None


@lru_cache(1_000)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        close = did_you_mean(name, available_timezones())
        message = f"no time zone {name[:NAME_CHARS_MAX]!r}"
        raise ValueError(message + (close or "; use a name such as Europe/Berlin")) from None

"""Schedules: what they submit and when, the words for it, and what is kept of one.

Owns the fields, their defaults and what is wrong with a value by itself. How a slot becomes a task
is the matter of `core.schedules`. A slot is a moment at which a schedule is to fire.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from enum import StrEnum
from hashlib import blake2b
from itertools import pairwise
from typing import Annotated, Any, Protocol

import msgspec

from jackalope.core.durations import DAY, SECOND
from jackalope.core.ids import ID_BYTES, TaskId
from jackalope.core.limits import NAME_CHARS_MAX, SPANS_PER_SCHEDULE_MAX, TIME_US_MAX
from jackalope.core.settings import Bounds, Duration
from jackalope.core.shapes.request import Same
from jackalope.core.task import PRIORITY_DEFAULT, PRIORITY_MAX, Options, Retry

#: The headers by which a task names its schedule and its slot.
SCHEDULE_HEADER = "jackalope-schedule"
SLOT_HEADER = "jackalope-slot-us"

#: The shortest interval. A cron expression with seconds fires as often.
EVERY_US_MIN = SECOND

#: The latest moment that may be given: a date in the year 9892.
MOMENT_US_MAX = 250_000_000_000 * SECOND

_Name = Annotated[str, Bounds(0, NAME_CHARS_MAX)]
_Moment = Annotated[int, Bounds(0, MOMENT_US_MAX)]


class Overlap(StrEnum):
    """What to do at a slot while an earlier run has not ended.

    `allow`: run both. `skip`: pass over the slot. `wait`: run when the earlier one has ended; one
    slot can wait, and further ones are passed over. `replace`: kill the earlier one, and run then.
    """

    ALLOW = "allow"
    SKIP = "skip"
    WAIT = "wait"
    REPLACE = "replace"


class CatchUp(StrEnum):
    """What to do about slots that passed while the broker was down: none, the last one, or all."""

    SKIP = "skip"
    LAST = "last"
    ALL = "all"


class RunKind(StrEnum):
    """Why a schedule submitted a task."""

    SLOT = "slot"
    TRIGGER = "trigger"
    BACKFILL = "backfill"


class Missed(StrEnum):
    """Why a slot was passed over."""

    DOWN = "down"  # the broker did not run, and the schedule does not catch up
    OVERLAP = "overlap"  # an earlier run had not ended
    REFUSED = "refused"  # its task was not accepted until the next slot


class Calendar(Protocol):
    """Finds the times of cron expressions, in time zones."""

    def problems(self, cron: str, zone: str) -> list[str]:
        """Return what is wrong with them."""

    def next_us(self, cron: str, zone: str, after_us: int) -> int:
        """Return the next time after one; 0 for never. Raises `ValueError` if it cannot tell."""


class _NoCalendar:
    def problems(self, _cron: str, _zone: str) -> list[str]:
        return ["cron: there is no calendar here"]

    def next_us(self, _cron: str, _zone: str, _after_us: int) -> int:
        raise ValueError("there is no calendar here")


#: Stands in where there is no calendar: intervals and single moments need none.
NO_CALENDAR: Calendar = _NoCalendar()


class ScheduleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """What a schedule submits, and when. Every default is defined here and nowhere else."""

    queue: _Name = ""  # where to submit; required
    task: _Name = ""  # the name of the task
    key: _Name = ""  # the key of the task
    priority: Annotated[int, Bounds(0, PRIORITY_MAX)] = PRIORITY_DEFAULT  # the priority of the task
    payload: bytes = b""  # the payload, at most 64 KiB: a schedule has no blobs
    # the declarer's own data, handed to the worker; the schedule and the slot are added
    headers: dict[str, Any] = {}
    tags: tuple[str, ...] = ()  # labels whose number in flight can be limited
    timeout_us: Duration = 0  # how long an attempt may run; 0 for the queue's
    # dead if not begun so long after it was submitted; 0 for the queue's
    time_to_live_us: Duration = 0
    retry: Retry | None = None  # the tasks' own retry settings
    # what to do if another task asks for the same; None for what the queue's policy says
    same: Same | None = None
    version: _Name = ""  # the version of the code that is to run
    cron: _Name = ""  # when, as a cron expression
    zone: _Name = "UTC"  # the time zone of that
    every_us: Duration = 0  # when, as an interval of at least a second
    times: tuple[_Moment, ...] = ()  # when, as single moments
    start: _Moment = 0  # no slot before; an interval counts from here, and begins with it
    end: _Moment = 0  # no slot after; 0 for never
    jitter_us: Duration = 0  # how long after its slot a task is submitted at most
    # what to do at a slot while an earlier task of the schedule has not ended
    overlap: Overlap = Overlap.ALLOW
    catch_up: CatchUp = CatchUp.LAST  # what to do about slots that passed while the broker was down
    catch_up_within_us: Duration = DAY  # slots that are longer ago are not caught up on


DEFAULT_SCHEDULE = ScheduleSettings()

#: What decides about the slots.
WHEN = ("cron", "zone", "every_us", "times", "start", "end")


class Run(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A task that a schedule submitted."""

    slot_us: int
    at_us: int
    task: TaskId
    how: RunKind


class Span(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A span of time in which every slot has fired, from the first to the last of them."""

    first_us: int
    last_us: int
    after_us: int  # the slot after that; 0 if there is none


class Schedule(msgspec.Struct, array_like=True, gc=False):
    """A schedule of a namespace, with all that is durable about it."""

    namespace: str
    name: str
    settings: ScheduleSettings
    by: str  # who declared it last
    anchor_us: int  # what an interval counts from
    changed_us: int  # when it was last declared
    next_us: int  # the next slot; 0 if there is none
    app: str = ""  # the application whose workers declare it; empty if it was made by hand
    orphaned_us: int = 0  # since when that does not declare it any more; 0 if it does
    paused_by: str = ""  # who paused it, or empty
    fired: int = 0  # how many tasks it has submitted
    missed: int = 0  # how many slots it has passed over
    missed_us: int = 0  # the last of those
    why_missed: str = ""  # and the reason
    runs: tuple[Run, ...] = ()  # the latest tasks, the newest last
    spans: tuple[Span, ...] = ()  # when it fired, for ever, the earliest first

    def fire_us(self, slot_us: int) -> int:
        """Return when the task of a slot is submitted: then, or within the jitter after it."""
        jitter_us = self.settings.jitter_us
        if not jitter_us:
            return slot_us
        chance = int.from_bytes(_digest(self.namespace, self.name, slot_us)[:8], "big")
        return slot_us + chance % (jitter_us + 1)

    def has_fired(self, slot_us: int) -> bool:
        """Return whether a slot is within a span in which every slot has fired."""
        place = bisect_right(self.spans, slot_us, key=lambda span: span.first_us)
        return place > 0 and slot_us <= self.spans[place - 1].last_us

    def is_when(self, settings: ScheduleSettings) -> bool:
        """Return whether other settings have the same slots."""
        mine = self.settings
        return all(getattr(mine, name) == getattr(settings, name) for name in WHEN)


def with_slot(spans: tuple[Span, ...], slot_us: int, after_us: int) -> tuple[Span, ...]:
    """Return the spans with a slot that has fired; `after_us` is the slot after it.

    If there are too many, the two that are nearest to each other become one: no slot that fired is
    ever forgotten, and one between them that did not counts as fired.
    """
    if any(span.first_us <= slot_us <= span.last_us for span in spans):
        return spans
    whole = Span(slot_us, slot_us, after_us)
    for span in spans:
        if span.after_us == slot_us or span.first_us == after_us:
            whole = _joined(whole, span)
    others = [
        span for span in spans if span.last_us < whole.first_us or whole.last_us < span.first_us
    ]
    insort(others, whole, key=lambda span: span.first_us)
    if len(others) > SPANS_PER_SCHEDULE_MAX:
        gaps = [later.first_us - span.last_us for span, later in pairwise(others)]
        place = gaps.index(min(gaps))
        others[place : place + 2] = [_joined(*others[place : place + 2])]
    return tuple(others)


def _joined(one: Span, other: Span) -> Span:
    first, last = sorted((one, other), key=lambda span: span.first_us)
    return Span(first.first_us, last.last_us, last.after_us)


def run_id(namespace: str, schedule: str, slot_us: int, how: RunKind = RunKind.SLOT) -> TaskId:
    """Derive the id of the task of a slot: the same slot has the same id for ever.

    It is laid out as a UUID of version 7 with the time of the slot. A backfilled slot is the slot.
    """
    is_trigger = how is RunKind.TRIGGER
    digest = _digest(namespace, schedule, slot_us, is_trigger)
    return TaskId(
        (slot_us // 1_000).to_bytes(6, "big")
        + bytes((0x70 | digest[6] & 0x0F, digest[7], 0x80 | digest[8] & 0x3F))
        + digest[9:]
    )


def _digest(namespace: str, schedule: str, slot_us: int, is_trigger: bool = False) -> bytes:
    named = msgspec.msgpack.encode((namespace, schedule, slot_us, is_trigger))
    return blake2b(named, digest_size=ID_BYTES).digest()


def schedule_of(options: Options) -> tuple[str, int] | None:
    """Return the schedule and the slot of a task; None if it has none.

    A task that follows from one of a schedule has its headers, and a parent.
    """
    headers = options.headers
    if SCHEDULE_HEADER not in headers or options.parent:
        return None
    name, slot_us = headers[SCHEDULE_HEADER], headers.get(SLOT_HEADER)
    if not isinstance(name, str) or type(slot_us) is not int or not 0 <= slot_us <= TIME_US_MAX:
        return None
    return name, slot_us

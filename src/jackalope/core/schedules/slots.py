"""Slots: when a schedule is due, and what happens to slots whose time has passed.

Owns the timers of schedules, which are volatile: a slot itself is durable with its schedule, and is
looked for once, by the node that decides, when the one before it is over.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from jackalope.core.commands.schedules import (
    BackfillSchedule,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from jackalope.core.context import Context
from jackalope.core.durations import MINUTE
from jackalope.core.limits import MISSED_SLOTS_COUNTED_MAX
from jackalope.core.records import SINCE, ScheduleDeclared
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.schedule import CatchUp, RunKind, Schedule, ScheduleSettings
from jackalope.core.state.timers import Timers

#: A slot that is so late is not missed: the broker was busy, or has been restarted.
LATE_US_MAX = MINUTE

Named = PauseSchedule | ResumeSchedule | DeleteSchedule | TriggerSchedule | BackfillSchedule


class Due:
    """When each schedule is to be looked at, and why it cannot go on, for those that cannot."""

    def __init__(self) -> None:
        self.timers: Timers[tuple[str, str]] = Timers()
        self.troubles: dict[tuple[str, str], str] = {}


class Passed(NamedTuple):
    """Which slot is next to fire, and which before it are passed over."""

    slot_us: int
    missed: int = 0
    last_us: int = 0


def arm(ctx: Context, schedule: Schedule) -> None:
    """Set the timer of a schedule for its next slot."""
    due, name = ctx.own(Due), (schedule.namespace, schedule.name)
    due.troubles.pop(name, None)
    if schedule.next_us and not schedule.paused_by:
        due.timers.set(name, schedule.fire_us(schedule.next_us))
    else:
        due.timers.cancel(name)


def arm_all(ctx: Context) -> None:
    for namespace in ctx.book.namespaces.values():
        for schedule in namespace.schedules.values():
            arm(ctx, schedule)


def find(ctx: Context, command: Named) -> Schedule | Refusal:
    """Return the schedule of a command, if its sender sees it."""
    namespace = ctx.book.namespaces.get(command.namespace)
    schedule = None if namespace is None else namespace.schedules.get(command.name)
    if schedule is None or (command.only and schedule.settings.queue not in command.only):
        message = f"no schedule {command.name!r} in namespace {command.namespace!r}"
        return Refusal(Code.UNKNOWN_SCHEDULE, message + "; list the schedules")
    return too_old(ctx) or schedule


def too_old(ctx: Context) -> Refusal | None:
    """Refuse a change while other nodes of the cluster could not read its record."""
    level = SINCE[ScheduleDeclared]
    if ctx.level >= level:
        return None
    message = (
        f"schedules need level {level} of the log, which is at level {ctx.level}; run "
        "`jackalope cluster upgrade` when all members have this version"
    )
    return Refusal(Code.WRONG_STATE, message)


def next_slot(ctx: Context, settings: ScheduleSettings, anchor_us: int, after_us: int) -> int:
    """Return the first slot after a moment; 0 if there is none.

    Raises:
        ValueError: the calendar does not know the time zone.
    """
    after_us = max(after_us, settings.start - 1)
    every_us, times = settings.every_us, settings.times
    if every_us:
        # Without a start, an interval begins with a pause.
        number = max((after_us - anchor_us) // every_us + 1, 0 if settings.start else 1)
        slot_us = anchor_us + number * every_us
    elif times:
        place = bisect_right(times, after_us)
        slot_us = times[place] if place < len(times) else 0
    else:
        slot_us = ctx.calendar.next_us(settings.cron, settings.zone, after_us)
    return slot_us if not settings.end or slot_us <= settings.end else 0


def following(ctx: Context, schedule: Schedule, after_us: int) -> int:
    return next_slot(ctx, schedule.settings, schedule.anchor_us, after_us)


def next_after_now(ctx: Context, schedule: Schedule) -> int:
    """Return the next slot of a schedule that was changed or resumed: one that never fired."""
    fired = [run.slot_us for run in schedule.runs if run.how is not RunKind.TRIGGER]
    return following(ctx, schedule, max(ctx.now_us, *fired, 0))


def look(ctx: Context, schedule: Schedule, *, is_refused: bool) -> Passed:
    """Decide which slot is next, now that one is due: usually that one.

    If it is late, or the one after it is due as well, the schedule says what to catch up on. One
    that was refused is not late before the next is due.
    """
    settings, slot_us, now_us = schedule.settings, schedule.next_us, ctx.now_us
    after_us = following(ctx, schedule, slot_us)
    late_us = now_us - slot_us - settings.jitter_us
    bound_us = max(settings.catch_up_within_us, LATE_US_MAX)
    late_us_max = LATE_US_MAX
    if is_refused:
        late_us_max = late_us if after_us else bound_us
    if late_us <= late_us_max and not 0 < after_us <= now_us - settings.jitter_us:
        return Passed(slot_us)
    if settings.catch_up is CatchUp.ALL:
        first_us = max(slot_us, now_us - bound_us)
        first_us = following(ctx, schedule, first_us - 1)
    else:
        first_us = _last_slot(ctx, schedule, slot_us, after_us)
        if settings.catch_up is CatchUp.SKIP:
            bound_us = late_us_max
        if now_us - first_us - settings.jitter_us > bound_us:
            first_us = following(ctx, schedule, now_us)
    count, last_us = _count(ctx, schedule, slot_us, first_us)
    return Passed(first_us, count, last_us)


def _last_slot(ctx: Context, schedule: Schedule, slot_us: int, after_us: int) -> int:
    """Return the last slot that has come, from one on that has, without looking at all of them."""
    now_us, settings = ctx.now_us, schedule.settings
    if not 0 < after_us <= now_us:
        return slot_us
    if settings.every_us:
        until_us = min(now_us, settings.end or now_us)
        return slot_us + (until_us - slot_us) // settings.every_us * settings.every_us
    span_us = after_us - slot_us
    found_us = slot_us
    while now_us - span_us > slot_us:
        found_us = following(ctx, schedule, now_us - span_us)
        if 0 < found_us <= now_us:
            break
        found_us, span_us = slot_us, 2 * span_us
    while 0 < (next_us := following(ctx, schedule, found_us)) <= now_us:
        found_us = next_us
    return found_us


def _count(ctx: Context, schedule: Schedule, slot_us: int, first_us: int) -> tuple[int, int]:
    """Return how many slots, up to a number, come before one, and the last that was counted."""
    settings, until_us = schedule.settings, first_us or ctx.now_us + 1
    if settings.every_us:
        count = -((slot_us - until_us) // settings.every_us)
        return count, slot_us + (count - 1) * settings.every_us if count else 0
    if settings.times:
        places = bisect_left(settings.times, slot_us), bisect_left(settings.times, until_us)
        count = places[1] - places[0]
        return count, settings.times[places[1] - 1] if count else 0
    count = last_us = 0
    while 0 < slot_us < until_us and count < MISSED_SLOTS_COUNTED_MAX:
        count, last_us = count + 1, slot_us
        slot_us = following(ctx, schedule, slot_us)
    return count, last_us

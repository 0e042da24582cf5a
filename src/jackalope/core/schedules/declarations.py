"""Declarations: schedules are created, changed, paused, resumed and deleted.

Owns which settings are accepted. All that is wrong is listed, and nothing is stored then.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jackalope.core.commands.schedules import (
    DeclareSchedule,
    DeclareSchedules,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
)
from jackalope.core.context import Context
from jackalope.core.contracts.fit import is_refused, misfits_of
from jackalope.core.durations import format_duration
from jackalope.core.effects import Accepted, ScheduleSet
from jackalope.core.ids import ID_BYTES, TaskId
from jackalope.core.limits import (
    MOMENTS_PER_SCHEDULE_MAX,
    NAME_CHARS_MAX,
    SCHEDULES_PER_NAMESPACE_MAX,
)
from jackalope.core.namespaces import no_namespace, not_kept
from jackalope.core.records import (
    ScheduleDeclared,
    ScheduleDeleted,
    ScheduleOrphaned,
    SchedulePaused,
    ScheduleResumed,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.schedules.slots import Due, arm, find, next_after_now, next_slot, too_old
from jackalope.core.settings import change
from jackalope.core.shapes.schedule import (
    DEFAULT_SCHEDULE,
    EVERY_US_MIN,
    MOMENT_US_MAX,
    Schedule,
    ScheduleSettings,
)
from jackalope.core.task import Options, TaskSpec
from jackalope.core.tasks.submit import spec_problems

#: The three ways to say when. A schedule has one of them.
_WAYS = ("cron", "every_us", "times")

#: Stands for the id that a task will have, where its other fields are checked.
_ANY_ID = TaskId(bytes(ID_BYTES))


def declare_schedule(ctx: Context, command: DeclareSchedule) -> ScheduleSet | Refusal:
    known = _schedules(ctx, command.namespace).get(command.name)
    is_hidden = known is not None and _is_hidden(known, command)
    before = DEFAULT_SCHEDULE if known is None or is_hidden else known.settings
    settings = _check(ctx, command.namespace, command.name, before, command.changes)
    if isinstance(settings, list):
        return Refusal(Code.INVALID, "schedule not changed. " + "; ".join(settings))
    if is_hidden:
        message = f"the name {command.name!r} is taken in namespace {command.namespace!r}"
        return Refusal(Code.FORBIDDEN, message + "; choose another")
    refusal = too_old(ctx) or _no_room(ctx, command.namespace, known is None)
    if refusal is not None:
        return refusal
    # Who changes a schedule that its application has left behind takes it over.
    app = "" if known is None or known.orphaned_us else known.app
    schedule = _store(ctx, command, command.name, settings, app)
    return ScheduleSet(settings, schedule.next_us)


def declare_schedules(ctx: Context, command: DeclareSchedules) -> Accepted | Refusal:
    schedules = _schedules(ctx, command.namespace)
    own = [each for each in schedules.values() if each.app == command.app]
    if not command.schedules and not own:
        return Accepted(0)
    wanted = _check_all(ctx, command)
    if isinstance(wanted, list):
        return Refusal(Code.INVALID, "schedules not changed. " + "; ".join(wanted))
    new = sum(name not in schedules for name in wanted)
    refusal = too_old(ctx) or _no_room(ctx, command.namespace, new)
    if refusal is not None:
        return refusal
    for name, settings in wanted.items():
        _store(ctx, command, name, settings, command.app)
    for schedule in own:
        is_left = schedule.name not in wanted and not _is_hidden(schedule, command)
        if is_left and not schedule.orphaned_us:
            ctx.record(ScheduleOrphaned(ctx.now_us, command.namespace, schedule.name))
    return Accepted(len(wanted))


def _check_all(ctx: Context, command: DeclareSchedules) -> dict[str, ScheduleSettings] | list[str]:
    wanted, problems = {}, []
    if not 0 < len(command.app) <= NAME_CHARS_MAX:
        problems.append(f"app: must have 1 to {NAME_CHARS_MAX} characters, got {len(command.app)}")
    for name, given in command.schedules.items():
        checked = _check(ctx, command.namespace, name, DEFAULT_SCHEDULE, given)
        known = _schedules(ctx, command.namespace).get(name)
        if known is not None and _is_hidden(known, command):
            checked = ["the name is taken; choose another"]
        if isinstance(checked, list):
            problems += [f"{name}: {problem}" for problem in checked]
        else:
            wanted[name] = checked
    return problems or wanted


def pause_schedule(ctx: Context, command: PauseSchedule) -> Accepted | Refusal:
    schedule = find(ctx, command)
    if isinstance(schedule, Refusal):
        return schedule
    if not schedule.paused_by:
        by = command.by or "unknown"
        ctx.record(SchedulePaused(ctx.now_us, command.namespace, schedule.name, by))
        arm(ctx, schedule)
    return Accepted()


def resume_schedule(ctx: Context, command: ResumeSchedule) -> Accepted | Refusal:
    """Resume a schedule. Slots that passed while it was paused are not caught up on."""
    schedule = find(ctx, command)
    if isinstance(schedule, Refusal):
        return schedule
    if schedule.paused_by:
        try:
            next_us = next_after_now(ctx, schedule)
        except ValueError as error:
            return Refusal(Code.WRONG_STATE, f"schedule {schedule.name!r} not resumed: {error}")
        name = (command.namespace, schedule.name)
        ctx.record(ScheduleResumed(ctx.now_us, *name, next_us, command.by))
        arm(ctx, schedule)
    return Accepted()


def delete_schedule(ctx: Context, command: DeleteSchedule) -> Accepted | Refusal:
    schedule = find(ctx, command)
    if isinstance(schedule, Refusal):
        return schedule
    ctx.record(ScheduleDeleted(ctx.now_us, command.namespace, schedule.name, command.by))
    due = ctx.own(Due)
    due.timers.cancel((command.namespace, schedule.name))
    due.troubles.pop((command.namespace, schedule.name), None)
    return Accepted()


def _store(
    ctx: Context,
    command: DeclareSchedule | DeclareSchedules,
    name: str,
    settings: ScheduleSettings,
    app: str,
) -> Schedule:
    """Record a schedule that is new or has changed."""
    known = _schedules(ctx, command.namespace).get(name)
    if known is None:
        anchor_us = settings.start or ctx.now_us
        next_us = next_slot(ctx, settings, anchor_us, ctx.now_us)
    elif known.settings == settings and known.app == app and not known.orphaned_us:
        return known
    elif known.is_when(settings):
        anchor_us, next_us = known.anchor_us, known.next_us
    else:
        anchor_us = settings.start or ctx.now_us
        fired_us = max((run.slot_us for run in known.runs), default=0)
        next_us = next_slot(ctx, settings, anchor_us, max(ctx.now_us, fired_us))
    ctx.record(
        ScheduleDeclared(
            ctx.now_us, command.namespace, name, settings, anchor_us, next_us, app, command.by
        )
    )
    schedule = _schedules(ctx, command.namespace)[name]
    arm(ctx, schedule)
    return schedule


def _schedules(ctx: Context, namespace: str) -> dict[str, Schedule]:
    found = ctx.book.namespaces.get(namespace)
    return {} if found is None else found.schedules


def _is_hidden(schedule: Schedule, command: DeclareSchedule | DeclareSchedules) -> bool:
    return bool(command.only) and schedule.settings.queue not in command.only


def _no_room(ctx: Context, namespace: str, count: int) -> Refusal | None:
    there = len(_schedules(ctx, namespace))
    if count and there + count > SCHEDULES_PER_NAMESPACE_MAX:
        message = f"namespace {namespace!r} has {there} schedules; delete some first"
        return Refusal(Code.TOO_MANY, message)
    return no_namespace(ctx, namespace, is_used=True)


# What is wrong with settings.


def _check(
    ctx: Context, namespace: str, name: str, before: ScheduleSettings, changes: Mapping[str, object]
) -> ScheduleSettings | list[str]:
    """Return the settings with some fields changed, or the list of all problems."""
    problems, fit = [], {}
    for field, value in changes.items():
        one = change(before, {field: value}, "a schedule")
        if isinstance(one, list):
            problems += one
        else:
            fit[field] = value
    # Another way to say when takes the place of the one before.
    ways = [way for way in _WAYS if changes.get(way)]
    cleared = {way: getattr(DEFAULT_SCHEDULE, way) for way in _WAYS if ways and way not in ways}
    settings = change(before, {**cleared, **fit}, "a schedule")
    if isinstance(settings, list):
        return settings
    if not 0 < len(name) <= NAME_CHARS_MAX or "\0" in name:
        problems.append(f"name: must have 1 to {NAME_CHARS_MAX} characters, none of them NUL")
    settings = msgspec.structs.replace(settings, times=tuple(sorted(set(settings.times))))
    problems += _task_problems(ctx, namespace, settings, changes)
    problems += _time_problems(ctx, settings, changes)
    return problems or settings


def _task_problems(
    ctx: Context, namespace: str, settings: ScheduleSettings, changes: Mapping[str, object]
) -> list[str]:
    """List what is wrong with the tasks that would be submitted."""
    options = Options(
        headers=settings.headers,
        tags=settings.tags,
        timeout_us=settings.timeout_us,
        retry=settings.retry,
        version=settings.version,
    )
    spec = TaskSpec(
        _ANY_ID,
        # What has the wrong type is told already.
        settings.queue or ("?" if changes.get("queue") else ""),
        settings.task,
        settings.key,
        settings.priority,
        settings.payload,
        options,
    )
    problems = spec_problems(spec)
    # There is nothing that a blob of a schedule would belong to.
    problems = [problem.removesuffix("; upload it as a blob") for problem in problems]
    if not _is_json(settings.headers):
        problems.append("headers: only texts, numbers, true, false, and lists and maps of them")
    queue = ctx.book.queue(namespace, settings.queue)
    if queue is not None and queue.is_volatile():
        problems.append(not_kept(queue).message)
    if queue is not None and queue.contracts and is_refused(queue):
        problems += misfits_of(queue, (spec,)).values()
    return problems


def _time_problems(
    ctx: Context, settings: ScheduleSettings, changes: Mapping[str, object]
) -> list[str]:
    """List what is wrong with the slots."""
    problems = []
    ways = [way for way in _WAYS if getattr(settings, way) or changes.get(way)]
    if len(ways) != 1:
        given = " and ".join(ways) or "none"
        problems.append(f"when: give one of {', '.join(_WAYS)}, got {given}")
    if settings.every_us and settings.every_us < EVERY_US_MIN:
        least, got = format_duration(EVERY_US_MIN), format_duration(settings.every_us)
        problems.append(f"every_us: must be at least {least}, got {got}")
    if settings.every_us and settings.jitter_us >= settings.every_us:
        problems.append("jitter_us: must be shorter than the interval")
    if len(settings.times) > MOMENTS_PER_SCHEDULE_MAX:
        problems.append(f"times: at most {MOMENTS_PER_SCHEDULE_MAX}, got {len(settings.times)}")
    if settings.times and not 0 < settings.times[0] <= settings.times[-1] <= MOMENT_US_MAX:
        problems.append(f"times: each must be 1 to {MOMENT_US_MAX}")
    if settings.end and settings.end < settings.start:
        problems.append(f"end: {settings.end} is before start, {settings.start}")
    if settings.cron or "zone" in changes:
        unknown = ctx.calendar.problems(settings.cron or "@daily", settings.zone)
        problems += unknown
        if settings.cron and not unknown:
            problems += _never_fires(ctx, settings)
    return problems


def _never_fires(ctx: Context, settings: ScheduleSettings) -> list[str]:
    after_us = max(ctx.now_us, settings.start)
    if ctx.calendar.next_us(settings.cron, settings.zone, after_us):
        return []
    return [f"cron: {settings.cron!r} never fires: there is no such date"]


def _is_json(headers: dict[str, object]) -> bool:
    """Return whether headers come out of storage, which has JSON, as they went in."""
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(headers)) == headers)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return False

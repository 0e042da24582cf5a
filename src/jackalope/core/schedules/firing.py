"""Firing: a slot becomes a task.

Theory of operation
===================

A schedule has one next slot, which is durable. When it is due, the task of the slot and the record
that the schedule has fired, with the slot after it, are made by one command and so are in one
batch: either both are there after a crash or none is, and then the slot is still the next one. The
id of the task follows from the namespace, the schedule and the slot, so whatever else may happen, a
slot has one task.

A task that is not accepted, because its queue is full, is submitted again until the next slot is
due. A slot that is passed over is counted, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from jackalope.core.commands import Action, ActOnTasks, SubmitTasks
from jackalope.core.commands.schedules import BackfillSchedule, TriggerSchedule
from jackalope.core.context import Context, Missing
from jackalope.core.durations import MINUTE, SECOND
from jackalope.core.effects import AcceptedRequests, SlotsRun
from jackalope.core.ids import ID_BYTES, TaskId, id_text
from jackalope.core.lifecycle import ENDED
from jackalope.core.limits import (
    DEPENDENCIES_PER_TASK_MAX,
    NOTE_CHARS_MAX,
    SLOTS_PER_BACKFILL_MAX,
    SLOTS_PER_TICK_MAX,
)
from jackalope.core.records import RUNS_LEVEL, ScheduleFired, SlotsMissed
from jackalope.core.refusals import Code, Refusal
from jackalope.core.schedules.slots import Due, arm, find, following, look
from jackalope.core.shapes.schedule import (
    MOMENT_US_MAX,
    SCHEDULE_HEADER,
    SLOT_HEADER,
    Missed,
    Overlap,
    Run,
    RunKind,
    Schedule,
    run_id,
    schedule_of,
)
from jackalope.core.task import OnDependency, Options, Task, TaskSpec
from jackalope.core.tasks.actions import act_on_tasks
from jackalope.core.tasks.submit import submit_tasks

#: How soon a slot is tried again whose task was not accepted, unless the refusal says when.
_AGAIN_US_MIN, _AGAIN_US_MAX = SECOND, MINUTE

_DOWN = "the broker was down, or too busy"


def come_due(ctx: Context, due: Iterator[tuple[str, str]]) -> None:
    """Fire the schedules that are due, up to a number; the rest stay due."""
    for _, (namespace, name) in zip(range(SLOTS_PER_TICK_MAX), due, strict=False):
        there = ctx.book.namespaces.get(namespace)
        schedule = None if there is None else there.schedules.get(name)
        if schedule is not None and schedule.next_us and not schedule.paused_by:
            _come_due(ctx, schedule)


def _come_due(ctx: Context, schedule: Schedule) -> None:
    name = (schedule.namespace, schedule.name)
    refused = ctx.own(Due).troubles.get(name, "")
    try:
        slot_us, count, last_us = look(ctx, schedule, is_refused=bool(refused))
        after_us = following(ctx, schedule, slot_us) if slot_us else 0
    except ValueError as error:
        # The calendar of this node lacks a time zone that another one had. Nothing is lost.
        _try_again(ctx, name, str(error), MINUTE)
        return
    if count:
        why, detail = (Missed.REFUSED, refused) if refused else (Missed.DOWN, _DOWN)
        ctx.record(SlotsMissed(ctx.now_us, *name, last_us, slot_us, count, why, detail))
    is_due = slot_us and schedule.fire_us(slot_us) <= ctx.now_us
    refusal = _fire(ctx, schedule, after_us) if is_due else None
    if refusal is None:
        arm(ctx, schedule)
        return
    again_us = min(max(refusal.retry_after_us, _AGAIN_US_MIN), _AGAIN_US_MAX)
    if after_us > ctx.now_us:
        again_us = min(again_us, after_us - ctx.now_us)
    _try_again(ctx, name, refusal.message[:NOTE_CHARS_MAX], again_us)


def _try_again(ctx: Context, name: tuple[str, str], why: str, after_us: int) -> None:
    state = ctx.own(Due)
    state.troubles[name] = why
    state.timers.set(name, ctx.now_us + after_us)


def _fire(ctx: Context, schedule: Schedule, after_us: int) -> Refusal | None:
    """Submit the task of the slot that is due, unless an earlier one is in its way."""
    slot_us, name = schedule.next_us, (schedule.namespace, schedule.name)
    earlier = _unfinished(ctx, schedule)
    in_the_way = _in_the_way(schedule, earlier)
    if in_the_way:
        why = Missed.OVERLAP
        ctx.record(SlotsMissed(ctx.now_us, *name, slot_us, after_us, 1, why, in_the_way))
        return None
    refusal = _too_many(schedule, earlier)
    if refusal is not None:
        _replace(ctx, schedule, earlier)  # Those that do not run are gone then.
        return refusal
    task_id = _submit(ctx, schedule, slot_us, run_id(*name, slot_us), earlier)
    if isinstance(task_id, Refusal):
        return task_id
    _record_run(ctx, schedule, Run(slot_us, ctx.now_us, task_id, RunKind.SLOT), after_us)
    _replace(ctx, schedule, earlier)
    return None


def _unfinished(ctx: Context, schedule: Schedule) -> list[Task]:
    """Return the earlier tasks that have not ended, if that matters to the schedule.

    There is at most one more than a task may wait for: then it does not matter how many.
    """
    if schedule.settings.overlap is Overlap.ALLOW:
        return []
    tasks = ctx.book.tasks
    # The last of them are named, also those that serve its requests or were submitted before
    # `RUNS_LEVEL`.
    named = [run.task for run in schedule.runs]
    own = ctx.book.namespaces[schedule.namespace].runs.get(schedule.name, {})
    others = islice((each for each in own if each not in named), DEPENDENCIES_PER_TASK_MAX + 1)
    found = (tasks.get(each) for each in (*others, *dict.fromkeys(named)))
    return [task for task in found if task is not None and task.state not in ENDED]


def _too_many(schedule: Schedule, earlier: list[Task]) -> Refusal | None:
    """Refuse to submit a task that would have to wait for too many."""
    if len(earlier) <= DEPENDENCIES_PER_TASK_MAX:
        return None
    message = f"schedule {schedule.name!r} has more than {DEPENDENCIES_PER_TASK_MAX} earlier tasks"
    return Refusal(Code.TOO_MANY, f"{message} that have not ended; wait for them, or kill them")


def _in_the_way(schedule: Schedule, earlier: list[Task]) -> str:
    """Return why a slot is passed over because of earlier tasks; empty if it is not."""
    overlap = schedule.settings.overlap
    if overlap is Overlap.SKIP and earlier:
        return f"task {id_text(earlier[-1].id)} is {earlier[-1].state}"
    if overlap is Overlap.WAIT and len(earlier) > 1:
        return f"task {id_text(earlier[-1].id)} is waiting already"
    return ""


def _submit(
    ctx: Context,
    schedule: Schedule,
    slot_us: int,
    task_id: TaskId,
    earlier: list[Task],
    *,
    by: str = "",
) -> TaskId | Refusal:
    """Submit a task, and return the one by which it is served: itself, unless it is a request."""
    settings, name, namespace = schedule.settings, schedule.name, schedule.namespace
    expires_us = settings.time_to_live_us and ctx.now_us + settings.time_to_live_us
    options = Options(
        headers={**settings.headers, SCHEDULE_HEADER: name, SLOT_HEADER: slot_us},
        tags=settings.tags,
        expires_at_us=expires_us,
        timeout_us=settings.timeout_us,
        retry=settings.retry,
        depends_on=tuple(task.id for task in earlier),
        on_dependency=OnDependency.RUN,
        same=settings.same,
        version=settings.version,
    )
    spec = TaskSpec(
        task_id,
        settings.queue,
        settings.task,
        settings.key,
        settings.priority,
        settings.payload,
        options,
    )
    by = by or f"schedule {name}"
    answer = submit_tasks(ctx, SubmitTasks(ref=0, tasks=[spec], namespace=namespace, by=by))
    for _, refusal in answer.refused:
        return refusal
    served = answer.served if isinstance(answer, AcceptedRequests) else ()
    return served[0][1].task if served else task_id


def _replace(ctx: Context, schedule: Schedule, earlier: list[Task]) -> None:
    """Kill the earlier tasks of a schedule whose tasks replace each other."""
    if earlier and schedule.settings.overlap is Overlap.REPLACE:
        tasks, by = tuple(task.id for task in earlier), f"schedule {schedule.name}"
        kill = ActOnTasks(ref=0, action=Action.KILL, tasks=tasks, by=by)
        kill.namespace = schedule.namespace
        act_on_tasks(ctx, kill)


# By hand.


def missing_task(_: Context, command: TriggerSchedule) -> Missing:
    ids = [command.task] if len(command.task) == ID_BYTES else []
    return Missing(command.namespace, ids)


def trigger_schedule(ctx: Context, command: TriggerSchedule) -> SlotsRun | Refusal:
    """Submit a task of a schedule now, by the same rule of overlap as at a slot."""
    schedule = find(ctx, command)
    if isinstance(schedule, Refusal):
        return schedule
    name = (command.namespace, schedule.name)
    task_id = command.task or run_id(*name, ctx.now_us, RunKind.TRIGGER)
    known = ctx.book.tasks.get(task_id)
    if known is not None and (schedule_of(known.options) or ("",))[0] == schedule.name:
        return SlotsRun((), 1)  # A command that was repeated.
    earlier = _unfinished(ctx, schedule)
    in_the_way = _in_the_way(schedule, earlier)
    if in_the_way:
        message = f"schedule {schedule.name!r} not triggered: {in_the_way}; wait for it, or kill it"
        return Refusal(Code.WRONG_STATE, message)
    refusal = _too_many(schedule, earlier)
    if refusal is not None:
        return refusal
    made = _submit(ctx, schedule, ctx.now_us, task_id, earlier, by=command.by)
    if isinstance(made, Refusal):
        return made
    run = Run(ctx.now_us, ctx.now_us, made, RunKind.TRIGGER)
    _record_run(ctx, schedule, run, by=command.by)
    _replace(ctx, schedule, earlier)
    return SlotsRun((made,))


def missing_tasks(ctx: Context, command: BackfillSchedule) -> Missing:
    """Return the tasks that slots may have, and that are not in memory."""
    slots = _past_slots(ctx, command)
    if isinstance(slots, Refusal):
        return Missing(command.namespace)
    ids = [run_id(command.namespace, command.name, slot_us) for slot_us, _ in slots]
    tasks, may_have_ended = ctx.book.tasks, ctx.book.may_have_ended
    ids = [each for each in ids if each not in tasks and may_have_ended(each)]
    return Missing(command.namespace, ids)


def backfill_schedule(ctx: Context, command: BackfillSchedule) -> SlotsRun | Refusal:
    """Submit the tasks of slots that have passed and never fired, or are to fire again.

    If tasks of the schedule must not overlap, each waits for the one before it.
    """
    schedule = find(ctx, command)
    if isinstance(schedule, Refusal):
        return schedule
    slots = _past_slots(ctx, command)
    if isinstance(slots, Refusal):
        return slots
    earlier = _unfinished(ctx, schedule)
    refusal = _too_many(schedule, earlier)
    if refusal is not None:
        return refusal
    made: list[TaskId] = []
    forgotten: list[int] = []
    known = 0
    for slot_us, after_us in slots:
        task_id = run_id(command.namespace, schedule.name, slot_us)
        if task_id in ctx.book.tasks:
            known += 1
            continue
        # Before `RUNS_LEVEL` it remembered the latest tasks alone.
        has_fired = schedule.has_fired(slot_us) or any(run.task == task_id for run in schedule.runs)
        if has_fired and not command.again:
            forgotten.append(slot_us)
            continue
        run = _submit(ctx, schedule, slot_us, task_id, earlier, by=command.by)
        if isinstance(run, Refusal):
            if not (made or known or forgotten):
                return run
            return SlotsRun(tuple(made), known, run, tuple(forgotten))
        filled = Run(slot_us, ctx.now_us, run, RunKind.BACKFILL)
        _record_run(ctx, schedule, filled, after_us, by=command.by)
        made.append(run)
        task = ctx.book.tasks.get(run)  # None if a request was answered at once.
        if task is not None and schedule.settings.overlap is not Overlap.ALLOW:
            earlier = [task]
    return SlotsRun(tuple(made), known, None, tuple(forgotten))


def _record_run(
    ctx: Context, schedule: Schedule, run: Run, after_us: int = 0, *, by: str = ""
) -> None:
    """Record a task with its slot, and the slot after it.

    The next slot to fire is that one, or stays what it is after a task that was asked for.
    """
    name, is_slot = (schedule.namespace, schedule.name), run.how is RunKind.SLOT
    next_us = after_us if is_slot else schedule.next_us
    after_us = after_us if ctx.level >= RUNS_LEVEL else -1
    fired = ScheduleFired(run.at_us, *name, run.slot_us, next_us, run.task, run.how, by, after_us)
    ctx.record(fired)


def _past_slots(ctx: Context, command: BackfillSchedule) -> Sequence[tuple[int, int]] | Refusal:
    """Return the slots in a range, of those before the next one, each with the slot after it."""
    schedule = find(ctx, command)
    if isinstance(schedule, Refusal):
        return schedule
    since_us, until_us = command.since_us, command.until_us
    if not 0 <= since_us <= until_us <= MOMENT_US_MAX:
        message = f"since_us and until_us must be 0 to {MOMENT_US_MAX}, in this order"
        return Refusal(Code.INVALID, f"schedule {schedule.name!r} not backfilled: {message}")
    until_us = min(until_us, ctx.now_us, schedule.next_us - 1 if schedule.next_us else until_us)
    slots: list[tuple[int, int]] = []
    try:
        slot_us = following(ctx, schedule, since_us - 1)
        while 0 < slot_us <= until_us:
            if len(slots) == SLOTS_PER_BACKFILL_MAX:
                message = f"there are more than {SLOTS_PER_BACKFILL_MAX} slots; name a shorter time"
                return Refusal(Code.TOO_MANY, message)
            after_us = following(ctx, schedule, slot_us)
            slots.append((slot_us, after_us))
            slot_us = after_us
    except ValueError as error:
        return Refusal(Code.WRONG_STATE, f"schedule {schedule.name!r} not backfilled: {error}")
    return slots

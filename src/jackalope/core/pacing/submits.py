"""Paced submits: each becomes a task, takes the place of one, or is turned away.

Owns the outcome of a submit with a pace, and until when a kind of tasks is throttled. Must not
know how a task is submitted otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from jackalope.core.commands import SubmitTasks
from jackalope.core.context import Context
from jackalope.core.durations import format_duration
from jackalope.core.effects import Served
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.limits import THROTTLED_PER_NAMESPACE_MAX
from jackalope.core.records import SINCE, RequestJoined, TaskReplaced, ThrottlesEnded
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.pace import Pace, Pacing, throttle_name
from jackalope.core.shapes.request import How
from jackalope.core.state.queue import Queue
from jackalope.core.task import NO_OPTIONS, Options, Task, TaskSpec, is_open, with_needs


def ask(
    ctx: Context, command: SubmitTasks, spec: TaskSpec, queue: Queue, pace: Pace
) -> Served | Refusal | None:
    """Return which task a submit is served by, or why it is not accepted; None if it is its own.

    If it is debounced and becomes a task, its options have from then on when it is due.
    """
    if ctx.level < SINCE[TaskReplaced]:
        return _too_old(ctx, pace)
    if pace.how is Pacing.THROTTLE:
        return _throttle(ctx, command, spec, queue, pace)
    task = ctx.book.tasks.get(queue.standing.get(pace.kind(spec.name), spec.id))
    if task is not None and (spec.id in task.merged or is_open(task)):
        if spec.id in task.merged:  # It was sent again, and may be older than what came since.
            ctx.book.drop_blob(spec.payload, unless=task.payload)
        else:
            _replace(ctx, task, spec, pace, command.by)
        return Served(How.REPLACED, task.id)
    if pace.how is Pacing.DEBOUNCE:
        run_at_us = pace.due_us(ctx.now_us, ctx.now_us)
        spec.options = msgspec.structs.replace(spec.options or NO_OPTIONS, run_at_us=run_at_us)
    return None


def is_outrun(ctx: Context, task: Task) -> bool:
    """Return whether an ended task could be replaced if it were queued again, and another is."""
    pace = task.options.pace
    if pace is None or pace.how is not Pacing.REPLACE or task.attempts:
        return False
    other = ctx.book.tasks.get(task.queue.standing.get(pace.kind(task.name), task.id))
    return other is not None and other is not task and is_open(other)


def end_throttles(ctx: Context, due: Iterator[tuple[str, str]]) -> None:
    """Accept tasks of kinds again whose time is over."""
    ended: dict[str, list[str]] = {}
    for namespace, kind in due:
        ended.setdefault(namespace, []).append(kind)
    for namespace, kinds in ended.items():
        ctx.record(ThrottlesEnded(ctx.now_us, namespace, tuple(kinds)))


def _throttle(
    ctx: Context, command: SubmitTasks, spec: TaskSpec, queue: Queue, pace: Pace
) -> Served | Refusal | None:
    throttles = queue.namespace.throttles
    entry = throttles.get(throttle_name(queue.name, spec.name, pace.key))
    if entry is None or entry.until_us <= ctx.now_us:
        return _no_room(ctx) if len(throttles) >= THROTTLED_PER_NAMESPACE_MAX else None
    if pace.drops:
        ctx.book.drop_blob(spec.payload)
        task = ctx.book.tasks.get(entry.task)
        if task is not None and task.state not in ENDED:
            ctx.record(RequestJoined(ctx.now_us, entry.task, command.by))
        return Served(How.DROPPED, entry.task)
    name = f" {spec.name!r}" if spec.name else ""
    key = f" with the key {pace.key!r}" if pace.key else ""
    message = (
        f"one task{name} of queue {queue.name!r}{key} is accepted in "
        f"{format_duration(pace.span_us)}, and task {entry.task.hex()} was; submit it later, or "
        "have it dropped"
    )
    return Refusal(Code.THROTTLED, message, entry.until_us - ctx.now_us)


def _replace(ctx: Context, task: Task, spec: TaskSpec, pace: Pace, by: str) -> None:
    """Let a submit take the place of a task."""
    options = spec.options or NO_OPTIONS
    due_us = options.run_at_us
    if pace.how is Pacing.DEBOUNCE:
        due_us = pace.due_us(task.created_us, ctx.now_us)
        spec.options = options = msgspec.structs.replace(options, run_at_us=due_us)
    if task.queue.policy.needs:
        spec = with_needs(spec, task.queue.policy)
    to, expires_us = _state(ctx, task, options, due_us), options.expires_at_us
    time_to_live_us = task.queue.policy.time_to_live_us
    if not expires_us and time_to_live_us:
        expires_us = max(ctx.now_us, due_us) + time_to_live_us
    ctx.agenda.offer(task)  # Its pool looks at the lane that it leaves.
    ctx.record(TaskReplaced(ctx.now_us, task.id, spec, to, due_us, expires_us, by))
    ctx.agenda.offer(task)


def _state(ctx: Context, task: Task, options: Options, due_us: int) -> State:
    """Return the state of a task whose place was taken: what a person has stopped stays so."""
    if task.state in (State.HELD, State.PAUSED):
        return task.state
    if options.held:
        return State.HELD
    return State.SCHEDULED if due_us > ctx.now_us else State.READY


def _no_room(ctx: Context) -> Refusal:
    message = (
        f"{THROTTLED_PER_NAMESPACE_MAX} kinds of tasks are throttled in the namespace; submit it "
        "later, or with fewer different keys"
    )
    next_us = ctx.book.throttled.next_us()
    return Refusal(Code.TOO_MANY, message, max(1, (next_us or ctx.now_us) - ctx.now_us))


def _too_old(ctx: Context, pace: Pace) -> Refusal:
    """Refuse what a member of the cluster could not read."""
    message = f"{pace.how} needs level {SINCE[TaskReplaced]} of the log, which is at {ctx.level}"
    return Refusal(Code.INVALID, message + "; run `jackalope cluster upgrade`")

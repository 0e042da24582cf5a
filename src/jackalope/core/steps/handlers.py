"""Steps: recorded by workers, waited for, and ended by events and time.

Owns that a step has one result for ever, and which event ends which wait.
"""

from __future__ import annotations

from jackalope.core.commands import RecordStep, SendEvent, Suspend
from jackalope.core.context import Context, Missing
from jackalope.core.effects import Accepted, StepDone, Suspended
from jackalope.core.lifecycle import ENDED, Event, State
from jackalope.core.limits import (
    EVENTS_PER_TASK_MAX,
    INLINE_BYTES_MAX,
    NAME_CHARS_MAX,
    STEPS_BYTES_MAX,
    STEPS_PER_TASK_MAX,
    TIME_US_MAX,
)
from jackalope.core.records import SINCE, EventSent, StepRecorded, WaitBegan
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.steps import Step, Steps
from jackalope.core.state.roster import Worker
from jackalope.core.task import Task
from jackalope.core.tasks.attempts import Decision, as_asked, end_attempt, lease

_NOTHING = Steps()


def missing(ctx: Context, command: SendEvent) -> Missing:
    """Return the task, if it may have ended."""
    missing = Missing(command.namespace)
    if command.task not in ctx.book.tasks and ctx.book.may_have_ended(command.task):
        missing.ids.append(command.task)
    return missing


def record_step(ctx: Context, command: RecordStep, worker: Worker) -> Accepted | Refusal:
    """Store the result of a step. Saying it again is harmless."""
    task = lease(worker, command.task, command.fence)
    if isinstance(task, Refusal):
        return task
    found = _step_at(task, command.index, command.name)
    if isinstance(found, Refusal):
        return found
    if found is not None:
        if found.result == command.result:
            return Accepted()
        message = f"step {command.index + 1} ({command.name}) has another result already"
        return Refusal(Code.WRONG_STATE, message + "; a step is done once")
    refusal = _unfit(ctx, task, command.index, command.name, command.result)
    if refusal is None:
        took_us = min(max(command.took_us, 0), TIME_US_MAX)
        ctx.record(
            StepRecorded(
                ctx.now_us, task.id, command.index, command.name, command.result, took_us=took_us
            )
        )
    return refusal or Accepted()


def suspend(ctx: Context, command: Suspend, worker: Worker) -> StepDone | Suspended | Refusal:
    """Let a task wait without a worker, for a time or for an event; not if it need not wait."""
    task = lease(worker, command.task, command.fence)
    if isinstance(task, Refusal):
        return task
    found = _step_at(task, command.index, command.name)
    if isinstance(found, Refusal):
        return found
    if found is not None:
        return StepDone(found.result, found.is_late)
    refusal = _unfit(ctx, task, command.index, command.name, b"") or _unwaitable(command)
    if refusal is not None:
        return refusal
    events = () if task.steps is None else task.steps.events
    for event in events:
        if command.event and event.event == command.event:
            record = StepRecorded(ctx.now_us, task.id, command.index, command.name, event.data)
            record.event = event.event
            ctx.record(record)
            return StepDone(event.data)
    due_us = _until_us(ctx, task, command)
    ctx.record(WaitBegan(ctx.now_us, task.id, command.index, command.name, command.event, due_us))
    asked = as_asked(task)
    decision = Decision(asked.to if asked else State.SCHEDULED, None, due_us)
    cause = f"waits for the event {command.event!r}" if command.event else "sleeps"
    end_attempt(ctx, task, Event.SUSPEND, decision, cause=cause)
    ctx.agenda.feed(worker)
    return Suspended()


def send_event(ctx: Context, command: SendEvent) -> Accepted | Refusal:
    """Store an event, and let a task go on that waits for it."""
    task = ctx.book.tasks.get(command.task)
    if task is None or not task.queue.is_seen_by(command):
        message = f"no task {command.task.hex()} in namespace {command.namespace!r}"
        return Refusal(Code.UNKNOWN_TASK, message)
    if task.state in ENDED:
        message = f"task {task.id.hex()} is {task.state}; it waits for nothing any more"
        return Refusal(Code.WRONG_STATE, message)
    steps = task.steps or _NOTHING
    if not 0 < len(command.event) <= NAME_CHARS_MAX:
        return Refusal(Code.INVALID, f"event: must have 1 to {NAME_CHARS_MAX} characters")
    if refusal := _too_large(steps, "event", command.data) or _too_old(ctx):
        return refusal
    if len(steps.events) >= EVENTS_PER_TASK_MAX:
        message = (
            f"{EVENTS_PER_TASK_MAX} events for task {task.id.hex()} are not waited for yet; send "
            "more when it has taken some"
        )
        return Refusal(Code.TOO_MANY, message)
    is_awaited = steps.pending is not None and steps.pending.event == command.event
    ctx.record(EventSent(ctx.now_us, task.id, command.event, command.data, command.by))
    if is_awaited and task.state is State.SCHEDULED:
        ctx.move(task, Event.UNBLOCK, State.READY, command.by, detail=f"event {command.event!r}")
    return Accepted()


def _until_us(ctx: Context, task: Task, command: Suspend) -> int:
    """Return when the wait ends: one that was interrupted goes on with the time that is left."""
    pending = None if task.steps is None else task.steps.pending
    if pending is not None and (pending.index, pending.event) == (command.index, command.event):
        return pending.until_us
    return min(ctx.now_us + command.after_us, TIME_US_MAX) if command.after_us else TIME_US_MAX


def _step_at(task: Task, index: int, name: str) -> Step | Refusal | None:
    """Return the step that is done there; None if there is none."""
    found = None if task.steps is None else task.steps.at(index)
    if found is None or found.name == name:
        return found
    message = (
        f"step {index + 1} of task {task.id.hex()} was {found.name!r} and is now {name!r}: its "
        "code has changed since an earlier attempt; finish such tasks with the old code, or submit "
        "new ones"
    )
    return Refusal(Code.WRONG_STATE, message)


def _unfit(ctx: Context, task: Task, index: int, name: str, result: bytes) -> Refusal | None:
    """Refuse what cannot be a step."""
    if not 0 < len(name) <= NAME_CHARS_MAX:
        return Refusal(Code.INVALID, f"name: must have 1 to {NAME_CHARS_MAX} characters")
    if not 0 <= index < STEPS_PER_TASK_MAX:
        message = f"step {index + 1}: a task has at most {STEPS_PER_TASK_MAX} steps"
        return Refusal(Code.TOO_MANY, message + "; let it submit others for the rest")
    return _too_large(task.steps or _NOTHING, f"result of step {name!r}", result) or _too_old(ctx)


def _too_large(steps: Steps, what: str, data: bytes) -> Refusal | None:
    if len(data) > INLINE_BYTES_MAX:
        message = f"{what}: {len(data)} bytes, at most {INLINE_BYTES_MAX} are allowed"
        return Refusal(Code.TOO_LARGE, message + "; store it elsewhere and return a reference")
    if steps.size + len(data) > STEPS_BYTES_MAX:
        message = f"{what}: the steps and events of a task have at most {STEPS_BYTES_MAX} bytes"
        return Refusal(Code.TOO_LARGE, message + "; store them elsewhere and return references")
    return None


def _too_old(ctx: Context) -> Refusal | None:
    """Refuse what a member of the cluster could not read."""
    if ctx.level >= SINCE[StepRecorded]:
        return None
    message = f"steps need level {SINCE[StepRecorded]} of the log, which is at {ctx.level}"
    return Refusal(Code.INVALID, message + "; run `jackalope cluster upgrade`")


def _unwaitable(command: Suspend) -> Refusal | None:
    if not 0 <= command.after_us <= TIME_US_MAX:
        message = f"after_us: must be 0 to {TIME_US_MAX}, got {command.after_us}"
        return Refusal(Code.INVALID, message)
    if not command.event and not command.after_us:
        return Refusal(Code.INVALID, "after_us: needed to wait for a time")
    if len(command.event) > NAME_CHARS_MAX:
        return Refusal(Code.INVALID, f"event: longer than {NAME_CHARS_MAX} characters")
    return None

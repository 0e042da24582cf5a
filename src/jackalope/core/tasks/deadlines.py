"""Deadlines of tasks: they expire, are due, and have run for too long."""

from __future__ import annotations

from jackalope.core.context import Context
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import LEASED, PENDING, Event, Reason, State
from jackalope.core.limits import NOTE_CHARS_MAX
from jackalope.core.records import StepRecorded
from jackalope.core.task import Signal, Task, lease_of
from jackalope.core.tasks.actions import request


def expire(ctx: Context, task_id: TaskId) -> None:
    """End a task that has not started in time."""
    task = ctx.book.tasks.get(task_id)
    if task is not None and task.state in PENDING and ctx.act(task, Event.EXPIRE) is None:
        detail = _why_no_worker_came(ctx, task)
        ctx.move(task, Event.EXPIRE, State.DEAD, reason=Reason.EXPIRED, detail=detail)


def _why_no_worker_came(ctx: Context, task: Task) -> str:
    """Return the problem of the pool that should have started a worker for a task, if any."""
    pool = ctx.pools.by_name.get((task.queue.namespace.name, task.queue.name))
    group = None if pool is None else pool.groups.get(task.key)
    problem = "" if group is None else ctx.pools.trouble(group, ctx.now_us)
    return f"no worker could be started for it: {problem}"[:NOTE_CHARS_MAX] if problem else ""


def come_due(ctx: Context, task_id: TaskId) -> None:
    """Make a scheduled task ready."""
    task = ctx.book.tasks.get(task_id)
    if task is not None and task.state is State.SCHEDULED:
        pending = None if task.steps is None else task.steps.pending
        if pending is not None:  # The event that it waits for has not come.
            ctx.record(StepRecorded(ctx.now_us, task.id, pending.index, pending.name, is_late=True))
        ctx.move(task, Event.DUE, State.READY)


def time_out(ctx: Context, task_id: TaskId) -> None:
    """Ask the worker to stop an attempt that exceeded its time limit.

    A consumer cannot be asked: it is given up with all that it holds, see `amqp.consumers`.
    """
    task = ctx.book.tasks.get(task_id)
    if task is not None and task.state in LEASED:
        worker = ctx.roster.workers.get((task.queue.namespace.name, lease_of(task).worker))
        if worker is None or worker.consumer is None:
            request(ctx, task, Signal.TIMEOUT, "timeout")

"""Watches: the sessions to notify when a task ends, and of its progress until then.

Owns the command and the notices; `state.roster` has the waiting sessions. Volatile: a session that
comes back watches again, and is notified at once of what has ended meanwhile.
"""

from __future__ import annotations

from jackalope.core.commands import WatchTasks
from jackalope.core.context import Context, Missing
from jackalope.core.effects import Accepted, TaskEnded, TaskProgressed
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED
from jackalope.core.limits import WATCHES_PER_TASK_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import Task


def watch_tasks(ctx: Context, command: WatchTasks) -> Accepted:
    """Watch tasks; a past end or progress is sent at once."""
    refused = []
    for index, task_id in enumerate(command.tasks):
        task = ctx.book.tasks.get(task_id)
        if task is None or not task.queue.is_seen_by(command):
            message = f"no task {task_id.hex()} in namespace {command.namespace!r}"
            refused.append((index, Refusal(Code.UNKNOWN_TASK, message)))
        elif task.state in ENDED:
            ctx.send(command.session, _ended(task))
        elif not ctx.watches.has_room(task_id, command.session):
            message = (
                f"{WATCHES_PER_TASK_MAX} sessions watch task {task_id.hex()}, the maximum; query "
                "it later"
            )
            refused.append((index, Refusal(Code.TOO_MANY, message)))
        else:
            ctx.watches.add(task_id, command.session, progress=command.progress)
            if command.progress and task_id in ctx.progress:
                ctx.send(command.session, _progressed(ctx, task_id))
    return Accepted(len(command.tasks) - len(refused), tuple(refused))


def missing(ctx: Context, command: WatchTasks) -> Missing:
    ids = [task_id for task_id in command.tasks if task_id not in ctx.book.tasks]
    return Missing(command.namespace, ids)


def tell_progress(ctx: Context, task_id: TaskId) -> None:
    """Send the progress of a task to the sessions that asked for it."""
    for session, is_wanted in ctx.watches.by_task.get(task_id, {}).items():
        if is_wanted:
            ctx.send(session, _progressed(ctx, task_id))


def tell_watchers(ctx: Context, task: Task) -> None:
    for session in ctx.watches.take(task.id):
        ctx.send(session, _ended(task))


def _progressed(ctx: Context, task_id: TaskId) -> TaskProgressed:
    progress = ctx.progress[task_id]
    return TaskProgressed(task_id, progress.at_us, progress.percent, progress.note)


def _ended(task: Task) -> TaskEnded:
    outcome = task.outcome
    if outcome is None:
        return TaskEnded(task.id, task.state)
    return TaskEnded(task.id, task.state, outcome.result, outcome.reason, outcome.error)

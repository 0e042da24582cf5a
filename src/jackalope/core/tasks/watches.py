"""Watches: the sessions to notify when a task ends, and of its progress until then.

Owns the waiting sessions. Volatile: a session that comes back watches again, and is notified at
once of what has ended meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackalope.core.commands import WatchTasks
from jackalope.core.effects import Accepted, SendToSession, TaskEnded, TaskProgressed
from jackalope.core.lifecycle import ENDED
from jackalope.core.limits import WATCHES_PER_TASK_MAX
from jackalope.core.refusals import Code, Refusal

if TYPE_CHECKING:
    from jackalope.core.core import Core
    from jackalope.core.ids import TaskId
    from jackalope.core.task import Task


def watch_tasks(core: Core, command: WatchTasks) -> None:
    """Watch tasks; an end, or progress that was made, is sent at once."""
    refused = []
    for index, task_id in enumerate(command.tasks):
        task = core.book.tasks.get(task_id)
        if task is None or not task.queue.is_seen_by(command):
            message = f"no task {task_id.hex()} in namespace {command.namespace!r}"
            refused.append((index, Refusal(Code.UNKNOWN_TASK, message)))
        elif task.state in ENDED:
            core.effects.append(SendToSession(command.session, _ended(task)))
        elif not core.watches.has_room(task_id, command.session):
            message = (
                f"{WATCHES_PER_TASK_MAX} sessions watch task {task_id.hex()}; ask for it later"
            )
            refused.append((index, Refusal(Code.TOO_MANY, message)))
        else:
            core.watches.add(task_id, command.session, progress=command.progress)
            if command.progress and task_id in core.progress:
                core.effects.append(SendToSession(command.session, _progressed(core, task_id)))
    core.reply(command, Accepted(len(command.tasks) - len(refused), tuple(refused)))


def tell_progress(core: Core, task_id: TaskId) -> None:
    """Send the progress of a task to the sessions that asked for it."""
    for session, is_wanted in core.watches.by_task.get(task_id, {}).items():
        if is_wanted:
            core.effects.append(SendToSession(session, _progressed(core, task_id)))


def tell_watchers(core: Core, task: Task) -> None:
    """Notify all sessions that watch a task of its end."""
    for session in core.watches.take(task.id):
        core.effects.append(SendToSession(session, _ended(task)))


def _progressed(core: Core, task_id: TaskId) -> TaskProgressed:
    progress = core.progress[task_id]
    return TaskProgressed(task_id, progress.at_us, progress.percent, progress.note)


def _ended(task: Task) -> TaskEnded:
    outcome = task.outcome
    if outcome is None:
        return TaskEnded(task.id, task.state)
    return TaskEnded(task.id, task.state, outcome.result, outcome.reason, outcome.error)

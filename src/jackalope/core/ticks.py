"""Ticks: act on every deadline that has passed.

Owns the order in which kinds of deadlines are checked, and how many one tick handles, so that a
million due at once do not make one endless batch.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from jackalope.core.admin.queue_removal import drop_queue
from jackalope.core.amqp.consumers import consumers_of
from jackalope.core.cache import single_flight
from jackalope.core.commands import Tick
from jackalope.core.effects import Accepted
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import LEASED, PENDING, Event, Reason, State
from jackalope.core.limits import DEADLINES_PER_TICK_MAX, NOTE_CHARS_MAX
from jackalope.core.pools.lifecycle import look_at_due, trouble
from jackalope.core.records import TaskMoved
from jackalope.core.task import Signal, lease_of
from jackalope.core.tasks.actions import request
from jackalope.core.tasks.assign import offer
from jackalope.core.tasks.attempts import lose
from jackalope.core.workers.sessions import (
    check_deliveries,
    check_lease,
    expire_claims,
    give_up_resume,
)

if TYPE_CHECKING:
    from jackalope.core.core import Core
    from jackalope.core.task import Task


def tick(core: Core, command: Tick) -> None:
    """Act on what is due. What is too much for one tick stays due."""
    now_us, book, roster = core.now_us, core.book, core.roster
    for task_id in islice(book.expiry.pop_due(now_us), DEADLINES_PER_TICK_MAX):
        _expire(core, TaskId(task_id))
    for task_id in islice(book.due.pop_due(now_us), DEADLINES_PER_TICK_MAX):
        _come_due(core, TaskId(task_id))
    for task_id in islice(book.timeouts.pop_due(now_us), DEADLINES_PER_TICK_MAX):
        _time_out(core, TaskId(task_id))
    single_flight.expire_answers(core)
    _look_at_workers(core)
    for task_id in islice(roster.orphans.pop_due(now_us), DEADLINES_PER_TICK_MAX):
        _give_up_orphan(core, TaskId(task_id))
    look_at_due(core)
    for name in islice(core.idle.pop_due(now_us), DEADLINES_PER_TICK_MAX):
        _retire(core, name)
    core.reply(command, Accepted())


def _look_at_workers(core: Core) -> None:
    """Give up workers that are silent, gone or stalled, and answer claims that have waited."""
    now_us, roster = core.now_us, core.roster
    for name in islice(roster.leases.pop_due(now_us), DEADLINES_PER_TICK_MAX):
        check_lease(core, name)
    for name in islice(roster.resumes.pop_due(now_us), DEADLINES_PER_TICK_MAX):
        give_up_resume(core, name)
    for session in islice(roster.claims.pop_due(now_us), DEADLINES_PER_TICK_MAX):
        worker = roster.sessions.get(session)
        if worker is not None:
            expire_claims(core, worker)
    for session in islice(roster.deliveries.pop_due(now_us), DEADLINES_PER_TICK_MAX):
        check_deliveries(core, session)


def _retire(core: Core, name: tuple[str, str]) -> None:
    """Delete a queue that was not used for too long."""
    queue = core.book.queue(*name)
    if queue is not None and not consumers_of(core, queue):
        drop_queue(core, queue, "expired")


def _expire(core: Core, task_id: TaskId) -> None:
    task = core.book.tasks.get(task_id)
    if task is not None and task.state in PENDING:
        core.end_task(
            TaskMoved(
                core.now_us,
                task_id,
                Event.EXPIRE,
                State.DEAD,
                reason=Reason.EXPIRED,
                detail=_why_no_worker_came(core, task),
            )
        )


def _why_no_worker_came(core: Core, task: Task) -> str:
    """Return what is wrong with the pool that was to start a worker for a task, if anything is."""
    pool = core.pools.by_name.get((task.queue.namespace.name, task.queue.name))
    group = None if pool is None else pool.groups.get(task.key)
    problem = "" if group is None else trouble(core, group)
    return f"no worker could be started for it: {problem}"[:NOTE_CHARS_MAX] if problem else ""


def _come_due(core: Core, task_id: TaskId) -> None:
    task = core.book.tasks.get(task_id)
    if task is not None and task.state is State.SCHEDULED:
        core.record(TaskMoved(core.now_us, task_id, Event.DUE, State.READY))
        offer(core, task)


def _time_out(core: Core, task_id: TaskId) -> None:
    """Ask the worker to stop an attempt that has run for too long, in case it has not noticed.

    A consumer cannot be asked: it is given up with all that it holds, see `check_deliveries`.
    """
    task = core.book.tasks.get(task_id)
    if task is not None and task.state in LEASED:
        name = (task.queue.namespace.name, lease_of(task).worker)
        worker = core.roster.workers.get(name)
        if worker is None or worker.consumer is None:
            request(core, task, Signal.TIMEOUT, "timeout")


def _give_up_orphan(core: Core, task_id: TaskId) -> None:
    """Give up a lease that outlived a restart of the broker without its worker."""
    task = core.book.tasks.get(task_id)
    if task is not None and task.attempt is not None:
        name = (task.queue.namespace.name, task.attempt.worker)
        if name not in core.roster.workers:
            lose(core, task, "not back after the restart of the broker")

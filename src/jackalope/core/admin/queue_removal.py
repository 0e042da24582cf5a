"""Removal: deleting queues with what is in them, and emptying them.

Owns what is removed with a queue: its tasks, its bindings, its consumers. A task that others wait
for is ended, and they are notified; all others are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackalope.core.admin.queues import known_queue
from jackalope.core.amqp.consumers import consumers_of, silence
from jackalope.core.amqp.exchanges import (
    absent_queue,
    drop_unused,
    find_open,
    is_hidden,
    locked,
    not_permitted,
)
from jackalope.core.amqp.problems import Problem, refuse
from jackalope.core.commands.amqp import PurgeQueue, RemoveQueue
from jackalope.core.effects import Accepted, ConsumerCancelled, Dropped, SendToSession
from jackalope.core.ids import TaskId, is_volatile
from jackalope.core.lifecycle import ENDED, Event, State
from jackalope.core.records import AttemptEnded, QueueDeleted, TaskMoved, TasksDropped, Unbound
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.exchange import is_request, requests_queue
from jackalope.core.state.changes import is_volatile_binding
from jackalope.core.task import NO_OPTIONS, Task

if TYPE_CHECKING:
    from jackalope.core.commands import DeleteQueue
    from jackalope.core.core import Core
    from jackalope.core.state.queue import Queue


def delete_queue(core: Core, command: DeleteQueue) -> None:
    """Remove a queue that has no unfinished task."""
    queue = known_queue(core, command)
    if queue is None:
        return
    if unfinished := queue.unfinished():
        message = f"queue {queue.name!r} has {unfinished} unfinished tasks; kill or finish them"
        core.reply(command, Refusal(Code.QUEUE_NOT_EMPTY, message))
        return
    refusal = _has_pool(queue) or _is_target(queue)
    if refusal is None:
        drop_queue(core, queue, command.by)
    core.reply(command, refusal or Accepted())


def remove_queue(core: Core, command: RemoveQueue) -> None:
    queue = core.book.queue(command.namespace, command.queue)
    if is_hidden(command, queue):
        core.reply(command, not_permitted("queue", command.queue))
        return
    if queue is None:
        why = absent_queue(core, command.namespace, command.queue)
        core.reply(command, why if why.code is Code.LOCKED else Dropped(0))
        return
    if command.key is not None and queue.pool is not None:
        _remove_key(core, queue, command, command.key)
        return
    refusal = locked(queue, command.owner) or _in_use(core, queue, command)
    refusal = refusal or _has_pool(queue) or _is_target(queue)
    if refusal is not None:
        core.reply(command, refusal)
        return
    # Before its consumers are notified: a client that deletes its own queue waits for this answer.
    core.reply(command, Dropped(queue.line.size))
    drop_queue(core, queue, command.by)


def _remove_key(core: Core, queue: Queue, command: RemoveQueue, key: str) -> None:
    """Drop the requests of a key and cancel its consumers; what these hold stays with them."""
    ready = _ready(core, queue, key)
    consumers = [
        worker
        for worker in consumers_of(core, queue, key)
        if worker.consumer is not None and worker.keys == (key,)
    ]
    where = (requests_queue(queue.name, key), command.namespace)
    if command.if_unused and consumers:
        core.reply(command, refuse(Problem.QUEUE_IN_USE, *where))
        return
    if command.if_empty and ready:
        core.reply(command, refuse(Problem.NOT_EMPTY, *where))
        return
    core.reply(command, Dropped(len(ready)))
    for worker in consumers:
        core.effects.append(SendToSession(worker.session, ConsumerCancelled()))
        silence(core, worker)
    _drop(core, ready, command.by)


def _ready(core: Core, queue: Queue, key: str | None) -> list[Task]:
    """Return the tasks of a queue that are ready, or those of a key."""
    lanes = queue.line.lanes.values() if key is None else queue.line.of_key(key)
    return [task for lane in list(lanes) for task in lane.ordered(core.book.tasks)]


def purge_queue(core: Core, command: PurgeQueue) -> None:
    """Drop every ready task of a queue."""
    queue = find_open(core, command)
    if queue is None:
        return
    core.watch_idle(queue)
    ready = _ready(core, queue, command.key)
    _drop(core, ready, command.by)
    core.reply(command, Dropped(len(ready)))


def drop_queue(core: Core, queue: Queue, by: str) -> None:
    """Remove a queue, its tasks, its bindings and its consumers."""
    namespace = queue.namespace
    _drop(core, _unfinished(core, queue), by)
    sources = []
    for binding in namespace.topology.to_target(queue.name, is_exchange=False):
        volatile = is_volatile_binding(namespace, binding)
        core.record(Unbound(core.now_us, namespace.name, binding, volatile))
        sources.append(binding.source)
    core.record(QueueDeleted(core.now_us, namespace.name, queue.name, by, queue.is_volatile()))
    core.idle.cancel((namespace.name, queue.name))
    if queue.traits is not None and queue.traits.owner in core.owned:
        core.owned[queue.traits.owner].pop((namespace.name, queue.name), None)
    for worker in consumers_of(core, queue):
        if worker.consumer is not None:
            core.effects.append(SendToSession(worker.session, ConsumerCancelled()))
            core.roster.remove(worker, core.now_us, "queue deleted")
    for source in dict.fromkeys(sources):
        drop_unused(core, namespace, source)


def _in_use(core: Core, queue: Queue, command: RemoveQueue) -> Refusal | None:
    if command.if_unused and consumers_of(core, queue):
        return refuse(Problem.QUEUE_IN_USE, queue.name, command.namespace)
    if command.if_empty and queue.line.size:
        return refuse(Problem.NOT_EMPTY, queue.name, command.namespace)
    return None


def _has_pool(queue: Queue) -> Refusal | None:
    if queue.pool is None:
        return None
    message = f"queue {queue.name!r} has a pool; delete that first"
    return Refusal(Code.WRONG_STATE, message)


def _is_target(queue: Queue) -> Refusal | None:
    for other in queue.namespace.queues.values():
        if other.policy.result_becomes == queue.name:
            message = f"results of queue {other.name!r} become tasks of queue {queue.name!r}"
            return Refusal(Code.QUEUE_NOT_EMPTY, message + "; change that policy first")
    return None


def _unfinished(core: Core, queue: Queue) -> list[Task]:
    """Return every task of a queue that has not ended."""
    if not queue.unfinished():
        return []
    if queue.unfinished() == queue.line.size:
        tasks = core.book.tasks
        return [task for lane in queue.line.lanes.values() for task in lane.ordered(tasks)]
    return [
        task for task in core.book.tasks.values() if task.queue is queue and task.state not in ENDED
    ]


def _drop(core: Core, tasks: list[Task], by: str) -> None:
    """Drop tasks; those that a client or another task waits for are ended instead."""
    lasting: list[TaskId] = []
    volatile: list[TaskId] = []
    for task in tasks:
        if task.attempt is not None:
            name = (task.queue.namespace.name, task.attempt.worker)
            holder = core.roster.workers.get(name)
            if holder is not None:
                core.make_hungry(holder)
        if _is_linked(core, task):
            _end(core, task, by)
        else:
            core.progress.pop(task.id, None)
            core.roster.orphans.cancel(task.id)
            (volatile if is_volatile(task.id) else lasting).append(task.id)
    for dropped in (lasting, volatile):
        if dropped:
            core.record(TasksDropped(core.now_us, dropped))


def _is_linked(core: Core, task: Task) -> bool:
    book = core.book
    return (
        task.options is not NO_OPTIONS
        or task.id in book.children
        or task.id in book.dependents
        or task.id in core.watches.by_task
        or is_request(task.queue.name, task.letter)
    )


def _end(core: Core, task: Task, by: str) -> None:
    if task.attempt is None:
        core.end_task(TaskMoved(core.now_us, task.id, Event.KILL, State.KILLED, by))
    else:
        core.roster.orphans.cancel(task.id)
        core.end_task(AttemptEnded(core.now_us, task.id, Event.STOP, State.KILLED, by=by))

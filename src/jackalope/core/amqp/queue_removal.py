"""Queue removal: delete queues with what is in them, and empty them.

Owns what is removed with a queue: its tasks, its bindings, its consumers. A task that others wait
for is ended, and they are notified; all others are dropped.
"""

from __future__ import annotations

from jackalope.core.amqp.consumers import serve_next, silence
from jackalope.core.amqp.exchanges import absent_queue, find_open, is_hidden, locked, not_permitted
from jackalope.core.amqp.lifetimes import Lifetimes, consumers_of, watch_idle
from jackalope.core.commands.amqp import PurgeQueue, RemoveQueue
from jackalope.core.context import Context
from jackalope.core.effects import ConsumerCancelled, Dropped
from jackalope.core.ids import TaskId, is_volatile
from jackalope.core.lifecycle import ENDED, Event, State
from jackalope.core.namespaces import drop_unused
from jackalope.core.records import AttemptEnded, QueueDeleted, TasksDropped, Unbound
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.exchange import is_request, requests_queue
from jackalope.core.shapes.problems import Problem, refuse
from jackalope.core.state.changes import is_volatile_binding
from jackalope.core.state.queue import Queue
from jackalope.core.task import NO_OPTIONS, Task


def remove_queue(ctx: Context, command: RemoveQueue) -> Dropped | Refusal | None:
    queue = ctx.book.queue(command.namespace, command.queue)
    if is_hidden(command, queue):
        return not_permitted("queue", command.queue)
    if queue is None:
        why = absent_queue(ctx, command.namespace, command.queue)
        return why if why.code is Code.LOCKED else Dropped(0)
    if command.key is not None and queue.pool is not None:
        return _remove_key(ctx, queue, command, command.key)
    refusal = locked(queue, command.owner) or _in_use(ctx, queue, command)
    refusal = refusal or still_needed(queue)
    if refusal is not None:
        return refusal
    # Before its consumers are notified: a client that deletes its own queue waits for this answer.
    ctx.reply(command, Dropped(queue.line.size))
    drop_queue(ctx, queue, command.by)
    return None


def _remove_key(ctx: Context, queue: Queue, command: RemoveQueue, key: str) -> Refusal | None:
    """Drop the requests of a key and cancel its consumers, which keep what they hold."""
    ready = _ready(ctx, queue, key)
    consumers = [
        worker
        for worker in consumers_of(ctx, queue, key)
        if worker.consumer is not None and worker.keys == (key,)
    ]
    where = (requests_queue(queue.name, key), command.namespace)
    if command.if_unused and consumers:
        return refuse(Problem.QUEUE_IN_USE, *where)
    if command.if_empty and ready:
        return refuse(Problem.NOT_EMPTY, *where)
    ctx.reply(command, Dropped(len(ready)))
    for worker in consumers:
        ctx.send(worker.session, ConsumerCancelled())
        silence(ctx, worker)
    _drop(ctx, ready, command.by)
    return None


def _ready(ctx: Context, queue: Queue, key: str | None) -> list[Task]:
    lanes = queue.line.lanes.values() if key is None else queue.line.of_key(key)
    return [task for lane in list(lanes) for task in lane.ordered(ctx.book.tasks)]


def purge_queue(ctx: Context, command: PurgeQueue) -> Dropped | Refusal:
    queue = find_open(ctx, command)
    if isinstance(queue, Refusal):
        return queue
    watch_idle(ctx, queue)
    ready = _ready(ctx, queue, command.key)
    _drop(ctx, ready, command.by)
    return Dropped(len(ready))


def retire(ctx: Context, name: tuple[str, str]) -> None:
    """Delete a queue that was unused for its expiry time."""
    queue = ctx.book.queue(*name)
    if queue is not None and not consumers_of(ctx, queue):
        drop_queue(ctx, queue, "expired")


def settle_queue(ctx: Context, namespace: str, name: str) -> None:
    """Delete a queue that lost its owner or last consumer, or activate the next consumer."""
    queue = ctx.book.queue(namespace, name)
    if queue is None or queue.traits is None:
        return
    traits = queue.traits
    is_left = bool(traits.owner) and traits.owner not in ctx.own(Lifetimes).owned
    if is_left or (traits.auto_delete and not consumers_of(ctx, queue)):
        drop_queue(ctx, queue, "unused")
    else:
        serve_next(ctx, queue)
        watch_idle(ctx, queue)


def drop_tasks(ctx: Context, queue: Queue, by: str) -> None:
    """Drop the unfinished tasks of a queue; end those that a client or another task waits for."""
    _drop(ctx, _unfinished(ctx, queue), by)


def drop_queue(ctx: Context, queue: Queue, by: str) -> None:
    namespace = queue.namespace
    drop_tasks(ctx, queue, by)
    sources = []
    for binding in namespace.topology.to_target(queue.name, is_exchange=False):
        volatile = is_volatile_binding(namespace, binding)
        ctx.record(Unbound(ctx.now_us, namespace.name, binding, volatile))
        sources.append(binding.source)
    ctx.record(QueueDeleted(ctx.now_us, namespace.name, queue.name, by, queue.is_volatile()))
    leases = ctx.own(Lifetimes)
    leases.idle.cancel((namespace.name, queue.name))
    if queue.traits is not None and queue.traits.owner in leases.owned:
        leases.owned[queue.traits.owner].pop((namespace.name, queue.name), None)
    for worker in consumers_of(ctx, queue):
        if worker.consumer is not None:
            ctx.send(worker.session, ConsumerCancelled())
            ctx.roster.remove(worker, ctx.now_us, "queue deleted")
    for source in dict.fromkeys(sources):
        drop_unused(ctx, namespace, source)


def _in_use(ctx: Context, queue: Queue, command: RemoveQueue) -> Refusal | None:
    if command.if_unused and consumers_of(ctx, queue):
        return refuse(Problem.QUEUE_IN_USE, queue.name, command.namespace)
    if command.if_empty and queue.line.size:
        return refuse(Problem.NOT_EMPTY, queue.name, command.namespace)
    return None


def still_needed(queue: Queue) -> Refusal | None:
    """Refuse to delete a queue that has a pool, or that another queue's results go to."""
    if queue.pool is not None:
        message = f"queue {queue.name!r} has a pool; delete the pool first"
        return Refusal(Code.WRONG_STATE, message)
    for other in queue.namespace.queues.values():
        if other.policy.result_becomes == queue.name:
            message = f"results of queue {other.name!r} become tasks of queue {queue.name!r}"
            return Refusal(Code.QUEUE_NOT_EMPTY, message + "; change that policy first")
        if any(trigger.queue == queue.name for trigger in other.policy.triggers):
            message = f"the ends of tasks of queue {other.name!r} trigger tasks of {queue.name!r}"
            return Refusal(Code.QUEUE_NOT_EMPTY, message + "; change that policy first")
    return None


def _unfinished(ctx: Context, queue: Queue) -> list[Task]:
    if not queue.unfinished():
        return []
    if queue.unfinished() == queue.line.size:
        tasks = ctx.book.tasks
        return [task for lane in queue.line.lanes.values() for task in lane.ordered(tasks)]
    return [
        task for task in ctx.book.tasks.values() if task.queue is queue and task.state not in ENDED
    ]


def _drop(ctx: Context, tasks: list[Task], by: str) -> None:
    """Drop tasks; end instead those that a client or another task waits for."""
    lasting: list[TaskId] = []
    volatile: list[TaskId] = []
    for task in tasks:
        if task.state in ENDED:
            continue  # It ended with its flow.
        if task.attempt is not None:
            name = (task.queue.namespace.name, task.attempt.worker)
            holder = ctx.roster.workers.get(name)
            if holder is not None:
                ctx.agenda.feed(holder)
        if _is_linked(ctx, task):
            _end(ctx, task, by)
        else:
            ctx.progress.pop(task.id, None)
            ctx.roster.orphans.cancel(task.id)
            (volatile if is_volatile(task.id) else lasting).append(task.id)
    for dropped in (lasting, volatile):
        if dropped:
            ctx.record(TasksDropped(ctx.now_us, dropped))


def _is_linked(ctx: Context, task: Task) -> bool:
    book = ctx.book
    return (
        task.options is not NO_OPTIONS
        or task.id in book.children
        or task.id in book.dependents
        or task.id in ctx.watches.by_task
        or is_request(task.queue.name, task.envelope)
    )


def _end(ctx: Context, task: Task, by: str) -> None:
    if task.options.flow is not None:  # None of its nodes outlives it.
        for child in list(ctx.book.children.get(task.id, ())):
            _end(ctx, ctx.book.tasks[child], by)
    if task.attempt is None:
        ctx.move(task, Event.KILL, State.KILLED, by)
    else:
        ctx.roster.orphans.cancel(task.id)
        ctx.end_tasks((AttemptEnded(ctx.now_us, task.id, Event.STOP, State.KILLED, by=by),))

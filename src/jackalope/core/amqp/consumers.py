"""Consumers: workers of one queue that come and go with their connection.

Owns what a consumer has beyond a worker: exclusive access on request, a priority, single active
consumer (one of several is served), and a number of slots that it shares with other consumers.
A queue may be deleted with its last consumer, with its owner, or after a time without use.
"""

from __future__ import annotations

from typing import Any

from jackalope.core.amqp.arguments import (
    QUORUM,
    bad_argument,
    different_argument,
    queue_terms,
    rule_of,
    type_of,
    unfit_argument,
)
from jackalope.core.amqp.exchanges import absent_queue, find_open, locked, not_permitted
from jackalope.core.amqp.lifetimes import Lifetimes, consumers_of, watch_idle
from jackalope.core.commands import ClaimTasks, JoinWorker
from jackalope.core.commands.amqp import (
    Consume,
    GrantCredit,
    HoldConsumer,
    LimitShare,
    OpenQueue,
    StopConsuming,
    TakeTask,
)
from jackalope.core.context import Context
from jackalope.core.durations import NEVER
from jackalope.core.effects import Accepted, DeliveryTimedOut, QueueOpened
from jackalope.core.ids import TaskId
from jackalope.core.limits import LEASE_US_MAX, SLOTS_PER_WORKER_MAX
from jackalope.core.namespaces import no_room, open_namespace
from jackalope.core.pools.lifecycle import replace_stalled
from jackalope.core.records import QueueDeclared
from jackalope.core.refusals import Refusal
from jackalope.core.shapes.exchange import AmqpTraits, AppliesTo, requests_queue
from jackalope.core.shapes.problems import Problem, refuse
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.state.roster import Consumer, Worker
from jackalope.core.task import lease_of
from jackalope.core.workers.sessions import claim_tasks, depart, join_worker


def consume(ctx: Context, command: Consume) -> Refusal | None:
    queue = find_open(ctx, command)
    if isinstance(queue, Refusal):
        return queue
    others = consumers_of(ctx, queue, command.key)
    traits = queue.traits or AmqpTraits()
    is_single = traits.single_active
    # As with RabbitMQ, a quorum queue has no exclusive consumers, and does not refuse to have one.
    is_exclusive = command.exclusive and type_of(traits.arguments) != QUORUM
    is_taken = any(other.consumer and other.consumer.is_exclusive for other in others)
    if is_taken or (is_exclusive and (others or is_single)):
        return refuse(Problem.EXCLUSIVE_CONSUMER, queue.name, command.namespace)
    consumer = Consumer(
        is_exclusive=is_exclusive,
        priority=command.priority,
        owner=command.owner,
        is_waiting=is_single and any(_is_active(other) for other in others),
        credit=command.credit,
    )
    join = _join(command, command.queue, command.slots)
    join.labels = command.labels
    refusal = join_worker(ctx, join, consumer)
    worker = ctx.roster.sessions.get(command.session)
    if worker is not None and command.share:
        ctx.roster.join_share(worker, command.share, command.share_slots)
    watch_idle(ctx, queue)
    return refusal


def stop_consuming(ctx: Context, command: StopConsuming) -> Accepted:
    worker = ctx.roster.sessions.get(command.session)
    if worker is not None and worker.slots:
        silence(ctx, worker)
    return Accepted()


def silence(ctx: Context, worker: Worker) -> None:
    """Assign no more tasks to a consumer; it keeps those that it holds."""
    worker.slots = 0
    _placed(ctx, worker)
    desert(ctx, worker)


def hold_consumer(ctx: Context, command: HoldConsumer) -> Accepted:
    worker = ctx.roster.sessions.get(command.session)
    if worker is not None and worker.consumer is not None:
        worker.consumer.is_held = command.is_held
        _placed(ctx, worker)
    return Accepted()


def grant_credit(ctx: Context, command: GrantCredit) -> Accepted:
    worker = ctx.roster.sessions.get(command.session)
    consumer = None if worker is None else worker.consumer
    if worker is not None and consumer is not None and consumer.credit is not None:
        consumer.credit = min(consumer.credit + max(command.credit, 0), SLOTS_PER_WORKER_MAX)
        _placed(ctx, worker)
    return Accepted()


def limit_share(ctx: Context, command: LimitShare) -> Accepted:
    worker = ctx.roster.sessions.get(command.session)
    if worker is not None and worker.consumer is not None and worker.share is None:
        ctx.roster.join_share(worker, command.share, command.slots)
    share = ctx.roster.shares.get(command.share)
    if share is not None:
        share.slots = command.slots
        for worker in share.members:
            ctx.agenda.workers[worker] = None
            worker.place()
    return Accepted()


def take_task(ctx: Context, command: TakeTask) -> Refusal | None:
    queue = find_open(ctx, command)
    if isinstance(queue, Refusal):
        return queue
    traits = queue.traits
    if traits is not None and traits.single_active and type_of(traits.arguments) == QUORUM:
        return refuse(Problem.NO_SINGLE_TASKS, queue.name, command.namespace)
    watch_idle(ctx, queue)
    if command.session not in ctx.roster.sessions:
        join = _join(command, command.queue, 0)
        join.ref = 0
        join_worker(ctx, join, Consumer(credit=NEVER if command.at_once else None))
    claim = ClaimTasks(session=command.session, ref=command.ref)
    worker = ctx.worker_of(claim)
    return worker if isinstance(worker, Refusal) else claim_tasks(ctx, claim, worker)


def serve_next(ctx: Context, queue: Queue) -> None:
    """Activate the next consumer of a queue with a single active consumer."""
    left = consumers_of(ctx, queue)
    if queue.traits is None or not queue.traits.single_active or any(map(_is_active, left)):
        return
    waiting = [worker for worker in left if worker.consumer is not None]
    following = max(waiting, key=_rank, default=None)
    if following is not None and following.consumer is not None:
        following.consumer.is_waiting = False
        _placed(ctx, following)


def desert(ctx: Context, worker: Worker) -> None:
    """Put a queue that lost a consumer on the agenda; it may have to be deleted."""
    if worker.consumer is not None:
        ctx.agenda.add(desert, (worker.namespace.name, worker.queues[0]))


def check_deliveries(ctx: Context, session: int) -> None:
    """Give up a consumer that exceeded the delivery timeout, or set the next check."""
    worker = ctx.roster.sessions.get(session)
    if worker is None:
        return
    ends = [
        (lease_of(task).assigned_us + timeout_us, timeout_us, task.id)
        for task in worker.held.values()
        if (timeout_us := task.options.timeout_us or task.queue.policy.timeout_us)
    ]
    until_us, timeout_us, task_id = min(ends, default=(NEVER, 0, b""))
    if until_us > ctx.now_us:
        if ends:
            ctx.roster.deliveries.set(session, until_us)
        return
    ctx.send(session, DeliveryTimedOut(TaskId(task_id), timeout_us))
    replace_stalled(ctx, worker)
    depart(ctx, worker, "delivery timed out", is_lost=True)


def _rank(worker: Worker) -> tuple[int, int]:
    """Order consumers: the greatest is activated next."""
    return (worker.consumer.priority if worker.consumer else 0, -worker.session)


def _is_active(worker: Worker) -> bool:
    return worker.consumer is not None and not worker.consumer.is_waiting


def _join(command: Consume | TakeTask, queue: str, slots: int) -> JoinWorker:
    # A consumer lives as long as its connection, whatever time passes: its door beats for it.
    return JoinWorker(
        session=command.session,
        ref=command.ref,
        worker=command.consumer,
        queues=(queue,),
        keys=() if command.key is None else (command.key,),
        slots=slots,
        namespace=command.namespace,
        lease_us=LEASE_US_MAX,
        grace_us=0,
    )


def _placed(ctx: Context, worker: Worker) -> None:
    worker.place()
    ctx.agenda.workers[worker] = None


# Opening queues in the manner of AMQP: making them, or finding them as they were declared.


def open_queue(ctx: Context, command: OpenQueue) -> QueueOpened | Refusal:
    """Declare a queue: create it, or compare it with the existing one."""
    queue = _open(ctx, command) if command.key is None else _open_key(ctx, command, command.key)
    if isinstance(queue, Refusal):
        return queue
    watch_idle(ctx, queue)
    name, ready, key = queue.name, queue.line.size, command.key
    if key is not None:
        name = requests_queue(name, key)
        ready = sum(lane.size for lane in queue.line.of_key(key))
    return QueueOpened(name, ready, len(consumers_of(ctx, queue, key)))


def _open_key(ctx: Context, command: OpenQueue, key: str) -> Queue | Refusal:
    """Declare the queue of a key of a pool, which exists as long as the pool does."""
    queue = ctx.book.queue(command.namespace, command.queue)
    name = requests_queue(command.queue, key)
    if queue is None or queue.pool is None:
        return refuse(Problem.NO_QUEUE, name, command.namespace)
    if command.passive:
        return queue
    for what in ("durable", "exclusive", "auto_delete"):
        if getattr(command, what):
            return _other(name, command, what, True, False)
    for argument, value in command.arguments.items():
        return _other(name, command, argument, value, None)
    return queue


def _other(name: str, command: OpenQueue, argument: str, now: object, then: object) -> Refusal:
    """Refuse a declaration whose argument differs from that of the existing queue."""
    return refuse(
        Problem.DIFFERENT_QUEUE, name, command.namespace, argument=argument, value=now, current=then
    )


def _open(ctx: Context, command: OpenQueue) -> Queue | Refusal:
    namespace = open_namespace(ctx, command.namespace)
    if isinstance(namespace, Refusal):
        return namespace
    queue = namespace.queues.get(command.queue)
    if queue is not None:
        refusal = locked(queue, command.owner)
        if refusal is None and not command.passive:
            refusal = _different(queue, command)
        return refusal or queue
    if command.passive:
        return absent_queue(ctx, namespace.name, command.queue)
    if not command.may_make:
        return not_permitted("queue", command.queue)
    return _unfit(ctx, command) or _make(ctx, namespace, command)


def _make(ctx: Context, namespace: Namespace, command: OpenQueue) -> Queue:
    wanted = AmqpTraits(
        durable=command.durable,
        auto_delete=command.auto_delete,
        owner=command.owner if command.exclusive else 0,
        arguments=command.arguments,
    )
    rule = rule_of(namespace.topology.rules.values(), command.queue, AppliesTo.QUEUES)
    policy, traits = queue_terms(wanted, rule)
    record = QueueDeclared(ctx.now_us, namespace.name, command.queue, policy, command.by, traits)
    ctx.record(record)
    if traits.owner:
        ctx.own(Lifetimes).owned.setdefault(traits.owner, {})[namespace.name, command.queue] = None
    return namespace.queues[command.queue]


def _unfit(ctx: Context, command: OpenQueue) -> Refusal | None:
    refusal = no_room(ctx, command.namespace, command.queue)
    if refusal is not None:
        return refusal
    if command.queue.startswith("amq.") and not command.generated:
        return refuse(Problem.RESERVED_QUEUE, command.queue, command.namespace)
    namespace = ctx.book.namespaces.get(command.namespace)
    if namespace is not None and (pool := namespace.topology.reserved.get(command.queue)):
        return refuse(Problem.QUEUE_OF_POOL, command.queue, command.namespace, value=pool)
    return _bad_argument(command) or _not_of_type(command)


def _bad_argument(command: OpenQueue) -> Refusal | None:
    bad = bad_argument(command.arguments)
    if bad is None:
        return None
    return refuse(Problem.BAD_ARGUMENT, command.queue, command.namespace, **bad._asdict())


def _not_of_type(command: OpenQueue) -> Refusal | None:
    """Refuse what the queue's type does not support."""
    kind, where = type_of(command.arguments), (command.queue, command.namespace)
    if argument := unfit_argument(command.arguments):
        return refuse(Problem.NOT_OF_TYPE, *where, argument=argument, value=kind)
    if kind != QUORUM:
        return None
    for what, is_so in (
        ("auto-delete", command.auto_delete),
        ("exclusive-owner", command.exclusive),
        ("non-durable", not command.durable),
    ):
        if is_so:
            return refuse(Problem.NOT_OF_QUORUM, *where, argument=what)
    return None


def _different(queue: Queue, command: OpenQueue) -> Refusal | None:
    """Refuse a declaration that is not equivalent to the existing queue."""
    before = queue.traits or AmqpTraits()
    if command.exclusive != (before.owner > 0):
        return refuse(Problem.LOCKED, queue.name, command.namespace)
    for what, now, then in (
        # An exclusive queue goes with its connection, whatever it was declared as.
        ("durable", command.durable or command.exclusive, before.durable or command.exclusive),
        ("auto_delete", command.auto_delete, before.auto_delete),
    ):
        if now != then:
            return _other(queue.name, command, what, now, then)
    if refusal := _bad_argument(command):
        return refusal
    arguments: dict[str, Any] = before.arguments
    if name := different_argument(arguments, command.arguments):
        return _other(queue.name, command, name, command.arguments.get(name), arguments.get(name))
    return None

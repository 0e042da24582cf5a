"""Assignment: bringing ready tasks and free workers together.

Between two commands this always holds: no open lane of a queue that is not paused has a task while
a worker that serves it has room. So each command needs a look only at what it touched: handlers
put the lanes that may now give out tasks and the workers that may now take some on the agenda, and
when the command is done `serve` brings them together, the best task first.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush

from jackalope.core.assertions import must
from jackalope.core.context import Context
from jackalope.core.effects import Assignment, DrainAsked, SendToSession
from jackalope.core.ids import is_volatile
from jackalope.core.lifecycle import Event, Reason, State
from jackalope.core.records import (
    SINCE,
    AttemptAssigned,
    AttemptFinished,
    AttemptStarted,
    FencesReserved,
)
from jackalope.core.shapes.envelope import envelope_to_send
from jackalope.core.state.queue import Queue
from jackalope.core.state.ready_queue import Lane, order
from jackalope.core.state.roster import Consumer, Worker
from jackalope.core.task import BlobRef, Task

#: How many fences one record reserves for tasks that have none.
FENCES_PER_BLOCK = 2**20


def offer_tags(ctx: Context, task: Task) -> None:
    """Re-offer lanes after the tags of a task were released."""
    for tag in task.options.tags:
        ctx.agenda.lanes.update(task.queue.namespace.limited_lanes.get(tag, {}))


def offer_shunned(ctx: Context, worker: Worker) -> None:
    """Re-offer lanes whose tasks avoid another worker, now that this one is unavailable."""
    for name in worker.queues:
        queue = worker.namespace.queues.get(name)
        if queue is not None:
            lanes = queue.line.lanes.values()
            ctx.agenda.lanes.update({lane: None for lane in lanes if lane.avoid})


def drain(ctx: Context, worker: Worker) -> None:
    """Assign nothing more to a worker, and notify it."""
    worker.is_draining = True
    worker.place()
    if worker.session:
        ctx.send(worker.session, DrainAsked())
    offer_shunned(ctx, worker)


def serve(ctx: Context) -> None:
    """Assign what the command touched: the best task first, to the least loaded worker."""
    for look in ctx.rooms.before_assign:
        look(ctx)
    agenda = ctx.agenda
    workers = agenda.workers
    while agenda.lanes:  # Tasks that are set apart while they are given out come next.
        lanes, agenda.lanes = agenda.lanes, {}
        for worker in workers:
            worker.place()
        if len(lanes) == 1:
            _serve_lane(ctx, next(iter(lanes)))
        else:
            _serve_lanes(ctx, lanes)
    agenda.workers = {}
    for worker in workers:
        feed(ctx, worker)


def feed(ctx: Context, worker: Worker) -> None:
    """Assign tasks to a worker while it has room."""
    while worker.has_room() and _feed_once(ctx, worker):
        pass
    worker.place()


def _feed_once(ctx: Context, worker: Worker) -> bool:
    """Assign the best eligible task to a worker, and return whether there was one."""
    best = None
    queues = worker.namespace.queues
    for name in worker.queues:
        queue = queues.get(name)
        if queue is None or queue.paused_by or not queue.line.size:
            continue
        is_shut = partial(_is_shut, ctx, worker)
        task = queue.line.best(worker.keys, is_shut, ctx.book.tasks, worker.names)
        if task is not None and (best is None or order(task, 0) < order(best, 0)):
            best = task
    if best is None:
        return False
    _give_one(ctx, best, worker)
    return True


def _serve_lane(ctx: Context, lane: Lane) -> None:
    """Assign the tasks of a lane while it is open and a worker has room."""
    queue, tasks = lane.queue, ctx.book.tasks
    while lane.size and not lane.closed_by and not queue.paused_by:
        worker = _least_loaded(ctx, lane)
        task = None if worker is None else lane.head(tasks)
        if worker is None or task is None:
            return
        _give(ctx, task, worker)


def _serve_lanes(ctx: Context, lanes: dict[Lane, None]) -> None:
    """Assign the tasks of several lanes, the best of all first.

    Within a queue its ageing rule decides which that is; across queues only priority and rank are
    comparable. Room only shrinks meanwhile, so a lane without room is done.
    """
    heads: dict[Queue, list[tuple[int, int, Lane, Task]]] = {}

    def note(number: int, lane: Lane) -> None:
        task = None if lane.closed_by or lane.queue.paused_by else lane.head(ctx.book.tasks)
        if task is not None:
            entry = (order(task, lane.queue.policy.ageing_us), number, lane, task)
            heappush(heads.setdefault(lane.queue, []), entry)

    for number, lane in enumerate(lanes):
        note(number, lane)
    while heads:
        queue = min(heads, key=lambda queue: order(heads[queue][0][3], 0))
        _, number, lane, _ = heappop(heads[queue])
        if not heads[queue]:
            del heads[queue]
        worker = None if lane.closed_by else _least_loaded(ctx, lane)
        task = lane.head(ctx.book.tasks)
        if worker is not None and task is not None:
            _give(ctx, task, worker)
            note(number, lane)


def _give(ctx: Context, task: Task, worker: Worker) -> None:
    """Assign a task to a worker; a worker that has just got room takes its best task first."""
    if worker in ctx.agenda.workers:
        _feed_once(ctx, worker)
    else:
        _give_one(ctx, task, worker)


def _give_one(ctx: Context, task: Task, worker: Worker) -> None:
    """Assign a task to a worker, unless it has expired or the worker does not implement it."""
    if worker.names is not None and task.name not in worker.names:
        task.queue.namespace.set_apart(task, ctx.book.tasks)
        ctx.agenda.offer(task)
    elif not _expire(ctx, task):
        _assign(ctx, task, worker)


def _is_shut(ctx: Context, worker: Worker, lane: Lane) -> bool:
    """Return whether the tasks of a lane, which failed on this worker, can wait for another."""
    queue = lane.queue
    return lane.avoid == worker.id and ctx.roster.has_other(
        queue.namespace.name, queue.name, lane, worker.id
    )


def _least_loaded(ctx: Context, lane: Lane) -> Worker | None:
    queue = lane.queue
    best, preference = None, 0
    for crew in ctx.roster.crews(queue.namespace.name, queue.name):
        if crew.takes(lane):
            worker = crew.least_loaded(lane.avoid)
            if worker is None or (best is not None and crew.preference < preference):
                continue
            if best is None or crew.preference > preference or len(worker.held) < len(best.held):
                best, preference = worker, crew.preference
    return best or (_only_one(ctx, lane) if lane.avoid else None)


def _only_one(ctx: Context, lane: Lane) -> Worker | None:
    """Return the worker that a lane avoids, if no other serves it and this one has room."""
    queue = lane.queue
    worker = ctx.roster.workers.get((queue.namespace.name, lane.avoid))
    if worker is None or worker.crew is None or not worker.has_room():
        return None
    is_served = queue.name in worker.queues and worker.crew.takes(lane)
    return worker if is_served and not _is_shut(ctx, worker, lane) else None


def _expire(ctx: Context, task: Task) -> bool:
    """End a task that has expired instead of assigning it, and return whether it had."""
    if not task.expires_us or task.expires_us > ctx.now_us:
        return False
    ctx.move(task, Event.EXPIRE, State.DEAD, reason=Reason.EXPIRED)
    return True


def _assign(ctx: Context, task: Task, worker: Worker) -> None:
    claim = 0
    if len(worker.held) >= worker.slots - (worker.helps > 0):
        must(worker.claims, "a worker without free slots has claimed", worker.id)
        oldest = worker.claims[0]
        claim = oldest.ref
        oldest.left -= 1
        if not oldest.left:
            worker.claims.popleft()
            ctx.roster.set_claim_timer(worker)
    fence = ctx.book.counters.fence + 1
    if ctx.book.has_volatile and fence > ctx.book.counters.reserved and is_volatile(task.id):
        _reserve(ctx, fence - 1 + FENCES_PER_BLOCK)
    ctx.record(AttemptAssigned(ctx.now_us, task.id, fence, worker.id))
    options, queue = task.options, task.queue
    ctx.effects.append(
        SendToSession(
            worker.session,
            Assignment(
                task.id,
                fence,
                queue.name,
                task.name,
                task.key,
                task.payload,
                options,
                task.attempts,
                options.timeout_us or queue.policy.timeout_us,
                claim,
                task.letter if task.attempts == 1 and not claim else envelope_to_send(task),
            ),
        )
    )
    if worker.consumer is not None:
        _begin(ctx, task, worker, worker.consumer)
    if worker.crew is not None:
        worker.crew.place(worker)
        if worker.consumer is not None:
            worker.crew.rotate(worker)
    if worker.share is not None:
        for member in worker.share.members:
            member.place()


def skip_reserved(ctx: Context) -> None:
    """Give out no fence again that was reserved before the restart, and so may be in use."""
    counters = ctx.book.counters
    if counters.reserved > counters.fence:
        _reserve(ctx, counters.reserved)


def _reserve(ctx: Context, through: int) -> None:
    if ctx.level >= SINCE[FencesReserved]:
        ctx.record(FencesReserved(ctx.now_us, through))


def _begin(ctx: Context, task: Task, worker: Worker, consumer: Consumer) -> None:
    """Record the start, or the end, that a consumer never reports.

    A request to a pool has started: losing the consumer then counts as a crash. A body in the blob
    store is still to be loaded and goes with the task: there the door answers.
    """
    if consumer.credit is None:
        if task.queue.pool is not None:
            ctx.record(AttemptStarted(ctx.now_us, task.id))
        if timeout_us := task.options.timeout_us or task.queue.policy.timeout_us:
            ctx.roster.deliveries.set_sooner(worker.session, ctx.now_us + timeout_us)
    elif not isinstance(task.payload, BlobRef):
        consumer.credit -= 1
        ctx.end_task(AttemptFinished(ctx.now_us, task.id))
        if task.options.tags:
            offer_tags(ctx, task)

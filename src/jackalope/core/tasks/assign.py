"""Assignment: bringing ready tasks and free workers together.

Between two commands this always holds: no open lane of a queue that is not paused has a task while
a worker that serves it has room. So each command needs a look only at what it touched: handlers
note the lanes that may now give out tasks (`offer…`) and the workers that may now take some
(`core.hungry`), and when the command is done `serve` brings them together, the best task first.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from jackalope.core.amqp.envelope import envelope_to_send
from jackalope.core.assertions import must
from jackalope.core.effects import Assignment, DrainAsked, SendToSession
from jackalope.core.lifecycle import Event, Reason, State
from jackalope.core.records import AttemptAssigned, AttemptFinished, AttemptStarted, TaskMoved
from jackalope.core.state.ready_queue import Lane, order
from jackalope.core.task import BlobRef
from jackalope.core.workers.fanout import lend

if TYPE_CHECKING:
    from jackalope.core.core import Core
    from jackalope.core.state.queue import Queue
    from jackalope.core.state.roster import Consumer, Worker
    from jackalope.core.task import Task


def offer(core: Core, task: Task) -> None:
    """Note that a task may have become ready."""
    if task.lane is not None:
        core.unserved[task.lane] = None


def offer_queue(core: Core, queue: Queue) -> None:
    core.unserved.update(dict.fromkeys(queue.line.lanes.values()))


def offer_tags(core: Core, task: Task) -> None:
    """Note that the tags of a task that gave back its lease may let others start."""
    for tag in task.options.tags:
        core.unserved.update(task.queue.namespace.limited_lanes.get(tag, {}))


def offer_shunned(core: Core, worker: Worker) -> None:
    """Re-offer lanes whose tasks avoid another worker, now that this one is unavailable."""
    for name in worker.queues:
        queue = worker.namespace.queues.get(name)
        if queue is not None:
            core.unserved.update({lane: None for lane in queue.line.lanes.values() if lane.avoid})


def drain(core: Core, worker: Worker) -> None:
    """Give a worker nothing more, and notify it."""
    worker.is_draining = True
    if worker.crew is not None:
        worker.crew.place(worker)
    if worker.session:
        core.effects.append(SendToSession(worker.session, DrainAsked()))
    offer_shunned(core, worker)


def serve(core: Core) -> None:
    """Bring together what the command touched: the best task first, to the least loaded worker."""
    if core.fanouts or core.seeks_helpers:
        lend(core)
    hungry = core.hungry
    while core.unserved:  # Tasks that are set apart while they are given out come next.
        unserved, core.unserved = core.unserved, {}
        for worker in hungry:
            if worker.crew is not None:
                worker.crew.place(worker)
        if len(unserved) == 1:
            _serve_lane(core, next(iter(unserved)))
        else:
            _serve_lanes(core, unserved)
    core.hungry = {}
    for worker in hungry:
        feed(core, worker)


def feed(core: Core, worker: Worker) -> None:
    """Give a worker tasks while it has room."""
    while worker.has_room() and _feed_once(core, worker):
        pass
    if worker.crew is not None:
        worker.crew.place(worker)


def _feed_once(core: Core, worker: Worker) -> bool:
    """Give a worker the best task that it may have, and return whether there was one."""
    best = None
    queues = worker.namespace.queues
    for name in worker.queues:
        queue = queues.get(name)
        if queue is None or queue.paused_by or not queue.line.size:
            continue
        is_shut = partial(_is_shut, core, worker)
        task = queue.line.best(worker.keys, is_shut, core.book.tasks, worker.names)
        if task is not None and (best is None or order(task, 0) < order(best, 0)):
            best = task
    if best is None:
        return False
    _give_one(core, best, worker)
    return True


def _serve_lane(core: Core, lane: Lane) -> None:
    """Give out the tasks of a lane while it is open and a worker has room."""
    queue, tasks = lane.queue, core.book.tasks
    while lane.size and not lane.closed_by and not queue.paused_by:
        worker = _least_loaded(core, lane)
        task = None if worker is None else lane.head(tasks)
        if worker is None or task is None:
            return
        _give(core, task, worker)


def _serve_lanes(core: Core, lanes: dict[Lane, None]) -> None:
    """Give out the tasks of several lanes, the best of all first.

    Within a queue its ageing rule decides which that is; across queues only priority and rank
    mean the same. Room only shrinks meanwhile, so a lane for which there is none is done with.
    """
    heads: dict[Queue, list[tuple[int, int, Lane, Task]]] = {}

    def note(number: int, lane: Lane) -> None:
        task = None if lane.closed_by or lane.queue.paused_by else lane.head(core.book.tasks)
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
        worker = None if lane.closed_by else _least_loaded(core, lane)
        task = lane.head(core.book.tasks)
        if worker is not None and task is not None:
            _give(core, task, worker)
            note(number, lane)


def _give(core: Core, task: Task, worker: Worker) -> None:
    """Give a task to a worker; one that has just got room may know of a better task."""
    if worker in core.hungry:
        _feed_once(core, worker)
    else:
        _give_one(core, task, worker)


def _give_one(core: Core, task: Task, worker: Worker) -> None:
    """Give a task to a worker, unless its time is over, or the worker does not know it."""
    if worker.names is not None and task.name not in worker.names:
        task.queue.namespace.set_apart(task, core.book.tasks)
        offer(core, task)
    elif not _expire(core, task):
        _assign(core, task, worker)


def _is_shut(core: Core, worker: Worker, lane: Lane) -> bool:
    """Return whether the tasks of a lane, which failed on this worker, can wait for another."""
    queue = lane.queue
    return lane.avoid == worker.id and core.roster.has_other(
        queue.namespace.name, queue.name, lane, worker.id
    )


def _least_loaded(core: Core, lane: Lane) -> Worker | None:
    queue = lane.queue
    best, preference = None, 0
    for crew in core.roster.crews(queue.namespace.name, queue.name):
        if crew.takes(lane):
            worker = crew.least_loaded(lane.avoid)
            if worker is None or (best is not None and crew.preference < preference):
                continue
            if best is None or crew.preference > preference or len(worker.held) < len(best.held):
                best, preference = worker, crew.preference
    return best or (_only_one(core, lane) if lane.avoid else None)


def _only_one(core: Core, lane: Lane) -> Worker | None:
    """Return the worker that a lane avoids, if no other serves it and this one has room."""
    queue = lane.queue
    worker = core.roster.workers.get((queue.namespace.name, lane.avoid))
    if worker is None or worker.crew is None or not worker.has_room():
        return None
    is_served = queue.name in worker.queues and worker.crew.takes(lane)
    return worker if is_served and not _is_shut(core, worker, lane) else None


def _expire(core: Core, task: Task) -> bool:
    """End a task that has expired instead of assigning it, and return whether it had."""
    if not task.expires_us or task.expires_us > core.now_us:
        return False
    core.end_task(TaskMoved(core.now_us, task.id, Event.EXPIRE, State.DEAD, reason=Reason.EXPIRED))
    return True


def _assign(core: Core, task: Task, worker: Worker) -> None:
    claim = 0
    if len(worker.held) >= worker.slots - (worker.helps > 0):
        must(worker.claims, "a worker without free slots has claimed", worker.id)
        oldest = worker.claims[0]
        claim = oldest.ref
        oldest.left -= 1
        if not oldest.left:
            worker.claims.popleft()
            core.set_claim_timer(worker)
    fence = core.book.counters.fence + 1
    core.record(AttemptAssigned(core.now_us, task.id, fence, worker.id))
    options, queue = task.options, task.queue
    core.effects.append(
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
        _begin(core, task, worker, worker.consumer)
    if worker.crew is not None:
        worker.crew.place(worker)
        if worker.consumer is not None:
            worker.crew.rotate(worker)
    if worker.share is not None:
        for member in worker.share.members:
            if member.crew is not None:
                member.crew.place(member)


def _begin(core: Core, task: Task, worker: Worker, consumer: Consumer) -> None:
    """Record what a consumer never reports: that it has begun, or that it will not answer.

    What a pool is asked has begun: if the consumer is lost, that has cost a worker. A body in the
    blob store is still to be loaded, and goes with the task: there the door answers.
    """
    if consumer.credit is None:
        if task.queue.pool is not None:
            core.record(AttemptStarted(core.now_us, task.id))
        if timeout_us := task.options.timeout_us or task.queue.policy.timeout_us:
            core.roster.deliveries.set_sooner(worker.session, core.now_us + timeout_us)
    elif not isinstance(task.payload, BlobRef):
        consumer.credit -= 1
        core.end_task(AttemptFinished(core.now_us, task.id))
        if task.options.tags:
            offer_tags(core, task)

"""Assignment: bringing ready tasks and free workers together.

Between two commands this always holds: no open lane of a queue that is not paused has a task while
a worker that serves it has room. So each change needs a look only at what it touched: a task that
became ready looks for a worker, a worker with room looks for tasks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from jackalope.core.effects import Assignment, SendToSession
from jackalope.core.must import must
from jackalope.core.ready import Lane, order
from jackalope.core.records import AttemptAssigned

if TYPE_CHECKING:
    from jackalope.core.broker import Core
    from jackalope.core.queue import Queue
    from jackalope.core.task import Task
    from jackalope.core.worker import Worker


def find_worker(core: Core, task: Task) -> None:
    """Give a task that just became ready to the least loaded worker, if one has room."""
    lane = task.lane
    if lane is None:
        return
    if lane.size > 1:
        serve_lane(core, lane)
    elif not lane.closed_by and not lane.queue.paused_by:
        worker = _least_loaded(core, lane)
        if worker is not None:
            _assign(core, task, worker)


def serve_lane(core: Core, lane: Lane) -> None:
    """Give out the tasks of a lane while it is open and a worker has room."""
    queue = lane.queue
    while lane.size and not lane.closed_by and not queue.paused_by:
        worker = _least_loaded(core, lane)
        if worker is None:
            return
        task = lane.head(core.book.tasks)
        if task is None:
            return
        _assign(core, task, worker)


def serve_queue(core: Core, queue: Queue) -> None:
    """Give out what a queue that was resumed or changed allows, best first."""
    for crew in list(core.roster.crews(queue.namespace.name, queue.name)):
        while (worker := crew.least_loaded("")) is not None and feed_once(core, worker):
            pass
        for worker in list(crew.members.values()):
            feed(core, worker)


def serve_shunned(core: Core, worker: Worker) -> None:
    """Look again at tasks that avoid somebody, because this worker no longer takes them instead."""
    for name in worker.queues:
        queue = worker.namespace.queues.get(name)
        if queue is not None:
            for lane in [lane for lane in queue.line.lanes.values() if lane.avoid]:
                serve_lane(core, lane)


def serve_tags(core: Core, task: Task) -> None:
    """Give out what the tags of a task that gave back its lease held up."""
    world = task.queue.namespace
    for tag in task.options.tags:
        for lane in list(world.limited_lanes.get(tag, ())):
            serve_lane(core, lane)


def feed(core: Core, worker: Worker) -> None:
    """Give a worker tasks while it has room."""
    while worker.has_room() and feed_once(core, worker):
        pass
    if worker.crew is not None:
        worker.crew.place(worker)


def feed_once(core: Core, worker: Worker) -> bool:
    """Give a worker the best task that it may have, and tell whether there was one."""
    best = None
    queues = worker.namespace.queues
    for name in worker.queues:
        queue = queues.get(name)
        if queue is None or queue.paused_by or not queue.line.size:
            continue
        task = queue.line.best(worker.keys, partial(_is_shut, core, worker), core.book.tasks)
        if task is not None and (best is None or order(task, 0) < order(best, 0)):
            best = task
    if best is None:
        return False
    _assign(core, best, worker)
    return True


def _is_shut(core: Core, worker: Worker, lane: Lane) -> bool:
    """Tell whether the tasks of a lane, which failed on this worker, can wait for another."""
    queue = lane.queue
    return lane.avoid == worker.id and core.roster.has_other(
        queue.namespace.name, queue.name, lane.key, worker.id
    )


def _least_loaded(core: Core, lane: Lane) -> Worker | None:
    queue = lane.queue
    best = None
    for crew in core.roster.crews(queue.namespace.name, queue.name):
        if crew.serves(lane.key):
            worker = crew.least_loaded(lane.avoid)
            if worker is not None and (best is None or len(worker.held) < len(best.held)):
                best = worker
    if best is None and lane.avoid:
        shunned = core.roster.workers.get((queue.namespace.name, lane.avoid))
        others = core.roster.has_other(queue.namespace.name, queue.name, lane.key, lane.avoid)
        if shunned is not None and shunned.crew is not None and not others:
            is_served = queue.name in shunned.queues and shunned.crew.serves(lane.key)
            best = shunned if is_served and shunned.has_room() else None
    return best


def _assign(core: Core, task: Task, worker: Worker) -> None:
    claim = 0
    if len(worker.held) >= worker.slots:
        must(worker.claims, "a worker without free slots has claimed", worker.id)
        oldest = worker.claims[0]
        claim = oldest.ref
        oldest.left -= 1
        if not oldest.left:
            worker.claims.popleft()
            core.set_claim_timer(worker)
    fence = core.book.counters.fence + 1
    core.record(AttemptAssigned(core.now_us, task.id, fence, worker.id))
    policy = task.queue.policy
    core.effects.append(
        SendToSession(
            worker.session,
            Assignment(
                task.id,
                fence,
                task.queue.name,
                task.name,
                task.key,
                task.payload,
                task.options,
                1 + task.failures + task.crashes + task.interruptions,
                task.options.timeout_us or policy.timeout_us,
                claim,
            ),
        )
    )
    if worker.crew is not None:
        worker.crew.place(worker)

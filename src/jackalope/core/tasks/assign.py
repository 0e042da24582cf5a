"""Assignment: bringing ready tasks and free workers together.

Between two commands this always holds: no open lane of a queue that is not paused has a task while
a worker that serves it has room. So each command needs a look only at what it touched: handlers
put the lanes that may now give out tasks and the workers that may now take some on the agenda, and
when the command is done `serve` brings them together, the best task first.

Tasks that go to workers one after the other are assigned together, to the same workers as if each
had been assigned alone. A list ends where giving a task changes more than the load of its worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from heapq import heappop, heappush

from jackalope.core.context import Context
from jackalope.core.effects import Assignment, DrainAsked, SendToSession
from jackalope.core.ids import is_volatile
from jackalope.core.lifecycle import Event, Reason, State
from jackalope.core.placement import fit as placement
from jackalope.core.records import (
    SINCE,
    AttemptAssigned,
    AttemptFinished,
    AttemptStarted,
    FencesReserved,
)
from jackalope.core.shapes.envelope import envelope_to_send
from jackalope.core.shapes.flow import NodeState
from jackalope.core.state.fair_shares import Clock
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.state.ready_queue import Lane, ReadyQueue, order
from jackalope.core.state.roster import Consumer, Crew, Share, Worker
from jackalope.core.task import BlobRef, Task

#: How many fences one record reserves for tasks that have none.
FENCES_PER_BLOCK = 2**20

#: Fence, task, the worker that it is assigned to, and the ref of the claim that it answers, or 0.
Gift = tuple[int, Task, Worker, int]


def offer_freed(ctx: Context) -> None:
    """Re-offer what waits in namespaces in which attempts have ended that were the last allowed."""
    freed, ctx.book.freed = ctx.book.freed, {}
    for namespace in freed:
        for queue in namespace.queues.values():
            if queue.line.size:
                ctx.agenda.offer_queue(queue)


def offer_shunned(ctx: Context, worker: Worker) -> None:
    """Re-offer lanes whose tasks not every worker may take, now that this one is unavailable."""
    for name in worker.queues:
        queue = worker.namespace.queues.get(name)
        if queue is not None:
            ctx.agenda.lanes.update(queue.line.picky)


def drain(ctx: Context, worker: Worker) -> None:
    """Assign nothing more to a worker, and notify it."""
    worker.is_draining = True
    worker.place()
    if worker.session:
        ctx.send(worker.session, DrainAsked())
    offer_shunned(ctx, worker)


def serve(ctx: Context) -> None:
    """Assign what the command touched: the best task first, to the least loaded worker."""
    agenda = ctx.agenda
    if ctx.book.freed:
        offer_freed(ctx)
    if ctx.pools.by_name or ctx.fanouts or agenda.rest:  # Else there is nothing to look at.
        for look in ctx.rooms.before_assign:
            look(ctx)
    workers = agenda.workers
    while agenda.lanes:  # Tasks that are set apart while they are given out come next.
        lanes, agenda.lanes = agenda.lanes, {}
        _place_all(workers)
        if len(lanes) == 1:
            _serve_lane(ctx, next(iter(lanes)))
        else:
            _serve_lanes(ctx, lanes)
    agenda.workers = {}
    _feed_all(ctx, workers)
    if ctx.roster.reserved:
        for worker in placement.review(ctx.roster, ctx.book.tasks):
            agenda.feed(worker)


def _place_all(workers: Iterable[Worker]) -> None:
    """Note who has room, but for workers of several namespaces, which are fed in turn later."""
    for worker in workers:
        if not _takes_turns(worker):
            worker.place()


def _feed_all(ctx: Context, workers: Iterable[Worker]) -> None:
    shares: dict[Share, None] = {}
    for worker in workers:
        if worker.share is not None and worker.share.takes_turns:
            shares[worker.share] = None
        else:
            feed(ctx, worker)
    for share in shares:
        _feed_in_turn(ctx, share)


def feed(ctx: Context, worker: Worker) -> None:
    """Assign tasks to a worker while it has room."""
    room = worker.room()
    while room > 0 and (lines := _lines(worker)) and _feed_some(ctx, worker, lines, room):
        room = worker.room()
    if worker.crew is not None:
        worker.crew.place(worker, room)


def _feed_in_turn(ctx: Context, share: Share) -> None:
    """Assign tasks to a worker of several namespaces, one at a time, while it has room."""
    waiting = [each for each in share.members if each.own_room() > 0 and _lines(each)]
    while waiting and share.room() > 0:
        member = min(waiting, key=lambda each: each.namespace.turn.place)
        lines = _lines(member) if member.own_room() > 0 else []
        if not lines or not _feed_one(ctx, member, lines):
            waiting.remove(member)
    share.place()


def _takes_turns(worker: Worker) -> bool:
    """Return whether a worker serves several namespaces, which take turns."""
    return worker.share is not None and worker.share.takes_turns


def _feed_some(ctx: Context, worker: Worker, lines: list[ReadyQueue], count: int) -> bool:
    """Assign the best eligible tasks to a worker, and return whether there were any."""
    if len(lines) == 1 and len(lines[0].lanes) == 1:
        lane, crew = lines[0].plain, worker.crew
        if crew is None or not crew.takes(lane):
            return False
        tasks = lane.first(min(count, worker.namespace.attempts_left()), ctx.book.tasks)
        _give(ctx, [worker] * len(tasks), tasks)
        return True
    return _feed_one(ctx, worker, lines)


def _feed_one(ctx: Context, worker: Worker, lines: list[ReadyQueue]) -> bool:
    """Assign the best task of several lines to a worker, and return whether there was one."""
    best, least = None, 0
    is_shut = partial(_is_shut, ctx, worker)
    takes_turns = len(lines) > 1 and _take_turns(worker.namespace, worker.queues)
    for line in lines:
        task = line.best(worker.keys, is_shut, ctx.book.tasks, worker.names)
        if task is not None:
            place = order(task, 0) + (line.queue.turn.place if takes_turns else 0)
            if best is None or place < least:
                best, least = task, place
    if best is not None:
        _give(ctx, (worker,), (best,))
    return best is not None


def _take_turns(namespace: Namespace, queues: Iterable[str]) -> bool:
    """Return whether queues take turns, because one of them has a weight."""
    return bool(namespace.weighted) and not namespace.weighted.keys().isdisjoint(queues)


def _lines(worker: Worker) -> list[ReadyQueue]:
    """Return the lines of the worker's queues that give out tasks."""
    lines: list[ReadyQueue] = []
    queues = worker.namespace.queues
    if worker.namespace.is_at_limit():
        return lines
    for name in worker.queues:
        queue = queues.get(name)
        if queue is not None and queue.line.size and not queue.paused_by:
            lines.append(queue.line)
    return lines


def _serve_lane(ctx: Context, lane: Lane) -> None:
    """Assign the tasks of a lane while it is open and a worker has room."""
    crews = _crews(ctx, lane)
    if not crews and not lane.is_picky:
        return
    is_plain = len(crews) == 1 and not lane.is_picky and not ctx.agenda.workers
    namespace = lane.queue.namespace
    while lane.size and not lane.closed_by and not lane.queue.paused_by:
        if namespace.is_at_limit():
            return
        if is_plain:
            workers = crews[0].deal(min(lane.size, namespace.attempts_left()))
            if not workers:
                return
            _give(ctx, workers, lane.first(len(workers), ctx.book.tasks))
        elif (worker := _choose(ctx, lane, crews)) is not None:
            _give_next(ctx, lane, worker)
        else:
            return


def _serve_lanes(ctx: Context, lanes: dict[Lane, None]) -> None:
    """Assign the tasks of several lanes, the best of all first.

    Within a queue its shares and its ageing rule decide which that is; across queues only priority
    and rank are comparable, unless they take turns by their weights. Room only shrinks meanwhile,
    so a lane without room is done.
    """
    heads: dict[Queue, list[tuple[int, int, Lane, Task]]] = {}
    crews = [_crews(ctx, lane) for lane in lanes]

    def note(number: int, lane: Lane) -> None:
        queue = lane.queue
        is_shut = lane.closed_by or queue.paused_by or queue.namespace.is_at_limit()
        task = None if is_shut else lane.head(ctx.book.tasks)
        if task is not None:
            entry = (lane.place(task), number, lane, task)
            heappush(heads.setdefault(lane.queue, []), entry)

    for number, lane in enumerate(lanes):
        note(number, lane)
    takes_turns = any(_take_turns(queue.namespace, (queue.name,)) for queue in heads)
    has_many = len({queue.namespace.name for queue in heads}) > 1  # They may share workers.

    def precedence(queue: Queue) -> tuple[int, int]:
        own = order(heads[queue][0][3], 0)
        namespace = queue.namespace.turn.place if has_many else 0
        return namespace, own + queue.turn.place if takes_turns else own

    while heads:
        queue = min(heads, key=precedence)
        place, number, lane, task = heappop(heads[queue])
        if not heads[queue]:
            del heads[queue]
        if lane.share is not None and task.lane is lane and lane.place(task) != place:
            note(number, lane)  # Its share has had a turn.
            continue
        is_shut = lane.closed_by or queue.namespace.is_at_limit()
        worker = None if is_shut else _choose(ctx, lane, crews[number])
        if worker is not None:
            _give_next(ctx, lane, worker)
            note(number, lane)


def _give_next(ctx: Context, lane: Lane, worker: Worker) -> None:
    """Assign the next task of a lane to a worker; one that has just got room takes its best."""
    if worker in ctx.agenda.workers:
        _feed_one(ctx, worker, _lines(worker))
    else:
        _give(ctx, (worker,), lane.first(1, ctx.book.tasks))


def _give(ctx: Context, workers: Sequence[Worker], tasks: Sequence[Task]) -> None:
    """Assign tasks to workers, as far as that changes nothing but the loads of the workers.

    A task that the worker does not implement is set apart, and the next one takes its turn.
    """
    now_us, counters, has_volatile = ctx.now_us, ctx.book.counters, ctx.book.has_volatile
    fence = counters.fence
    records: list[AttemptAssigned] = []
    given: list[Gift] = []
    last, has_slot, consumer = None, False, None
    latest: dict[Worker, None] = {}  # In the order in which they are given their last tasks.
    for task in tasks:
        worker = workers[len(given)]
        if worker.names is not None and task.name not in worker.names:
            task.queue.namespace.set_apart(task, ctx.book.tasks)
            ctx.agenda.offer(task)
            ctx.offer_opened()  # Its gates may have let another lane go.
            continue
        if (task.expires_us or (has_volatile and fence >= counters.reserved)) and not _can_go(
            ctx, task, fence, is_first=not given
        ):
            break
        fence += 1
        records.append(AttemptAssigned(now_us, task.id, fence, worker.id))
        if worker is not last:
            last, has_slot, consumer = worker, worker.has_slot(), worker.consumer
            latest.pop(worker, None)
            latest[worker] = None
        given.append((fence, task, worker, 0 if has_slot else _use_claim(ctx, worker)))
        is_gated = task.lane is not None and task.lane.gates
        is_lone = is_gated or task.options.needs or worker.share is not None
        if is_lone or (consumer and _begins(task, consumer)):
            break
    if given:
        _note_turns(given, ctx.roster.clock)
        ctx.record_all(records)
        for gift in given:
            _send(ctx, *gift)
        for worker in latest:
            _place(worker)
        _, task, worker, _ = given[-1]
        if task.options.needs is not None:  # Such a task is given alone.
            placement.note_given(ctx.roster, task, worker)


def _note_turns(given: Sequence[Gift], clock: Clock) -> None:
    """Let the share of each task, its queue and namespace have had a turn, if they take turns."""
    queue = given[0][1].queue
    fair, namespace = queue.line.fair, queue.namespace
    if _takes_turns(given[0][2]):  # Such a worker is given one task at a time.
        clock.serve(namespace.turn)
    if fair is not None:
        for _, task, _, _ in given:
            if task.lane is not None and task.lane.share is not None:
                fair.serve(task.lane.share)
    if namespace.weighted:
        for _ in given:
            namespace.clock.serve(queue.turn)


def _can_go(ctx: Context, task: Task, fence: int, *, is_first: bool) -> bool:
    """Return whether a task goes out now, after this fence.

    The first one lets go of what keeps it: it expires, or gets its fences.
    """
    if task.expires_us and task.expires_us <= ctx.now_us:
        if is_first:
            ctx.move(task, Event.EXPIRE, State.DEAD, reason=Reason.EXPIRED)
        return False
    if fence >= ctx.book.counters.reserved and is_volatile(task.id):
        if not is_first:
            return False
        _reserve(ctx, fence + FENCES_PER_BLOCK)
    return True


def _use_claim(ctx: Context, worker: Worker) -> int:
    """Take a task off the oldest claim of a worker, and return the ref of the claim."""
    claim = worker.claims[0]
    claim.left -= 1
    if not claim.left:
        worker.claims.popleft()
        ctx.roster.set_claim_timer(worker)
    return claim.ref


def _is_shut(ctx: Context, worker: Worker, lane: Lane) -> bool:
    """Return whether the tasks of a lane wait for another worker than this one.

    Those that failed on this one do, and those whose needs it does not meet just now.
    """
    queue, needs = lane.queue, lane.needs
    if needs is not None and not placement.can_take(
        ctx.roster, ctx.book.tasks, worker, lane, needs
    ):
        return True
    return lane.avoid == worker.id and ctx.roster.has_other(
        queue.namespace.name, queue.name, lane, worker.id
    )


def _crews(ctx: Context, lane: Lane) -> list[Crew]:
    """Return the crews that take the tasks of a lane."""
    queue = lane.queue
    crews = ctx.roster.serving.get((queue.namespace.name, queue.name))
    return [crew for crew in crews.values() if crew.takes(lane)] if crews else []


def _choose(ctx: Context, lane: Lane, crews: list[Crew]) -> Worker | None:
    """Return the worker that the next task of a lane goes to, if one has room."""
    needs = lane.needs
    if needs is None:
        return _least_loaded(ctx, lane, crews)
    worker = placement.best_fit(ctx.roster, ctx.book.tasks, lane, needs, crews)
    worker = worker or (_only_one(ctx, lane) if lane.avoid else None)
    if worker is None:
        placement.reserve(ctx.roster, ctx.book.tasks, lane, needs)
    return worker


def _least_loaded(ctx: Context, lane: Lane, crews: list[Crew]) -> Worker | None:
    best, preference = None, 0
    for crew in crews:
        worker = crew.least_loaded(lane.avoid)
        if worker is None or (best is not None and crew.preference < preference):
            continue
        if best is None or crew.preference > preference or worker.burden() < best.burden():
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


def _send(ctx: Context, fence: int, task: Task, worker: Worker, claim: int) -> None:
    """Send a task to the worker that it was assigned to."""
    options, queue = task.options, task.queue
    retries = queue.policy.retries if options.retry is None else options.retry.retries
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
                task.envelope if task.attempts == 1 and not claim else envelope_to_send(task),
                tuple(task.steps.done) if task.steps is not None else (),
                max(0, retries - task.failures),
                task.flow.in_order() if isinstance(task.flow, NodeState) else (),
            ),
        )
    )
    if worker.consumer is not None:
        _begin(ctx, task, worker, worker.consumer)


def _place(worker: Worker) -> None:
    """Note the load of a worker that was given tasks."""
    if worker.crew is not None:
        worker.crew.place(worker, worker.room())
        if worker.consumer is not None:
            worker.crew.rotate(worker)
    if worker.share is not None:
        worker.share.place()


def _begins(task: Task, consumer: Consumer) -> bool:
    """Return whether a task is begun, or even done, as soon as a consumer has it."""
    return consumer.credit is not None or task.queue.pool is not None


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
        ctx.end_tasks((AttemptFinished(ctx.now_us, task.id),))

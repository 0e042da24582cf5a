"""Placement: which worker a task with needs goes to.

Owns the choice among workers by resources and labels, and which worker is kept free for whom. What
a worker has left follows from the tasks that it holds, so that nothing can leak. Volatile: after a
restart the choice begins again.

Theory of operation
===================

A worker *can host* a task if all that it has is enough and its labels are those required; it *can
take* the task if what is left is enough. The tasks of a lane have the same needs, so that one
question answers for all of them, and what no worker can take stands in no other's way.

Among those that can take a task the best fit is the one with the most preferred labels, then the
one with the fewest resources that the task has no use for, then the one that is left with the least
of the scarcest that the task needs, then the least loaded. So small tasks fill the gaps, and what
is rare stays whole.

Small tasks that always find a gap would keep a large one waiting forever. So a lane that is left
with tasks has a worker reserved, one that could host them and lacks the least. From then on what
comes later in order takes of that worker only what leaves enough for a task of the lane. Everything
that the worker holds ends some day, so the large task starts then at the latest, unless one that
comes before it in order wants the same. A reservation ends with the tasks of its lane, when these
may not start anyhow, or when its worker goes. One worker is reserved for one lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jackalope.core.limits import RESERVATIONS_MAX, STICKY_VALUES_MAX
from jackalope.core.shapes.needs import Needs, matches
from jackalope.core.state.ready_queue import Lane, order
from jackalope.core.state.roster import Crew, Roster, Worker

if TYPE_CHECKING:
    from jackalope.core.ids import TaskId
    from jackalope.core.task import Task

Tasks = dict["TaskId", "Task"]

#: What is left of a resource is compared in such parts of the whole.
_PARTS = 2**20


def can_take(roster: Roster, tasks: Tasks, worker: Worker, lane: Lane, needs: Needs) -> bool:
    """Return whether a worker may be given a task of a lane with these needs now."""
    if not worker.can_host(needs) or not worker.has_left(needs):
        return False
    if needs.avoid and matches(worker.labels, needs.avoid) and _has_better(roster, lane, needs):
        return False
    return all(
        kept is lane
        or kept.needs is None
        or _leaves_enough(worker, needs, kept.needs)
        or _is_before(tasks, lane, kept)
        for kept in worker.kept()
    )


def best_fit(
    roster: Roster, tasks: Tasks, lane: Lane, needs: Needs, crews: Iterable[Crew]
) -> Worker | None:
    """Return the worker with room that a task of a lane goes to, if there is one."""
    able = [
        worker
        for crew in crews
        for worker in crew.with_room()
        if worker.id != lane.avoid and can_take(roster, tasks, worker, lane, needs)
    ]
    if len(able) <= 1:
        return able[0] if able else None
    task = lane.head(tasks)
    if task is not None and (last := last_worker(roster, task)):
        for worker in able:
            if worker.id == last:
                return worker
    return min(able, key=lambda worker: _fitness(worker, needs))


def _fitness(worker: Worker, needs: Needs) -> tuple[int, int, int, int, int, str]:
    """Return a sort key: the lesser fits better. The worker can take the task."""
    used, has = worker.used, worker.resources
    left = (
        (has[name] - used.get(name, 0) - amount) * _PARTS // has[name]
        for name, amount in needs.resources
    )
    wanted = {name for name, _ in needs.resources}
    spared = sum(name not in wanted and amount > used.get(name, 0) for name, amount in has.items())
    consumer = 0 if worker.consumer is None else worker.consumer.priority
    preferred = matches(worker.labels, needs.prefer)
    return (-consumer, -preferred, spared, min(left, default=0), worker.burden(), worker.id)


def _has_better(roster: Roster, lane: Lane, needs: Needs) -> bool:
    """Return whether a worker is there that could host a lane, and that it need not avoid."""
    return any(not matches(worker.labels, needs.avoid) for worker in hosts(roster, lane, needs))


def hosts(roster: Roster, lane: Lane, needs: Needs) -> Iterator[Worker]:
    """Yield the workers, busy or not, that could host the tasks of a lane."""
    queue = lane.queue
    for crew in roster.crews(queue.namespace.name, queue.name):
        if crew.takes(lane):
            for worker in crew.members.values():
                if worker.is_there() and worker.can_host(needs):
                    yield worker


def _leaves_enough(worker: Worker, needs: Needs, reserved: Needs) -> bool:
    """Return whether a task leaves what is reserved for another, now and while both run."""
    taken = dict(needs.resources)
    return all(
        worker.left(name) - taken[name] >= amount
        for name, amount in reserved.resources
        if name in taken
    )


def _is_before(tasks: Tasks, lane: Lane, other: Lane) -> bool:
    """Return whether the next task of a lane comes before that of another."""
    task, its = lane.head(tasks), other.head(tasks)
    if task is None or its is None:
        return task is not None
    if lane.queue.namespace is not other.queue.namespace:
        return False  # Priorities are a namespace's own.
    ageing_us = lane.queue.policy.ageing_us if lane.queue is other.queue else 0
    return order(task, ageing_us) < order(its, ageing_us)


def shortfall(worker: Worker, needs: Needs) -> tuple[int, int, str]:
    """Return a sort key of workers that can never host a task: the lesser lacks less."""
    parts = [
        (amount - has) * _PARTS // amount
        for name, amount in needs.resources
        if (has := worker.resources.get(name, 0)) < amount
    ]
    unmet = len(parts) + len(needs.labels) - matches(worker.labels, needs.labels)
    return (unmet, max(parts, default=0), worker.id)


# Reservations.


def reserve(roster: Roster, tasks: Tasks, lane: Lane, needs: Needs) -> None:
    """Keep a worker for a lane that is left with tasks, if there is one that is not kept yet."""
    if lane in roster.reserved or not _is_open(lane):
        return
    able = list(hosts(roster, lane, needs))
    if not able:
        roster.unreserved.pop(lane, None)  # It is offered again when a worker comes.
        return
    for is_other in (
        lambda worker: worker.id != lane.avoid,
        lambda worker: not matches(worker.labels, needs.avoid),
    ):
        able = [worker for worker in able if is_other(worker)] or able
    free = [worker for worker in able if not worker.kept()]
    if not free or len(roster.reserved) >= RESERVATIONS_MAX:
        roster.unreserved[lane] = None
        return
    worker = min(free, key=lambda worker: _shortage(worker, needs))
    roster.unreserved.pop(lane, None)
    roster.reserved[lane] = worker
    worker.reserved, worker.kept_for = lane, _order(tasks, lane)


def _shortage(worker: Worker, needs: Needs) -> tuple[int, int, int, str]:
    """Return a sort key: the lesser is sooner able to take a task of these needs."""
    missing = (
        max(0, amount - worker.left(name)) * _PARTS // amount for name, amount in needs.resources
    )
    preferred = matches(worker.labels, needs.prefer)
    return (max(missing, default=0), -preferred, worker.burden(), worker.id)


def review(roster: Roster, tasks: Tasks) -> list[Worker]:
    """Let go of workers that need no longer be kept free, and keep others instead.

    Returns:
        Those that may take tasks now which they could not take before.
    """
    freed: list[Worker] = []
    released = False
    for lane, worker in list(roster.reserved.items()):
        needs = lane.needs
        is_kept = needs is not None and _is_open(lane) and worker.can_host(needs)
        if not is_kept or not worker.is_there() or worker.reserved is not lane:
            released = True
            del roster.reserved[lane]
            if worker.reserved is lane:
                worker.reserved = None
            if worker.crew is not None:
                freed.append(worker)
            if lane.size:
                roster.unreserved[lane] = None
        elif worker.kept_for != (head := _order(tasks, lane)):
            worker.kept_for = head  # Others may come before that one.
            freed.append(worker)
    if roster.unreserved and (released or len(roster.unreserved) > 2 * RESERVATIONS_MAX):
        waiting = [lane for lane in roster.unreserved if lane.size]
        waiting.sort(key=lambda lane: _order(tasks, lane))
        roster.unreserved = dict.fromkeys(waiting)
        for lane in waiting[:RESERVATIONS_MAX] if released else ():
            if lane.needs is not None:
                reserve(roster, tasks, lane, lane.needs)
    return freed


def _order(tasks: Tasks, lane: Lane) -> int:
    task = lane.head(tasks)
    return 0 if task is None else order(task, 0)


def _is_open(lane: Lane) -> bool:
    return bool(lane.size) and not lane.closed_by and not lane.queue.paused_by


# Sticky tasks.


def last_worker(roster: Roster, task: Task) -> str:
    """Return the worker that had the last task of the same sticky value; empty if unknown."""
    needs = task.options.needs
    if needs is None or not needs.sticky:
        return ""
    queue = task.queue
    return roster.sticky.get((queue.namespace.name, queue.name, needs.sticky), "")


def note_given(roster: Roster, task: Task, worker: Worker) -> None:
    """Remember which worker has the latest task of a sticky value."""
    needs, queue, sticky = task.options.needs, task.queue, roster.sticky
    if needs is None or not needs.sticky:
        return
    name = (queue.namespace.name, queue.name, needs.sticky)
    sticky.pop(name, None)
    sticky[name] = worker.id
    if len(sticky) > STICKY_VALUES_MAX:
        del sticky[next(iter(sticky))]

"""Namespaces and queues: separate sets of queues, and the lanes of work in them.

Owns what belongs to one namespace or one queue: its policy, who is next, what is in flight, what
the limits allow. Knows nothing of records and commands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from jackalope.core.assertions import must
from jackalope.core.durations import MILLISECOND, MINUTE, SECOND
from jackalope.core.ids import is_volatile
from jackalope.core.lifecycle import State
from jackalope.core.limits import COUNT_MAX, TALLIES_PER_NAMESPACE_MAX
from jackalope.core.shapes.callback import CallbackOn
from jackalope.core.shapes.exchange import AmqpTraits
from jackalope.core.shapes.keys import value_of
from jackalope.core.shapes.namespace import DEFAULT_SETTINGS, FULL, NamespaceRow, NamespaceSettings
from jackalope.core.shapes.needs import alike
from jackalope.core.state.answers import Cache
from jackalope.core.state.changes import QueueRow, Tally
from jackalope.core.state.contracts import KnownTask
from jackalope.core.state.fair_shares import QUANTUM, Clock, Turn
from jackalope.core.state.gates import GateChanges, Gates, gate_name
from jackalope.core.state.ready_queue import LaneName, ReadyQueue
from jackalope.core.state.topology import Topology
from jackalope.core.task import NO_OPTIONS, runs, size_of

if TYPE_CHECKING:
    from jackalope.core.commands.base import Limited
    from jackalope.core.ids import TaskId
    from jackalope.core.policy import Policy
    from jackalope.core.shapes.limit import Limit
    from jackalope.core.shapes.needs import Needs
    from jackalope.core.shapes.pace import Kind, Throttled
    from jackalope.core.shapes.pool import PoolSettings
    from jackalope.core.shapes.schedule import Schedule
    from jackalope.core.task import Task

_RECENT_ENDS = 128
_RETRY_AFTER_US_MIN = 100 * MILLISECOND
_RETRY_AFTER_US_MAX = MINUTE
_RETRY_AFTER_US_IDLE = 10 * SECOND

_lane_of = attrgetter("lane")
_created_us = attrgetter("created_us")


class Queue:
    """A queue of a namespace, with one policy."""

    def __init__(self, namespace: Namespace, name: str, policy: Policy) -> None:
        self.namespace = namespace
        self.name = name
        self.entity = ("queue", namespace.name, name)  # what storage knows it by
        self.policy = policy
        self.paused_by = ""  # who paused the queue, or empty
        self.batch = 1  # the number of the batch that is being filled; batches count from 1
        self.batch_fill = 0  # how many tasks that batch has
        self.counts = dict.fromkeys(State, 0)  # unfinished tasks by state
        self.depth = 0  # how many of them wait, and so count against the depth limit
        self.line = ReadyQueue(self)
        self.turn = Turn(policy.weight or 1)  # among the queues of a worker, if they take turns
        # when the latest tasks ended, for judging how fast the queue drains
        self.recent_ends_us: deque[int] = deque(maxlen=_RECENT_ENDS)
        self.ended: dict[State, int] = {}  # tasks that ended since this book was opened, by state
        self.cache = Cache()  # the requests under way, and the answers that are kept
        self.pool: PoolSettings | None = None  # how workers are started for it, if they are
        self.pins: dict[str, None] = {}  # the keys whose groups of workers stay up
        # what it is beyond its policy, if it was declared over AMQP
        self.traits: AmqpTraits | None = None
        self.contracts: dict[str, KnownTask] = {}  # what its tasks take, by name, where it is known
        # the bytes of the bodies of ready tasks, if they are limited; see `weigh`
        self.ready_bytes = 0
        # the last task of each kind whose place a later submit may take; see `paces.standing`
        self.standing: dict[Kind, TaskId] = {}
        # unfinished tasks by batch, if the ends of batches are posted; see `watch_batches`
        self.batches: dict[int, int] | None = None
        # the keys that its limits and shares go by; the broker fills in what a submitter left out
        self.key_names: tuple[str, ...] = ()
        self.limits: tuple[Limit, ...] = ()  # of its tasks, but for those of tags
        self.follow_keys()
        self.watch_batches(())

    @classmethod
    def from_row(cls, namespace: Namespace, row: QueueRow) -> Queue:
        queue = cls(namespace, row.queue, row.policy)
        queue.paused_by, queue.traits = row.paused_by, row.traits
        queue.batch, queue.batch_fill = row.batch, row.batch_fill
        queue.pool, queue.pins = row.pool, dict.fromkeys(row.pins)
        if row.pool is not None:
            namespace.topology.put_pool(row.queue)
        namespace.weigh(queue)
        return queue

    def follow_keys(self) -> None:
        """Note the limits and keys of its tasks, after they or its policy changed."""
        self.limits = self.namespace.gates.of_queue(self.name)
        names = dict.fromkeys((self.policy.fair_by,) if self.policy.fair_by else ())
        for limit in self.limits:
            names.update(dict.fromkeys(limit.settings.keys))
            if limit.settings.cost_key:
                names[limit.settings.cost_key] = None
        self.key_names = tuple(names)

    def is_volatile(self) -> bool:
        """Return whether the queue is never written to disk."""
        return self.traits is not None and self.traits.is_volatile()

    def weigh(self, tasks: dict[TaskId, Task]) -> None:
        """Recount the bytes of all ready tasks after their limit changed."""
        is_limited = self.traits is not None and self.traits.bytes_max
        ready = (tasks.get(task_id) for lane in self.line.lanes.values() for task_id in set(lane))
        self.ready_bytes = (
            sum(
                size_of(task.payload) for task in ready if task and task.lane and task.queue is self
            )
            if is_limited
            else 0
        )

    def watch_batches(self, unfinished: Iterable[Task]) -> None:
        """Count the unfinished tasks of each batch from now on, if the policy asks for it."""
        is_watched = any(CallbackOn.BATCH in each.on for each in self.policy.callbacks)
        self.batches = {} if is_watched else None
        if self.batches is not None:
            self._count_in_batches(self.batches, unfinished, 1)

    def count_in(self, tasks: Sequence[Task], by: int = 1) -> None:
        """Count unfinished tasks in, or out of, their batches and the bytes of the namespace."""
        if self.batches is not None:
            self._count_in_batches(self.batches, tasks, by)
        if self.namespace.bytes_stored is not None:
            self.namespace.bytes_stored += by * sum(size_of(task.payload) for task in tasks)

    def _count_in_batches(self, batches: dict[int, int], tasks: Iterable[Task], by: int) -> None:
        for task in tasks:  # Volatile tasks fill none.
            if not is_volatile(task.id):
                count = batches.get(task.batch, 0) + by
                if count:
                    batches[task.batch] = count
                else:
                    del batches[task.batch]

    def has_ended(self, batch: int) -> bool:
        """Return whether a batch is full and all of its tasks have ended."""
        if self.batches is None or batch in self.batches:
            return False
        return batch < self.batch or self.batch_fill >= self.policy.batch_size

    def is_seen_by(self, command: Limited) -> bool:
        """Return whether the queue is visible to the sender, who may be limited to others."""
        is_there = self.namespace.name == command.namespace
        return is_there and (not command.only or self.name in command.only)

    def room(self) -> tuple[int | None, int]:
        """Return how many tasks, or None for any number, and how many bytes may be ready."""
        if self.traits is None:
            return self.policy.depth_limit or None, 0
        return self.traits.length_max, self.traits.bytes_max

    def unfinished(self) -> int:
        return sum(self.counts.values())

    def retry_after_us(self, wanted: int, now_us: int) -> int:
        """Estimate when there is room for `wanted` tasks, from how fast recent ones ended."""
        ends = self.recent_ends_us
        if not ends:
            return _RETRY_AFTER_US_IDLE
        per_task_us = max(1, (now_us - ends[0]) // len(ends))
        return min(max(per_task_us * wanted, _RETRY_AFTER_US_MIN), _RETRY_AFTER_US_MAX)

    def to_row(self) -> QueueRow:
        return QueueRow(
            namespace=self.namespace.name,
            queue=self.name,
            policy=self.policy,
            paused_by=self.paused_by,
            batch=self.batch,
            batch_fill=self.batch_fill,
            pool=self.pool,
            pins=tuple(self.pins),
            traits=self.traits,
        )


class Namespace:
    """A separate set of queues, aliases, workers and tags."""

    def __init__(self, name: str, changes: GateChanges | None = None) -> None:
        self.name = name
        self.queues: dict[str, Queue] = {}
        self.aliases: dict[str, TaskId] = {}  # the task of each alias, of those that are in memory
        self.leases: dict[str, dict[TaskId, Task]] = {}  # what each worker holds
        # how much of each resource that takes, in thousandths. Held by leases alone.
        self.used: dict[str, dict[str, int]] = {}
        # the limits of tags and keys, and their use. Held by leases alone, so a slot cannot leak.
        self.gates = Gates(name, GateChanges() if changes is None else changes)
        self.tallies: dict[str, Tally] = {}  # what each worker has done
        self.schedules: dict[str, Schedule] = {}  # what is submitted, and when
        # the unfinished tasks of each schedule, also of one that is deleted
        self.runs: dict[str, dict[TaskId, None]] = {}
        self.throttles: dict[str, Throttled] = {}  # kinds of which none is accepted for a while
        self.topology = Topology()  # exchanges, bindings and rules
        self.weighted: dict[str, None] = {}  # the queues that have a weight
        self.clock = Clock()  # of the queues, if any of them has one
        self.turn = Turn()  # among the namespaces of a worker that serves several
        self.settings = DEFAULT_SETTINGS
        self.is_declared = False  # it was created, and did not come into being by being named
        self.created_us = 0  # when it was created
        self.by = ""  # who created it
        self.depth = 0  # how many tasks of its queues wait
        self.leased = 0  # how many are with workers
        # the bytes of the payloads of unfinished tasks, if they are limited
        self.bytes_stored: int | None = None
        # the rate of submits: as the records have it, and with volatile tasks, which have none
        self.bucket = self.bucket_now = FULL
        self.has_quotas = False  # a submit may be refused because of its settings

    def weigh(self, queue: Queue) -> None:
        """Follow the weight of a queue after it changed."""
        queue.turn.step = QUANTUM // (queue.policy.weight or 1)
        if queue.policy.weight:
            self.weighted[queue.name] = None
        else:
            self.weighted.pop(queue.name, None)

    def set_up(self, settings: NamespaceSettings, unfinished: Iterable[Task]) -> None:
        """Give the namespace other settings, and count what these limit."""
        if settings.submits_per_second != self.settings.submits_per_second:
            self.bucket = self.bucket_now = FULL
        self.settings = settings
        self.turn.step = QUANTUM // settings.weight
        self.has_quotas = bool(
            settings.tasks_queued or settings.bytes_stored or settings.submits_per_second
        )
        if not settings.bytes_stored:
            self.bytes_stored = None
        elif self.bytes_stored is None:
            self.bytes_stored = sum(size_of(task.payload) for task in unfinished)

    def spend(self, tasks: Sequence[Task]) -> None:
        """Take a token of the rate of submits for each task that was accepted."""
        for at_us, some in groupby(tasks, _created_us):
            spent = [is_volatile(task.id) for task in some]
            lasting = len(spent) - sum(spent)
            self.bucket_now = self.bucket_now.without(len(spent), self.settings, at_us)
            if lasting:
                self.bucket = self.bucket.without(lasting, self.settings, at_us)

    def is_at_limit(self) -> bool:
        """Return whether workers have as many of its tasks as they may."""
        limit = self.settings.concurrent_attempts
        return 0 < limit <= self.leased

    def attempts_left(self) -> int:
        """Return how many more of its tasks workers may have."""
        limit = self.settings.concurrent_attempts
        return limit - self.leased if limit else COUNT_MAX

    def to_row(self) -> NamespaceRow:
        return NamespaceRow(self.settings, self.created_us, self.by, self.bucket)

    def take_row(self, row: NamespaceRow) -> None:
        """Adopt what is stored, before there is anything in the namespace."""
        self.is_declared, self.created_us, self.by = True, row.created_us, row.by
        self.set_up(row.settings, ())
        self.bucket = self.bucket_now = row.bucket

    def line_up(self, queue: Queue, ready: Sequence[Task], tasks: dict[TaskId, Task]) -> None:
        """Enqueue ready tasks of a queue."""
        line, plain = queue.line, []
        for task in ready:
            options = task.options
            is_free = options is NO_OPTIONS or not (options.tags or options.needs)
            is_free = is_free and not (queue.limits or line.fair)
            if is_free and not (task.key or task.avoid or line.named):
                plain.append(task)
            else:
                has_lane = task.avoid or options.needs or task.name in line.named
                self._stand(task, task.name if has_lane else None, tasks)
        if plain:
            line.push(plain, line.plain, tasks)

    def set_apart(self, task: Task, tasks: dict[TaskId, Task]) -> None:
        """Move a ready task to a lane of its name, because some workers do not implement it."""
        self.step_out(task.queue, (task,), tasks)
        self._stand(task, task.name, tasks)

    def _stand(self, task: Task, name: str | None, tasks: dict[TaskId, Task]) -> None:
        line = task.queue.line
        lane, is_new = line.lane(self._lane_name(task, name))
        if is_new and lane.name.gates:
            self.gates.enter(lane, lane.name.gates, tasks)
        line.push((task,), lane, tasks)
        if lane.gates:
            self.gates.entered(lane, tasks)

    def step_out(self, queue: Queue, leaving: Sequence[Task], tasks: dict[TaskId, Task]) -> None:
        """Remove tasks of a queue from its line."""
        line = queue.line
        if len(line.lanes) == 1:
            line.remove(leaving, line.plain, tasks)
            return
        for lane, run in runs(leaving, _lane_of):
            line.remove(run, lane, tasks)
            if not lane.size and lane is not line.plain:
                line.drop(lane)
                if lane.gates:
                    self.gates.leave(lane, tasks)
            elif lane.gates:
                self.gates.left(lane, tasks)

    def _lane_name(self, task: Task, name: str | None) -> LaneName:
        """Return the lane that a task belongs to."""
        share = share_of(task) if task.queue.line.fair is not None else ""
        needs = None if task.options.needs is None else alike(task.options.needs)
        return LaneName(task.key, self.gates.names(task), task.avoid, name, share, needs)

    def hold_resources(self, worker: str, needs: Needs) -> None:
        """Take what a task needs of its worker."""
        for name, amount in needs.resources:
            used = self.used.setdefault(worker, {})
            used[name] = used.get(name, 0) + amount

    def free_resources(self, worker: str, needs: Needs) -> None:
        """Give back what a task needed of its worker."""
        for name, amount in needs.resources:
            used = self.used[worker]
            left = used[name] - amount
            must(left >= 0, "a freed resource was held", worker, name)
            if left:
                used[name] = left
            else:
                del used[name]
                if not used:
                    del self.used[worker]

    def limit_tag(self, tag: str, limit: int, tasks: dict[TaskId, Task]) -> None:
        """Set, change or (negative) remove the limit of a tag."""
        with self._apart("", lambda task: tag in task.options.tags, tasks):
            if limit < 0:
                self.gates.tags.pop(tag, None)
            else:
                self.gates.tags[tag] = limit

    def restore_limit(self, kind: str, name: str, value: Any, tasks: dict[TaskId, Task]) -> None:
        """Put a stored limit or bucket back; see `gates.GATE_KINDS`."""
        if kind == "limit":
            self.gates.tags[name] = value
        elif kind == "key_limit":
            self.set_limit(value, 0, tasks)
        else:
            self.gates.restore(gate_name(name), value)

    def set_limit(self, limit: Limit, at_us: int, tasks: dict[TaskId, Task]) -> list[str]:
        """Set or change a limit, and return the names of the buckets that changed."""
        gates = self.gates
        known = gates.limits.get(limit.name)
        if known is not None and known.settings.scope() == limit.settings.scope():
            changed = gates.change(limit, at_us, tasks)
            self._follow_limits()
            return [gate.text() for gate in changed]
        gone = [] if known is None else self.delete_limit(limit.name, tasks)
        with self._apart(limit.settings.queue, _is_meant(limit), tasks):
            gates.limits[limit.name] = limit
            self._follow_limits()
        return gone

    def delete_limit(self, name: str, tasks: dict[TaskId, Task]) -> list[str]:
        """Delete a limit, and return the names of its buckets."""
        limit = self.gates.limits[name]
        with self._apart(limit.settings.queue, _is_meant(limit), tasks):
            gone = self.gates.delete(name)
            self._follow_limits()
        return gone

    def _follow_limits(self) -> None:
        for queue in self.queues.values():
            queue.follow_keys()

    @contextmanager
    def _apart(
        self, queue: str, is_affected: Callable[[Task], bool], tasks: dict[TaskId, Task]
    ) -> Iterator[None]:
        """Take tasks out of line and their slots away while limits change, and put them back.

        Tasks of other queues, and those that are not affected, stay: to move one costs time.
        """
        queues = [each for each in self.queues.values() if queue in ("", each.name)]
        ready = [task for each in queues for task in each.line.all(tasks) if is_affected(task)]
        ready.sort(key=lambda task: task.rank)
        leased = [
            task
            for held in self.leases.values()
            for task in held.values()
            if queue in ("", task.queue.name) and is_affected(task)
        ]
        by_lane: dict[object, list[Task]] = {}
        for task in ready:
            by_lane.setdefault(task.lane, []).append(task)
        for leaving in by_lane.values():
            self.step_out(leaving[0].queue, leaving, tasks)
        for task in leased:
            self.gates.free(task, tasks)
        yield
        for task in leased:
            self.gates.hold(task, tasks)
        for task in ready:
            self.line_up(task.queue, (task,), tasks)
            self.gates.changes.opened[_lane_of(task)] = None

    def share_out(self, queue: Queue, tasks: dict[TaskId, Task]) -> None:
        """Enqueue the ready tasks of a queue again, because its fairness key changed."""
        affected = sorted(queue.line.all(tasks), key=lambda task: task.rank)
        for task in affected:
            self.step_out(queue, (task,), tasks)
        queue.line.share_out()
        self.line_up(queue, affected, tasks)


def _is_meant(limit: Limit) -> Callable[[Task], bool]:
    """Return what tells whether a task of its queue can have gates of a limit."""
    name = limit.settings.task
    return lambda task: name in ("", task.name)


def share_of(task: Task) -> str:
    """Return the value of the fairness key of a task's queue; empty if the task has none."""
    options = task.options
    return value_of(task.queue.policy.fair_by, options.keys, options.headers, task.payload)


# Tallies: what each worker has done, by its name. Durable: the records that end attempts name the
# worker, so that the counts outlive its sessions and the broker.


NO_TALLY = Tally()


def make_room(namespace: Namespace) -> str:
    """Forget the least recently active worker if the limit is reached, and return its name."""
    tallies = namespace.tallies
    if len(tallies) < TALLIES_PER_NAMESPACE_MAX:
        return ""
    oldest = min(tallies, key=lambda worker: (tallies[worker].at_us, worker))
    del tallies[oldest]
    return oldest

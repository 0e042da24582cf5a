"""Namespaces and queues: separate sets of queues, and the lanes of work in them.

Owns what belongs to one namespace or one queue: its policy, who is next, what is in flight, what
the tags allow. Knows nothing of records and commands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from jackalope.core.assertions import must
from jackalope.core.durations import MILLISECOND, MINUTE, SECOND
from jackalope.core.ids import is_volatile
from jackalope.core.lifecycle import State
from jackalope.core.limits import TALLIES_PER_NAMESPACE_MAX
from jackalope.core.shapes.callback import CallbackOn
from jackalope.core.shapes.exchange import AmqpTraits
from jackalope.core.state.answers import Cache
from jackalope.core.state.changes import QueueRow, Tally
from jackalope.core.state.ready_queue import Lane, LaneName, ReadyQueue
from jackalope.core.state.topology import Topology
from jackalope.core.task import NO_OPTIONS, runs, size_of

if TYPE_CHECKING:
    from jackalope.core.commands.base import Limited
    from jackalope.core.ids import TaskId
    from jackalope.core.policy import Policy
    from jackalope.core.shapes.pace import Kind, Throttled
    from jackalope.core.shapes.pool import PoolSettings
    from jackalope.core.shapes.schedule import Schedule
    from jackalope.core.task import Task

_RECENT_ENDS = 128
_RETRY_AFTER_US_MIN = 100 * MILLISECOND
_RETRY_AFTER_US_MAX = MINUTE
_RETRY_AFTER_US_IDLE = 10 * SECOND

_lane_of = attrgetter("lane")


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
        # when the latest tasks ended, for judging how fast the queue drains
        self.recent_ends_us: deque[int] = deque(maxlen=_RECENT_ENDS)
        self.ended: dict[State, int] = {}  # tasks that ended since this book was opened, by state
        self.cache = Cache()  # the requests under way, and the answers that are kept
        self.pool: PoolSettings | None = None  # how workers are started for it, if they are
        self.pins: dict[str, None] = {}  # the keys whose groups of workers stay up
        # what it is beyond its policy, if it was declared over AMQP
        self.traits: AmqpTraits | None = None
        # the bytes of the bodies of ready tasks, if they are limited; see `weigh`
        self.ready_bytes = 0
        # the last task of each kind whose place a later submit may take; see `paces.standing`
        self.standing: dict[Kind, TaskId] = {}
        # unfinished tasks by batch, if the ends of batches are posted; see `watch_batches`
        self.batches: dict[int, int] | None = None
        self.watch_batches(())

    @classmethod
    def from_row(cls, namespace: Namespace, row: QueueRow) -> Queue:
        queue = cls(namespace, row.queue, row.policy)
        queue.paused_by, queue.traits = row.paused_by, row.traits
        queue.batch, queue.batch_fill = row.batch, row.batch_fill
        queue.pool, queue.pins = row.pool, dict.fromkeys(row.pins)
        if row.pool is not None:
            namespace.topology.put_pool(row.queue)
        return queue

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
        self.count_in(unfinished)

    def count_in(self, tasks: Iterable[Task], by: int = 1) -> None:
        """Count unfinished tasks in, or out of, their batches; volatile tasks fill none."""
        batches = self.batches
        if batches is None:
            return
        for task in tasks:
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

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: dict[str, Queue] = {}
        self.aliases: dict[str, TaskId] = {}  # the task of each alias, of those that are in memory
        self.leases: dict[str, dict[TaskId, Task]] = {}  # what each worker holds
        self.limits: dict[str, int] = {}  # how many tasks with a tag may be leased at once
        # how many are. Held by leases alone, so a slot cannot leak.
        self.in_flight: dict[str, int] = {}
        # the lanes that each limited tag can close
        self.limited_lanes: dict[str, dict[Lane, None]] = {}
        self.tallies: dict[str, Tally] = {}  # what each worker has done
        self.schedules: dict[str, Schedule] = {}  # what is submitted, and when
        self.throttles: dict[str, Throttled] = {}  # kinds of which none is accepted for a while
        self.topology = Topology()  # exchanges, bindings and rules

    def is_full(self, tag: str) -> bool:
        """Return whether a tag is at its limit."""
        limit = self.limits.get(tag)
        return limit is not None and self.in_flight.get(tag, 0) >= limit

    def line_up(self, queue: Queue, ready: Sequence[Task], tasks: dict[TaskId, Task]) -> None:
        """Enqueue ready tasks of a queue."""
        line, plain = queue.line, []
        for task in ready:
            is_free = task.options is NO_OPTIONS or not task.options.tags
            if is_free and not (task.key or task.avoid or line.named):
                plain.append(task)
            else:
                has_lane = task.avoid or task.name in line.named
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
        if is_new:
            for tag in lane.tags:
                self.limited_lanes.setdefault(tag, {})[lane] = None
                lane.closed_by += self.is_full(tag)
        line.push((task,), lane, tasks)

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
                for tag in lane.tags:
                    del self.limited_lanes[tag][lane]

    def _lane_name(self, task: Task, name: str | None) -> LaneName:
        """Return the lane that a task belongs to. Tags without a limit make no difference."""
        limited = tuple(sorted({tag for tag in task.options.tags if tag in self.limits}))
        return (task.key, limited, task.avoid, name)

    def hold_tags(self, task: Task) -> None:
        """Take a slot of each tag, and close the lanes of those that are now full."""
        for tag in set(task.options.tags):
            held = self.in_flight.get(tag, 0) + 1
            self.in_flight[tag] = held
            if held == self.limits.get(tag):
                for lane in self.limited_lanes.get(tag, ()):
                    lane.closed_by += 1

    def free_tags(self, task: Task, tasks: dict[TaskId, Task]) -> None:
        """Release the slots, and open the lanes of tags that are no longer full."""
        for tag in set(task.options.tags):
            held = self.in_flight[tag]
            must(held > 0, "a freed tag was held", tag)
            if held == 1:
                del self.in_flight[tag]
            else:
                self.in_flight[tag] = held - 1
            if held == self.limits.get(tag):
                for lane in self.limited_lanes.get(tag, ()):
                    lane.closed_by -= 1
                    lane.queue.line.reopen(lane, tasks)

    def limit_tag(self, tag: str, limit: int, tasks: dict[TaskId, Task]) -> None:
        """Set, change or (negative) remove the limit of a tag, and enqueue its tasks again."""
        affected = [
            task
            for queue in self.queues.values()
            for lane in list(queue.line.lanes.values())
            for task_id in set(lane)
            if (task := tasks.get(task_id)) and task.lane is lane and tag in task.options.tags
        ]
        affected.sort(key=lambda task: task.rank)
        for task in affected:
            self.step_out(task.queue, (task,), tasks)
        must(not self.limited_lanes.pop(tag, None), "no lane of a tag is left", tag)
        if limit < 0:
            self.limits.pop(tag, None)
        else:
            self.limits[tag] = limit
        for task in affected:
            self.line_up(task.queue, (task,), tasks)


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

"""Gates: what tasks with the same keys, or the same tag, share, and what keeps them waiting.

Owns the use of every limit: how many leases it has, what its bucket holds, and which lanes of ready
tasks it closes. Knows nothing of records and commands, or of how lanes are ordered.

Theory of operation
===================

A gate stands for one limit and one value of each of its keys; a limited tag is a gate as well. A
task starts only if all of its gates are open, and takes a slot of each as part of its lease. So
slots are freed with the lease, and none can leak. Tokens are taken by the record that assigns, at
its time, so every node has the same buckets.

Lanes have tasks with equal gates. A gate that has no room is shut, and closes its lanes: each lane
that must wait is parked at one gate that is shut. When that gate opens it lets as many of the best
lanes go as it has room for, of each kind that workers tell apart, and no more: the rest could not
start anyway. So what a slot costs does not grow with the number of lanes behind it. A lane that is
let go and finds another of its gates shut is parked there. An open gate has, for each kind, as many
lanes at large as it has room for, or nothing parked (`_settle`); and those are the best: what comes
and is worse than a lane that is parked there is parked too (`_kept_by`).

Where tasks cost different numbers of tokens, a gate opens when its bucket has enough for the most
expensive one that waits. So the cheap ones do not starve it.

A gate exists while it has a lease, a lane, or a bucket that is not full. Which lanes are parked is
not durable, and follows from the time of the last look (`GateChanges.now_us`).
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, Any

import msgspec

from jackalope.core.assertions import must
from jackalope.core.ids import is_volatile
from jackalope.core.limits import RATE_MAX
from jackalope.core.shapes.keys import value_of
from jackalope.core.shapes.limit import UNBOUNDED, Bucket, Limit, LimitSettings, OnFull, full_bucket
from jackalope.core.state.timers import Timers

if TYPE_CHECKING:
    from jackalope.core.ids import TaskId
    from jackalope.core.state.ready_queue import Lane
    from jackalope.core.task import Task

#: The limit and the values of its keys; the limit of a tag has no name.
GateName = tuple[str, ...]

#: The gates of a task, each with the tokens that it takes.
GateNames = tuple[tuple[GateName, int], ...]

#: What workers tell lanes apart by: queue, key, worker to avoid, name and needs of the tasks.
Kind = tuple[str, str, str, str | None, object]


#: The kinds of entities that are about limits: of tags, of keys, and their buckets.
GATE_KINDS = ("limit", "key_limit", "bucket")


class GateChanges:
    """What changed about the gates of a book, and when they open."""

    __slots__ = ("crowded", "filling", "now_us", "opened", "opening")

    def __init__(self) -> None:
        self.now_us = 0  # the latest time that is known
        # lanes that were let go, or got tasks because limits changed
        self.opened: dict[Lane, None] = {}
        self.crowded: dict[Gate, None] = {}  # gates that got tasks, and do not let them wait
        self.opening: Timers[tuple[str, str]] = Timers()  # when gates open, by namespace and name
        self.filling: Timers[tuple[str, str]] = Timers()  # when their buckets are full

    def clear(self) -> None:
        """Forget what changed."""
        self.opened.clear()
        self.crowded.clear()


class Gate:
    """The use of a limit by tasks with the same keys, and the lanes that it can close."""

    __slots__ = (
        "_costs",
        "_most",
        "bucket",
        "lanes",
        "name",
        "opens_us",
        "parked",
        "settings",
        "use",
        "visible",
    )

    def __init__(self, name: GateName, settings: LimitSettings) -> None:
        self.name = name
        self.settings = settings
        self.use = 0  # how many leases there are
        self.bucket: Bucket | None = None  # None if it is full, and no worker closed the gate
        # when the bucket has enough and no worker has the gate closed; 0 if that is so. One whose
        # time has come is shut until it is looked at, so that the best of what waits goes first.
        self.opens_us = 0
        self.lanes: dict[Lane, int] = {}  # all that it can close, with the tokens of a task
        self.visible: dict[Kind, dict[Lane, None]] = {}  # those that no gate has parked
        self.parked: dict[Kind, list[tuple[int, int, Lane]]] = {}  # heaps of those that it has
        self._costs: dict[int, int] = {}  # how many lanes have each cost
        self._most: list[int] = []  # a heap of these costs, as negative numbers; some are stale

    def text(self) -> str:
        """Return what the gate is known by outside of memory."""
        return gate_text(self.name)

    def is_full(self) -> bool:
        """Return whether as many tasks run as may."""
        bound = self.settings.concurrency
        return bound != UNBOUNDED and self.use >= bound

    def room(self) -> int | None:
        """Return how many tasks may start now at least; None for any number."""
        if self.opens_us:
            return 0
        settings = self.settings
        rooms = []
        if settings.concurrency != UNBOUNDED:
            rooms.append(max(0, settings.concurrency - self.use))
        if settings.rate and self.bucket is not None:
            rooms.append(max(1, self.bucket.units // (self.need() * settings.per_us)))
        return min(rooms) if rooms else None

    def need(self) -> int:
        """Return how many tokens must be there for a task to start."""
        most = self._most
        while most and not self._costs.get(-most[0]):
            heappop(most)
        return min(max(1, -most[0] if most else self.settings.cost), self.settings.tokens_max)

    def queued(self) -> int:
        return sum(lane.size for lane in self.lanes)

    def enter(self, lane: Lane, cost: int) -> None:
        self.lanes[lane] = cost
        if cost not in self._costs:
            heappush(self._most, -cost)
        self._costs[cost] = self._costs.get(cost, 0) + 1

    def leave(self, lane: Lane) -> None:
        cost = self.lanes.pop(lane)
        self._costs[cost] -= 1
        if not self._costs[cost]:
            del self._costs[cost]

    def show(self, lane: Lane) -> None:
        self.visible.setdefault(kind_of(lane), {})[lane] = None

    def hide(self, lane: Lane) -> None:
        kind = kind_of(lane)
        lanes = self.visible[kind]
        del lanes[lane]
        if not lanes:
            del self.visible[kind]

    def is_idle(self) -> bool:
        return not (self.use or self.lanes or self.bucket)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, ...]).decode


def gate_text(name: GateName) -> str:
    return _encode(name).decode()


def gate_name(text: str) -> GateName:
    return _decode(text)


def kind_of(lane: Lane) -> Kind:
    return (lane.queue.name, lane.key, lane.avoid, lane.task_name, lane.needs)


class Gates:
    """The limits of a namespace, and the gates in use."""

    def __init__(self, namespace: str, changes: GateChanges) -> None:
        self.namespace = namespace
        self.changes = changes
        self.tags: dict[str, int] = {}  # how many tasks with a tag may be leased at once
        self.limits: dict[str, Limit] = {}
        self.gates: dict[GateName, Gate] = {}
        self.held: dict[TaskId, tuple[Gate, ...]] = {}  # of which gates a leased task has slots
        self._serial = count(1)

    def __bool__(self) -> bool:
        return bool(self.tags or self.limits)

    def of_queue(self, queue: str) -> tuple[Limit, ...]:
        """Return the limits of the tasks of a queue."""
        limits = (each for _, each in sorted(self.limits.items()))
        return tuple(each for each in limits if each.settings.queue in ("", queue))

    def names(self, task: Task) -> GateNames:
        """Return the gates of a task, sorted."""
        found: list[tuple[GateName, int]] = []
        options = task.options
        if options.tags and self.tags:
            found += [(("", tag), 1) for tag in set(options.tags) if tag in self.tags]
        for limit in task.queue.limits:
            settings = limit.settings
            if settings.task and settings.task != task.name:
                continue
            values = [_key(task, name) for name in settings.keys]
            if all(values):
                found.append(((limit.name, *values), _cost(task, settings)))
        return tuple(sorted(found))

    def settings_of(self, name: GateName) -> LimitSettings:
        if name[0]:
            return self.limits[name[0]].settings
        return LimitSettings(concurrency=self.tags[name[1]])

    def gate(self, name: GateName) -> Gate:
        """Return a gate; create it if it does not exist."""
        found = self.gates.get(name)
        if found is None:
            found = self.gates[name] = Gate(name, self.settings_of(name))
        return found

    # Lanes.

    def enter(self, lane: Lane, names: GateNames, tasks: dict[TaskId, Task]) -> None:
        """Let gates close a new lane, which has no tasks yet."""
        lane.gates = tuple(self.gate(name) for name, _ in names)
        for gate, (_, cost) in zip(lane.gates, names, strict=True):
            gate.enter(lane, cost)
        for gate in lane.gates:
            gate.show(lane)
        for gate in lane.gates:
            if gate.settings.cost_key:
                self._update(gate, tasks)  # It may be the most expensive one.
        shut = self._shut(lane)
        if shut is not None and lane.closed_by is None:
            self._park(lane, shut, tasks)

    def entered(self, lane: Lane, tasks: dict[TaskId, Task]) -> None:
        """Note that a lane got a task."""
        gate = lane.closed_by
        if gate is not None and (place := _place(lane, tasks)) < lane.parked_at:
            if self.is_shut(gate):
                self._push(gate, lane, place)
            else:
                self._let_go(lane, tasks)  # It may be better now than what was let go.
        elif gate is None and (kept := self._kept_by(lane, tasks)) is not None:
            self._park(lane, kept, tasks)  # Better ones wait for what this gate has left.
        for gate in lane.gates:
            if gate.settings.on_full is not OnFull.WAIT:
                self.changes.crowded[gate] = None

    def left(self, lane: Lane, tasks: dict[TaskId, Task]) -> None:
        """Note that a lane that is at large lost a task: one that is parked may be better now."""
        if lane.closed_by is not None:
            return
        kind, place = kind_of(lane), _place(lane, tasks)
        for gate in lane.gates:
            if kind in gate.parked and not self.is_shut(gate):
                heap = self._fresh(gate, kind, tasks)
                if heap and heap[0][0] < place:
                    self._let_go(heappop(heap)[2], tasks)

    def repark(self, lane: Lane, tasks: dict[TaskId, Task]) -> None:
        """Give a parked lane its place again, after the order of tasks changed."""
        if lane.closed_by is not None:
            self._push(lane.closed_by, lane, _place(lane, tasks))

    def leave(self, lane: Lane, tasks: dict[TaskId, Task]) -> None:
        """Forget a lane that is empty."""
        is_visible, lane.closed_by = lane.closed_by is None, None
        lane.ticket = 0
        for gate in lane.gates:
            gate.leave(lane)
            if is_visible:
                gate.hide(lane)
        self.changes.opened.pop(lane, None)
        for gate in lane.gates:
            self._update(gate, tasks)
            self._forget(gate)

    # Leases.

    def hold(
        self, task: Task, tasks: dict[TaskId, Task], at_us: int | None = None
    ) -> dict[tuple[str, str, str], object]:
        """Take a slot of each gate of a task; with a time, tokens as well.

        Returns:
            The buckets that changed, as storage knows them.
        """
        names, changed = self.names(task), dict[tuple[str, str, str], object]()
        if not names:
            return changed
        gates = self.held[task.id] = tuple(self.gate(name) for name, _ in names)
        for gate, (_, cost) in zip(gates, names, strict=True):
            gate.use += 1
            if at_us is not None and gate.settings.rate and cost:
                self._take(gate, cost, at_us)
                changed["bucket", self.namespace, gate.text()] = gate.bucket
            self._update(gate, tasks)
        return changed

    def free(self, task: Task, tasks: dict[TaskId, Task]) -> None:
        """Release the slots of a task."""
        for gate in self.held.pop(task.id, ()):
            must(gate.use > 0, "a freed slot was held", gate.name)
            gate.use -= 1
            self._update(gate, tasks)
            self._forget(gate)

    def _take(self, gate: Gate, cost: int, at_us: int) -> None:
        settings = gate.settings
        if gate.bucket is None:
            gate.bucket = full_bucket(settings, at_us)
        gate.bucket.refill(settings, at_us)
        gate.bucket.units -= min(cost, settings.tokens_max) * settings.per_us
        self.changes.now_us = max(self.changes.now_us, at_us)
        self._time(gate)

    # Buckets.

    def buckets(self) -> dict[str, Bucket]:
        """Return the buckets that are not full, and those of gates that workers closed."""
        gates = self.gates.values()
        return {gate.text(): gate.bucket for gate in gates if gate.bucket is not None}

    def cancel_timers(self) -> None:
        """Forget when gates open and buckets are full, because the namespace is deleted."""
        for text in self.buckets():
            self.changes.opening.cancel((self.namespace, text))
            self.changes.filling.cancel((self.namespace, text))

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return what is durable, by kind and name."""
        tables: tuple[dict[str, Any], ...] = (self.tags, self.limits, self.buckets())
        return dict(zip(GATE_KINDS, tables, strict=True))

    def restore(self, name: GateName, bucket: Bucket) -> None:
        """Put a stored bucket back, before there are lanes."""
        gate = self.gate(name)
        gate.bucket = bucket
        self._time(gate)
        self._update(gate, {})

    def close(self, name: GateName, at_us: int, until_us: int, tasks: dict[TaskId, Task]) -> Gate:
        """Let no task start at a gate until then."""
        gate = self.gate(name)
        if gate.bucket is None:
            gate.bucket = full_bucket(gate.settings, at_us)
        gate.bucket.until_us = max(gate.bucket.until_us, until_us)
        self._time(gate)
        self._update(gate, tasks)
        return gate

    def filled(self, name: GateName, tasks: dict[TaskId, Task]) -> None:
        """Forget a bucket that is full."""
        gate = self.gates.get(name)
        if gate is not None:
            gate.bucket, gate.opens_us = None, 0
            self.changes.filling.cancel((self.namespace, gate.text()))
            self.changes.opening.cancel((self.namespace, gate.text()))
            self._update(gate, tasks)
            self._forget(gate)

    def look(self, name: GateName, tasks: dict[TaskId, Task]) -> None:
        """Open a gate whose time has come."""
        gate = self.gates.get(name)
        if gate is not None:
            self._update(gate, tasks)

    def fills_us(self, gate: Gate) -> int:
        """Return when the bucket of a gate is full and no worker has it closed."""
        bucket = gate.bucket
        if bucket is None:
            return 0
        full_us = bucket.at_us
        if gate.settings.rate:
            full_us = bucket.has_us(gate.settings.tokens_max, gate.settings)
        return max(full_us, bucket.until_us)

    def _time(self, gate: Gate) -> None:
        self.changes.filling.set((self.namespace, gate.text()), self.fills_us(gate))

    # Limits.

    def change(self, limit: Limit, at_us: int, tasks: dict[TaskId, Task]) -> list[Gate]:
        """Change the numbers of a limit, and return its gates whose buckets changed."""
        changed = []
        old = self.limits[limit.name].settings
        self.limits[limit.name] = limit
        for gate in [gate for name, gate in self.gates.items() if name[0] == limit.name]:
            if gate.bucket is not None:
                self._convert(gate.bucket, old, limit.settings, at_us)
            gate.settings = limit.settings
            if gate.bucket is not None:
                self._time(gate)
                changed.append(gate)
            self._update(gate, tasks)
            self._forget(gate)
            if limit.settings.on_full is not OnFull.WAIT:
                self.changes.crowded[gate] = None
        return changed

    def _convert(self, bucket: Bucket, old: LimitSettings, new: LimitSettings, at_us: int) -> None:
        """Keep the tokens of a bucket while its rate changes. One that was full is full."""
        full = new.tokens_max * new.per_us
        bucket.refill(old, at_us)
        if bucket.units < old.tokens_max * old.per_us:
            full = min(full, bucket.units * new.per_us // old.per_us)
        bucket.units = full
        bucket.at_us = max(bucket.at_us, at_us)

    def delete(self, name: str) -> list[str]:
        """Forget a limit that no task has a slot of, and return the names of its buckets."""
        del self.limits[name]
        texts = []
        for gate_name in [each for each in self.gates if each[0] == name]:
            gate = self.gates.pop(gate_name)
            must(not gate.use and not gate.lanes, "a limit that is deleted has no tasks", gate_name)
            text = gate.text()
            self.changes.opening.cancel((self.namespace, text))
            self.changes.filling.cancel((self.namespace, text))
            texts.append(text)
        return texts

    # What is open.

    def is_shut(self, gate: Gate) -> bool:
        return gate.opens_us > 0 or gate.is_full()

    def _shut(self, lane: Lane) -> Gate | None:
        """Return a gate of a lane that is shut; None if all are open."""
        for gate in lane.gates:
            if gate.opens_us or gate.is_full():
                return gate
        return None

    def _kept_by(self, lane: Lane, tasks: dict[TaskId, Task]) -> Gate | None:
        """Return a gate that a lane waits at: it is shut, or has better ones for all its room."""
        shut = self._shut(lane)
        if shut is not None:
            return shut
        kind, place = kind_of(lane), _place(lane, tasks)
        for gate in lane.gates:
            if kind not in gate.parked or (room := gate.room()) is None:
                continue
            others = gate.visible.get(kind, {})
            heap = self._fresh(gate, kind, tasks) if len(others) - (lane in others) >= room else []
            if heap and heap[0][0] < place:
                return gate
        return None

    def _update(self, gate: Gate, tasks: dict[TaskId, Task]) -> None:
        """Find out whether a gate is shut, and close or let go its lanes."""
        bucket, opens_us = gate.bucket, 0
        if bucket is not None:
            opens_us = bucket.until_us
            if gate.settings.rate:
                bucket_us = bucket.has_us(gate.need(), gate.settings)
                opens_us = max(opens_us, bucket_us if bucket_us > bucket.at_us else 0)
            if opens_us <= self.changes.now_us:
                opens_us = 0
        if opens_us != gate.opens_us:
            gate.opens_us = opens_us
            if opens_us:
                self.changes.opening.set((self.namespace, gate.text()), opens_us)
        if self.is_shut(gate):
            for lane in [lane for lanes in gate.visible.values() for lane in lanes]:
                self._park(lane, gate, tasks)
        elif gate.parked:
            self._settle(gate, tasks)

    def _settle(self, gate: Gate, tasks: dict[TaskId, Task]) -> None:
        """Let as many lanes go as an open gate has room for."""
        room = gate.room()
        for kind in list(gate.parked):
            while room is None or len(gate.visible.get(kind, ())) < room:
                heap = self._fresh(gate, kind, tasks)
                if not heap:
                    break
                self._let_go(heappop(heap)[2], tasks)

    def _fresh(
        self, gate: Gate, kind: Kind, tasks: dict[TaskId, Task]
    ) -> list[tuple[int, int, Lane]]:
        """Return the heap of what is parked, the first of which is there and at its place."""
        heap = gate.parked.get(kind, [])
        while heap:
            place, ticket, lane = heap[0]
            now = _place(lane, tasks) if lane.ticket == ticket else place
            if lane.ticket == ticket and now <= place:
                return heap
            heappop(heap)
            if lane.ticket == ticket:  # Its turn has become later since.
                self._push(gate, lane, now)
        gate.parked.pop(kind, None)
        return heap

    def _let_go(self, lane: Lane, tasks: dict[TaskId, Task]) -> None:
        lane.ticket = 0  # It stands nowhere.
        kept = self._kept_by(lane, tasks)
        if kept is not None:
            self._push(kept, lane, _place(lane, tasks))
            return
        lane.closed_by = None
        for gate in lane.gates:
            gate.show(lane)
        lane.queue.line.reopen(lane, tasks)
        self.changes.opened[lane] = None

    def _park(self, lane: Lane, gate: Gate, tasks: dict[TaskId, Task]) -> None:
        """Close a lane that was at large; its other gates may let another one go."""
        for each in lane.gates:
            each.hide(lane)
        self._push(gate, lane, _place(lane, tasks))
        for each in lane.gates:
            if each is not gate and each.parked and not self.is_shut(each):
                self._settle(each, tasks)

    def _push(self, gate: Gate, lane: Lane, place: int) -> None:
        lane.closed_by, lane.ticket, lane.parked_at = gate, next(self._serial), place
        heappush(gate.parked.setdefault(kind_of(lane), []), (place, lane.ticket, lane))

    def _forget(self, gate: Gate) -> None:
        if gate.is_idle() and self.gates.get(gate.name) is gate:
            del self.gates[gate.name]


def _place(lane: Lane, tasks: dict[TaskId, Task]) -> int:
    head = lane.head(tasks)
    return 0 if head is None else lane.place(head)


def _key(task: Task, name: str) -> str:
    found = task.options.keys.get(name)
    if found is not None:
        return found
    return value_of(name, task.options.keys, task.options.headers, task.payload)


def _cost(task: Task, settings: LimitSettings) -> int:
    """Return the tokens that a task takes; a message that is not durable takes none."""
    if is_volatile(task.id):
        return 0
    if not settings.cost_key:
        return settings.cost
    try:
        tokens = float(_key(task, settings.cost_key))
    except ValueError:
        return 1
    return ceil(min(max(1.0, tokens), RATE_MAX))  # Of what is no number, max() returns 1.

"""The roster: which workers are connected, and how much each can take.

Owns the volatile side of the broker: sessions, slots, claims, and finding the least loaded worker.
None of it is durable; workers come back by joining again. Knows nothing of records.

Workers that serve the same queues and keys form a crew. A crew keeps those with room in buckets by
load, so that the least loaded one is found at once, however many there are; among equals it is the
one that has been so for longest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from jackalope.core.limits import DEPARTED_WORKERS_MAX, WATCHES_PER_TASK_MAX
from jackalope.core.shapes.needs import matches
from jackalope.core.state.fair_shares import Clock
from jackalope.core.state.timers import Timers

if TYPE_CHECKING:
    from jackalope.core.ids import TaskId
    from jackalope.core.shapes.needs import Needs
    from jackalope.core.state.groups import Group
    from jackalope.core.state.queue import Namespace
    from jackalope.core.state.ready_queue import Lane
    from jackalope.core.task import Task

#: Namespace, queues, keys, how much its members are preferred, and the task names they know.
CrewName = tuple[str, tuple[str, ...], tuple[str, ...], int, frozenset[str] | None]


class Claim(msgspec.Struct):
    """A credit for some tasks. What is left of it expires at `until_us`."""

    ref: int
    left: int
    until_us: int


class Consumer(msgspec.Struct):
    """The additional state of a worker that is an AMQP consumer; see `consumers`."""

    is_exclusive: bool = False  # no other consumer may use the queue
    priority: int = 0  # consumers of a greater one are served first
    owner: int = 0  # the session of its connection
    is_waiting: bool = False  # another consumer of the queue is served, and only one is
    is_held: bool = False  # it cannot take more for the moment
    # how many tasks it may still be given that are done with as soon as it has them; None if it
    # acknowledges each one itself
    credit: int | None = None

    def can_take(self) -> bool:
        return not (self.is_waiting or self.is_held or self.credit == 0)


class Share:
    """Slots that several workers have together; 0 for any number.

    They are the consumers of a channel of AMQP, or one process that is a worker in several
    namespaces. Those have their resources together as well, and get tasks in turns.
    """

    __slots__ = ("in_use", "members", "slots", "takes_turns")

    def __init__(self, slots: int, *, takes_turns: bool = False) -> None:
        self.slots = slots
        self.takes_turns = takes_turns  # by the weights of the members' namespaces
        self.members: dict[Worker, None] = {}
        self.in_use = 0  # of the slots, when they were counted last

    def room(self) -> int:
        """Count how many tasks they can be given now, if there is a limit."""
        self.in_use = sum(len(worker.held) + (worker.helps > 0) for worker in self.members)
        return self.slots - self.in_use

    def place(self) -> None:
        """Update the positions of all members after a load or room changed."""
        room = self.room()
        for worker in self.members:
            if worker.crew is not None:
                own = worker.own_room()
                worker.crew.place(worker, min(own, room) if self.slots else own)

    def used(self) -> Mapping[str, int]:
        """Return how much of their resources the tasks take that they hold."""
        used: dict[str, int] = {}
        for worker in self.members:
            for name, amount in worker.namespace.used.get(worker.id, _NOTHING).items():
                used[name] = used.get(name, 0) + amount
        return used


class Worker:
    """A process that runs tasks."""

    __slots__ = (
        "claims",
        "consumer",
        "crew",
        "generation",
        "grace_us",
        "group",
        "heard_us",
        "held",
        "helps",
        "id",
        "is_draining",
        "is_ready",
        "joined_us",
        "kept_for",
        "keys",
        "labels",
        "lease_us",
        "load",
        "names",
        "namespace",
        "queues",
        "reserved",
        "resources",
        "secret",
        "session",
        "share",
        "slots",
        "stats",
    )

    def __init__(self, namespace: Namespace, worker_id: str) -> None:
        self.namespace = namespace
        self.id = worker_id
        self.session = 0  # its live connection; 0 while it may still resume
        self.generation = 0  # which of its connections that is, by its own count
        self.queues: tuple[str, ...] = ()
        self.keys: tuple[str, ...] = ()
        # the names of the tasks that it knows; None if it takes any
        self.names: frozenset[str] | None = None
        self.slots = 0
        self.labels: dict[str, str] = {}
        self.resources: dict[str, int] = {}  # how much of what it has, in thousandths
        self.reserved: Lane | None = None  # the lane for which it is kept free; see `placement`
        self.kept_for = 0  # the order of the task of that lane that was next when it was looked at
        self.stats: dict[str, float] = {}
        self.lease_us = 0
        self.grace_us = 0
        self.joined_us = 0
        self.heard_us = 0  # when its last message arrived
        self.is_draining = False
        self.is_ready = True  # whether it takes tasks just now
        # the fence of the task that it helps, which takes a slot; 0 for none, -1 if it cannot
        self.helps = -1
        self.secret = ""  # proves over other sessions that they are the worker's; empty for none
        self.claims: deque[Claim] = deque()  # credits beyond its slots, the oldest first
        # what it holds the lease on. The book keeps it.
        self.held: dict[TaskId, Task] = namespace.leases.setdefault(worker_id, {})
        self.consumer: Consumer | None = None  # what it is more if it is a consumer
        self.share: Share | None = None  # the slots that it has together with others, if any
        self.crew: Crew | None = None
        self.load: int | None = None
        self.group: Group | None = None  # the group of a pool that it belongs to, if it does

    @property
    def used(self) -> Mapping[str, int]:
        """Return how much of its resources the tasks take that it holds. The book keeps it."""
        if self.share is not None:
            return self.share.used()
        return self.namespace.used.get(self.id, _NOTHING)

    def left(self, resource: str) -> int:
        return self.resources.get(resource, 0) - self.used.get(resource, 0)

    def kept(self) -> list[Lane]:
        """Return the lanes for which its resources are kept free: at most one."""
        mates = (self,) if self.share is None else self.share.members
        return [mate.reserved for mate in mates if mate.reserved is not None]

    def can_host(self, needs: Needs) -> bool:
        """Return whether it could take a task of these needs if it had nothing else to do."""
        has = self.resources
        for name, amount in needs.resources:
            if has.get(name, 0) < amount:
                return False
        return matches(self.labels, needs.labels) == len(needs.labels)

    def has_left(self, needs: Needs) -> bool:
        """Return whether what is left of its resources is enough for these needs."""
        has, used = self.resources, self.used
        return all(
            has.get(name, 0) - used.get(name, 0) >= amount for name, amount in needs.resources
        )

    def burden(self) -> int:
        """Return how many slots are in use, by which the least loaded worker is found."""
        share = self.share
        return share.in_use if share is not None and share.takes_turns else len(self.held)

    def is_there(self) -> bool:
        """Return whether it takes tasks, now or when it has room again."""
        is_asking = bool(self.session and (self.slots or self.claims))
        return is_asking and self.is_ready and not self.is_draining and self.crew is not None

    def place(self) -> None:
        """Update its position after its load or room changed."""
        if self.crew is not None:
            self.crew.place(self, self.room())

    def has_slot(self) -> bool:
        """Return whether one of its slots is free, so that it needs no claim to have a task."""
        return len(self.held) < self.slots - (self.helps > 0)

    def has_room(self) -> bool:
        """Return whether the worker can be assigned a task now."""
        return self.room() > 0

    def room(self) -> int:
        """Return how many tasks the worker can be given now, before it needs another claim."""
        own, share = self.own_room(), self.share
        return own if share is None or not share.slots else min(own, share.room())

    def own_room(self) -> int:
        """Return the same without regard to workers that it has slots together with."""
        if not self.session or not self.is_ready or self.is_draining:
            return 0
        room = self.slots - (self.helps > 0) - len(self.held)
        if room <= 0 and self.claims:
            room = self.claims[0].left
        if self.consumer is not None and not self.consumer.can_take():
            return 0
        return room


#: What is used of the resources of a worker that holds nothing which needs any.
_NOTHING: dict[str, int] = {}

#: The workers of a load that none has.
_NOBODY: dict[str, Worker] = {}


class Crew:
    """Workers that serve the same queues and keys, and implement the same tasks."""

    __slots__ = ("_by_load", "_lowest", "keys", "members", "name", "names", "preference")

    def __init__(self, name: CrewName) -> None:
        self.name = name
        self.keys = frozenset(name[2])
        self.preference, self.names = name[3], name[4]
        self.members: dict[str, Worker] = {}  # all of them, busy or not
        self._by_load: dict[int, dict[str, Worker]] = {}
        self._lowest = 0

    def serves(self, key: str) -> bool:
        """Return whether the crew takes tasks of this key; without keys of its own it takes any."""
        return not self.keys or key in self.keys

    def knows(self, name: str) -> bool:
        """Return whether the crew takes tasks of this name; without names it takes any."""
        return self.names is None or name in self.names

    def takes(self, lane: Lane) -> bool:
        """Return whether the crew takes the tasks of a lane, by the lane's key and name."""
        if self.keys and lane.key not in self.keys:
            return False
        return lane.task_name is None or self.knows(lane.task_name)

    def place(self, worker: Worker, room: int) -> None:
        """Update the position of a worker after its load or room changed; it has this room."""
        load = len(worker.held) if room > 0 else None
        if load is not None and worker.share is not None:
            load = worker.burden()
        if load == worker.load:
            return
        if worker.load is not None:
            bucket = self._by_load[worker.load]
            del bucket[worker.id]
            if not bucket:
                del self._by_load[worker.load]
        worker.load = load
        if load is not None:
            self._by_load.setdefault(load, {})[worker.id] = worker
            if load < self._lowest:  # noqa: PLR1730  a call, for every task
                self._lowest = load

    def rotate(self, worker: Worker) -> None:
        """Move a worker that was assigned a task behind those of the same load."""
        bucket = self._by_load.get(worker.load) if worker.load is not None else None
        if bucket is not None:
            bucket[worker.id] = bucket.pop(worker.id)

    def least_loaded(self, shunned: str) -> Worker | None:
        """Return the least loaded worker with room, other than the one shunned."""
        by_load = self._by_load
        for worker in by_load.get(self._lowest_load(), _NOBODY).values():
            if worker.id != shunned:
                return worker
        for load in sorted(by_load):
            for worker in by_load[load].values():
                if worker.id != shunned:
                    return worker
        return None

    def with_room(self) -> Iterator[Worker]:
        """Yield the workers with room, in no order."""
        for bucket in self._by_load.values():
            yield from bucket.values()

    def deal(self, count: int) -> list[Worker]:
        """Return the workers that the next tasks go to, in their order, while there is room.

        Each is the least loaded one, if those before it were given their tasks.
        """
        by_load = self._by_load
        load = self._lowest if self._lowest in by_load else self._lowest_load()
        bucket = by_load.get(load, _NOBODY)
        if count == 1:
            for worker in bucket.values():
                return [worker]
        if not bucket:
            return []
        if len(by_load) == 1 and len(bucket) == 1:
            [worker] = bucket.values()
            return [worker] * min(count, worker.room())
        dealt: list[Worker] = []
        rooms: dict[Worker, int] = {}
        equals: list[Worker] = []  # those that were given tasks, and are as loaded as this now
        while equals or load in by_load:
            still: list[Worker] = []
            for worker in chain(by_load.get(load, _NOBODY).values(), equals):
                dealt.append(worker)
                if len(dealt) == count:
                    return dealt
                room = rooms[worker] = (rooms.get(worker) or worker.room()) - 1
                if room:
                    still.append(worker)
            load, equals = load + 1, still
            if not equals:
                load = min((other for other in by_load if other >= load), default=load)
        return dealt

    def _lowest_load(self) -> int:
        """Return the load of the least loaded workers with room; any number if there are none."""
        if self._lowest not in self._by_load:
            self._lowest = min(self._by_load, default=0)
        return self._lowest


class Roster:
    """All workers, by session and by name."""

    def __init__(self) -> None:
        self.workers: dict[tuple[str, str], Worker] = {}
        self.sessions: dict[int, Worker] = {}
        # the crews that serve each (namespace, queue)
        self.serving: dict[tuple[str, str], dict[CrewName, Crew]] = {}
        # when the silence of each worker is too long. Checked lazily: hearing from a worker moves
        # no timer.
        self.leases: Timers[tuple[str, str]] = Timers()
        # when a worker whose session closed is given up
        self.resumes: Timers[tuple[str, str]] = Timers()
        self.claims: Timers[int] = Timers()  # when the oldest claim of a session ends
        # when a consumer, by its session, may have held a task for too long. Checked lazily: what
        # it answers moves no timer.
        self.deliveries: Timers[int] = Timers()
        # when leases without a worker, left by a restart of the broker, are given up
        self.orphans: Timers[bytes] = Timers()
        # workers that are gone, latest last, with when and why
        self.departed: deque[Departure] = deque(maxlen=DEPARTED_WORKERS_MAX)
        # slots that several workers have together: of a channel by its number, of a process by its
        # secret
        self.shares: dict[int | str, Share] = {}
        self.clock = Clock()  # of the namespaces whose workers take turns
        # the workers that are kept free, by the lanes they are kept for, and the lanes for which
        # there was none; see `placement`
        self.reserved: dict[Lane, Worker] = {}
        self.unreserved: dict[Lane, None] = {}
        # the worker that had the last task of each namespace, queue and sticky value
        self.sticky: dict[tuple[str, str, str], str] = {}
        self._crews: dict[CrewName, Crew] = {}

    def enroll(
        self,
        worker: Worker,
        queues: tuple[str, ...],
        keys: tuple[str, ...],
        names: frozenset[str] | None = None,
    ) -> None:
        """Make a worker serve exactly these queues, keys and names."""
        self.dismiss(worker)
        worker.queues, worker.keys = queues, keys
        preference = 0 if worker.consumer is None else worker.consumer.priority
        namespace, served = worker.namespace.name, tuple(sorted(set(queues)))
        name = (namespace, served, tuple(sorted(set(keys))), preference, names)
        crew = self._crews.get(name)
        if crew is None:
            crew = self._crews[name] = Crew(name)
            for queue in name[1]:
                self.serving.setdefault((name[0], queue), {})[name] = crew
        crew.members[worker.id] = worker
        worker.crew, worker.names = crew, crew.names
        self.workers[worker.namespace.name, worker.id] = worker

    def dismiss(self, worker: Worker) -> None:
        crew = worker.crew
        if crew is None:
            return
        crew.place(worker, 0)
        worker.crew = None
        del crew.members[worker.id]
        if not crew.members:
            del self._crews[crew.name]
            for queue in crew.name[1]:
                crews = self.serving[crew.name[0], queue]
                del crews[crew.name]
                if not crews:
                    del self.serving[crew.name[0], queue]

    def join_share(self, worker: Worker, name: int | str, slots: int) -> None:
        """Let a worker have its slots together with others; the last one decides how many."""
        share = self.shares.setdefault(name, Share(slots, takes_turns=isinstance(name, str)))
        share.slots = slots
        share.members[worker] = None
        worker.share = share
        share.place()

    def leave_share(self, worker: Worker) -> None:
        """Give a worker its own slots again; a share without members is removed."""
        share, worker.share = worker.share, None
        if share is not None:
            share.members.pop(worker, None)
            if not share.members:
                self.shares = {n: each for n, each in self.shares.items() if each is not share}

    def remove(self, worker: Worker, at_us: int, why: str) -> None:
        """Remove a worker that holds nothing."""
        name = (worker.namespace.name, worker.id)
        self.dismiss(worker)
        self.leave_share(worker)
        self.workers.pop(name, None)
        self.sessions.pop(worker.session, None)
        self.claims.cancel(worker.session)
        self.deliveries.cancel(worker.session)
        self.leases.cancel(name)
        self.resumes.cancel(name)
        if not worker.held:
            worker.namespace.leases.pop(worker.id, None)
        self.departed.append(Departure(name[0], worker.id, at_us, why))

    def crews(self, namespace: str, queue: str) -> Collection[Crew]:
        crews = self.serving.get((namespace, queue))
        return crews.values() if crews else ()

    def set_claim_timer(self, worker: Worker) -> None:
        """Set the deadline of the worker's next claim to expire."""
        if worker.claims:
            self.claims.set(worker.session, min(claim.until_us for claim in worker.claims))
        else:
            self.claims.cancel(worker.session)

    def check_deliveries(self, namespace: str, queue: str, at_us: int) -> None:
        """Check what the consumers of a queue hold, because its time limit changed."""
        for crew in self.crews(namespace, queue):
            for worker in crew.members.values():
                if worker.consumer is not None and worker.held:
                    self.deliveries.set_sooner(worker.session, at_us)

    def has_other(self, namespace: str, queue: str, lane: Lane, worker: str) -> bool:
        """Return whether another worker, busy or not, takes the tasks of a lane."""
        return any(
            member.id != worker
            and not member.is_draining
            and bool(member.slots or member.claims)
            and (lane.needs is None or member.can_host(lane.needs))
            for crew in self.crews(namespace, queue)
            if crew.takes(lane)
            for member in crew.members.values()
        )


class Departure(msgspec.Struct, frozen=True):
    """A worker that has left."""

    namespace: str
    worker: str
    at_us: int
    why: str


class Fanout:
    """A task with items that helpers compute."""

    def __init__(self, task: Task, owner: str, fence: int, token: str) -> None:
        self.task = task
        self.owner = owner  # the worker that runs it
        self.fence = fence  # the attempt
        # a secret made by the broker's door, by which owner and helpers know each other
        self.token = token
        self.session = 0  # who asked last
        self.wanted = 0  # how many helpers there may be
        self.queue = ""  # what helpers serve
        self.key = ""  # the key that they serve
        self.function = ""  # what they will be asked to run
        self.where = ""  # where they find the owner
        # the fingerprint of the owner's certificate; empty where the connection is plain
        self.seal = ""
        self.helpers: dict[str, Worker] = {}  # who helps, by name
        self.shunned: set[str] = set()  # workers that could not help, by name
        # a helper of another fan-out that was called back in favour of this one
        self.awaits: tuple[Worker, int] | None = None

    @property
    def missing(self) -> int:
        """Return how many helpers it lacks."""
        return self.wanted - len(self.helpers)

    def may_have(self, worker: Worker) -> bool:
        """Return whether a worker could help if it had a free slot."""
        return (
            worker.namespace is self.task.queue.namespace
            and self.queue in worker.queues
            and worker.crew is not None
            and worker.crew.serves(self.key)
            and (not self.function or worker.crew.knows(self.function))
            and worker.id != self.owner
            and worker.id not in self.shunned
        )


# Watches: the sessions to notify when a task ends, and of its progress until then. A session that
# comes back watches again, and is notified at once of what has ended meanwhile.


class Progress(msgspec.Struct, frozen=True):
    """The progress of an attempt, as reported by its worker. Not durable."""

    fence: int
    at_us: int
    percent: float | None
    note: str


class Watches:
    """The sessions that watch each task, and whether they asked for its progress too."""

    def __init__(self) -> None:
        self.by_task: dict[TaskId, dict[int, bool]] = {}
        self._by_session: dict[int, dict[TaskId, None]] = {}

    def add(self, task_id: TaskId, session: int, *, progress: bool) -> None:
        """Add a watch. The session's latest choice about progress counts."""
        self.by_task.setdefault(task_id, {})[session] = progress
        self._by_session.setdefault(session, {})[task_id] = None

    def has_room(self, task_id: TaskId, session: int) -> bool:
        """Return whether a session may watch a task; true if it already does."""
        sessions = self.by_task.get(task_id, {})
        return len(sessions) < WATCHES_PER_TASK_MAX or session in sessions

    def take(self, task_id: TaskId) -> Iterable[int]:
        """Remove and return the sessions that watch a task."""
        sessions = self.by_task.pop(task_id, {})
        for session in sessions:
            watched = self._by_session[session]
            del watched[task_id]
            if not watched:
                del self._by_session[session]
        return sessions

    def forget_session(self, session: int) -> None:
        for task_id in self._by_session.pop(session, {}):
            sessions = self.by_task[task_id]
            del sessions[session]
            if not sessions:
                del self.by_task[task_id]

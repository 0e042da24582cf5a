"""Groups: the workers that a pool has for each key, and what was started for them.

Owns the volatile side of pools. Knows nothing of records: after a restart of the broker it is
rebuilt from the settings of queues and from what launchers and workers report.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from jackalope.core.durations import SECOND, format_duration
from jackalope.core.limits import FAILURES_PER_POOL_MAX
from jackalope.core.shapes.pool import NO_LAUNCHER, GroupState, Phase, PoolSettings
from jackalope.core.state.timers import Timers

if TYPE_CHECKING:
    from jackalope.core.state.queue import Queue
    from jackalope.core.state.roster import Worker

GroupName = tuple[str, str, str]


#: From how many moments the speed of a group is judged.
_MARKS = 16


class Launch:
    """Something started for a group: a worker, or a group that scales itself."""

    def __init__(self, launch_id: str, group: Group, launcher: str, version: str) -> None:
        # what it is called, by its launcher and, if it is one worker, by that too
        self.id = launch_id
        self.group = group
        self.launcher = launcher
        self.version = version
        self.phase = Phase.STARTING  # how far it has come
        self.ordered_us = 0  # when it was ordered, or first seen
        self.is_listed = False  # its launcher has shown it once
        # one that does not take tasks yet has said over AMQP that it is ready to
        self.is_loaded = False
        self.is_retired = False  # it gets no more tasks, and is stopped as soon as it holds none
        self.is_stopping = False  # its launcher was told to stop it
        # one of its workers has joined, or has said over AMQP that it has started
        self.has_joined = False
        self.external_id = ""
        self.detail = ""
        self.workers: dict[str, Worker] = {}  # those that came of it and are there
        # consumers of the group's queue that do not say which launch they came of, and are taken
        # for this one's. They are not drained with it: they may be another's, or no launch's.
        self.nameless: dict[str, Worker] = {}

    def is_ready(self) -> bool:
        """Return whether one of its workers takes tasks."""
        its = (*self.workers.values(), *self.nameless.values())
        return any(worker.session and worker.is_ready for worker in its)

    def is_idle(self) -> bool:
        """Return whether none of its workers holds a task or helps with one.

        Nor may any nameless worker of the group: it may belong to this launch.
        """
        is_busy = any(worker.held or worker.helps > 0 for worker in self.workers.values())
        return not is_busy and not any(
            worker.held
            for launch in self.group.launches.values()
            for worker in launch.nameless.values()
        )

    def fits(self, settings: PoolSettings) -> bool:
        """Return whether the pool would start the same today."""
        is_same = (self.launcher, self.version) == (settings.launcher, settings.version)
        return is_same and not self.is_retired


class Group:
    """The workers of one key of a pool."""

    def __init__(self, pool: Pool, key: str) -> None:
        self.pool = pool
        self.key = key
        self.state = GroupState.INACTIVE
        self.generation = 0  # grows with each change of state, of any group, also over restarts
        self.since_us = 0  # since when it has its state
        self.active_us = 0  # when it last had something to do
        self.wanted = 0  # how many workers it should have
        self.shrinks_us = 0  # since when it needs fewer than that; 0 if it does not
        self.failures = 0  # how many launches have failed in a row
        self.error = ""  # why the last one did
        self.next_try_us = 0  # before then nothing is started
        self.launches: dict[str, Launch] = {}  # what was started for it and may still be there
        self.workers: dict[str, Worker] = {}  # all of its workers, those started by hand too
        self.done = 0  # how many attempts its workers have ended
        self._done_by: dict[str, int] = {}
        self._marks: deque[tuple[int, int]] = deque(maxlen=_MARKS)

    def name(self) -> GroupName:
        """Return its globally unique name."""
        return (*self.pool.name, self.key)

    def leased(self) -> int:
        return sum(len(worker.held) for worker in self.workers.values())

    def is_gone(self) -> bool:
        is_down = self.state is GroupState.INACTIVE
        return is_down and not (self.launches or self.workers)

    def count_done(self, worker: Worker, now_us: int) -> bool:
        """Update the count of attempts that a worker has ended, and return whether it grew."""
        tally = worker.namespace.tallies.get(worker.id)
        total = tally.succeeded + tally.failed if tally is not None else 0
        more = total - self._done_by.get(worker.id, total)
        self._done_by[worker.id] = total
        if more <= 0:
            return False
        self.done += more
        self._marks.append((now_us, self.done))
        return True

    def forget_worker(self, worker: Worker) -> None:
        self.workers.pop(worker.id, None)
        self._done_by.pop(worker.id, None)

    def rate(self, now_us: int) -> float:
        """Return how many attempts a microsecond ended recently; 0 if that is unknown."""
        if len(self._marks) < 2:
            return 0.0
        first_us, first = self._marks[0]
        return (self.done - first) / max(now_us - first_us, 1)


class Pool:
    """The volatile state of a pool."""

    def __init__(self, name: tuple[str, str]) -> None:
        self.name = name
        # the queue that it belongs to, while the queue has a pool; None for what is left of one
        # that was removed
        self.queue: Queue | None = None
        self.groups: dict[str, Group] = {}  # by key, those that have tasks, workers or launches
        self.up: dict[str, None] = {}  # the keys of the groups that take a place
        self.line: dict[str, None] = {}  # the keys of the groups that wait for one, the first first
        # the keys of the groups that are up and have nothing to do, the longest first
        self.idle: dict[str, None] = {}
        self.launched = 0  # how many launches were ordered
        self.failed = 0  # how many failed
        # the latest that did: when, for which key, and why
        self.failures: deque[tuple[int, str, str]] = deque(maxlen=FAILURES_PER_POOL_MAX)

    @property
    def settings(self) -> PoolSettings | None:
        return None if self.queue is None else self.queue.pool

    def group(self, key: str) -> Group:
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(self, key)
        return group

    def ready(self, key: str) -> int:
        """Return how many tasks of a key could start now if there were workers."""
        queue = self.queue
        if queue is None or queue.paused_by:
            return 0
        return sum(lane.size for lane in queue.line.of_key(key) if not lane.closed_by)

    def is_pinned(self, key: str) -> bool:
        return self.queue is not None and key in self.queue.pins


class Pools:
    """The volatile state of all pools."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, str], Pool] = {}  # each pool by namespace and queue
        self.launches: dict[tuple[str, str], Launch] = {}  # each launch by namespace and id
        self.timers: Timers[GroupName] = Timers()  # when to look at a group again
        self.session = 0  # the session that carries out orders; 0 for none
        self.launchers: tuple[str, ...] = ()  # which launchers that is for
        self.troubles: dict[str, str] = {}  # why a launcher cannot tell what runs
        # launchers that were told of orders and have not come for them yet
        self.called: set[str] = set()
        # launchers whose launches are whole groups that scale themselves
        self.scaling: tuple[str, ...] = ()
        # the launch that reported over each session in osrdyne's manner, and whether it said which
        # one it is
        self.speakers: dict[int, tuple[Launch, bool]] = {}
        self._generation = 0

    def next_generation(self, now_us: int) -> int:
        """Return the next generation: the time, made unique."""
        self._generation = max(self._generation + 1, now_us)
        return self._generation

    def pool(self, namespace: str, queue: str) -> Pool:
        name = (namespace, queue)
        pool = self.by_name.get(name)
        if pool is None:
            pool = self.by_name[name] = Pool(name)
        return pool

    def trouble(self, group: Group, now_us: int) -> str:
        """Return why the workers of a group cannot be started, if so."""
        settings = group.pool.settings
        if settings is None or settings.launcher == NO_LAUNCHER:
            return ""
        launcher = settings.launcher
        if launcher not in self.launchers:
            return f"launcher {launcher!r} is not running; check that it is configured"
        if launcher in self.troubles:
            return f"launcher {launcher!r}: {self.troubles[launcher]}"
        if not group.error:
            return ""
        wait_us = max(group.next_try_us - now_us, 0)
        wait = format_duration(-(-wait_us // SECOND) * SECOND)
        return f"{group.error}; next try in {wait}" if wait_us else f"{group.error}; retrying"

    def forget_launch(self, launch: Launch) -> None:
        gone = [session for session, each in self.speakers.items() if each[0] is launch]
        for session in gone:
            del self.speakers[session]

    def forget_session(self, session: int) -> None:
        """Forget a closed session, which may be the one that carried out orders."""
        self.speakers.pop(session, None)
        if session == self.session:
            self.session, self.launchers = 0, ()
            self.called.clear()

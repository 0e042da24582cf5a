"""The context: what handlers decide about, and the verbs by which they decide.

Owns what a command can do: record a fact, end a task, reply, send a message, and leave something on
the agenda that is settled before the command is over. It imports no room; rooms import it.

A room owns one subject of the core: its commands, its deadlines, and what it does when something
happens elsewhere. It exports a `Room`, and `core.core` has the list of them. Nothing else changes
when one is added.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import msgspec

from jackalope.core.commands import RetryTerms
from jackalope.core.commands.base import Command
from jackalope.core.effects import Answered, Effect, Message, Reply, SendToSession
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, Event, Reason, State
from jackalope.core.limits import NAMESPACES_MAX, QUEUES_PER_NAMESPACE_MAX
from jackalope.core.policy import DEFAULT_POLICY
from jackalope.core.records import LEVEL, AnyRecord, AttemptEnded, AttemptFinished, TaskMoved
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.callback import AllowedTargets
from jackalope.core.shapes.schedule import NO_CALENDAR, Calendar
from jackalope.core.state.apply import APPLIERS
from jackalope.core.state.book import Book
from jackalope.core.state.gates import Gate
from jackalope.core.state.groups import Pools
from jackalope.core.state.queue import Queue
from jackalope.core.state.ready_queue import Lane
from jackalope.core.state.roster import Fanout, Progress, Roster, Watches, Worker
from jackalope.core.state.timers import Timers
from jackalope.core.task import Attempt, Task

#: A record by which a task ends.
TaskEnd = AttemptFinished | AttemptEnded | TaskMoved

#: A task that has ended, the record by which it did, and the attempt that it had then.
Ending = tuple[Task, TaskEnd, Attempt | None]

Own = TypeVar("Own")


class Done(Enum):
    """The outcome of an action on one task."""

    CHANGED = "changed"
    REQUESTED = "requested"


class Missing(msgspec.Struct):
    """What must be recalled from storage before a command can be handled."""

    namespace: str
    ids: list[TaskId] = []
    aliases: list[str] = []
    filter: Filter | None = None

    def __bool__(self) -> bool:
        return bool(self.ids or self.aliases or self.filter)


class Deadline(msgspec.Struct, frozen=True):
    """One kind of deadline: where it is stored, and its handler."""

    timers: Callable[[Context], Timers[Any]]
    act: Callable[[Context, Iterator[Any]], None]


def each(act: Callable[[Context, Any], None]) -> Callable[[Context, Iterator[Any]], None]:
    """Return a handler that processes due items one by one."""

    def act_on_all(ctx: Context, due: Iterator[Any]) -> None:
        for key in due:
            act(ctx, key)

    return act_on_all


Handler = Callable[["Context", Any], Answered | None]
WorkerHandler = Callable[["Context", Any, Worker], Answered | None]
#: Acts on a task for someone, with the terms of a retry; None if it is as for any other task.
Act = Callable[["Context", Task, Event, str, RetryTerms | None], Done | Refusal | None]


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The handlers, deadlines and hooks of one part of the core."""

    # its commands. A handler returns the answer, or None if it has answered or answers later.
    handlers: Mapping[type, Handler] = {}
    # commands of workers. They are refused if the session has no worker, and prove that it lives.
    reports: Mapping[type, WorkerHandler] = {}
    # what of storage a command needs before it is handled
    missing: Mapping[type, Callable[[Context, Any], Missing]] = {}
    deadlines: tuple[Deadline, ...] = ()
    # takes what is its own from the agenda. Called again until the agenda is empty.
    settle: Callable[[Context], None] | None = None
    # the same after those, for what is in `Agenda.rest`, if there is anything
    settle_rest: Callable[[Context], None] | None = None
    # looks at the lanes and workers of the agenda before tasks are assigned
    before_assign: Callable[[Context], None] | None = None
    tasks_ended: Callable[[Context, Sequence[Ending]], None] | None = None
    # an action on a task that has a `flow`, or its expiry
    act: Act | None = None
    session_ended: Callable[[Context, int], None] | None = None
    worker_joined: Callable[[Context, Worker], None] | None = None
    worker_left: Callable[[Context, Worker], None] | None = None
    # the book was rebuilt from storage
    recovered: Callable[[Context], None] | None = None
    # the broker itself did not run for so many microseconds
    stalled: Callable[[Context, int], None] | None = None


class Rooms:
    """All rooms of a core, in the order in which deadlines are processed and hooks called."""

    def __init__(self, *rooms: Room) -> None:
        self.all = rooms
        self.handlers: dict[type, Handler] = {
            kind: act for room in rooms for kind, act in room.handlers.items()
        }
        self.reports = {kind: act for room in rooms for kind, act in room.reports.items()}
        self.missing = {kind: act for room in rooms for kind, act in room.missing.items()}
        self.deadlines = [deadline for room in rooms for deadline in room.deadlines]
        self.settle = [room.settle for room in rooms if room.settle]
        self.settle_rest = [room.settle_rest for room in rooms if room.settle_rest]
        self.before_assign = [room.before_assign for room in rooms if room.before_assign]
        self.tasks_ended = [room.tasks_ended for room in rooms if room.tasks_ended]
        self.acts = [room.act for room in rooms if room.act]
        self.session_ended = [room.session_ended for room in rooms if room.session_ended]
        self.worker_joined = [room.worker_joined for room in rooms if room.worker_joined]
        self.worker_left = [room.worker_left for room in rooms if room.worker_left]
        self.recovered = [room.recovered for room in rooms if room.recovered]
        self.stalled = [room.stalled for room in rooms if room.stalled]


class Agenda:
    """What a command leaves to be settled before it is over."""

    __slots__ = ("ended", "lanes", "rest", "workers")

    def __init__(self) -> None:
        self.lanes: dict[Lane, None] = {}  # lanes that may give out tasks, or have lost one
        self.workers: dict[Worker, None] = {}  # workers that may take some
        # tasks that ended, with those that waited for them
        self.ended: deque[tuple[Task, tuple[TaskId, ...]]] = deque()
        # all else, by the function that takes it
        self.rest: dict[Callable[..., object], list[Any]] = {}

    def offer(self, task: Task) -> None:
        """Note that a task may have become ready, or is about to stop being ready."""
        if task.lane is not None:
            self.lanes[task.lane] = None

    def offer_queue(self, queue: Queue) -> None:
        self.lanes.update(dict.fromkeys(queue.line.lanes.values()))

    def feed(self, worker: Worker) -> None:
        """Note that a worker, and those that share its slots, may take tasks."""
        self.workers[worker] = None
        if worker.share is not None and not worker.share.takes_turns:
            self.workers.update(worker.share.members)

    def add(self, by: Callable[..., object], item: object) -> None:
        """Queue an item for a function, whose room takes it when it settles.

        An item that no room takes would be settled forever.
        """
        self.rest.setdefault(by, []).append(item)

    def take(self, by: Callable[..., object]) -> list[Any]:
        return self.rest.pop(by, [])


class Context:
    """The state of a core, and the operations of handlers."""

    def __init__(self, rooms: Rooms) -> None:
        self.rooms = rooms
        self.book = Book()  # durable state; changed by records alone
        self.roster = Roster()  # the workers that are there now
        self.watches = Watches()  # who waits for the end of a task
        self.progress: dict[TaskId, Progress] = {}  # the last reports of workers on their attempts
        self.pools = Pools()  # the pools of queues at work, and their groups of workers
        self.fanouts: dict[int, Fanout] = {}  # the tasks that ask for helpers, by fence
        self.now_us = 0  # the time of the command at hand. It never goes back.
        self.effects: list[Effect] = []  # what must be sent because of the command at hand
        self.records: list[AnyRecord] = []  # what must be durable before that
        self.agenda = Agenda()  # what it leaves to be settled
        self.level = LEVEL  # of the records that are made. Not durable: the broker sets it.
        # the policy of queues that come into being by being named. Not durable: each queue records
        # the policy that it got.
        self.default_policy = DEFAULT_POLICY
        # how many namespaces come into being by being named. Not durable.
        self.namespaces_by_use_max = NAMESPACES_MAX
        # how many queues of all namespaces do. Not durable.
        self.queues_by_use_max = NAMESPACES_MAX * QUEUES_PER_NAMESPACE_MAX
        self.callback_targets = AllowedTargets()  # where callbacks may go. Not durable.
        self.has_admin = False  # the configuration has a key that can make others. Not durable.
        # what knows dates, which the core does not. Not durable: the broker sets it.
        self.calendar: Calendar = NO_CALENDAR
        self._own: dict[type, Any] = {}

    def own(self, kind: type[Own]) -> Own:
        """Return the volatile state that is private to a room."""
        found: Own | None = self._own.get(kind)
        if found is None:
            found = self._own[kind] = kind()
        return found

    def decide(self, command: Command) -> Answered | None:
        """Dispatch a command to its handler, and return the reply if there is one now."""
        handle = self.rooms.handlers.get(type(command))
        if handle is not None:
            return handle(self, command)
        worker = self.roster.sessions.get(command.session)
        if worker is None:
            return _no_worker()
        worker.heard_us = self.now_us
        return self.rooms.reports[type(command)](self, command, worker)

    def worker_of(self, command: Command) -> Worker | Refusal:
        """Return the worker of a session, and renew its lease."""
        worker = self.roster.sessions.get(command.session)
        if worker is None:
            return _no_worker()
        worker.heard_us = self.now_us
        return worker

    def record(self, record: AnyRecord) -> None:
        """Record a fact and apply it to the book."""
        APPLIERS[type(record)](self.book, (record,))
        self.records.append(record)
        changes = self.book.gate_changes
        if changes.opened or changes.crowded:
            self.offer_opened()
        if self.book.has_volatile:
            self._pass_volatile()

    def record_all(self, records: Sequence[AnyRecord]) -> None:
        """Record facts of one kind and apply them to the book."""
        if records:
            APPLIERS[type(records[0])](self.book, records)
            self.records += records
            changes = self.book.gate_changes
            if changes.opened or changes.crowded:
                self.offer_opened()
            if self.book.has_volatile:
                self._pass_volatile()

    def offer_opened(self) -> None:
        """Re-offer the lanes that gates have let go, and note which gates got tasks."""
        changes = self.book.gate_changes
        self.agenda.lanes.update(changes.opened)
        changes.opened.clear()
        for gate in changes.crowded:
            self.agenda.add(Gate, gate)  # For `core.limiting`.
        changes.crowded.clear()

    def _pass_volatile(self) -> None:
        """Let time go on behind volatile tasks that are in line, by a microsecond for each.

        Their ranks are in no record. The time of a record is, so what becomes ready next is behind
        them here, and has the same rank everywhere.
        """
        if self.book.volatile_rank >= self.now_us:
            self.now_us = self.book.volatile_rank + 1

    def move(
        self,
        task: Task,
        event: Event,
        to: State,
        by: str = "",
        *,
        reason: Reason | None = None,
        detail: str = "",
    ) -> None:
        """Record a state change that is not the result of an attempt."""
        record = TaskMoved(self.now_us, task.id, event, to, by, reason, detail)
        if to in ENDED:
            self.end_tasks((record,))
            return
        self.agenda.offer(task)  # Its pool looks at the lane that it leaves.
        self.record(record)
        self.agenda.offer(task)

    def end_tasks(self, records: Sequence[TaskEnd]) -> Sequence[Ending]:
        """Record the ends of tasks. Watchers and dependents are notified after the command."""
        agenda, watched = self.agenda, self.watches.by_task
        tasks, dependents = self.book.tasks, self.book.dependents
        endings: list[Ending] = []
        for record in records:
            task = tasks[record.task]
            endings.append((task, record, task.attempt))
            if task.lane is not None:
                agenda.lanes[task.lane] = None
            if (watched and task.id in watched) or (dependents and task.id in dependents):
                agenda.ended.append((task, tuple(dependents.get(task.id, ()))))
        self.record_all(records)
        for ended in self.rooms.tasks_ended:
            ended(self, endings)
        return endings

    def act(
        self, task: Task, event: Event, by: str = "", terms: RetryTerms | None = None
    ) -> Done | Refusal | None:
        """Let the room act that a task belongs to; None if it is a task like any other."""
        if task.flow is None:
            return None
        outcomes = (act(self, task, event, by, terms) for act in self.rooms.acts)
        return next((outcome for outcome in outcomes if outcome is not None), None)

    def reply(self, command: Command, body: Answered) -> None:
        """Reply to a command before its handler returns, if a reply is wanted."""
        if command.ref:
            self.effects.append(Reply(command.session, command.ref, body))

    def send(self, session: int, message: Message) -> None:
        self.effects.append(SendToSession(session, message))


def _no_worker() -> Refusal:
    message = "this session has no worker; join, with the attempts that still run"
    return Refusal(Code.UNKNOWN_SESSION, message)

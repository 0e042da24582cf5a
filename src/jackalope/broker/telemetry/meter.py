"""The meter: counts what the broker does.

Owns the counters, all of them since the start of the process. It receives the durable records of
each turn, and how long turns and flushes took. Knows nothing of how the numbers are shown or kept.

It stands on the path of every task, so it only adds to plain integers, by queue and name of the
task, and sorts the records by kind first to do so in tight loops. Of an attempt it looks at the
assignment and at the end; when the attempt began it learns from the history of the task, which
spares it a look at every start.

Small turns are gathered and counted together: a client that submits one task after the other does
not wait for the counting of the last. All is counted before anyone reads, and before a task leaves
memory that it must look at (`must_settle`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from jackalope.broker.engine import Turn
from jackalope.broker.telemetry.key_limits import LimitMeter
from jackalope.broker.telemetry.namespaces import NamespaceMeter
from jackalope.core import Core
from jackalope.core.commands import (
    AnyCommand,
    FailAttempts,
    FinishAttempts,
    Heartbeat,
    StartAttempts,
    SubmitTasks,
    WatchTasks,
)
from jackalope.core.commands.namespaces import NoteAct
from jackalope.core.effects import Accepted, Answered, Effect, Published, Reply
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import Event, State
from jackalope.core.records import (
    AnswerUsed,
    AnyRecord,
    AttemptAssigned,
    AttemptEnded,
    AttemptFinished,
    QueueDeleted,
    RequestJoined,
    SignalRequested,
    TaskMoved,
    TaskReplaced,
    TaskSubmitted,
)
from jackalope.core.records.limits import GatesClosed
from jackalope.core.refusals import Code, QuotaRefusal, Refusal
from jackalope.core.shapes.request import JOINED, How, how_run
from jackalope.core.state.queue import Queue
from jackalope.core.task import BlobRef, Body, Task

# The stages of an attempt: when its task was ready, assigned, started and ended.


class Stages(NamedTuple):
    """When an attempt came to each stage; `started_us` is 0 if it never began."""

    ready_us: int
    assigned_us: int
    started_us: int
    ended_us: int


def stages_of(task: Task, event: Event, ended_us: int) -> Stages:
    """Return the stages of the attempt that ended with an event at this time."""
    assigned_us, started_us, has_ended = 0, 0, False
    for happened in reversed(task.history or ()):
        if not has_ended:
            has_ended = happened.what == event and happened.at_us == ended_us
        elif happened.what == Event.START:
            started_us = happened.at_us
        elif happened.what == Event.ASSIGN:
            assigned_us = happened.at_us
            break
    return Stages(ready_since(task, assigned_us), assigned_us, started_us, ended_us)


def ready_since(task: Task, assigned_us: int) -> int:
    """Return when the task became ready that was assigned at this time."""
    since_us = task.rank
    for happened in task.history or ():
        if happened.what == Event.ASSIGN and happened.at_us >= assigned_us:
            break
        if happened.what != JOINED:  # Being asked for changes nothing.
            since_us = max(since_us, happened.at_us)
    return min(since_us, assigned_us)


# The reading: what the meter shows of one queue, in numbers that can be added up.

#: More than any number here needs.
BUCKETS = 64


class Histogram(msgspec.Struct, array_like=True, gc=False):
    """How large something was: how often it was in which bucket, and how much altogether.

    Times are in microseconds.
    """

    total: int = 0
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * BUCKETS)

    def count(self, size: int) -> None:
        if size > 0:
            self.total += size
            self.buckets[size.bit_length()] += 1
        else:
            self.buckets[0] += 1

    def add(self, other: Histogram) -> None:
        self.total += other.total
        for bucket, number in enumerate(other.buckets):
            if number:
                self.buckets[bucket] += number

    def number(self) -> int:
        return sum(self.buckets)

    def mean(self) -> float:
        """Return how large one was on average; 0 if there was none."""
        return self.total / max(1, self.number())

    def quantile(self, part: float) -> float:
        """Return what this part of them did not exceed, estimated within its bucket; 0 if none.

        The estimate assumes that those of a bucket are spread evenly over it.
        """
        wanted = part * self.number()
        passed = 0
        for bucket, number in enumerate(self.buckets):
            if number and passed + number >= wanted:
                low, high = (1 << bucket) >> 1, 1 << bucket
                return low + (high - low) * (wanted - passed) / number
            passed += number
        return 0.0


class Reading(msgspec.Struct, array_like=True, gc=False):
    """What happened in one queue. Fields are only ever added at the end."""

    submitted: int = 0  # tasks that were accepted
    succeeded: int = 0  # tasks that ended well
    dead: int = 0  # tasks that ended otherwise
    killed: int = 0  # tasks that a client ended
    failures: int = 0  # attempts that failed
    crashes: int = 0  # attempts that were lost with their worker while they ran
    interruptions: int = 0  # attempts that were handed back, or lost before they began
    retries: int = 0  # tasks that are tried once more after one of these
    # how long tasks were ready before a worker had them
    queued: Histogram = msgspec.field(default_factory=Histogram)
    # how long workers had them before they began
    assigned: Histogram = msgspec.field(default_factory=Histogram)
    # how long attempts ran, whatever their outcome
    started: Histogram = msgspec.field(default_factory=Histogram)
    # how long it took from the submit to a good end
    finished: Histogram = msgspec.field(default_factory=Histogram)
    reasons: dict[str, int] = {}  # why tasks are dead
    blobs: int = 0  # payloads and results that went to the blob store
    blob_bytes: int = 0  # their size
    depth: int = 0  # tasks that waited at the end of the time
    leased: int = 0  # tasks that workers had at the end of the time
    # workers of the namespace at the end of the time; only where there is no queue
    workers: int = 0
    served: dict[str, int] = {}  # requests by how they were served

    def add(self, other: Reading) -> None:
        """Add what happened to the same tasks in another time."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in TIMES:
            getattr(self, name).add(getattr(other, name))
        for reason, number in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + number
        for how, number in other.served.items():
            self.served[how] = self.served.get(how, 0) + number

    def follow(self, later: Reading) -> None:
        """Add what happened to the same tasks in the time after this one."""
        self.add(later)
        self.depth, self.leased, self.workers = later.depth, later.leased, later.workers

    def join(self, other: Reading) -> None:
        """Add what happened to other tasks in the same time."""
        self.add(other)
        self.depth += other.depth
        self.leased += other.leased
        self.workers += other.workers


#: The stages of which it knows how long they took.
TIMES = ("queued", "assigned", "started", "finished")
_SUMS = (
    "submitted",
    "succeeded",
    "dead",
    "killed",
    "failures",
    "crashes",
    "interruptions",
    "retries",
    "blobs",
    "blob_bytes",
)

#: Queues beyond this many are counted together, because everything has a limit. There are never
#: more than twice as many names.
QUEUES_MAX = 100

#: The name of all that are counted together: those of a namespace, or those of none if there are
#: too many namespaces as well.
OTHER = "other"

#: Names of tasks beyond this many are counted together as well.
TYPES_MAX = 200

QueueName = tuple[str, str]

#: What happened to the tasks of each name, in each queue.
Readings = dict[QueueName, dict[str, Reading]]

_START, _ASSIGN = Event.START, Event.ASSIGN


class Machine(msgspec.Struct):
    """What the broker itself did since it started."""

    # refusals by command and code
    refused: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    turns: int = 0  # how often the core was asked
    records: int = 0  # how many facts were stored
    bytes: int = 0  # how many bytes these took
    # how long it took to make a batch durable
    append: Histogram = msgspec.field(default_factory=Histogram)
    batch: Histogram = msgspec.field(default_factory=Histogram)  # how many records a batch had
    # how long it took to write changes to history
    flush: Histogram = msgspec.field(default_factory=Histogram)
    flushed: int = 0  # the last batch that history has
    faults: int = 0  # how often storage failed
    lag: Histogram = msgspec.field(default_factory=Histogram)  # how late the event loop was


class Meter:
    """Counts."""

    def __init__(self) -> None:
        self._machine = Machine()
        self.namespaces = NamespaceMeter()  # what happened in each; `settle` before it is read
        # callbacks by what came of the attempt: `failed` ones are tried again
        self.deliveries = {"delivered": 0, "failed": 0, "dead": 0}
        self._gathered: list[tuple[Turn, int]] = []  # Turns that are not counted yet.
        self._open: Readings = {}  # Since the last `close`.
        self._closed: Readings = {}  # Before that.
        self.limits = LimitMeter()
        self._types: set[str] = set()
        self._core: Core | None = None
        self._readings: dict[Queue, dict[str, Reading]] = {}
        self._tasks: dict[TaskId, Task] = {}

    # The path of every task.

    def count_turn(self, turn: Turn, store_us: int, core: Core) -> None:
        """Take a turn that is durable, which took so long to store, to be counted before long."""
        if core is not self._core:
            self.settle()
            self._core, self._tasks = core, core.book.tasks
            self._readings.clear()
        gathered = self._gathered
        gathered.append((turn, store_us))
        if len(gathered) >= _GATHERED_TURNS_MAX or len(turn.records) > _GATHERED_RECORDS_MAX:
            self.settle()

    def must_settle(self, commands: list[AnyCommand], core: Core) -> bool:
        """Return whether these commands may remove a task that was not looked at yet."""
        if not self._gathered:
            return False
        if core.book.has_volatile:
            return True  # Such tasks leave memory with the next turn.
        return not _HARMLESS.issuperset(map(type, commands))

    def settle(self) -> None:
        """Count what is gathered."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, []
        machine, records = self._machine, list[AnyRecord]()
        for turn, store_us in gathered:
            machine.turns += 1
            if turn.body:
                machine.append.count(store_us)
                machine.batch.count(len(turn.records))
                machine.records += len(turn.records)
                machine.bytes += len(turn.body)
            self.count_refusals(turn, turn.effects)
            records += turn.records
        if records:
            self._count(records)

    def _count(self, records: list[AnyRecord]) -> None:
        by_kind: defaultdict[type, list[Any]] = defaultdict(list)
        for record in records:
            by_kind[type(record)].append(record)
        self.namespaces.count(by_kind, self._tasks)
        for kind, count in _COUNTERS:
            if kind in by_kind:
                count(self, by_kind[kind])

    def _count_submits(self, records: list[TaskSubmitted]) -> None:
        namespace, queue, name, reading = "", "", "", _NOWHERE
        for record in records:
            spec = record.spec
            if spec.name != name or spec.queue != queue or record.namespace != namespace:
                namespace, queue, name = record.namespace, spec.queue, spec.name
                reading = self._reading_of(namespace, queue, name)
            reading.submitted += 1
            if type(spec.payload) is not bytes:
                _count_blob(reading, spec.payload)
            if spec.options is not None and spec.options.same is not None:
                _count_served(reading, how_run(spec.options.same))

    def _count_assignments(self, records: list[AttemptAssigned]) -> None:
        find, queue, name, waited = self._tasks.get, None, "", _NOWHERE.queued
        for record in records:
            task = find(record.task)
            if task is None:
                continue  # Purged by a later command of the same turn.
            if task.name != name or task.queue is not queue:
                queue, name = task.queue, task.name
                waited = self._reading(queue, name).queued
            history = task.history
            if history is None or len(history) == 1:
                waited_us = record.at_us - task.rank
            else:
                waited_us = record.at_us - ready_since(task, record.at_us)
            if waited_us > 0:
                # `Histogram.count`, without the call; below as well.
                waited.total += waited_us
                waited.buckets[waited_us.bit_length()] += 1
            else:
                waited.buckets[0] += 1

    def _count_finishes(self, records: list[AttemptFinished]) -> None:
        find, queue, name, reading = self._tasks.get, None, "", _NOWHERE
        life, waited, ran = reading.finished, reading.assigned, reading.started
        for record in records:
            task = find(record.task)
            if task is None:
                continue
            if task.name != name or task.queue is not queue:
                queue, name = task.queue, task.name
                reading = self._reading(queue, name)
                life, waited, ran = reading.finished, reading.assigned, reading.started
            reading.succeeded += 1
            ended_us = record.at_us
            took_us = ended_us - task.created_us
            life.total += took_us
            life.buckets[took_us.bit_length()] += 1
            history = task.history or ()
            if len(history) > 2 and history[-2].what is _START and history[-3].what is _ASSIGN:
                started_us = history[-2].at_us
                took_us = started_us - history[-3].at_us
                waited.total += took_us
                waited.buckets[took_us.bit_length()] += 1
                took_us = ended_us - started_us
                ran.total += took_us
                ran.buckets[took_us.bit_length()] += 1
            else:
                _time_attempt(reading, task, Event.FINISH, ended_us)
            if type(record.result) is not bytes:
                _count_blob(reading, record.result)

    def _count_ends(self, records: list[AttemptEnded]) -> None:
        for record in records:
            task = self._tasks.get(record.task)
            if task is None:
                continue
            reading = self._reading(task.queue, task.name)
            has_begun = _time_attempt(reading, task, record.event, record.at_us)
            if record.event is Event.FAIL:
                reading.failures += 1
            elif record.event is Event.LOSE and has_begun:
                reading.crashes += 1
            elif record.event in (Event.LOSE, Event.RELEASE):
                reading.interruptions += 1
            reading.retries += record.to in (State.READY, State.SCHEDULED)
            _count_state(reading, record)

    def _count_moves(self, records: list[TaskMoved]) -> None:
        for record in records:
            task = self._tasks.get(record.task)
            if task is not None:
                _count_state(self._reading(task.queue, task.name), record)
                if record.event is Event.KILL:
                    self.limits.count_cancelled(record, self._tasks)

    def _count_signals(self, records: list[SignalRequested]) -> None:
        for record in records:
            self.limits.count_cancelled(record, self._tasks)

    def _count_closed(self, records: list[GatesClosed]) -> None:
        for record in records:
            self.limits.count_closed(record)

    def _count_joins(self, records: list[RequestJoined]) -> None:
        for record in records:
            task = self._tasks.get(record.task)
            if task is not None:
                _count_served(self._reading(task.queue, task.name), How.JOINED)

    def _count_replaced(self, records: list[TaskReplaced]) -> None:
        for record in records:
            task = self._tasks.get(record.task)
            if task is not None:
                reading = self._reading(task.queue, task.name)
                _count_served(reading, How.REPLACED)
                if type(record.spec.payload) is not bytes:
                    _count_blob(reading, record.spec.payload)

    def _count_hits(self, records: list[AnswerUsed]) -> None:
        answers = {} if self._core is None else self._core.book.answers.by_task
        for record in records:
            answer = answers.get(record.task)
            if answer is not None:
                reading = self._reading_of(answer.namespace, answer.queue, answer.name)
                _count_served(reading, How.HIT)

    def _forget_queues(self, records: list[QueueDeleted]) -> None:
        for record in records:
            self._closed.pop((record.namespace, record.queue), None)
            self._open.pop((record.namespace, record.queue), None)
        self._types = {
            name
            for readings in (self._closed, self._open)
            for by_type in readings.values()
            for name in by_type
        }
        self._readings.clear()

    def _reading(self, queue: Queue, name: str) -> Reading:
        try:
            return self._readings[queue][name]
        except KeyError:
            pass
        by_type = self._open.setdefault(self.name_of(queue), {})
        reading = by_type.setdefault(self._type_of(name), Reading())
        known = self._readings.setdefault(queue, {})
        if len(known) >= _REMEMBERED_MAX:
            known.clear()
        known[name] = reading
        return reading

    def _reading_of(self, namespace: str, queue_name: str, name: str) -> Reading:
        queue = None if self._core is None else self._core.book.queue(namespace, queue_name)
        return _NOWHERE if queue is None else self._reading(queue, name)  # Deleted in this turn.

    def _type_of(self, name: str) -> str:
        """Return under which name tasks are counted: their own, as long as there is room."""
        if name in self._types or len(self._types) < TYPES_MAX:
            self._types.add(name)
            return name
        return OTHER

    def name_of(self, queue: Queue) -> QueueName:
        """Return under which name a queue is counted: its own, as long as there is room."""
        name, shared = (queue.namespace.name, queue.name), (queue.namespace.name, OTHER)
        known = self._open.keys() | self._closed.keys()
        if name in known or len(known) < QUEUES_MAX:
            return name
        return shared if shared in known or len(known) < 2 * QUEUES_MAX else ("", OTHER)

    # The other paths.

    def count_refusals(self, turn: Turn, effects: list[Effect]) -> None:
        refusing = [
            (effect, refusals)
            for effect in effects
            if type(effect) is Reply and (refusals := _refusals_in(effect.body))
        ]
        if not refusing:
            return
        asked = {(c.session, c.ref): c for c in turn.commands}
        for reply, refusals in refusing:
            command = asked.get((reply.session, reply.ref))
            inner = command.command if isinstance(command, NoteAct) else command
            name = "" if inner is None else type(inner).__name__
            for refusal in refusals:
                self.refuse(name, refusal.code)
                if inner is not None and isinstance(refusal, QuotaRefusal):
                    self.namespaces.refuse(inner, refusal)

    def refuse(self, command: str, code: Code) -> None:
        self._machine.refused[command, code.value] += 1

    # What was counted.

    @property
    def machine(self) -> Machine:
        """What the broker itself did."""
        self.settle()
        return self._machine

    @property
    def open(self) -> dict[QueueName, Reading]:
        """What happened in each queue since the last `close`."""
        self.settle()
        return _by_queue(self._open)

    def totals(self) -> dict[QueueName, Reading]:
        """Return what happened in each queue since the start."""
        self.settle()
        return _by_queue(self._closed, self._open)

    def types(self) -> dict[str, Reading]:
        """Return what happened to the tasks of each name since the start, in all queues.

        Tasks without a name go by that of their queue.
        """
        self.settle()
        totals: dict[str, Reading] = {}
        for readings in (self._closed, self._open):
            for (_, queue), by_type in readings.items():
                for name, reading in by_type.items():
                    totals.setdefault(name or queue, Reading()).add(reading)
        return totals

    def close(self) -> dict[QueueName, Reading]:
        """Return what happened in each queue since the last call, and reset it."""
        self.settle()
        opened, self._open = self._open, {}
        self._readings.clear()
        for queue, by_type in opened.items():
            closed = self._closed.setdefault(queue, {})
            for name, reading in by_type.items():
                closed.setdefault(name, Reading()).add(reading)
        return _by_queue(opened)


#: Turns are gathered up to this many, none of them with more records than this: they keep alive
#: what their commands and effects hold.
_GATHERED_TURNS_MAX = 64
_GATHERED_RECORDS_MAX = 50

#: Commands after which every task that was in memory before still is, unless it is volatile.
_HARMLESS = frozenset(
    {SubmitTasks, StartAttempts, FinishAttempts, FailAttempts, WatchTasks, Heartbeat}
)

#: Who counts what, in the order in which it can happen to a task in one turn.
_COUNTERS: tuple[tuple[type, Callable[[Meter, list[Any]], None]], ...] = (
    (TaskSubmitted, Meter._count_submits),  # noqa: SLF001  its own
    (AttemptAssigned, Meter._count_assignments),  # noqa: SLF001
    (AttemptFinished, Meter._count_finishes),  # noqa: SLF001
    (AttemptEnded, Meter._count_ends),  # noqa: SLF001
    (TaskMoved, Meter._count_moves),  # noqa: SLF001
    (SignalRequested, Meter._count_signals),  # noqa: SLF001
    (GatesClosed, Meter._count_closed),  # noqa: SLF001
    (RequestJoined, Meter._count_joins),  # noqa: SLF001
    (TaskReplaced, Meter._count_replaced),  # noqa: SLF001
    (AnswerUsed, Meter._count_hits),  # noqa: SLF001
    (QueueDeleted, Meter._forget_queues),  # noqa: SLF001
)

_NOWHERE = Reading()

#: How many names of the tasks of a queue are found without asking under which they are counted.
_REMEMBERED_MAX = 1_000


def _by_queue(*spans: Readings) -> dict[QueueName, Reading]:
    """Add up the tasks of all names, over all spans of time."""
    totals: dict[QueueName, Reading] = {}
    for readings in spans:
        for queue, by_type in readings.items():
            total = totals.setdefault(queue, Reading())
            for reading in by_type.values():
                total.add(reading)
    return totals


def _refusals_in(body: Answered) -> Sequence[Refusal]:
    """Return why a command, or parts of it, was refused."""
    if isinstance(body, Refusal):
        return (body,)
    if isinstance(body, Accepted) and body.refused:
        return [refusal for _, refusal in body.refused]
    if isinstance(body, Published):
        failed = () if body.failed is None else (body.failed[1],)
        return (*body.over, *failed)
    return ()


def _count_state(reading: Reading, record: AttemptEnded | TaskMoved) -> None:
    if record.to is State.DEAD:
        reading.dead += 1
        reason = record.reason.value if record.reason else ""
        reading.reasons[reason] = reading.reasons.get(reason, 0) + 1
    elif record.to is State.KILLED:
        reading.killed += 1


def _count_served(reading: Reading, how: How) -> None:
    reading.served[how.value] = reading.served.get(how.value, 0) + 1


def _count_blob(reading: Reading, body: Body) -> None:
    if isinstance(body, BlobRef):
        reading.blobs += 1
        reading.blob_bytes += body.size


def _time_attempt(reading: Reading, task: Task, event: Event, ended_us: int) -> bool:
    """Count how long the stages of an attempt took that ended now, and return whether it began."""
    stages = stages_of(task, event, ended_us)
    if stages.started_us:
        reading.started.count(ended_us - stages.started_us)
        reading.assigned.count(stages.started_us - stages.assigned_us)
    return bool(stages.started_us)

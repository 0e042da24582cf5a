"""Records: facts in the past tense, the durable truth.

Owns their shapes and their encoding. `Book.apply` gives them meaning. Records are positional
arrays: a field is only ever added at the end, with a default, so that an old journal reads with new
code. Whatever an older version could not apply raises `LEVEL`: a kind, a field, another meaning.
"""

from __future__ import annotations

import msgspec

from jackalope.core.api_key import ApiKey
from jackalope.core.audit import Act
from jackalope.core.ids import NO_TASK, TaskId, is_volatile
from jackalope.core.lifecycle import Event, Reason, State
from jackalope.core.policy import Policy
from jackalope.core.records.base import Record
from jackalope.core.records.limits import BucketsFilled, GatesClosed, LimitDeleted, LimitSet
from jackalope.core.shapes.contract import Contract
from jackalope.core.shapes.exchange import AmqpTraits, Binding, Exchange, Rule
from jackalope.core.shapes.flow import Arrival, bodies_in
from jackalope.core.shapes.namespace import NamespaceSettings
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.shapes.schedule import Missed, RunKind, ScheduleSettings
from jackalope.core.task import BlobRef, Body, Envelope, Error, Signal, Stage, TaskRow, TaskSpec

#: The newest level of records that this version knows. The first element of a batch is the level at
#: which it was written. A kind or a field is made only at a level that has it, so that who reads up
#: to that level can apply every record of the batch.
LEVEL = 5

#: The level that brought callbacks and triggers to tasks and policies.
CALLBACKS_LEVEL = 4

#: The level that brought limits by key, fair shares, needs, namespaces as objects and contracts.
FLOW_CONTROL_LEVEL = 5

#: The level that brought what a schedule remembers of its slots and its unfinished tasks.
RUNS_LEVEL = 5


class QueueDeclared(Record, tag="queue"):
    """A queue exists and has this policy."""

    namespace: str
    queue: str
    policy: Policy
    by: str = ""
    traits: AmqpTraits | None = None


class QueueDeleted(Record, tag="unqueue"):
    """A queue without unfinished tasks was deleted."""

    namespace: str
    queue: str
    by: str = ""
    is_volatile: bool = False


class QueuePaused(Record, tag="qpause"):
    """A queue was paused: its tasks are not assigned."""

    namespace: str
    queue: str
    by: str
    is_volatile: bool = False


class QueueResumed(Record, tag="qresume"):
    """A queue was resumed."""

    namespace: str
    queue: str
    by: str
    is_volatile: bool = False


class TagLimited(Record, tag="limit"):
    """At most `limit` tasks with the tag may be leased at once; negative for no limit."""

    namespace: str
    tag: str
    limit: int
    by: str = ""


class TaskSubmitted(Record, tag="submit"):
    """A task was accepted, with the initial state `state`."""

    namespace: str
    spec: TaskSpec
    state: State
    by: str
    batch: int
    expires_us: int = 0
    waiting_for: tuple[TaskId, ...] = ()
    envelope: Envelope | None = None


class TaskMoved(Record, tag="move"):
    """The state of a task changed, other than by an attempt."""

    task: TaskId
    event: Event
    to: State
    by: str = ""
    reason: Reason | None = None
    detail: str = ""


class TaskRevived(Record, tag="revive"):
    """An ended task was retried. Contains the whole task, which may have left memory."""

    row: TaskRow
    by: str = ""


class TaskPurged(Record, tag="purge"):
    """An ended task was removed, with everything that belongs to it."""

    task: TaskId
    by: str = ""


class AttemptAssigned(Record, tag="assign"):
    """A task was leased to a worker; the fence proves the lease."""

    task: TaskId
    fence: int
    worker: str


class AttemptStarted(Record, tag="start"):
    """The worker started the attempt."""

    task: TaskId


class AttemptFinished(Record, tag="finish"):
    """The worker finished the task successfully."""

    task: TaskId
    result: Body = b""


class AttemptEnded(Record, tag="end"):
    """An attempt ended without success: failed, released, stopped or lost.

    `due_us` is when a scheduled task is due again. `cause` is why it was lost, or how it was
    stopped.
    """

    task: TaskId
    event: Event
    to: State
    reason: Reason | None = None
    error: Error | None = None
    due_us: int = 0
    by: str = ""
    cause: str = ""


class SignalRequested(Record, tag="signal"):
    """The worker of a leased task was asked to pause or kill it."""

    task: TaskId
    signal: Signal
    by: str


class SignalAdvanced(Record, tag="stage"):
    """A signal reached its next stage."""

    task: TaskId
    stage: Stage
    detail: str = ""


class ApiKeyCreated(Record, tag="key"):
    """An API key was created."""

    key: ApiKey


class ApiKeyRevoked(Record, tag="unkey"):
    """An API key was revoked."""

    key: str
    by: str = ""


class RequestJoined(Record, tag="joined"):
    """A request joined a running task, and gets its answer."""

    task: TaskId
    by: str = ""


class AnswerStored(Record, tag="answer"):
    """The result of a task was cached as the answer to a request, replacing an earlier one."""

    answer: StoredAnswer


class AnswerUsed(Record, tag="hit"):
    """A request was answered from the cache."""

    task: TaskId
    by: str = ""


class AnswerPinned(Record, tag="pin"):
    """An answer was pinned; an empty `by` unpins it."""

    task: TaskId
    by: str = ""


class AnswersDropped(Record, tag="unanswer"):
    """The answers of these tasks were evicted, expired or purged."""

    tasks: tuple[TaskId, ...]
    why: str
    by: str = ""


class PoolDeclared(Record, tag="pool"):
    """A queue has a pool with these settings."""

    namespace: str
    queue: str
    settings: PoolSettings
    by: str = ""


class PoolDeleted(Record, tag="unpool"):
    """The pool of a queue was deleted."""

    namespace: str
    queue: str
    by: str = ""


class GroupPinned(Record, tag="gpin"):
    """The group of a key of a pool was pinned or unpinned."""

    namespace: str
    queue: str
    key: str
    pinned: bool
    by: str = ""


class TasksDropped(Record, tag="drop"):
    """These tasks were removed without an outcome: no client waits for them."""

    tasks: list[TaskId]


class FencesReserved(Record, tag="fences"):
    """Fences up to `through` may be given out without a record; all that were reserved before are.

    Volatile tasks have no records, but their fences must not be given out again after a restart.
    """

    through: int


class Forgotten(Record, tag="forget"):
    """Ended tasks that were to be kept until `through_us` at the latest are gone.

    Those whose results are kept as answers stay until they are no longer. The time is earlier than
    that of the record before only if the clock was set back.
    """

    through_us: int


class ExchangeDeclared(Record, tag="exchange"):
    """An exchange exists, with these properties."""

    namespace: str
    exchange: Exchange
    by: str = ""


class ExchangeDeleted(Record, tag="unexchange"):
    """An exchange without bindings was deleted."""

    namespace: str
    exchange: str
    by: str = ""
    is_volatile: bool = False


class Bound(Record, tag="bind"):
    """A binding from an exchange to a queue or another exchange was added."""

    namespace: str
    binding: Binding
    is_volatile: bool = False


class Unbound(Record, tag="unbind"):
    """A binding was removed."""

    namespace: str
    binding: Binding
    is_volatile: bool = False


class RuleSet(Record, tag="rule"):
    """A rule was set."""

    namespace: str
    rule: Rule
    by: str = ""


class RuleCleared(Record, tag="unrule"):
    """A rule was removed."""

    namespace: str
    rule: str
    by: str = ""


class ScheduleDeclared(Record, tag="schedule"):
    """A schedule exists and has these settings; `next_us` is its next slot, 0 for none."""

    namespace: str
    name: str
    settings: ScheduleSettings
    anchor_us: int
    next_us: int
    app: str = ""
    by: str = ""


class ScheduleDeleted(Record, tag="unschedule"):
    """A schedule was deleted."""

    namespace: str
    name: str
    by: str = ""


class SchedulePaused(Record, tag="schpause"):
    """A schedule was paused: it submits nothing."""

    namespace: str
    name: str
    by: str


class ScheduleResumed(Record, tag="schresume"):
    """A schedule was resumed, and goes on with this slot."""

    namespace: str
    name: str
    next_us: int
    by: str = ""


class ScheduleOrphaned(Record, tag="orphan"):
    """The application of a schedule does not declare it any more."""

    namespace: str
    name: str


class ScheduleFired(Record, tag="fire"):
    """A schedule submitted the task of a slot, in the same batch; `next_us` is its next slot.

    For a task that was asked for, `slot_us` is when, and the next slot is what it was.
    """

    namespace: str
    name: str
    slot_us: int
    next_us: int
    task: TaskId
    how: RunKind = RunKind.SLOT
    by: str = ""
    # the slot after that one, 0 if there is none or it is no slot; -1 before `RUNS_LEVEL`
    after_us: int = -1


class SlotsMissed(Record, tag="miss"):
    """A schedule passed over slots, of which this was the last, and goes on with `next_us`."""

    namespace: str
    name: str
    slot_us: int
    next_us: int
    count: int
    why: Missed
    detail: str = ""


class StepRecorded(Record, tag="step"):
    """A step of a task is done, and this is its result."""

    task: TaskId
    index: int
    name: str
    result: bytes = b""
    event: str = ""  # the event whose data is the result, which had been sent before
    took_us: int = 0
    is_late: bool = False  # the event that it waited for did not come in time


class WaitBegan(Record, tag="wait"):
    """A task waits at this step: for an event, or without one for the time."""

    task: TaskId
    index: int
    name: str
    event: str
    until_us: int


class EventSent(Record, tag="event"):
    """An event was sent to a task, which may wait for it now or later."""

    task: TaskId
    event: str
    data: bytes = b""
    by: str = ""


class InputsChanged(Record, tag="inputs"):
    """A node waits for nodes that ended before it was submitted, or for some that are retried."""

    task: TaskId
    given: tuple[Arrival, ...] = ()
    withdrawn: tuple[TaskId, ...] = ()


class GroupsClosed(Record, tag="close"):
    """Nothing more is added to these groups of a flow."""

    task: TaskId
    groups: tuple[str, ...]
    by: str = ""


class FlowFailed(Record, tag="unflow"):
    """A node of a flow failed, and no other node takes care of that."""

    task: TaskId
    node: TaskId
    detail: str = ""


class FlowStopped(Record, tag="stop"):
    """A flow is being stopped, and ends in this way once its nodes have."""

    task: TaskId
    to: State
    reason: Reason | None = None
    by: str = ""
    detail: str = ""


class TaskReplaced(Record, tag="replace"):
    """A later submit took the place of a task that had not begun, which goes on as this."""

    task: TaskId
    spec: TaskSpec
    to: State
    due_us: int = 0
    expires_us: int = 0
    by: str = ""


class ThrottlesEnded(Record, tag="unthrottle"):
    """Tasks of these kinds are accepted again."""

    namespace: str
    kinds: tuple[str, ...]  # see `shapes.pace.throttle_name`


class ContractDeclared(Record, tag="contract"):
    """These are the versions of a task in a queue, and what each takes; the newest last."""

    namespace: str
    queue: str
    name: str
    versions: tuple[Contract, ...]
    by: str = ""


class ContractDeleted(Record, tag="uncontract"):
    """What a task in a queue takes is no longer known."""

    namespace: str
    queue: str
    name: str
    by: str = ""


class NamespaceDeclared(Record, tag="ns"):
    """A namespace exists and has these settings."""

    namespace: str
    settings: NamespaceSettings
    by: str = ""


class NamespaceDeleted(Record, tag="unns"):
    """A namespace was deleted. All that could outlive it was deleted before, in the same batch."""

    namespace: str
    by: str = ""


class ActNoted(Record, tag="act"):
    """An administrator did something, or tried to."""

    act: Act


AnyRecord = (
    QueueDeclared
    | QueueDeleted
    | QueuePaused
    | QueueResumed
    | TagLimited
    | TaskSubmitted
    | TaskMoved
    | TaskRevived
    | TaskPurged
    | AttemptAssigned
    | AttemptStarted
    | AttemptFinished
    | AttemptEnded
    | SignalRequested
    | SignalAdvanced
    | ApiKeyCreated
    | ApiKeyRevoked
    | RequestJoined
    | AnswerStored
    | AnswerUsed
    | AnswerPinned
    | AnswersDropped
    | PoolDeclared
    | PoolDeleted
    | GroupPinned
    | TasksDropped
    | ExchangeDeclared
    | ExchangeDeleted
    | Bound
    | Unbound
    | RuleSet
    | RuleCleared
    | FencesReserved
    | Forgotten
    | ScheduleDeclared
    | ScheduleDeleted
    | SchedulePaused
    | ScheduleResumed
    | ScheduleOrphaned
    | ScheduleFired
    | SlotsMissed
    | StepRecorded
    | WaitBegan
    | EventSent
    | InputsChanged
    | GroupsClosed
    | FlowFailed
    | FlowStopped
    | TaskReplaced
    | ThrottlesEnded
    | ContractDeclared
    | ContractDeleted
    | NamespaceDeclared
    | NamespaceDeleted
    | LimitSet
    | LimitDeleted
    | GatesClosed
    | BucketsFilled
    | ActNoted
)

#: The level that brought a kind, for those that were not there from the beginning.
SINCE: dict[type, int] = {
    **dict.fromkeys((FencesReserved, Forgotten), 2),
    **dict.fromkeys((ScheduleDeclared, ScheduleDeleted, SchedulePaused, ScheduleResumed), 3),
    **dict.fromkeys((ScheduleOrphaned, ScheduleFired, SlotsMissed), 3),
    **dict.fromkeys((StepRecorded, WaitBegan, EventSent), 3),
    **dict.fromkeys((InputsChanged, GroupsClosed, FlowFailed, FlowStopped), 4),
    **dict.fromkeys((TaskReplaced, ThrottlesEnded), 4),
    **dict.fromkeys((ContractDeclared, ContractDeleted), FLOW_CONTROL_LEVEL),
    **dict.fromkeys((NamespaceDeclared, NamespaceDeleted, ActNoted), FLOW_CONTROL_LEVEL),
    **dict.fromkeys((LimitSet, LimitDeleted), FLOW_CONTROL_LEVEL),
    **dict.fromkeys((GatesClosed, BucketsFilled), FLOW_CONTROL_LEVEL),
}


def is_lasting(record: AnyRecord) -> bool:
    """Return whether a record is written to the journal. This is the only rule of volatility.

    A volatile task is recognised by its id; a queue, an exchange or a binding by its own field.
    """
    kind = type(record)
    if kind in _OF_A_TASK:
        return not is_volatile(record.task)  # type: ignore[union-attr]
    if isinstance(record, TaskSubmitted | TaskRevived):
        return not is_volatile(task_of(record))
    if isinstance(record, TasksDropped):
        return not is_volatile(record.tasks[0])
    if isinstance(record, QueueDeclared):
        return record.traits is None or not record.traits.is_volatile()
    if isinstance(record, ExchangeDeclared):
        return record.exchange.durable
    return not getattr(record, "is_volatile", False)


def task_of(record: AnyRecord) -> TaskId:
    """Return the task of a record; `NO_TASK` if it is about something else."""
    if isinstance(record, TaskSubmitted):
        return record.spec.id
    if isinstance(record, TaskRevived):
        return record.row.id
    if isinstance(record, AnswerStored):
        return record.answer.task
    return getattr(record, "task", NO_TASK)


def blobs_named(records: list[AnyRecord]) -> list[BlobRef]:
    """Return the large payloads and results that records name."""
    bodies: list[Body] = []
    for record in records:
        if isinstance(record, TaskSubmitted | TaskReplaced):
            bodies.append(record.spec.payload)
        elif isinstance(record, AttemptFinished):
            bodies.append(record.result)
        elif isinstance(record, TaskRevived):
            bodies.append(record.row.payload)
            bodies += [record.row.outcome.result] if record.row.outcome is not None else []
            bodies += bodies_in(record.row.flow) if record.row.flow is not None else []
        elif isinstance(record, InputsChanged):
            bodies += [each.result for _, each in record.given]
    return [body for body in bodies if isinstance(body, BlobRef)]


_OF_A_TASK = frozenset(
    {
        AttemptAssigned,
        AttemptStarted,
        AttemptFinished,
        AttemptEnded,
        TaskMoved,
        TaskPurged,
        SignalRequested,
        SignalAdvanced,
        StepRecorded,
        WaitBegan,
        EventSent,
        InputsChanged,
        GroupsClosed,
        FlowFailed,
        FlowStopped,
        TaskReplaced,
    }
)


class NewerFormat(ValueError):
    """The batch was written by a later version of Jackalope."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyRecord])
_level_decoder = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


def encode_batch(records: list[AnyRecord], level: int = LEVEL) -> bytes:
    return _encoder.encode((level, records))


def level_of(body: bytes) -> int:
    """Return the level at which a batch was written."""
    return _level_decoder.decode(body)[0]


def decode_batch(body: bytes) -> list[AnyRecord]:
    try:
        level, records = _level_decoder.decode(body)
        if level <= LEVEL:
            return _decoder.decode(records)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"text that is none: {error}") from None
    raise NewerFormat(f"records of level {level}; this version of Jackalope reads up to {LEVEL}")

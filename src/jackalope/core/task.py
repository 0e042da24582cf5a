"""The task: one durable piece of work, as submitted, as kept in memory and as stored.

Owns the shapes. Knows nothing of what may happen to a task (`lifecycle`) or where it is indexed
(`book`). A million tasks must fit: what few tasks have lives in `Options`, what only leased tasks
have in `Attempt`, what only ended tasks have in `Outcome`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from enum import StrEnum
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.ids import NO_TASK, TaskId, is_volatile
from jackalope.core.lifecycle import PENDING, Event, Reason, State
from jackalope.core.limits import NAME_CHARS_MAX, TIME_US_MAX
from jackalope.core.shapes.body import BlobRef, Body, Error
from jackalope.core.shapes.callback import Callback, callback_id
from jackalope.core.shapes.flow import (
    FlowSettings,
    FlowState,
    NodeSettings,
    NodeState,
    bodies_in,
    copy_of_state,
)
from jackalope.core.shapes.needs import Needs, needs_of_policy
from jackalope.core.shapes.pace import REPLACED, Pace, Pacing
from jackalope.core.shapes.request import JOINED, How, Same, how_run
from jackalope.core.shapes.steps import Steps, copy_of

if TYPE_CHECKING:
    from jackalope.core.policy import Policy
    from jackalope.core.state.book import Book
    from jackalope.core.state.queue import Queue
    from jackalope.core.state.ready_queue import Lane

Item = TypeVar("Item")

#: Names of other modules that belong to what this one offers.
__all__ = ["BlobRef", "Body", "Error"]


def is_blob(ref: BlobRef) -> bool:
    return bool(ref.blob) and len(ref.blob) <= NAME_CHARS_MAX and 0 <= ref.size <= TIME_US_MAX


def size_of(body: Body) -> int:
    """Return the size of a body, inline or in the blob store."""
    return body.size if isinstance(body, BlobRef) else len(body)


def is_same_body(one: Body, other: Body) -> bool:
    """Return whether two bodies have the same content, inline or in the blob store."""
    if isinstance(one, BlobRef) and isinstance(other, BlobRef) and one.digest:
        return (one.size, one.digest) == (other.size, other.digest)
    return one == other


class OnDependency(StrEnum):
    """What a task does when a dependency ends without success."""

    DEAD = "dead"
    RUN = "run"


class Retry(msgspec.Struct, frozen=True, array_like=True):
    """A task's own retry settings, in place of those of its queue's policy."""

    retries: int
    base_us: int
    factor: float
    cap_us: int


class Options(msgspec.Struct, frozen=True, array_like=True):
    """Settings that few tasks have. Tasks without any share `NO_OPTIONS`."""

    alias: str = ""  # a name for the task, unique in its namespace while the task exists
    headers: dict[str, Any] = {}  # the submitter's own data, handed to the worker untouched
    tags: tuple[str, ...] = ()  # labels whose number in flight can be limited
    run_at_us: int = 0  # do not start before
    expires_at_us: int = 0  # dead if not begun by then; 0 for the queue's time to live
    timeout_us: int = 0  # how long an attempt may run; 0 for the policy's
    retry: Retry | None = None  # this task's own retry settings
    depends_on: tuple[TaskId, ...] = ()  # tasks that must end first
    on_dependency: OnDependency = OnDependency.DEAD  # what to do when one of them does not succeed
    parent: TaskId = NO_TASK  # the task that submitted this one; killing it kills this one
    held: bool = False  # wait to be played
    # what to do if another task asks for the same; None for what the queue's policy says
    same: Same | None = None
    version: str = ""  # the version of the code that is to run, a part of what is asked for
    identity: bytes = b""  # what is asked for, as a hash; the broker sees to it where it matters
    flow: FlowSettings | None = None  # set by the broker for a flow, which no worker runs
    node: NodeSettings | None = None  # set by the broker for a node of a flow
    pace: Pace | None = None  # how it is spread over time, with others of its kind
    callbacks: tuple[Callback, ...] = ()  # where its end is posted, besides those of its queue
    # values such as its user or tenant, by which limits and shares go; see `shapes.keys`
    keys: dict[str, str] = {}
    schedule: str = ""  # set by the broker for a task of a schedule
    needs: Needs | None = None  # what it needs of its worker; None for what the queue's policy says


NO_OPTIONS = Options()

PRIORITY_DEFAULT = 150
PRIORITY_MAX = 255


class TaskSpec(msgspec.Struct, array_like=True, gc=False):
    """A task as submitted. `options=None` means none."""

    id: TaskId
    queue: str
    name: str = ""
    key: str = ""
    priority: int = PRIORITY_DEFAULT
    payload: Body = b""
    options: Options | None = None


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The AMQP routing and properties of a task that was published as a message."""

    exchange: str  # where it was published
    key: str  # the routing key that it was published with
    properties: bytes  # its properties as they were sent; see `properties`


class Signal(StrEnum):
    """What the broker requests of a worker about a running task."""

    PAUSE = "pause"
    KILL = "kill"
    TIMEOUT = "timeout"


class Stage(StrEnum):
    """The progress of a signal. It ends with the outcome of the attempt."""

    REQUESTED = "requested"
    DELIVERED = "delivered"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"


class SignalRequest(msgspec.Struct, frozen=True, array_like=True):
    """A pending signal to a running task."""

    signal: Signal
    by: str
    at_us: int
    stage: Stage = Stage.REQUESTED


class Attempt(msgspec.Struct, array_like=True, gc=False):
    """One attempt at a task by one worker, and the lease on it."""

    fence: int
    worker: str
    assigned_us: int
    started_us: int = 0
    request: SignalRequest | None = None
    times_out_us: int = 0


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The result, error and reason of the last attempt or the end."""

    result: Body = b""
    error: Error | None = None
    reason: Reason | None = None
    ended_us: int = 0
    forget_us: int = 0


class HistoryEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of a task's history: what happened, when, and who caused it."""

    at_us: int
    what: str
    by: str = ""
    detail: str = ""


class TaskRow(msgspec.Struct, array_like=True, gc=False):
    """The durable state of a task: what storage has, and what a revived task is rebuilt from."""

    id: TaskId
    namespace: str
    queue: str
    name: str
    key: str
    priority: int
    payload: Body
    options: Options
    state: State
    by: str
    created_us: int
    batch: int
    rank: int
    penalty: int
    due_us: int
    expires_us: int
    waiting_for: tuple[TaskId, ...]
    failures: int
    crashes: int
    interruptions: int
    attempts: int
    guardian: TaskId
    avoid: str
    attempt: Attempt | None
    outcome: Outcome | None
    history: list[HistoryEntry]
    envelope: Envelope | None = None
    steps: Steps | None = None
    flow: FlowState | NodeState | None = None
    merged: tuple[TaskId, ...] = ()


_encoder = msgspec.msgpack.Encoder()


def encoded_size(value: object) -> int:
    return len(_encoder.encode(value))


class Task(msgspec.Struct, gc=False):
    """A task in memory. It never refers to what indexes it, so there are no reference cycles."""

    id: TaskId
    queue: Queue
    name: str
    key: str
    priority: int  # as it counts now; `penalty` is how far failures have lowered it
    payload: Body
    options: Options
    state: State
    by: str
    created_us: int
    batch: int
    rank: int = 0  # when it first became ready, made unique; 0 before that
    penalty: int = 0
    due_us: int = 0  # when a scheduled task is due
    expires_us: int = 0  # when it is dead unless begun; 0 for never
    waiting_for: set[TaskId] | None = None  # the unfinished tasks that it depends on
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    attempts: int = 0  # how often it was given to a worker
    guardian: TaskId = NO_TASK  # its nearest ancestor that has not ended: killing that one kills it
    avoid: str = ""  # the worker on which it last failed
    attempt: Attempt | None = None  # the lease, while a worker holds it
    outcome: Outcome | None = None  # what the last attempt or the end left
    history: list[HistoryEntry] | None = None  # what happened after it was submitted
    lane: Lane | None = None  # where it stands in line while it is ready
    envelope: Envelope | None = None  # what it brings along if it came as an AMQP message
    steps: Steps | None = None  # what of it is done for good, if it has steps
    flow: FlowState | NodeState | None = None  # how far it is, if it is a flow or a node of one
    # the latest submits that took its place, by the ids that they came with
    merged: tuple[TaskId, ...] = ()


def with_needs(spec: TaskSpec, policy: Policy) -> TaskSpec:
    """Return a task with the needs that the policy of its queue gives to those without."""
    options = spec.options or NO_OPTIONS
    if options.needs is not None or options.flow is not None:
        return spec
    options = msgspec.structs.replace(options, needs=needs_of_policy(policy.needs))
    return msgspec.structs.replace(spec, options=options)


def lease_of(task: Task) -> Attempt:
    """Return the attempt of a task that must have one."""
    if task.attempt is None:
        raise BrokenInvariant(f"task {task.id.hex()} is {task.state} without an attempt")
    return task.attempt


def is_open(task: Task) -> bool:
    """Return whether a later submit of its kind takes the place of a task.

    One that is debounced is open until it is due for the first time; one that can be replaced,
    until it is given to a worker for the first time.
    """
    pace = task.options.pace
    if pace is None or task.state not in PENDING:
        return False
    if pace.how is Pacing.DEBOUNCE:
        return not task.rank
    return pace.how is Pacing.REPLACE and not task.attempts


def to_row(task: Task) -> TaskRow:
    """Copy the durable state of a task."""
    # By position, because keywords take five times as long; a test compares the fields.
    return TaskRow(
        task.id,
        task.queue.namespace.name,
        task.queue.name,
        task.name,
        task.key,
        task.priority,
        task.payload,
        task.options,
        task.state,
        task.by,
        task.created_us,
        task.batch,
        task.rank,
        task.penalty,
        task.due_us,
        task.expires_us,
        tuple(sorted(task.waiting_for)) if task.waiting_for else (),
        task.failures,
        task.crashes,
        task.interruptions,
        task.attempts,
        # One that is gone after a restart protects nothing any more.
        NO_TASK if task.guardian and is_volatile(task.guardian) else task.guardian,
        task.avoid,
        copy(task.attempt) if task.attempt is not None else None,
        task.outcome,
        list(task.history) if task.history else [],
        task.envelope,
        copy_of(task.steps) if task.steps is not None else None,
        copy_of_state(task.flow) if task.flow is not None else None,
        task.merged,
    )


def from_row(row: TaskRow, queue: Queue) -> Task:
    """Make a task from its row, for the book to index.

    Nothing mutable is shared with the row: a record may still have to be encoded.
    """
    return Task(
        row.id,
        queue,
        row.name,
        row.key,
        row.priority,
        row.payload,
        row.options if row.options != NO_OPTIONS else NO_OPTIONS,
        row.state,
        row.by,
        row.created_us,
        row.batch,
        row.rank,
        row.penalty,
        row.due_us,
        row.expires_us,
        set(row.waiting_for) or None,
        row.failures,
        row.crashes,
        row.interruptions,
        row.attempts,
        row.guardian,
        row.avoid,
        copy(row.attempt) if row.attempt is not None else None,
        row.outcome,
        list(row.history) if row.history else None,
        envelope=row.envelope,
        steps=copy_of(row.steps) if row.steps is not None else None,
        flow=copy_of_state(row.flow) if row.flow is not None else None,
        merged=row.merged,
    )


def last_worker(task: Task | TaskRow) -> str:
    """Return the worker that a task was last assigned to; empty if there was none."""
    assigned = (each.by for each in reversed(task.history or ()) if each.what == Event.ASSIGN)
    return next(assigned, "")


def last_start_us(task: Task | TaskRow) -> int:
    """Return when an attempt last started; 0 if none did."""
    starts = (each.at_us for each in reversed(task.history or ()) if each.what == Event.START)
    return next(starts, 0)


def blobs_of(task: Task) -> list[str]:
    bodies = [task.payload, task.outcome.result if task.outcome else b""]
    if task.flow is not None:
        bodies += bodies_in(task.flow)
    return [body.blob for body in bodies if isinstance(body, BlobRef)]


_place_of = attrgetter("queue", "state")


def places(tasks: Sequence[Task]) -> Sequence[tuple[Queue, State, Sequence[Task]]]:
    """Split a list where the queue or the state changes; mostly it is the same for all."""
    queue, state = tasks[0].queue, tasks[0].state
    for task in tasks:
        if task.queue is not queue or task.state is not state:
            return [(*place, list(run)) for place, run in groupby(tasks, _place_of)]
    return ((queue, state, tasks),)


def runs(
    items: Sequence[Item], kind: Callable[[Item], Any]
) -> Sequence[tuple[Any, Sequence[Item]]]:
    """Split a list where the kind of its items changes; return each kind with its items."""
    if len(items) == 1:
        return ((kind(items[0]), items),)
    return [(value, list(run)) for value, run in groupby(items, kind)]


# Blobs: which of them the tasks in memory name.


def unnamed(book: Book, blobs: Iterable[str]) -> list[str]:
    """Return those of the blobs that are referenced by no task in memory that storage lacks.

    These are tasks that storage will have, and volatile ones that it never will: a large dead
    letter in a volatile queue may share the body of a task that is long gone.
    """
    large = book.volatile_large
    if large:
        large = {task_id: task for task_id, task in large.items() if task_id in book.tasks}
        book.volatile_large = large
    named = {blob for task in chain(book.dirty.values(), large.values()) for blob in blobs_of(task)}
    return [blob for blob in dict.fromkeys(blobs) if blob not in named]


def how_made(options: Options) -> How | None:
    """Return how the request of a task was served; None if it is not a request."""
    return None if options.same is None else how_run(options.same)


def joined(task: Task) -> int:
    """Return how many requests joined a task."""
    return sum(int(each.detail) for each in task.history or () if each.what == JOINED)


def replaced(task: Task) -> int:
    """Return how many later submits took the place of a task."""
    return sum(int(each.detail) for each in task.history or () if each.what == REPLACED)


def callbacks_of(task: Task) -> list[tuple[Callback, TaskId]]:
    """Return the callbacks of the end of a task, each with the id of the task that posts it."""
    outcome = task.outcome
    if outcome is None:
        return []
    found: dict[TaskId, Callback] = {}
    for callback in (*task.options.callbacks, *task.queue.policy.callbacks):
        if callback.is_about(task.state):
            found.setdefault(callback_id(task.id, outcome.ended_us, callback.url), callback)
    return [(callback, task_id) for task_id, callback in found.items()]


# The trace context: the headers that name the trace a task belongs to, as the W3C's Trace Context
# does. The broker hands them on untouched. They identify the caller, not the request: a submit that
# is repeated within another span is the same.

#: The trace, and the span within it that submitted the task.
TRACE_PARENT = "traceparent"

#: What the makers of traces add to it.
TRACE_STATE = "tracestate"

TRACE_HEADERS = (TRACE_PARENT, TRACE_STATE)


def is_same_but_for_trace(one: Options, other: Options) -> bool:
    """Return whether two tasks are equal except for their trace context."""
    return one == other or _without_trace(one) == _without_trace(other)


def _without_trace(options: Options) -> Options:
    headers = {name: value for name, value in options.headers.items() if name not in TRACE_HEADERS}
    return msgspec.structs.replace(options, headers=headers)

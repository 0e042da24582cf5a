"""Shapes of tasks over REST: what is submitted, and what is shown.

Owns the fields and how they follow from views. The first fields of each are those of the task API;
ours stand behind them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jackalope.core.durations import HOUR, SECOND
from jackalope.core.ids import NO_TASK, TaskId, as_task_id, id_text
from jackalope.core.lifecycle import LEASED, PENDING, Reason, State
from jackalope.core.limits import (
    DEPENDENCIES_PER_TASK_MAX,
    ITEMS_PER_COMMAND_MAX,
    NAME_CHARS_MAX,
    TAG_CHARS_MAX,
    TAGS_PER_TASK_MAX,
    TIME_US_MAX,
)
from jackalope.core.shapes.request import How, Same
from jackalope.core.task import (
    NO_OPTIONS,
    PRIORITY_DEFAULT,
    OnDependency,
    Options,
    Retry,
    Signal,
    Stage,
    TaskSpec,
)
from jackalope.core.values import shape_problem
from jackalope.doors.http.errors import ErrorBody, Rejected
from jackalope.wire.views import AnswerView, TaskView

# The words of the task API: five statuses for our states, times as text, and shared bounds.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US = 253_402_300_799 * 1_000_000

BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
UUID = "^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$"

#: The longest that one request waits for something.
WAIT_S_MAX = 300

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
MaybeName = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Tag = Annotated[str, Meta(min_length=1, max_length=TAG_CHARS_MAX, pattern="^[^\\x00]+$")]
Id = Annotated[str, Meta(pattern=UUID)]
Identity = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Bytes = Annotated[bytes, Meta(extra_json_schema={"pattern": BASE64})]
Time = Annotated[datetime, Meta(tz=True)]
Priority = Annotated[int, Meta(ge=0, le=255)]
Count = Annotated[int, Meta(ge=0, le=10**9)]
Seconds = Annotated[float, Meta(ge=0, le=TIME_US_MAX / 1e6)]
Fence = Annotated[int, Meta(ge=1, le=TIME_US_MAX)]
Wait = Annotated[float, Meta(ge=0, le=WAIT_S_MAX, description="How many seconds to wait for it.")]


class Status(StrEnum):
    """Where a task stands, in the five words of the task API."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"


#: The states that each status stands for. `failed` is a task that was killed: nothing else ends
#: without a success and without being dead.
STATES: dict[Status, tuple[State, ...]] = {
    Status.PENDING: tuple(sorted(PENDING)),
    Status.IN_PROGRESS: tuple(sorted(LEASED)),
    Status.COMPLETED: (State.SUCCEEDED,),
    Status.FAILED: (State.KILLED,),
    Status.DEAD_LETTER: (State.DEAD,),
}

STATUS: dict[State, Status] = {state: status for status in STATES for state in STATES[status]}


def to_time(at_us: int) -> datetime | None:
    """Show a time; None for what has not happened, or never will."""
    if not 0 < at_us <= _LAST_US:
        return None
    return _EPOCH + timedelta(microseconds=at_us)


def from_time(at: datetime | None) -> int:
    """Return a time in microseconds; 0 for none. What lies before 1970 is the beginning of time."""
    if at is None:
        return 0
    return max(1, (at - _EPOCH) // timedelta(microseconds=1))


def from_seconds(seconds: float | None) -> int:
    """Return a duration in microseconds."""
    return round((seconds or 0) * 1_000_000)


def about(text: str, **bounds: Any) -> Meta:
    """Say what a field means."""
    return Meta(description=text, **bounds)


#: Where tasks go that name no queue.
QUEUE_DEFAULT = "default"

#: What a task's own number of retries means beside that number.
_RETRY_BASE_US = 5 * SECOND
_RETRY_FACTOR = 2.0
_RETRY_CAP_US = HOUR


class TaskToSubmit(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A task to submit. Only `task_type` is needed."""

    task_type: Annotated[Name, about("What is to be run: the name of the task.")]
    payload: Annotated[Bytes, about("What it is to be run with, in base64.")] = b""
    payload_ticket: Annotated[
        str, about("In place of it, the ticket of what was sent over a link.", max_length=64)
    ] = ""
    priority: Annotated[Priority, about("Higher runs first; 200 and up is high.")] = (
        PRIORITY_DEFAULT
    )
    schedule_at: Annotated[Time | None, about("Not to start before.")] = None
    timeout_seconds: Annotated[
        Seconds | None, about("How long an attempt may run; by default the queue decides.")
    ] = None
    max_retries: Annotated[
        Count | None, about("How many failures are tried again; by default the queue decides.")
    ] = None
    dependencies: Annotated[
        tuple[Id, ...], about("Tasks that must end first.", max_length=DEPENDENCIES_PER_TASK_MAX)
    ] = ()
    task_id: Annotated[Id | None, about("Its id, so that a repeated submit is harmless.")] = None
    queue: Annotated[Name | None, about(f"Its queue; else `{QUEUE_DEFAULT}`.")] = None
    key: Annotated[MaybeName, about("Narrows the queue to workers that serve this key.")] = ""
    alias: Annotated[MaybeName, about("A name of its own, unique in the namespace.")] = ""
    tags: Annotated[
        tuple[Tag, ...], about("Labels that can be limited.", max_length=TAGS_PER_TASK_MAX)
    ] = ()
    headers: Annotated[dict[str, Any], about("Your own data, handed to the worker.")] = {}
    expires_at: Annotated[Time | None, about("Dead if not begun by then.")] = None
    on_dependency: Annotated[
        OnDependency, about("What to do if a dependency does not succeed.")
    ] = OnDependency.DEAD
    parent_id: Annotated[Id | None, about("The task that this one belongs to.")] = None
    held: Annotated[bool, about("Whether it waits to be played.")] = False
    same: Annotated[
        Same | None, about("What to do if another asks for the same; else the queue decides.")
    ] = None
    version: Annotated[MaybeName, about("The version of the code, if that matters.")] = ""


class TasksToSubmit(msgspec.Struct, forbid_unknown_fields=True):
    """Tasks to submit. Each is accepted or refused on its own."""

    tasks: Annotated[list[TaskToSubmit], Meta(min_length=1, max_length=ITEMS_PER_COMMAND_MAX)]


class RawTask(msgspec.Struct, forbid_unknown_fields=True):
    """A task whose payload is the body of the request."""

    task_type: Annotated[Name, about("What is to be run: the name of the task.")]
    queue: Annotated[Name | None, about(f"Its queue; else `{QUEUE_DEFAULT}`.")] = None
    priority: Annotated[Priority, about("Higher runs first.")] = PRIORITY_DEFAULT
    key: Annotated[MaybeName, about("Narrows the queue to workers that serve this key.")] = ""
    alias: Annotated[MaybeName, about("A name of its own, unique in the namespace.")] = ""
    tag: Annotated[
        tuple[Tag, ...], about("A label; may be repeated.", max_length=TAGS_PER_TASK_MAX)
    ] = ()
    timeout_seconds: Annotated[Seconds | None, about("How long an attempt may run.")] = None
    max_retries: Annotated[Count | None, about("How many failures are tried again.")] = None
    task_id: Annotated[Id | None, about("Its id, so that a repeated submit is harmless.")] = None
    held: Annotated[bool, about("Whether it waits to be played.")] = False

    def to_submit(self) -> TaskToSubmit:
        """Return the task without its payload."""
        return TaskToSubmit(
            self.task_type,
            priority=self.priority,
            timeout_seconds=self.timeout_seconds,
            max_retries=self.max_retries,
            task_id=self.task_id,
            queue=self.queue,
            key=self.key,
            alias=self.alias,
            tags=self.tag,
            held=self.held,
        )


class Submitted(msgspec.Struct):
    """A task that was accepted, for good."""

    task_id: Id
    status: Status = Status.PENDING


class Submission(msgspec.Struct):
    """What became of one task of a list: it was accepted, or there is an error."""

    task_id: Id
    status: Status | None
    error: ErrorBody | None


class Submissions(msgspec.Struct):
    """What became of each task of a list, in its order."""

    tasks: list[Submission]
    accepted: int
    refused: int


class ErrorShown(msgspec.Struct):
    """What a worker says went wrong."""

    type: str
    message: str
    trace: str


class ProgressShown(msgspec.Struct):
    """How far an attempt has come."""

    at: Time | None
    percent: float | None
    note: str


class SignalShown(msgspec.Struct):
    """What was asked of the worker about a running task, and how far that has come."""

    signal: Signal
    stage: Stage
    by: str
    at: Time | None


class AnswerShown(msgspec.Struct):
    """A request: the task that has its answer or will have it, and who had use of that."""

    identity: Identity
    queue: str
    task_id: Id
    state: State
    task_type: str
    version: str
    worker_id: str | None
    size: int
    made_at: Time | None
    good_until: Time | None
    uses: int
    used_at: Time | None
    used_by: str | None
    pinned_by: str | None


class TaskShown(msgspec.Struct, kw_only=True):
    """A task. `result` is there if it is small; `/result` has it whatever its size."""

    task_id: Id
    task_type: str
    status: Status
    priority: int
    created_at: Time | None
    updated_at: Time | None
    result: bytes | None
    error: str | None
    retry_count: int
    worker_id: str | None
    namespace: str
    queue: str
    state: State
    key: str
    alias: str
    tags: tuple[str, ...]
    headers: dict[str, Any]
    batch: int
    parent_id: Id | None
    submitted_by: str
    scheduled_at: Time | None
    expires_at: Time | None
    started_at: Time | None
    ended_at: Time | None
    forgotten_at: Time | None
    timeout_seconds: float | None
    max_retries: int | None
    attempts: int
    fence: int | None
    crashes: int
    interruptions: int
    dependencies: tuple[Id, ...]
    reason: Reason | None
    failure: ErrorShown | None
    progress: ProgressShown | None
    signal: SignalShown | None
    payload_size: int
    result_size: int
    how: How | None
    answer: AnswerShown | None
    waiting_for: tuple[Id, ...] = ()


class TaskList(msgspec.Struct):
    """Some tasks. A cursor, given with the same question, asks for the next ones."""

    tasks: list[TaskShown]
    total: int | None
    cursor: str | None


def to_spec(task: TaskToSubmit, task_id: TaskId) -> TaskSpec:
    """Return a task as the core takes it.

    A task that names no queue is one of the task API alone, and has its time limit.

    Raises:
        Rejected: its headers cannot be kept.
    """
    headers = _to_keep(task.headers)
    retries = task.max_retries
    options = Options(
        alias=task.alias,
        headers=headers,
        tags=task.tags,
        run_at_us=from_time(task.schedule_at),
        expires_at_us=from_time(task.expires_at),
        timeout_us=from_seconds(task.timeout_seconds),
        retry=None
        if retries is None
        else Retry(retries, _RETRY_BASE_US, _RETRY_FACTOR, _RETRY_CAP_US),
        depends_on=tuple(_known_id(each) for each in task.dependencies),
        on_dependency=task.on_dependency,
        parent=_known_id(task.parent_id) if task.parent_id else NO_TASK,
        held=task.held,
        same=task.same,
        version=task.version,
    )
    return TaskSpec(
        _known_id(task.task_id) if task.task_id else task_id,
        task.queue or QUEUE_DEFAULT,
        task.task_type,
        task.key,
        task.priority,
        task.payload,
        None if options == NO_OPTIONS else options,
    )


def _to_keep(headers: dict[str, Any]) -> dict[str, Any]:
    """Return headers as they can be kept: whole numbers beyond 64 bits become broken ones."""
    if not headers:
        return headers
    if problem := shape_problem(headers):
        raise Rejected(400, f"headers: {problem}")
    try:
        msgspec.msgpack.encode(headers)
    except OverflowError:
        try:
            return {name: _with_small_numbers(value) for name, value in headers.items()}
        except OverflowError as error:
            raise Rejected(400, f"headers: {error}") from None
    return headers


def _with_small_numbers(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value)
    if isinstance(value, list):
        return [_with_small_numbers(each) for each in value]
    if isinstance(value, dict):
        return {name: _with_small_numbers(each) for name, each in value.items()}
    return value


def _known_id(text: str) -> TaskId:
    return as_task_id(text) or NO_TASK


def show(view: TaskView, result: bytes | None = None) -> TaskShown:
    """Show a task; its result only if that is given."""
    failure, request, progress = view.error, view.request, view.progress
    return TaskShown(
        task_id=id_text(view.id),
        task_type=view.name,
        status=STATUS[view.state],
        priority=view.priority,
        created_at=to_time(view.created_us),
        updated_at=to_time(view.updated_us),
        result=result,
        error=_error_text(view),
        retry_count=view.failures,
        worker_id=view.worker or None,
        namespace=view.namespace,
        queue=view.queue,
        state=view.state,
        key=view.key,
        alias=view.alias,
        tags=view.tags,
        headers=view.headers,
        batch=view.batch,
        parent_id=id_text(view.parent) if view.parent else None,
        submitted_by=view.by,
        scheduled_at=to_time(view.due_us),
        expires_at=to_time(view.expires_us),
        started_at=to_time(view.started_us),
        ended_at=to_time(view.ended_us),
        forgotten_at=to_time(view.forget_us),
        timeout_seconds=view.timeout_us / SECOND if view.timeout_us else None,
        max_retries=view.retries,
        attempts=view.attempts,
        fence=view.fence or None,
        crashes=view.crashes,
        interruptions=view.interruptions,
        dependencies=tuple(id_text(each) for each in view.depends_on),
        waiting_for=tuple(id_text(each) for each in view.waiting_for),
        reason=view.reason,
        failure=ErrorShown(failure.type, failure.message, failure.trace) if failure else None,
        progress=ProgressShown(to_time(progress.at_us), progress.percent, progress.note)
        if progress
        else None,
        signal=SignalShown(request.signal, request.stage, request.by, to_time(request.at_us))
        if request
        else None,
        payload_size=view.payload_size,
        result_size=view.result_size,
        how=view.how,
        answer=show_answer(view.answer) if view.answer else None,
    )


def show_answer(view: AnswerView) -> AnswerShown:
    """Show a request."""
    return AnswerShown(
        identity=view.identity.hex(),
        queue=view.queue,
        task_id=id_text(view.task),
        state=view.state,
        task_type=view.name,
        version=view.version,
        worker_id=view.worker or None,
        size=view.size,
        made_at=to_time(view.made_us),
        good_until=to_time(view.until_us),
        uses=view.uses,
        used_at=to_time(view.used_us),
        used_by=view.used_by or None,
        pinned_by=view.pinned_by or None,
    )


def _error_text(view: TaskView) -> str | None:
    if view.error is not None:
        return f"{view.error.type}: {view.error.message}" if view.error.message else view.error.type
    return str(view.reason) if view.reason is not None else None

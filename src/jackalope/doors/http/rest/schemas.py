"""Shapes of the REST API: states and actions by their public names, tasks, and views.

Owns the fields of tasks, what is submitted and what is shown, and the rules by which what is shown
follows from the views of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Protocol, TypeVar, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from jackalope.core.assertions import must
from jackalope.core.durations import HOUR, SECOND
from jackalope.core.ids import NO_TASK, TaskId, as_task_id, id_text
from jackalope.core.lifecycle import LEASED, PENDING, State
from jackalope.core.limits import (
    AMOUNT_MAX,
    DEPENDENCIES_PER_TASK_MAX,
    ITEMS_PER_COMMAND_MAX,
    KEY_NAME_CHARS_MAX,
    KEY_VALUE_CHARS_MAX,
    KEYS_PER_TASK_MAX,
    NAME_CHARS_MAX,
    NEEDS_PER_TASK_MAX,
    RESOURCES_PER_WORKER_MAX,
    TAG_CHARS_MAX,
    TAGS_PER_TASK_MAX,
    TIME_US_MAX,
)
from jackalope.core.shapes.callback import Callback
from jackalope.core.shapes.needs import (
    ONE,
    Needs,
    read_amounts,
    read_labels,
    read_needs,
    read_pairs,
    read_values,
)
from jackalope.core.shapes.pace import Pace, Pacing
from jackalope.core.shapes.request import Same
from jackalope.core.task import NO_OPTIONS, PRIORITY_DEFAULT, OnDependency, Options, Retry, TaskSpec
from jackalope.core.values import shape_problem
from jackalope.doors.http.errors import ErrorBody, Rejected
from jackalope.doors.http.vocabulary import alias
from jackalope.wire.views import (
    DURATIONS,
    AnswerView,
    CallbackView,
    ErrorView,
    PaceView,
    ProgressView,
    RequestView,
    SentEventView,
    StepView,
    TaskView,
    json_name,
)

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
KeyName = Annotated[str, Meta(min_length=1, max_length=KEY_NAME_CHARS_MAX, pattern="^[^\\x00]+$")]
KeyValue = Annotated[str, Meta(max_length=KEY_VALUE_CHARS_MAX, pattern="^[^\\x00]*$")]
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


def status_of(shown: Any) -> Status:
    """Return the status of what is shown with a state."""
    return STATUS[shown.state]


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
    return round((seconds or 0) * 1_000_000)


def about(text: str, **bounds: Any) -> Meta:
    """Say what a field means."""
    return Meta(description=text, **bounds)


# How views are shown: called as `json_name` says. A time is a text, null if it has not come; a
# duration is a number of seconds, null if there is none; an id is the text of a UUID; what is
# `nullable` is null where it is empty; a view within a view is shown by its own shape. All else is
# as it is in the view.

V = TypeVar("V", bound=msgspec.Struct)
V_contra = TypeVar("V_contra", bound=msgspec.Struct, contravariant=True)


class Shape(Protocol[V_contra]):
    """Shows views of one kind. `shown` is the type of what it makes, as the API describes it."""

    shown: Any

    def __call__(self, view: V_contra) -> msgspec.Struct: ...


def shape_of(
    view: type[V],
    name: str,
    about: str,
    *,
    nullable: Collection[str] = (),
    inner: Mapping[str, Shape[Any]] = {},
    made: Mapping[str, tuple[Any, Callable[[Any], Any]]] = {},
    defaults: Mapping[str, Any] = {},
) -> Shape[V]:
    """Make what shows views of one kind.

    The function is compiled, as quick as one written by hand: a list has thousands of tasks.

    Args:
        view: the kind of views.
        name: what the description of the API calls the shape.
        about: what the description says of it.
        nullable: fields that are null where they are empty.
        inner: shapes of the fields that are views themselves.
        made: fields that are shown otherwise: their types, and what makes them of their value.
        defaults: of fields that the description does not promise.
    """
    hints = get_type_hints(view)
    must(hints.keys() >= {*nullable, *inner, *made}, "fields of the view are named")
    known: dict[str, Any] = {"to_time": to_time, "id_text": id_text}
    fields: dict[str, Any] = {}
    values: dict[str, str] = {}
    for field, hint in hints.items():
        shown_as = json_name(field)
        shown, value = _shown(field, hint, inner.get(field))
        known[f"show_{field}"] = inner.get(field)
        if field in made:
            shown, known[f"make_{field}"] = made[field]
            value = f"make_{field}(view.{field})"
        fields[shown_as] = shown | None if field in nullable else shown
        values[shown_as] = f"({value} if view.{field} else None)" if field in nullable else value
    known["Shown"] = msgspec.defstruct(
        name, fields.items(), namespace={"__doc__": about, **defaults}, kw_only=True
    )
    call = ", ".join(f"{field}={value}" for field, value in values.items())
    shape: Shape[V] = eval(f"lambda view: Shown({call})", known)  # noqa: S307  written right here
    shape.shown = known["Shown"]
    return shape


def _shown(name: str, hint: Any, inner: Shape[Any] | None) -> tuple[Any, str]:
    """Return how a field is shown: its type, and its value as an expression."""
    value = f"view.{name}"
    if inner is not None:
        shown: Any = inner.shown
        if get_origin(hint) is tuple:
            return list[shown], f"[show_{name}(each) for each in {value}]"
        return shown | None, f"(show_{name}({value}) if {value} else None)"
    if name.endswith("_us"):
        is_duration = name in DURATIONS
        in_seconds = f"({value} / {SECOND} if {value} else None)"
        return (float | None, in_seconds) if is_duration else (Time | None, f"to_time({value})")
    if hint is TaskId:
        return Id, f"id_text({value})"
    if hint == tuple[TaskId, ...]:
        return tuple[Id, ...], f"tuple([id_text(each) for each in {value}])"
    return hint, value


# Tasks.

#: Where tasks go that name no queue.
QUEUE_DEFAULT = "default"

#: What a task's own number of retries means beside that number.
_RETRY_BASE_US = 5 * SECOND
_RETRY_FACTOR = 2.0
_RETRY_CAP_US = HOUR


class PaceToTake(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How tasks of one queue, name and key are spread over time."""

    how: Annotated[Pacing, about("Debounce, throttle, or replace what is queued.")]
    key: Annotated[MaybeName, about("What tells tasks of one queue and name apart.")] = ""
    span_seconds: Annotated[
        Seconds, about("How long no more may come, or how long one is accepted for.")
    ] = 0
    at_most_seconds: Annotated[
        Seconds, about("Of a debounce: how long after the first it runs at most; 0 for any time.")
    ] = 0
    drop: Annotated[
        bool, about("Of a throttle: drop what is too much, and answer with the task accepted.")
    ] = False


#: One need, and labels with the values that will do: bounded as by the core, so that what the
#: description of the API allows is accepted.
_AnyOf = Annotated[tuple[MaybeName, ...], Meta(min_length=1, max_length=NEEDS_PER_TASK_MAX)]
_Whole = Annotated[int, Meta(ge=1, le=AMOUNT_MAX // ONE)]
_Broken = Annotated[float, Meta(ge=1 / ONE, le=AMOUNT_MAX // ONE)]
NeedToTake = _Whole | _Broken | MaybeName | _AnyOf
LabelsToTake = dict[Tag, MaybeName | _AnyOf]

#: The same in a query: names with values, in texts.
_Pair = Annotated[str, Meta(pattern="^[^=\\x00]{1,100}=.+$", max_length=NAME_CHARS_MAX)]
_Pairs = Annotated[tuple[_Pair, ...], Meta(max_length=NEEDS_PER_TASK_MAX)]

#: How much of what a worker has.
_Amount = (
    Annotated[int, Meta(ge=0, le=AMOUNT_MAX // ONE)]
    | Annotated[float, Meta(ge=0, le=AMOUNT_MAX // ONE)]
    | MaybeName
)
Resources = Annotated[dict[Tag, _Amount], Meta(max_length=RESOURCES_PER_WORKER_MAX)]


class TaskToSubmit(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A task to submit. Only `name` is needed."""

    name: Annotated[Name, about("The name of the task to run.")]
    payload: Annotated[Bytes, about("The payload, in base64.")] = b""
    payload_ticket: Annotated[
        str, about("The ticket of an upload link, instead of `payload`.", max_length=64)
    ] = ""
    priority: Annotated[Priority, about("Higher runs first; 200 and up is high.")] = (
        PRIORITY_DEFAULT
    )
    run_at: Annotated[Time | None, about("The earliest start time.")] = None
    timeout_seconds: Annotated[
        Seconds | None, about("The time limit of an attempt; by default that of the queue.")
    ] = None
    retries: Annotated[
        Count | None, about("How many failures are retried; by default as the queue's policy.")
    ] = None
    depends_on: Annotated[
        tuple[Id, ...],
        about("Tasks that must end before this one starts.", max_length=DEPENDENCIES_PER_TASK_MAX),
    ] = ()
    id: Annotated[Id | None, about("The id of the task, which makes the submit idempotent.")] = None
    queue: Annotated[Name | None, about(f"The queue; default `{QUEUE_DEFAULT}`.")] = None
    key: Annotated[MaybeName, about("Only workers that serve this key run it.")] = ""
    alias: Annotated[MaybeName, about("An alias, unique in the namespace.")] = ""
    tags: Annotated[
        tuple[Tag, ...],
        about("Labels by which running tasks can be limited.", max_length=TAGS_PER_TASK_MAX),
    ] = ()
    headers: Annotated[dict[str, Any], about("Free-form data that is passed to the worker.")] = {}
    expires_at: Annotated[Time | None, about("The task is dead if it has not started by then.")] = (
        None
    )
    on_dependency: Annotated[
        OnDependency, about("What to do if a dependency does not succeed.")
    ] = OnDependency.DEAD
    parent: Annotated[Id | None, about("The parent task.")] = None
    held: Annotated[bool, about("Hold the task until it is played.")] = False
    same: Annotated[
        Same | None, about("What to do with an equal request; by default as the queue's policy.")
    ] = None
    version: Annotated[
        MaybeName, about("The version of the code, as part of the request's identity.")
    ] = ""
    pace: Annotated[
        PaceToTake | None, about("How it is spread over time, with others of its kind.")
    ] = None
    callbacks: Annotated[
        tuple[Callback, ...], about("Where the end is posted, and which ends; by default all.")
    ] = ()
    keys: Annotated[
        dict[KeyName, KeyValue],
        about("Values that limits and shares go by.", max_length=KEYS_PER_TASK_MAX),
    ] = {}
    needs: Annotated[
        dict[Tag, NeedToTake],
        about("Amounts of resources, such as 1 or `8GiB`, and labels that its worker must have."),
    ] = {}
    prefer: Annotated[LabelsToTake, about("Labels of workers that it goes to first.")] = {}
    avoid: Annotated[
        LabelsToTake, about("Labels of workers that it goes to only if no other could run it.")
    ] = {}
    sticky: Annotated[
        MaybeName, about("The next task of the same value goes to the same worker, if it has room.")
    ] = ""


class TasksToSubmit(msgspec.Struct, forbid_unknown_fields=True):
    """Tasks to submit. Each is accepted or refused on its own."""

    tasks: Annotated[list[TaskToSubmit], Meta(min_length=1, max_length=ITEMS_PER_COMMAND_MAX)]


class RawTask(msgspec.Struct, forbid_unknown_fields=True):
    """A task whose payload is the body of the request."""

    name: Annotated[Name, about("The name of the task to run.")]
    queue: Annotated[Name | None, about(f"The queue; default `{QUEUE_DEFAULT}`.")] = None
    priority: Annotated[Priority, about("Higher runs first.")] = PRIORITY_DEFAULT
    key: Annotated[MaybeName, about("Only workers that serve this key run it.")] = ""
    alias: Annotated[MaybeName, about("An alias, unique in the namespace.")] = ""
    tag: Annotated[
        tuple[Tag, ...], about("A tag; may be repeated.", max_length=TAGS_PER_TASK_MAX)
    ] = ()
    timeout_seconds: Annotated[Seconds | None, about("The time limit of an attempt.")] = None
    retries: Annotated[Count | None, about("How many failures are retried.")] = None
    id: Annotated[Id | None, about("The id of the task, which makes the submit idempotent.")] = None
    held: Annotated[bool, about("Hold the task until it is played.")] = False
    need: Annotated[
        _Pairs,
        about(
            "What its worker must have, as `NAME=VALUE`: an amount such as `gpu=1` or `mem=8GiB`, "
            "or a label such as `arch=arm64`; may be repeated."
        ),
    ] = ()
    prefer: Annotated[
        _Pairs, about("A label of workers that it goes to first, as `NAME=VALUE`.")
    ] = ()
    avoid: Annotated[
        _Pairs, about("A label of workers that it goes to only if no other could run it.")
    ] = ()
    sticky: Annotated[
        MaybeName, about("The next task of the same value goes to the same worker, if it has room.")
    ] = ""

    def to_submit(self) -> TaskToSubmit:
        """Return the task without its payload."""
        problems: list[str] = []
        needs, prefer, avoid = (
            read_pairs(given, problems, f"query: {name}")
            for name, given in (("need", self.need), ("prefer", self.prefer), ("avoid", self.avoid))
        )
        if problems:
            raise Rejected(400, "; ".join(problems))
        return TaskToSubmit(
            self.name,
            priority=self.priority,
            timeout_seconds=self.timeout_seconds,
            retries=self.retries,
            id=self.id,
            queue=self.queue,
            key=self.key,
            alias=self.alias,
            tags=self.tag,
            held=self.held,
            needs=read_values(needs),
            prefer={name: tuple(values) for name, values in prefer.items()},
            avoid={name: tuple(values) for name, values in avoid.items()},
            sticky=self.sticky,
        )


class Submitted(msgspec.Struct):
    """A task that was accepted, for good."""

    id: Id
    warning: Annotated[str | UnsetType, about("What is doubtful about it.")] = UNSET


class Submission(msgspec.Struct):
    """What became of one task of a list: it was accepted, or there is an error."""

    id: Id
    error: ErrorBody | None
    warning: Annotated[str | UnsetType, about("What is doubtful about it.")] = UNSET


class Submissions(msgspec.Struct):
    """What became of each task of a list, in its order."""

    tasks: list[Submission]
    accepted: int
    refused: int


def error_text(task: Any) -> str | None:
    """Say in a line what went wrong with a task, of its view or what is shown."""
    if task.error is not None:
        return f"{task.error.type}: {task.error.message}" if task.error.message else task.error.type
    return str(task.reason) if task.reason is not None else None


show_answer = shape_of(
    AnswerView,
    "AnswerShown",
    "A request: the task that has its answer or will have it, and who had use of that.",
    nullable=("worker", "used_by", "pinned_by"),
    made={"identity": (Identity, bytes.hex)},
)

show_error = shape_of(ErrorView, "ErrorShown", "What a worker says went wrong.")

_show_callback = shape_of(
    CallbackView,
    "CallbackShown",
    "Where the end of a task is posted, and the task that does so once it has ended.",
    nullable=("task",),
)

show = shape_of(
    TaskView,
    "TaskShown",
    "A task. `result` is there if it is small; `/result` has it whatever its size. `payload` is "
    "its beginning, in lists that are asked for it.",
    nullable=("worker", "parent", "fence", "waits_for"),
    inner={
        "error": show_error,
        "progress": shape_of(ProgressView, "ProgressShown", "How far an attempt has come."),
        "request": shape_of(
            RequestView,
            "SignalShown",
            "What was asked of the worker about a running task, and how far that has come.",
        ),
        "answer": show_answer,
        "steps": shape_of(StepView, "StepShown", "A step of a task that is done for good."),
        "events": shape_of(
            SentEventView,
            "SentEventShown",
            "An event that was sent to a task and is not waited for yet.",
        ),
        "callbacks": _show_callback,
        "pace": shape_of(
            PaceView, "PaceShown", "How tasks of one queue, name and key are spread over time."
        ),
    },
    defaults={
        "waiting_for": (),
        "steps": [],
        "waits_for": None,
        "events": [],
        "callbacks": [],
        "pace": None,
        "needs": {},
        "prefer": {},
        "avoid": {},
        "sticky": "",
    },
)

AnswerShown: Any = show_answer.shown
TaskShown: Any = show.shown

#: What a reference to a task, and what belongs to one, is called in the published design.
TASK_ALIASES = {"task": "task_id", "name": "task_type", "worker": "worker_id"}

_SUBMIT_ALIASES = {
    "name": "task_type",
    "id": "task_id",
    "retries": "max_retries",
    "depends_on": "dependencies",
    "parent": "parent_id",
    "run_at": "schedule_at",
}

alias(TaskToSubmit, names=_SUBMIT_ALIASES)
alias(RawTask, names={ours: _SUBMIT_ALIASES[ours] for ours in ("name", "id", "retries")})
alias(Submitted, names={"id": "task_id"}, added={"status": lambda _: Status.PENDING})
alias(
    Submission,
    names={"id": "task_id"},
    added={"status": lambda each: None if each.error else Status.PENDING},
)
alias(AnswerShown, names={**TASK_ALIASES, "until_at": "good_until"})
alias(_show_callback.shown, names={"task": "task_id"})
alias(
    TaskShown,
    names={
        "id": "task_id",
        "name": "task_type",
        "failures": "retry_count",
        "worker": "worker_id",
        "parent": "parent_id",
        "by": "submitted_by",
        "due_at": "scheduled_at",
        "forget_at": "forgotten_at",
        "retries": "max_retries",
        "depends_on": "dependencies",
        "error": "failure",
        "request": "signal",
        "payload": "payload_head",
    },
    added={"status": status_of, "error": error_text},
    without=("state",),
)


class TaskList(msgspec.Struct):
    """Some tasks. A cursor, given with the same question, asks for the next ones."""

    tasks: list[TaskShown]
    total: int | None
    cursor: str | None
    at: Annotated[Time | None, about("The time of the answer, to ask for what came later.")] = None


def to_spec(task: TaskToSubmit, task_id: TaskId) -> TaskSpec:
    """Return a task as the core takes it.

    A task that names no queue is one of the task API alone, and has its time limit.
    """
    headers = _to_keep(task.headers)
    retries = task.retries
    options = Options(
        alias=task.alias,
        headers=headers,
        tags=task.tags,
        run_at_us=from_time(task.run_at),
        expires_at_us=from_time(task.expires_at),
        timeout_us=from_seconds(task.timeout_seconds),
        retry=None
        if retries is None
        else Retry(retries, _RETRY_BASE_US, _RETRY_FACTOR, _RETRY_CAP_US),
        depends_on=tuple(_known_id(each) for each in task.depends_on),
        on_dependency=task.on_dependency,
        parent=_known_id(task.parent) if task.parent else NO_TASK,
        held=task.held,
        same=task.same,
        version=task.version,
        pace=None if task.pace is None else _pace_of(task.pace),
        callbacks=task.callbacks,
        keys=task.keys,
        needs=_needs_of(task),
    )
    return TaskSpec(
        _known_id(task.id) if task.id else task_id,
        task.queue or QUEUE_DEFAULT,
        task.name,
        task.key,
        task.priority,
        task.payload,
        None if options == NO_OPTIONS else options,
    )


def with_sound_headers(options: Options | None) -> Options | None:
    """Return options whose headers can be kept."""
    if options is None or not options.headers:
        return options
    return msgspec.structs.replace(options, headers=_to_keep(options.headers))


def _pace_of(pace: PaceToTake) -> Pace:
    span_us, at_most_us = from_seconds(pace.span_seconds), from_seconds(pace.at_most_seconds)
    return Pace(pace.how, pace.key, span_us, at_most_us, pace.drop)


def resources_of(given: Mapping[str, object]) -> dict[str, int]:
    """Return what a worker has, in thousandths."""
    problems: list[str] = []
    resources = read_amounts(given, problems, "resources")
    if problems:
        raise Rejected(400, "; ".join(problems))
    return resources


def _needs_of(task: TaskToSubmit) -> Needs | None:
    """Return the needs of a task, if they can be read; the core says whether they are sound."""
    if not (task.needs or task.prefer or task.avoid or task.sticky):
        return None
    problems: list[str] = []
    needs = msgspec.structs.replace(
        read_needs(task.needs, problems),
        prefer=read_labels(task.prefer, problems, "prefer"),
        avoid=read_labels(task.avoid, problems, "avoid"),
        sticky=task.sticky,
    )
    if problems:
        raise Rejected(400, "; ".join(problems))
    return needs


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

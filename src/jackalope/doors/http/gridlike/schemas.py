"""GridLike's shapes: its jobs, batches and messages as its clients and workers know them.

Owns the translation and nothing else. A job is a task, its type a queue, its key an alias. Where
GridLike has a field it has GridLike's name, type and way of writing; what we add stands beside it.
Numbers stand for states and priorities, and a time that has not come is the first of January 1.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

import msgspec

from jackalope.core.durations import SECOND
from jackalope.core.explain import is_stuck
from jackalope.core.ids import id_text
from jackalope.core.lifecycle import State
from jackalope.core.policy import DEFAULT_POLICY, Policy
from jackalope.core.task import Attempt
from jackalope.core.values import shape_problem
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import Rejected, as_rejected
from jackalope.doors.http.gridlike import problem
from jackalope.doors.http.request import Connection
from jackalope.storage import StorageFault
from jackalope.wire.views import BatchView, ProgressView, TaskView

#: A submitted description goes along with the task, and with what its result becomes.
DESCRIPTION = "description"
DESCRIPTION_CHARS_MAX = 128

#: What the two priorities are in ours.
PRIORITIES = {"immediate": 200, "batch": 100}
_IMMEDIATE_FROM = 150

_NEVER = "0001-01-01T00:00:00"


class Status(IntEnum):
    """Where a job stands."""

    PENDING = 0
    RUNNING = 1
    DONE = 2
    FAILED = 3


STATUSES = {
    State.HELD: Status.PENDING,
    State.WAITING: Status.PENDING,
    State.SCHEDULED: Status.PENDING,
    State.READY: Status.PENDING,
    State.PAUSED: Status.PENDING,
    State.ASSIGNED: Status.RUNNING,
    State.RUNNING: Status.RUNNING,
    State.SUCCEEDED: Status.DONE,
    State.DEAD: Status.FAILED,
    State.KILLED: Status.FAILED,
}


class Code(IntEnum):
    """What a text message over the socket is about."""

    REGISTRATION = 0
    STATUS = 1
    STATUS_REQUEST = 2
    PROGRESS = 3
    FAILED = 4
    #: Not GridLike's: which attempt the next payload is.
    ATTEMPT = 5


class Progress(msgspec.Struct, frozen=True):
    """How far a job has come, in the words of its worker."""

    percent: float | None
    info: str | None
    at: str


class Failure(msgspec.Struct, frozen=True):
    """What a worker last said went wrong."""

    info: str
    logs: str


class Job(msgspec.Struct, frozen=True, rename="camel"):
    """A job in a list. All up to `worker_id` are GridLike's own."""

    id: str
    status: Status
    key: str
    display: str | None
    priority: int
    submitted: str
    started: str
    ended: str
    worker_id: str | None
    type: str
    batch: int
    from_id: str | None
    failure_count: int
    stuck: bool
    reason: str | None
    progress: Progress | None = None
    failure: Failure | None = None


class Batch(msgspec.Struct, frozen=True):
    """A batch of a type; stable once nothing is added to it any more."""

    id: int
    type: str
    size: int
    stable: bool
    pending: int
    running: int
    done: int
    failed: int


def job_of(view: TaskView, policy: Policy = DEFAULT_POLICY, now_us: int = 0) -> Job:
    progress, error = view.progress, view.error
    description = view.headers.get(DESCRIPTION)
    running = Attempt(view.fence, view.worker, 0, view.started_us) if view.fence else None
    return Job(
        id=id_text(view.id),
        status=STATUSES[view.state],
        key=view.alias or id_text(view.id),
        display=str(description) if description is not None else None,
        priority=int(view.priority >= _IMMEDIATE_FROM),
        submitted=to_time(view.created_us),
        started=to_time(view.started_us),
        ended=to_time(view.ended_us if STATUSES[view.state] >= Status.DONE else 0),
        worker_id=view.worker or None,
        type=view.queue,
        batch=view.batch,
        from_id=id_text(view.parent) if view.parent else None,
        failure_count=view.failures,
        stuck=is_stuck(running, policy, now_us),
        reason=view.reason,
        progress=None if progress is None else _progress_of(progress),
        failure=None if error is None else Failure(error.message, error.trace),
    )


def _progress_of(view: ProgressView) -> Progress:
    return Progress(view.percent, view.note or None, to_time(view.at_us))


def batch_of(view: BatchView) -> Batch:
    counts = dict.fromkeys(Status, 0)
    for state, number in view.counts.items():
        counts[STATUSES[State(state)]] += number
    return Batch(view.number, view.queue, sum(counts.values()), view.is_full, *counts.values())


def to_time(at_us: int) -> str:
    """Write a time as GridLike does."""
    if not at_us:
        return _NEVER
    moment = datetime.fromtimestamp(at_us // SECOND, UTC).replace(microsecond=at_us % SECOND)
    return moment.isoformat().removesuffix("+00:00") + "Z"


def read_message(text: str) -> dict[str, Any] | None:
    """Read a text message: the fields by their names in small letters, or None if it is none."""
    try:
        message = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not isinstance(message, dict) or shape_problem(message):
        return None
    fields = {name.lower(): value for name, value in message.items()}
    is_coded = type(fields.get("code")) is int
    return fields if is_coded else None


# Problems: how GridLike says no.

_PROBLEM_JSON = "application/problem+json"


class Problem(Exception):
    """What is wrong with a request, in a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Incomplete(Exception):
    """A form lacks fields that it must have."""

    def __init__(self, fields: list[str]) -> None:
        super().__init__(", ".join(fields))
        self.fields = fields


def problem_response(connection: Connection, error: Exception) -> Response:
    """Answer an error in GridLike's words."""
    if isinstance(error, Incomplete):
        body: dict[str, Any] = {
            "title": "One or more validation errors occurred.",
            "status": 400,
            "errors": {name: [f"The {name} field is required."] for name in error.fields},
        }
        return Response(msgspec.json.encode(body), 400, media_type=_PROBLEM_JSON)
    if isinstance(error, StorageFault):
        body = {"title": "The storage failed.", "status": 500, "detail": str(error)}
        return Response(msgspec.json.encode(body), 500, media_type=_PROBLEM_JSON)
    if isinstance(error, Problem):
        error = Rejected(error.status, str(error))
    rejected = as_rejected(connection, error)
    if rejected.status == 401:
        return Response(b"", 401, rejected.headers)
    return problem(rejected)

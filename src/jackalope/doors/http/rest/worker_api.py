"""The worker API over REST: claim, beat, report. With this, `curl` can be a worker.

Owns the shapes and the routes; `doors.http.session` has the sessions.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jackalope.broker.client_session import of_kind
from jackalope.broker.queries import Refused
from jackalope.core.commands import Answer as SignalAnswer
from jackalope.core.commands import (
    AnswerSignal,
    AnyCommand,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Heartbeat,
    Held,
    JoinWorker,
    RecordStep,
    ReleaseAttempts,
    ReportProgress,
    StartAttempts,
    Suspend,
    Verdict,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Answered, Assignment, StepDone, Suspended
from jackalope.core.ids import TaskId, as_task_id, id_text
from jackalope.core.lifecycle import State
from jackalope.core.limits import (
    ERROR_CHARS_MAX,
    ITEMS_PER_COMMAND_MAX,
    KEYS_PER_WORKER_MAX,
    LEASE_US_MAX,
    LEASE_US_MIN,
    NAME_CHARS_MAX,
    NAMES_PER_WORKER_MAX,
    NOTE_CHARS_MAX,
    QUEUES_PER_WORKER_MAX,
    STEPS_PER_TASK_MAX,
)
from jackalope.core.shapes.envelope import headers_shown
from jackalope.core.shapes.flow import Input
from jackalope.core.task import BlobRef, Error, Signal, size_of
from jackalope.doors.http.asgi import Response, gone
from jackalope.doors.http.bodies import body_response, receiving
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.request import (
    Request,
    answer,
    door_of,
    namespace_of,
    nothing,
    read_body,
    read_query,
    task_id_of,
)
from jackalope.doors.http.rest.schemas import (
    TASK_ALIASES,
    Bytes,
    Fence,
    Id,
    MaybeName,
    Name,
    Resources,
    Seconds,
    Wait,
    about,
    from_seconds,
    resources_of,
    show_error,
)
from jackalope.doors.http.rest.upload_links import UploadLink, body_of_ticket, upload_link
from jackalope.doors.http.router import Routes, Spec
from jackalope.doors.http.session import HttpWorker
from jackalope.doors.http.vocabulary import alias
from jackalope.wire.views import ErrorView, view_as

routes = Routes("/api/v1", has_namespace=True)

ErrorShown: Any = show_error.shown


#: How many numbers a worker may report about itself.
_STATS_MAX = 64

_Lease = Annotated[
    float,
    about("The lease duration in seconds.", ge=LEASE_US_MIN / SECOND, le=LEASE_US_MAX / SECOND),
]
_Queues = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=QUEUES_PER_WORKER_MAX)]
_Keys = Annotated[tuple[Name, ...], Meta(max_length=KEYS_PER_WORKER_MAX)]
_Names = Annotated[tuple[MaybeName, ...], Meta(max_length=NAMES_PER_WORKER_MAX)]
_Stats = Annotated[dict[str, float], Meta(max_length=_STATS_MAX)]
_Labels = Annotated[dict[str, Annotated[str, Meta(max_length=NAME_CHARS_MAX)]], Meta(max_length=64)]


class HeldAttempt(msgspec.Struct, forbid_unknown_fields=True):
    """An attempt: the task, and the fence that proves the right to it."""

    task: Id
    fence: Fence

    def to_held(self) -> Held:
        return Held(as_task_id(self.task) or TaskId(b""), self.fence)


class JoinAsked(msgspec.Struct, forbid_unknown_fields=True):
    """A worker that joins without earlier attempts."""

    queues: _Queues
    keys: _Keys = ()
    names: Annotated[
        _Names | None,
        about("The names of tasks that it knows, an empty one for tasks without; by default all."),
    ] = None
    labels: _Labels = {}
    resources: Annotated[
        Resources, about("How much of what it has, such as 2 or `64GiB`, for tasks that need it.")
    ] = {}
    lease_seconds: _Lease = 30
    holding: Annotated[
        list[HeldAttempt],
        about(
            "The attempts that it still runs; its other attempts are given up.",
            max_length=ITEMS_PER_COMMAND_MAX,
        ),
    ] = []


class JoinDone(msgspec.Struct):
    """What goes on, and what the worker must drop."""

    resumed: list[HeldAttempt]
    dropped: list[HeldAttempt]


class ClaimAsked(msgspec.Struct, forbid_unknown_fields=True):
    """What a worker wants to have."""

    queues: _Queues
    keys: Annotated[_Keys, about("Only tasks with one of these keys.")] = ()
    names: Annotated[
        _Names | None,
        about("Only tasks of these names, in this and later claims; by default as before."),
    ] = None
    labels: Annotated[_Labels | None, about("What it says about itself; by default as before.")] = (
        None
    )
    resources: Annotated[
        Resources | None,
        about("How much of what it has, in this and later claims; by default as before."),
    ] = None
    count: Annotated[int, about("The maximum number of tasks.", ge=1, le=1_000)] = 1
    wait: Wait = 0
    lease_seconds: _Lease = 30
    start: Annotated[bool, about("Start the tasks with the response; otherwise call `start`.")] = (
        True
    )


class StepGiven(msgspec.Struct):
    """A step that an earlier attempt has done, with its result or the data of its event."""

    index: int
    name: str
    result: Bytes
    is_late: bool


class InputShown(msgspec.Struct):
    """What a predecessor of a node of a flow left. A large result is not in it; `/input` has it."""

    node: str
    group: str
    task: Id
    state: State
    result: bytes | None
    result_size: int
    error: ErrorShown | None


class AssignedTask(msgspec.Struct):
    """A task for a worker. A large payload is not in it; `/payload` has it."""

    task: Id
    fence: Fence
    name: str
    queue: str
    key: str
    attempt: int
    payload: bytes | None
    payload_size: int
    timeout_seconds: float | None
    headers: dict[str, Any]
    tags: tuple[str, ...]
    steps: list[StepGiven]
    inputs: list[InputShown] = []


class SignalAskedShown(msgspec.Struct):
    """What a worker is asked to do about an attempt. It answers with `signal`."""

    task: Id
    fence: Fence
    signal: Signal


class Beat(msgspec.Struct):
    """What the broker has to say to a worker."""

    signals: list[SignalAskedShown]
    draining: bool


class Claimed(Beat):
    """Tasks for a worker; none if there was nothing in time."""

    tasks: list[AssignedTask]


class BeatAsked(msgspec.Struct, forbid_unknown_fields=True):
    """How a worker is."""

    stats: _Stats = {}


@routes.post("/workers/{worker}/join", "work", Spec(JoinDone, body=JoinAsked, errors=(409,)))
async def join_worker(request: Request, worker: str) -> Response:
    """Join as a worker. Attempts that it does not list as held are given up.

    Only needed by a worker that was stopped and uses the same name again: any claim lets a new
    name in.
    """
    asked = await read_body(request, JoinAsked)
    joined = await door_of(request).fleet.join(
        JoinWorker(
            ref=0,
            worker=worker,
            queues=asked.queues,
            keys=asked.keys,
            slots=0,
            labels=asked.labels,
            resources=resources_of(asked.resources),
            names=asked.names,
            holding=[each.to_held() for each in asked.holding],
            namespace=namespace_of(request),
            lease_us=from_seconds(asked.lease_seconds),
        )
    )
    return answer(JoinDone(_show_held(joined.resumed), _show_held(joined.drop)))


def _show_held(attempts: tuple[Held, ...]) -> list[HeldAttempt]:
    return [HeldAttempt(id_text(held.task), held.fence) for held in attempts]


@routes.post("/workers/{worker}/claim", "work", Spec(Claimed, body=ClaimAsked, errors=(409,)))
async def claim_tasks(request: Request, worker: str) -> Response:
    """Claim tasks, and wait for some if there are none.

    The request keeps the worker alive while it waits. A claim whose client goes away before the
    answer gives everything back.
    """
    asked = await read_body(request, ClaimAsked)
    fleet = door_of(request).fleet
    resources = None if asked.resources is None else resources_of(asked.resources)
    known = await fleet.worker(namespace_of(request), worker, asked.queues)
    await known.serve(
        queues=asked.queues,
        keys=asked.keys,
        names=asked.names,
        lease_us=from_seconds(asked.lease_seconds),
        labels=asked.labels,
        resources=resources,
    )
    leaving = asyncio.create_task(gone(request.receive))
    try:
        assignments = await known.claim(asked.count, from_seconds(asked.wait), leaving)
        if asked.start and assignments:
            assignments = await _start(known, assignments)
        if leaving.done():
            known.release(assignments)
    finally:
        leaving.cancel()
    tasks = [_show_assignment(given) for given in assignments]
    beat = _beat(known)
    return answer(Claimed(beat.signals, beat.draining, tasks))


async def _start(worker: HttpWorker, assignments: list[Assignment]) -> list[Assignment]:
    """Let tasks begin; those that were taken back meanwhile are not handed out."""
    held = [Held(given.task, given.fence) for given in assignments]
    started = await worker.ask(StartAttempts(ref=0, attempts=held))
    refused = {index for index, _ in of_kind(started, Accepted).refused}
    return [given for index, given in enumerate(assignments) if index not in refused]


def _show_assignment(given: Assignment) -> AssignedTask:
    payload = given.payload
    return AssignedTask(
        task=id_text(given.task),
        fence=given.fence,
        name=given.name,
        queue=given.queue,
        key=given.key,
        attempt=given.attempt,
        payload=None if isinstance(payload, BlobRef) else payload,
        payload_size=payload.size if isinstance(payload, BlobRef) else len(payload),
        timeout_seconds=given.timeout_us / SECOND if given.timeout_us else None,
        headers=headers_shown(given.options.headers, given.envelope),
        tags=given.options.tags,
        steps=[StepGiven(step.index, step.name, step.result, step.is_late) for step in given.steps],
        inputs=[_show_input(each) for each in given.inputs],
    )


def _show_input(given: Input) -> InputShown:
    result, error = given.result, given.error
    return InputShown(
        given.node,
        given.group,
        id_text(given.task),
        given.state,
        None if isinstance(result, BlobRef) else result,
        size_of(result),
        None if error is None else show_error(view_as(ErrorView, error)),
    )


def _beat(worker: HttpWorker) -> Beat:
    signals = [
        SignalAskedShown(id_text(asked.task), asked.fence, asked.signal)
        for asked in worker.take_signals()
    ]
    return Beat(signals, worker.is_draining)


@routes.post("/workers/{worker}/heartbeat", "work", Spec(Beat, body=BeatAsked, errors=(404, 409)))
async def beat(request: Request, worker: str) -> Response:
    """Renew the worker's lease and report its usage; returns what it is asked to do."""
    asked = await read_body(request, BeatAsked)
    known = await door_of(request).fleet.worker(namespace_of(request), worker)
    await known.ask(Heartbeat(stats=asked.stats))
    return answer(_beat(known))


@routes.post("/workers/{worker}/leave", "work", Spec(status=204, errors=(404, 409)))
async def leave(request: Request, worker: str) -> Response:
    """Leave as a worker. What it still holds is handed back."""
    known = await door_of(request).fleet.worker(namespace_of(request), worker)
    await known.leave()
    return nothing()


# Attempts.


class AttemptQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Whose attempt, and the fence that proves the right to it."""

    worker: Annotated[Name, about("The worker.")]
    fence: Annotated[Fence, about("The fence that was assigned with the task.")]


class ResultQuery(AttemptQuery, forbid_unknown_fields=True):
    """Whose attempt, and where its result is if that is not the body."""

    ticket: Annotated[
        str, about("The ticket of an upload link, instead of a body.", max_length=64)
    ] = ""


class Reported(Beat):
    """The report was taken."""

    task: Id


class ProgressTold(msgspec.Struct, forbid_unknown_fields=True):
    """How far an attempt has come."""

    percent: Annotated[float, Meta(ge=0, le=100)] | None = None
    note: Annotated[str, Meta(max_length=NOTE_CHARS_MAX)] = ""


class FailureTold(msgspec.Struct, forbid_unknown_fields=True):
    """The error, and how to handle it."""

    message: Annotated[str, Meta(max_length=ERROR_CHARS_MAX // 4)] = ""
    type: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)] = "Failure"
    trace: Annotated[str, Meta(max_length=ERROR_CHARS_MAX // 2)] = ""
    verdict: Verdict = Verdict.RETRY
    retry_after_seconds: Annotated[
        Seconds, about("When to retry, instead of the policy's delay.")
    ] = 0
    key: Annotated[
        MaybeName,
        about("If it was throttled: the limit, or its key, at which no task starts until then."),
    ] = ""


class SignalTold(msgspec.Struct, forbid_unknown_fields=True):
    """The worker's word on a signal."""

    answer: SignalAnswer
    detail: Annotated[str, Meta(max_length=NOTE_CHARS_MAX)] = ""


_StepIndex = Annotated[
    int, about("Its place among the steps of the task, from 0.", ge=0, lt=STEPS_PER_TASK_MAX)
]


class StepTold(msgspec.Struct, forbid_unknown_fields=True):
    """A step that is done."""

    index: _StepIndex
    name: Name
    result: Annotated[Bytes, about("Its result, in base64, at most 64 KiB.")] = b""
    took_seconds: Annotated[Seconds, about("How long it took.")] = 0


class WaitTold(msgspec.Struct, forbid_unknown_fields=True):
    """A wait without the worker: for a time, for an event, or for what comes first."""

    index: _StepIndex
    name: Name
    after_seconds: Annotated[Seconds, about("For how long; 0 if only the event ends it.")] = 0
    event: Annotated[MaybeName, about("The event; empty to wait for the time alone.")] = ""


class WaitAnswered(Beat):
    """`suspended`: the attempt is over. Otherwise the step is done, and `result` is what it has."""

    task: Id
    suspended: bool
    result: Bytes
    is_late: bool


for _shape in (HeldAttempt, InputShown, AssignedTask, SignalAskedShown, Reported, WaitAnswered):
    alias(_shape, names=TASK_ALIASES)


def _attempt(body: Any = None, shape: Any = Reported) -> Spec:
    return Spec(shape, body=body, query=AttemptQuery, errors=(404, 409))


@routes.post("/attempts/{task_id}/start", "work", _attempt())
async def start_attempt(request: Request, task_id: str) -> Response:
    """Say that an attempt begins, if its claim did not."""
    held = _held(request, task_id)
    return await _report(request, held, StartAttempts(ref=0, attempts=[held]))


@routes.read(
    "/attempts/{task_id}/payload",
    "work",
    Spec(
        bytes, query=AttemptQuery, errors=(404, 409, 416), also={206: "A part.", 304: "Unchanged."}
    ),
)
async def read_attempt_payload(request: Request, task_id: str) -> Response:
    """Return the payload of the task that is being worked on, or a range of it."""
    held, door = _held(request, task_id), door_of(request)
    name = read_query(request, AttemptQuery).worker
    known = await door.fleet.worker(namespace_of(request), name)
    payload = await known.payload_of(held)
    return await body_response(request, door.broker.blobs, payload, on_chunk=known.touch)


class InputQuery(AttemptQuery, forbid_unknown_fields=True):
    """Whose attempt, and which of its inputs."""

    node: Annotated[Name, about("The node whose result is meant.")]


@routes.read(
    "/attempts/{task_id}/input",
    "work",
    Spec(bytes, query=InputQuery, errors=(404, 409, 416), also={206: "A part.", 304: "Unchanged."}),
)
async def read_attempt_input(request: Request, task_id: str) -> Response:
    """Return what a node of its flow left for the task that is being worked on."""
    query, door = read_query(request, InputQuery), door_of(request)
    known = await door.fleet.worker(namespace_of(request), query.worker)
    body = await known.payload_of(Held(task_id_of(task_id), query.fence), query.node)
    return await body_response(request, door.broker.blobs, body, on_chunk=known.touch)


@routes.post("/attempts/{task_id}/progress", "work", _attempt(ProgressTold))
async def report_progress(request: Request, task_id: str) -> Response:
    """Say how far an attempt has come."""
    held = _held(request, task_id)
    told = await read_body(request, ProgressTold)
    command = ReportProgress(
        ref=0, task=held.task, fence=held.fence, percent=told.percent, note=told.note
    )
    return await _report(request, held, command)


@routes.post(
    "/attempts/{task_id}/finish",
    "work",
    Spec(Reported, body=bytes, query=ResultQuery, errors=(404, 408, 409), needs_body=False),
)
async def finish_attempt(request: Request, task_id: str) -> Response:
    """Bring an attempt to its good end. The body is the result, of any size and type."""
    query = read_query(request, ResultQuery)
    held = Held(task_id_of(task_id), query.fence)
    door = door_of(request)
    known = await door.fleet.worker(namespace_of(request), query.worker)
    await known.payload_of(held)  # Refused now, rather than after a gigabyte.
    async with receiving(
        request, door.broker.blobs, door.settings.upload_bytes_max, "result", known.touch
    ) as received:
        result = received.body or b""
        if query.ticket:
            if result:
                raise Rejected(400, "send the result as the body or by a ticket, not both")
            result = await body_of_ticket(request, query.ticket)
        finish = Finish(held.task, held.fence, result)
        return await _report_as(request, query.worker, held, FinishAttempts(attempts=[finish]))


@routes.post(
    "/attempts/{task_id}/link",
    "work",
    Spec(UploadLink, status=201, query=AttemptQuery, errors=(404, 409, 501)),
)
async def make_result_link(request: Request, task_id: str) -> Response:
    """Return a link to send a large result to, past the broker; `finish` names its ticket."""
    name = read_query(request, AttemptQuery).worker
    known = await door_of(request).fleet.worker(namespace_of(request), name)
    await known.payload_of(_held(request, task_id))
    return await upload_link(request)


@routes.post("/attempts/{task_id}/fail", "work", _attempt(FailureTold))
async def fail_attempt(request: Request, task_id: str) -> Response:
    """Say that an attempt failed. The queue's policy says whether it is tried again."""
    held = _held(request, task_id)
    told = await read_body(request, FailureTold)
    error = Error(told.type, told.message, told.trace)
    after_us = from_seconds(told.retry_after_seconds)
    failed = Fail(held.task, held.fence, error, told.verdict, after_us, key=told.key)
    return await _report(request, held, FailAttempts(attempts=[failed]))


@routes.post("/attempts/{task_id}/step", "work", _attempt(StepTold))
async def record_step(request: Request, task_id: str) -> Response:
    """Record the result of a step, which no attempt does again. Repeating this is harmless."""
    held = _held(request, task_id)
    told = await read_body(request, StepTold)
    command = RecordStep(
        ref=0,
        task=held.task,
        fence=held.fence,
        index=told.index,
        name=told.name,
        result=told.result,
        took_us=from_seconds(told.took_seconds),
    )
    return await _report(request, held, command)


@routes.post("/attempts/{task_id}/suspend", "work", _attempt(WaitTold, WaitAnswered))
async def suspend_attempt(request: Request, task_id: str) -> Response:
    """Let the task wait without the worker, unless what it waits for has come."""
    held = _held(request, task_id)
    told = await read_body(request, WaitTold)
    command = Suspend(
        ref=0,
        task=held.task,
        fence=held.fence,
        index=told.index,
        name=told.name,
        after_us=from_seconds(told.after_seconds),
        event=told.event,
    )
    worker = read_query(request, AttemptQuery).worker
    known, body = await _told(request, worker, command)
    done = StepDone() if isinstance(body, Suspended) else of_kind(body, StepDone)
    beat = _beat(known)
    return answer(
        WaitAnswered(
            beat.signals,
            beat.draining,
            id_text(held.task),
            isinstance(body, Suspended),
            done.result,
            done.is_late,
        )
    )


@routes.post("/attempts/{task_id}/release", "work", _attempt())
async def release_attempt(request: Request, task_id: str) -> Response:
    """Hand an attempt back unfinished, through no fault of the task."""
    held = _held(request, task_id)
    return await _report(request, held, ReleaseAttempts(attempts=[held]))


@routes.post("/attempts/{task_id}/signal", "work", _attempt(SignalTold))
async def answer_signal(request: Request, task_id: str) -> Response:
    """Answer a signal: it is acknowledged, refused, or the attempt has stopped for it."""
    held = _held(request, task_id)
    told = await read_body(request, SignalTold)
    command = AnswerSignal(
        ref=0, task=held.task, fence=held.fence, answer=told.answer, detail=told.detail
    )
    return await _report(request, held, command)


def _held(request: Request, task_id: str) -> Held:
    return Held(task_id_of(task_id), read_query(request, AttemptQuery).fence)


async def _report(request: Request, held: Held, command: AnyCommand) -> Response:
    return await _report_as(request, read_query(request, AttemptQuery).worker, held, command)


async def _report_as(request: Request, worker: str, held: Held, command: AnyCommand) -> Response:
    known, _ = await _told(request, worker, command)
    beat = _beat(known)
    return answer(Reported(beat.signals, beat.draining, id_text(held.task)))


async def _told(request: Request, worker: str, command: AnyCommand) -> tuple[HttpWorker, Answered]:
    known = await door_of(request).fleet.worker(namespace_of(request), worker)
    told = await known.ask(command)
    if isinstance(told, Accepted) and told.refused:
        raise Refused(told.refused[0][1])
    return known, told

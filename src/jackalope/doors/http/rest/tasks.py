"""Tasks over REST: submit them, show them, list them, and wait for them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET

from jackalope.broker import queries
from jackalope.broker.body_streams import store_payload
from jackalope.broker.client_session import of_kind
from jackalope.broker.queries import PAYLOAD_HEAD_BYTES_MAX, About, Refused, task_and_bodies
from jackalope.core.commands import SubmitTasks
from jackalope.core.effects import Accepted, AcceptedRequests, Served
from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, as_task_id, id_text
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.limits import TIME_US_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import TRACE_PARENT, TRACE_STATE, BlobRef, Body, TaskSpec
from jackalope.doors.http.asgi import Response, while_there
from jackalope.doors.http.bodies import receiving
from jackalope.doors.http.errors import Rejected, refusal_body
from jackalope.doors.http.request import (
    Request,
    answer,
    ask,
    door_of,
    namespace_of,
    read_body,
    read_query,
    task_id_of,
)
from jackalope.doors.http.rest.schemas import (
    STATES,
    Id,
    MaybeName,
    RawTask,
    Status,
    Submission,
    Submissions,
    Submitted,
    Tag,
    TaskList,
    TaskShown,
    TasksToSubmit,
    TaskToSubmit,
    Time,
    Wait,
    about,
    error_text,
    from_time,
    show,
    to_spec,
    to_time,
)
from jackalope.doors.http.rest.upload_links import WithLink, body_of_ticket, body_or_link
from jackalope.doors.http.router import Routes, Spec
from jackalope.doors.http.vocabulary import alias
from jackalope.doors.traces import carry_trace
from jackalope.storage.ports import Sort
from jackalope.task_ids import fresh_task_id
from jackalope.wire.views import TaskView

routes = Routes("/api/v1", has_namespace=True)


_LIMIT_DEFAULT = 100
_LIMIT_MAX = 1_000
_OFFSET_MAX = 100_000


# Submitting.


@routes.post(
    "/tasks", "submit_tasks", Spec(Submitted, status=201, body=TaskToSubmit, errors=(404, 409))
)
async def submit_task(request: Request) -> Response:
    """Submit a task. It is durable when the answer comes."""
    task = await read_body(request, TaskToSubmit)
    spec = await to_keep(request, task)
    return answer(_submitted(spec, await _submit_alone(request, spec)), 201)


@routes.post(
    "/tasks/raw",
    "submit_tasks",
    Spec(Submitted, status=201, body=bytes, query=RawTask, errors=(404, 408, 409)),
)
async def submit_raw(request: Request) -> Response:
    """Submit a task whose payload is the body of the request, of any size.

    A form (`multipart/form-data`) is taken as well; its part `payload` is the payload.
    """
    task = read_query(request, RawTask).to_submit()
    door = door_of(request)
    async with receiving(request, door.broker.blobs, door.settings.upload_bytes_max) as received:
        spec = to_spec(task, fresh_task_id(door.broker.now_us()))
        spec.payload = received.body or b""
        accepted = await _submit_alone(request, spec)
    return answer(_submitted(spec, accepted), 201)


def _submitted(spec: TaskSpec, accepted: Accepted) -> Submitted:
    served = _served(accepted).get(0)
    task_id = spec.id if served is None else served.task
    return Submitted(id_text(task_id), _warnings(accepted).get(0, UNSET))


@routes.post(
    "/tasks/batch",
    "submit_tasks",
    Spec(Submissions, status=201, body=TasksToSubmit, errors=(404, 409)),
)
async def submit_tasks(request: Request) -> Response:
    """Submit many tasks. Each is accepted or refused on its own; the answer says which.

    If all are refused, the answer is the error of the first.
    """
    tasks = (await read_body(request, TasksToSubmit)).tasks
    specs = [await to_keep(request, task) for task in tasks]
    accepted = await _submit(request, specs)
    refused, served = dict(accepted.refused), _served(accepted)
    warnings = _warnings(accepted)
    if len(refused) == len(specs):
        raise Refused(refused[0])
    submissions = [
        Submission(
            id_text(served[index].task if index in served else spec.id),
            refusal_body(refused[index]) if index in refused else None,
            warnings.get(index, UNSET),
        )
        for index, spec in enumerate(specs)
    ]
    return answer(Submissions(submissions, len(specs) - len(refused), len(refused)), 201)


async def to_keep(request: Request, task: TaskToSubmit) -> TaskSpec:
    """Return a task as the core takes it; a large payload goes to the blob store first."""
    door = door_of(request)
    size_max = door.settings.payload_bytes_max
    if len(task.payload) > size_max:
        message = f"payload: {len(task.payload)} bytes; at most {size_max}, or use /tasks/raw"
        raise Refused(Refusal(Code.TOO_LARGE, message))
    spec = to_spec(task, fresh_task_id(door.broker.now_us()))
    await store_payload(door.broker.blobs, spec)
    if task.payload_ticket:
        if task.payload:
            raise Rejected(400, "body: payload and payload_ticket exclude each other")
        spec.payload = await body_of_ticket(request, task.payload_ticket)
    return spec


async def submit_one(request: Request, spec: TaskSpec) -> Served | None:
    return _served(await _submit_alone(request, spec)).get(0)


async def _submit_alone(request: Request, spec: TaskSpec) -> Accepted:
    accepted = await _submit(request, [spec])
    if accepted.refused:
        raise Refused(accepted.refused[0][1])
    return accepted


def _served(accepted: Accepted) -> dict[int, Served]:
    return dict(accepted.served) if isinstance(accepted, AcceptedRequests) else {}


def _warnings(accepted: Accepted) -> dict[int, str]:
    return dict(accepted.warnings) if isinstance(accepted, AcceptedRequests) else {}


async def _submit(request: Request, specs: list[TaskSpec]) -> Accepted:
    """Submit tasks, and let go of the blobs of those that were refused."""
    door = door_of(request)
    refusal = door.broker.admit(len(specs))
    if refusal is not None:
        raise Refused(refusal)
    carry_trace(specs, request.header(TRACE_PARENT), request.header(TRACE_STATE))
    command = SubmitTasks(ref=0, tasks=specs)
    accepted = of_kind(await ask(request, command, len(specs)), Accepted)
    for index, _ in accepted.refused:
        payload = specs[index].payload
        if isinstance(payload, BlobRef):
            door.broker.blobs.doubt(payload)
    return accepted


# Showing.


@routes.get("/tasks/{task_id}", "read_tasks", Spec(TaskShown, errors=(404,)))
async def read_task(request: Request, task_id: str) -> Response:
    """Return a task, with its result if that is small."""
    view, (_, result) = await find(request, task_id)
    return answer(_shown(view, result))


def _shown(view: TaskView, result: Body) -> msgspec.Struct:
    if view.state is State.SUCCEEDED and isinstance(result, bytes):
        view = msgspec.structs.replace(view, result=result)
    return show(view)


async def find(request: Request, task_id: str) -> tuple[TaskView, tuple[Body, Body]]:
    """Find a task that a path names, with its payload and result."""
    about_it = About(id=task_id_of(task_id))
    return await task_and_bodies(door_of(request).broker, namespace_of(request), about_it)


class Conditions(msgspec.Struct, forbid_unknown_fields=True):
    """Which tasks: all conditions must hold, and none means every task."""

    status: Annotated[Status | None, about("With this status.")] = None
    queue: Annotated[MaybeName, about("In this queue.")] = ""
    name: Annotated[MaybeName, about("With exactly this name.")] = ""
    key: Annotated[MaybeName, about("With exactly this key.")] = ""
    tag: Annotated[Tag | None, about("With this tag.")] = None
    batch: Annotated[int, about("In the batch of this number.", ge=0, le=TIME_US_MAX)] = 0
    parent: Annotated[Id | None, about("Submitted by this task.")] = None
    text: Annotated[MaybeName, about("Contained in name, key or alias.")] = ""
    older_than: Annotated[Time | None, about("Created before.")] = None
    newer_than: Annotated[Time | None, about("Created then or later.")] = None
    contains: Annotated[MaybeName, about("Contained in the error or the payload.")] = ""

    def to_filter(self, states: tuple[State, ...]) -> Filter:
        """Return them as the core takes them; without states if no state meets them."""
        if self.status is not None:
            states = tuple(s for s in STATES[self.status] if not states or s in states)
        return Filter(
            states=states,
            queue=self.queue,
            name=self.name,
            key=self.key,
            tag=self.tag or "",
            parent=(self.parent and as_task_id(self.parent)) or NO_TASK,
            batch=self.batch,
            text=self.text,
            older_than_us=from_time(self.older_than),
            newer_than_us=from_time(self.newer_than),
            contains=self.contains,
        )


class FilterGiven(Conditions, forbid_unknown_fields=True):
    """Which tasks: all conditions must hold, and none means every task."""

    states: Annotated[tuple[State, ...], about("In one of these states.", max_length=10)] = ()


class ListQuery(Conditions, forbid_unknown_fields=True):
    """Which tasks, and how many of them."""

    state: Annotated[tuple[State, ...], about("In one of these states.", max_length=10)] = ()
    limit: Annotated[int, about("The maximum number of items.", ge=1, le=_LIMIT_MAX)] = (
        _LIMIT_DEFAULT
    )
    offset: Annotated[
        int, about("The number of items to skip; a cursor is faster.", ge=0, le=_OFFSET_MAX)
    ] = 0
    sort: Annotated[Sort, about("The order; `-` for descending.")] = Sort.CREATED_LAST
    cursor: Annotated[str, about("The cursor of the previous page.", max_length=1_024)] = ""
    payload_head: Annotated[
        int, about("The maximum number of bytes of `payload`.", ge=0, le=PAYLOAD_HEAD_BYTES_MAX)
    ] = 0


alias(ListQuery, names={"name": "task_type"}, only=("status",))


@routes.get("/tasks", "read_tasks", Spec(TaskList, query=ListQuery))
async def list_tasks(request: Request) -> Response:
    """List tasks, the latest first.

    A page says how many there are in all, unless it was asked for by a cursor.
    """
    # A bad namespace is reported also of a list that cannot have a task.
    query, namespace = read_query(request, ListQuery), namespace_of(request)
    now_us = door_of(request).broker.now_us()
    wanted = query.to_filter(tuple(sorted(set(query.state))))
    if query.status and not wanted.states:
        return answer(TaskList([], 0, None, to_time(now_us)))
    asked = About(
        sort=str(query.sort),
        limit=query.limit,
        offset=query.offset,
        cursor=query.cursor,
        total=not query.cursor,
        payload_head=query.payload_head,
        **msgspec.structs.asdict(wanted),
    )
    page = await queries.tasks(door_of(request).broker, namespace, asked)
    tasks = [show(view) for view in page.tasks]
    return answer(TaskList(tasks, page.total, page.cursor or None, to_time(now_us)))


class PayloadQuery(msgspec.Struct, forbid_unknown_fields=True):
    """In which way to have it."""

    link: WithLink = 0


@routes.read(
    "/tasks/{task_id}/payload",
    "read_tasks",
    Spec(
        bytes, query=PayloadQuery, errors=(404, 416, 501), also={206: "A part.", 304: "Unchanged."}
    ),
)
async def read_payload(request: Request, task_id: str) -> Response:
    """Return the payload as it was submitted, or the range of it that is asked for."""
    is_link = bool(read_query(request, PayloadQuery).link)
    _, (payload, _) = await find(request, task_id)
    return await body_or_link(request, payload, is_link=is_link)


# Waiting.


class WaitQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How long to wait."""

    wait: Wait = 0


class ResultQuery(WaitQuery, forbid_unknown_fields=True):
    """How long to wait, and in which way to have it."""

    link: WithLink = 0


@routes.read(
    "/tasks/{task_id}/result",
    "read_tasks",
    Spec(
        bytes,
        query=ResultQuery,
        errors=(404, 409, 416, 501),
        also={202: "It has not ended; the body is the task.", 206: "A part.", 304: "Unchanged."},
    ),
)
async def read_result(request: Request, task_id: str) -> Response:
    """Return the result, or the range of it that is asked for; wait for it if asked to.

    A task that ended without one is a conflict. The task itself is the answer (202) if it has not
    ended by then.
    """
    query = read_query(request, ResultQuery)
    view, (_, result) = await _after_waiting(request, task_id, query.wait)
    if view.state not in ENDED:
        return answer(_shown(view, result), 202)
    if view.state is not State.SUCCEEDED:
        why = error_text(view) or "it has no result"
        message = f"task {id_text(view.id)} is {view.state}: {why}"
        raise Refused(Refusal(Code.WRONG_STATE, message))
    return await body_or_link(request, result, is_link=bool(query.link))


@routes.get(
    "/tasks/{task_id}/wait",
    "read_tasks",
    Spec(
        TaskShown,
        query=WaitQuery,
        errors=(404,),
        also={202: "It has not ended; the body is the task."},
    ),
)
async def wait_for_task(request: Request, task_id: str) -> Response:
    """Return the task when it has ended, or as it is when the time is over (202)."""
    wait_s = read_query(request, WaitQuery).wait
    view, (_, result) = await _after_waiting(request, task_id, wait_s)
    return answer(_shown(view, result), 200 if view.state in ENDED else 202)


async def _after_waiting(
    request: Request, task_id: str, wait_s: float
) -> tuple[TaskView, tuple[Body, Body]]:
    found = await find(request, task_id)
    if found[0].state in ENDED or not wait_s:
        return found
    client_session = door_of(request).client_session
    ended = await while_there(
        request.receive, client_session.ended(namespace_of(request), found[0].id, wait_s)
    )
    if ended is None:
        return await find(request, task_id)
    try:
        return await find(request, task_id)
    except Refused:
        # Its policy keeps nothing: what the end reported is all there is.
        view = msgspec.structs.replace(found[0], state=ended.state, reason=ended.reason)
        return view, (b"", ended.result)

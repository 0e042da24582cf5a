"""Jobs over HTTP: submit, list, show and delete them, and get their payloads and results."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from msgspec.structs import replace
from multipart import parse_options_header

from jackalope.broker import queries
from jackalope.broker.access import THE_BROKER
from jackalope.broker.queries import PAGE_ROWS_MAX, About, Refused
from jackalope.core.api_key import Permission
from jackalope.core.commands import Action, ActOnTasks, SubmitTasks
from jackalope.core.effects import Accepted
from jackalope.core.ids import id_text
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.refusals import Code
from jackalope.core.shapes.request import Same
from jackalope.core.task import Options, TaskSpec
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.bodies import Received, body_response, receiving
from jackalope.doors.http.gridlike.context import Grid, grid_of
from jackalope.doors.http.gridlike.schemas import (
    DESCRIPTION,
    DESCRIPTION_CHARS_MAX,
    PRIORITIES,
    STATUSES,
    Batch,
    Incomplete,
    Problem,
    Status,
    batch_of,
    job_of,
    problem_response,
)
from jackalope.doors.http.request import Request, answer, by_of
from jackalope.doors.http.router import Routes
from jackalope.task_ids import fresh_task_id
from jackalope.wire.views import TaskPage, TaskView

routes = Routes(on_error=problem_response)


#: How many jobs of a list are in memory at once.
_PAGE_ROWS = 500

#: How long a delete waits for the worker of a job to let go of it.
_LET_GO_S = 5.0

#: Keys that no client could ask for: a route of its own, and what clients take out of a path.
_NO_KEYS = frozenset({"submit", ".", ".."})

_FORM = "multipart/form-data"


# Submitting.


@routes.post("/api/jobs/submit", "submit_tasks")
@routes.post("/api/jobs/submit/{job_type}", "submit_tasks")
async def submit_job(request: Request, job_type: str = "") -> Response:
    """Submit a job: a form with its payload, its priority, a key and a description."""
    grid = grid_of(request)
    queue = await grid.queue_of(job_type)
    kind, _ = parse_options_header(request.header("content-type"))
    if kind != _FORM:
        raise Problem(415, f"Submit a job as a form, {_FORM}, got {kind or 'no Content-Type'}")
    door = grid.door
    size_max = door.settings.upload_bytes_max
    async with receiving(request, grid.broker.blobs, size_max) as received:
        spec = await _spec_of(grid, queue, received)
        await _submit(grid, spec, by_of(request))
    key = spec.options.alias if spec.options else ""
    return answer({"created": key or id_text(spec.id), "id": id_text(spec.id)}, 202)


async def _spec_of(grid: Grid, queue: str, received: Received) -> TaskSpec:
    missing = [] if received.body is not None else ["Payload"]
    missing += [] if received.fields.get("priority") else ["Priority"]
    if missing or received.body is None:
        raise Incomplete(missing)
    priority = received.field("priority")
    if priority.lower() not in PRIORITIES:
        message = f"Unrecognized priority '{priority}', use either 'immediate' or 'batch'"
        raise Problem(400, message)
    description, key = received.field("description"), received.field("key")
    if len(description) > DESCRIPTION_CHARS_MAX:
        message = f"The description has {len(description)} characters, at most"
        raise Problem(400, f"{message} {DESCRIPTION_CHARS_MAX} are taken")
    if key in _NO_KEYS:
        raise Problem(400, f"The key {key} cannot be part of a path, so no job can be found by it")
    if key and await grid.has_id(key):
        raise _duplicate(key)
    headers = {DESCRIPTION: description} if description else {}
    # A job is one of its own, whatever the queue does about others that are the same.
    options = Options(alias=key, headers=headers, same=Same.RUN)
    task_id = fresh_task_id(grid.broker.now_us())
    return TaskSpec(
        task_id,
        queue,
        priority=PRIORITIES[priority.lower()],
        payload=received.body,
        options=options,
    )


async def _submit(grid: Grid, spec: TaskSpec, by: str) -> None:
    refusal = grid.broker.admit(1)
    if refusal is not None:
        raise Refused(refusal)
    command = SubmitTasks(ref=0, tasks=[spec], namespace=grid.namespace, by=by)
    accepted = await grid.door.client_session.ask(command)
    if not isinstance(accepted, Accepted) or not accepted.refused:
        return
    refusal = accepted.refused[0][1]
    if refusal.code is Code.DUPLICATE_ALIAS and spec.options is not None:
        raise _duplicate(spec.options.alias)
    raise Refused(refusal)


def _duplicate(key: str) -> Problem:
    return Problem(400, f"A job with the key {key} already exists")


# Showing.


@routes.get("/api/jobs", "read_tasks")
async def list_jobs(request: Request) -> Response:
    """List all jobs, the oldest first; or those of a `type`, a `status`, a `batch`."""
    grid = grid_of(request)
    query = request.query
    queue = await grid.queue_of(query["type"]) if query.get("type") else ""
    states = _states_of(query["status"]) if query.get("status") else ()
    batch = number_of(query["batch"], "batch") if query.get("batch") else 0
    if batch and not queue:
        queue = await grid.queue_of(None)
    about = About(queue=queue, states=states, batch=batch, sort="created")
    return Response(await stream_jobs(grid, about))


@routes.get("/api/jobs/{key}", "read_tasks")
async def read_job(request: Request, key: str) -> Response:
    """Show a job, how far it has come, and what went wrong."""
    grid = grid_of(request)
    view, _ = await grid.find(key)
    policies = await grid.policies_of({view.queue})
    return answer(job_of(view, policies[view.queue], grid.broker.now_us()))


@routes.read("/api/jobs/{key}/payload", "read_tasks")
async def read_job_payload(request: Request, key: str) -> Response:
    """Return the payload of a job."""
    grid = grid_of(request)
    _, (payload, _) = await grid.find(key)
    return await body_response(request, grid.broker.blobs, payload)


@routes.read("/api/jobs/{key}/result", "read_tasks")
async def read_job_result(request: Request, key: str) -> Response:
    """Return the result of a job that is done."""
    grid = grid_of(request)
    view, (_, result) = await grid.find(key)
    if view.state is not State.SUCCEEDED:
        status = STATUSES[view.state].name.lower()
        raise Problem(409, f"The job with the key {key} has no result: it is {status}")
    return await body_response(request, grid.broker.blobs, result)


async def stream_jobs(
    grid: Grid, about: About, before: bytes = b"", behind: bytes = b""
) -> AsyncIterator[bytes]:
    """Return a list of jobs, however long. What is wrong with the query shows before it begins."""
    now_us = grid.broker.now_us()
    about = replace(about, limit=_PAGE_ROWS)
    page = await grid.ask(queries.tasks, about)

    async def written(tasks: list[TaskView]) -> bytes:
        # Queues come and go while a list is read, so each page asks for those that it names.
        policies = await grid.policies_of({view.queue for view in tasks})
        jobs = [job_of(view, policies[view.queue], now_us) for view in tasks]
        return msgspec.json.encode(jobs)[1:-1]

    async def written_out(page: TaskPage) -> AsyncIterator[bytes]:
        yield before + b"[" + await written(page.tasks)
        while page.cursor:
            page = await grid.ask(queries.tasks, replace(about, cursor=page.cursor))
            if page.tasks:
                yield b"," + await written(page.tasks)
        yield b"]" + behind

    return written_out(page)


def number_of(text: str, what: str) -> int:
    """Read a number out of a path or a query."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 18 and int(text)):
        raise Problem(400, f"The {what} is a number from 1 on, got {text[:64]!r}")
    return int(text)


def _states_of(text: str) -> tuple[State, ...]:
    wanted = {str(int(status)): status for status in Status}
    wanted |= {status.name.lower(): status for status in Status}
    wanted["complete"] = Status.DONE
    status = wanted.get(text.lower())
    if status is None:
        raise Problem(400, f"The status is one of {', '.join(wanted)}, got {text[:64]!r}")
    return tuple(state for state, its_status in STATUSES.items() if its_status is status)


# Deleting.


@routes.post("/api/jobs/{key}/delete", "cancel_tasks")
async def delete_job(request: Request, key: str) -> Response:
    """Remove a job with its payload and result; one that runs is stopped first."""
    grid = grid_of(request)
    return await _delete(grid, key, by_of(request))


@routes.delete("/api/jobs/{key}", "cancel_tasks")
async def delete_job_itself(request: Request, key: str) -> Response:
    """Remove a job with its payload and result; one that runs is stopped first."""
    grid = grid_of(request)
    return await _delete(grid, key, by_of(request))


async def _delete(grid: Grid, key: str, by: str) -> Response:
    view, _ = await grid.find(key, Permission.CANCEL_TASKS)
    client_session = grid.door.client_session

    def act(action: Action) -> ActOnTasks:
        return ActOnTasks(ref=0, action=action, tasks=(view.id,), namespace=grid.namespace, by=by)

    if view.state not in ENDED:
        await client_session.ask(act(Action.KILL))
        # Who may stop it may wait for that.
        if await client_session.ended(grid.namespace, view.id, _LET_GO_S, THE_BROKER) is None:
            message = f"The job with the key {key} still runs on worker {view.worker}"
            raise Problem(409, f"{message}, which was asked to stop; delete it again later")
    await client_session.ask(act(Action.PURGE))
    return answer({"deleted": view.alias or id_text(view.id)}, 202)


# Batches: which there are, and what is in them.


@routes.get("/api/batches", "read_tasks")
async def list_batches(request: Request) -> Response:
    """List the batches of a `type`, or of all, in the order of their numbers."""
    grid = grid_of(request)
    job_type = request.query.get("type")
    if job_type:
        return answer(await _batches(grid, await grid.queue_of(job_type)))
    found: list[Batch] = []
    for view in await grid.ask(queries.queues):
        try:
            found += await _batches(grid, view.queue)
        except Refused as error:
            if error.refusal.code is not Code.UNKNOWN_QUEUE:
                raise
            # It was deleted meanwhile, and its batches with it.
    return answer(found)


@routes.get("/api/batches/{number}", "read_tasks")
async def read_batch(request: Request, number: str) -> Response:
    """Show a batch of a `type`, or of the jobs without one, and all that is in it."""
    grid = grid_of(request)
    queue = await grid.queue_of(request.query.get("type"))
    wanted = number_of(number, "number of a batch")
    views = await grid.ask(queries.batches, About(queue=queue, before=wanted + 1, limit=1))
    if not views or views[0].number != wanted:
        raise Problem(404, f"There is no batch {wanted} of the type {queue}")
    about = About(queue=queue, batch=wanted, sort="created")
    head = msgspec.json.encode(batch_of(views[0]))[:-1] + b',"jobs":'
    return Response(await stream_jobs(grid, about, head, b"}"))


async def _batches(grid: Grid, queue: str) -> list[Batch]:
    found: list[Batch] = []
    before = 0
    while True:
        asked = About(queue=queue, before=before, limit=PAGE_ROWS_MAX)
        page = await grid.ask(queries.batches, asked)
        found += [batch_of(view) for view in page]
        if len(page) < PAGE_ROWS_MAX or page[-1].number <= 1:
            return found[::-1]
        before = page[-1].number

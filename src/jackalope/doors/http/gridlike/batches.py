"""Batches over HTTP: which there are, and what is in them."""

from __future__ import annotations

import msgspec

from jackalope.broker import queries
from jackalope.broker.queries import PAGE_ROWS_MAX, About, Refused
from jackalope.core.refusals import Code
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.gridlike.context import Grid, grid_of
from jackalope.doors.http.gridlike.jobs import number_of, stream_jobs
from jackalope.doors.http.gridlike.schemas import Batch, Problem, batch_of, problem_response
from jackalope.doors.http.request import Request, answer
from jackalope.doors.http.router import Routes

routes = Routes(on_error=problem_response)


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
    """Return all batches of a queue."""
    found: list[Batch] = []
    before = 0
    while True:
        asked = About(queue=queue, before=before, limit=PAGE_ROWS_MAX)
        page = await grid.ask(queries.batches, asked)
        found += [batch_of(view) for view in page]
        if len(page) < PAGE_ROWS_MAX or page[-1].number <= 1:
            return found[::-1]
        before = page[-1].number

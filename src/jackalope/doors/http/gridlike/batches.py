"""Batches over HTTP: which there are, and what is in them."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response, get
from litestar.params import FromPath
from litestar.response import Stream

from jackalope.broker.queries import PAGE_ROWS_MAX, Refused
from jackalope.core.refusals import Code
from jackalope.doors.http.bodies import AnyRequest
from jackalope.doors.http.gridlike.context import Grid
from jackalope.doors.http.gridlike.jobs import number_of, stream_jobs
from jackalope.doors.http.gridlike.schemas import Batch, Problem, batch_of
from jackalope.doors.http.request import answer
from jackalope.wire.views import BatchView

_JSON = "application/json"


def handlers(grid: Grid) -> list[Any]:
    """Return the routes of batches."""

    @get("/api/batches", opt={"permission": "read_tasks"})
    async def list_batches(request: AnyRequest) -> Response[Any]:
        """List the batches of a `type`, or of all, in the order of their numbers."""
        job_type = request.query_params.get("type")
        if job_type:
            return answer(await _batches(grid, await grid.queue_of(job_type)))
        found: list[Batch] = []
        for view in await grid.ask("queues"):
            try:
                found += await _batches(grid, view.queue)
            except Refused as error:
                if error.refusal.code is not Code.UNKNOWN_QUEUE:
                    raise
                # It was deleted meanwhile, and its batches with it.
        return answer(found)

    @get("/api/batches/{number:str}", opt={"permission": "read_tasks"})
    async def read_batch(request: AnyRequest, number: FromPath[str]) -> Stream:
        """Show a batch of a `type`, or of the jobs without one, and all that is in it."""
        queue = await grid.queue_of(request.query_params.get("type"))
        wanted = number_of(number, "number of a batch")
        views: list[BatchView] = await grid.ask("batches", queue=queue, before=wanted + 1, limit=1)
        if not views or views[0].number != wanted:
            raise Problem(404, f"There is no batch {wanted} of the type {queue}")
        about = {"queue": queue, "batch": wanted, "sort": "created"}
        head = msgspec.json.encode(batch_of(views[0]))[:-1] + b',"jobs":'
        return Stream(await stream_jobs(grid, about, head, b"}"), media_type=_JSON)

    return [list_batches, read_batch]


async def _batches(grid: Grid, queue: str) -> list[Batch]:
    """Return all batches of a queue."""
    found: list[Batch] = []
    before = 0
    while True:
        page: list[BatchView] = await grid.ask(
            "batches", queue=queue, before=before, limit=PAGE_ROWS_MAX
        )
        found += [batch_of(view) for view in page]
        if len(page) < PAGE_ROWS_MAX or page[-1].number <= 1:
            return found[::-1]
        before = page[-1].number

"""The numbers of the broker over time, over REST."""

from __future__ import annotations

from typing import Annotated

import msgspec

from jackalope.broker import queries
from jackalope.broker.queries import About
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, read_query, view_of
from jackalope.doors.http.rest.schemas import MaybeName, Time, about, from_time, to_time
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import PointView, SpreadView

routes = Routes("/api/v1", has_namespace=True)


_STEP_S_MAX = 86_400


class SeriesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What part of the series to show."""

    queue: Annotated[MaybeName, about("Only this queue; else all of the namespace.")] = ""
    since: Annotated[Time | None, about("From then on; by default the last hour.")] = None
    until: Annotated[Time | None, about("Until then; by default now.")] = None
    step_s: Annotated[
        int,
        about(
            "The length of a step: a multiple of 10 for the last two hours, of 300 for the last "
            "eight days. By default the shorter one that will do.",
            ge=0,
            le=_STEP_S_MAX,
        ),
    ] = 0


class PointShown(msgspec.Struct, frozen=True):
    """What happened from `at` on, for the length of a step. Times are in seconds."""

    at: Time | None
    submitted: int
    succeeded: int
    dead: int
    killed: int
    failures: int
    crashes: int
    interruptions: int
    retries: int
    depth: int
    leased: int
    workers: int
    per_second: float
    queued: SpreadView | None
    assigned: SpreadView | None
    started: SpreadView | None
    finished: SpreadView | None


class SeriesShown(msgspec.Struct, frozen=True):
    """The numbers over time. There is a point for each step in which the broker ran."""

    step_s: int
    points: list[PointShown]


@routes.get("/series", "read_tasks", Spec(SeriesShown, query=SeriesQuery))
async def read_series(request: Request) -> Response:
    """Return throughput, latency and depth over time."""
    span = read_query(request, SeriesQuery)
    asked = About(
        queue=span.queue,
        since_us=from_time(span.since),
        until_us=from_time(span.until),
        step_s=span.step_s,
    )
    view = await view_of(request, queries.series, asked)
    return answer(SeriesShown(view.step_s, [_show(point) for point in view.points]))


def _show(point: PointView) -> PointShown:
    fields = {field: getattr(point, field) for field in point.__struct_fields__}
    return PointShown(to_time(fields.pop("at_us")), **fields)

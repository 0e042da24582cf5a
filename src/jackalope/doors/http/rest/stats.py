"""The broker in numbers, over REST."""

from __future__ import annotations

from typing import Annotated

import msgspec

from jackalope.broker import queries
from jackalope.broker.queries import About
from jackalope.core.lifecycle import LEASED, PENDING, State
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, read_query, view_of
from jackalope.doors.http.rest.schemas import MaybeName, Time, about, from_time, to_time
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import PointView, SpreadView, StatsView

routes = Routes("/api/v1", has_namespace=True)


class Tiers(msgspec.Struct):
    """How many tasks are ready, by priority: 200 and up, 100 and up, below."""

    high: int
    normal: int
    low: int


class StatsShown(msgspec.Struct):
    """A namespace in numbers. The first fields are those of the task API."""

    pending_count: int
    in_progress_count: int
    completed_last_hour: int
    failed_last_hour: int
    worker_count: int
    avg_processing_time_ms: float
    queue_depth_by_priority: Tiers
    counts: dict[State, int]
    ended: dict[State, int]
    session_count: int
    started_at: Time | None
    now: Time | None
    durability: str
    version: str


@routes.get("/stats", "read_tasks", Spec(StatsShown))
async def read_stats(request: Request) -> Response:
    """Return the namespace in numbers."""
    return answer(show_stats(await view_of(request, queries.stats)))


def show_stats(view: StatsView) -> StatsShown:
    """Show a namespace in numbers."""
    tiers = view.depth_by_tier
    return StatsShown(
        pending_count=sum(view.counts.get(state, 0) for state in PENDING),
        in_progress_count=sum(view.counts.get(state, 0) for state in LEASED),
        completed_last_hour=view.succeeded_last_hour,
        failed_last_hour=view.dead_last_hour,
        worker_count=view.workers,
        avg_processing_time_ms=round(view.mean_run_s * 1_000, 3),
        queue_depth_by_priority=Tiers(tiers["high"], tiers["normal"], tiers["low"]),
        counts=view.counts,
        ended=view.ended,
        session_count=view.sessions,
        started_at=to_time(view.started_us),
        now=to_time(view.now_us),
        durability=view.durability,
        version=view.version,
    )


# Throughput, latency and depth over time.

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

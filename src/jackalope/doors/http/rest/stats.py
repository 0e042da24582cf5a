"""Statistics over REST: the broker in numbers, now and over time."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from jackalope.broker import queries
from jackalope.broker.queries import About
from jackalope.core.lifecycle import LEASED, PENDING
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, read_query, view_of
from jackalope.doors.http.rest.schemas import MaybeName, Time, about, from_time, shape_of
from jackalope.doors.http.router import Routes, Spec
from jackalope.doors.http.vocabulary import alias
from jackalope.wire.views import PointView, StatsView

routes = Routes("/api/v1", has_namespace=True)


class Tiers(msgspec.Struct):
    """How many tasks are ready, by priority: 200 and up, 100 and up, below."""

    high: int
    normal: int
    low: int


show_stats = shape_of(
    StatsView,
    "StatsShown",
    "A namespace in numbers.",
    made={"depth_by_tier": (Tiers, lambda tiers: Tiers(**tiers))},
)

StatsShown: Any = show_stats.shown

alias(
    StatsShown,
    names={
        "succeeded_last_hour": "completed_last_hour",
        "dead_last_hour": "failed_last_hour",
        "workers": "worker_count",
        "sessions": "session_count",
        "depth_by_tier": "queue_depth_by_priority",
    },
    added={
        "pending_count": lambda stats: sum(stats.counts.get(state, 0) for state in PENDING),
        "in_progress_count": lambda stats: sum(stats.counts.get(state, 0) for state in LEASED),
        "avg_processing_time_ms": lambda stats: round(stats.mean_run_s * 1_000, 3),
    },
    without=("mean_run_s",),
)


@routes.get("/stats", "read_tasks", Spec(StatsShown))
async def read_stats(request: Request) -> Response:
    """Return the namespace in numbers."""
    return answer(show_stats(await view_of(request, queries.stats)))


# Throughput, latency and depth over time.

_STEP_S_MAX = 86_400


class SeriesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What part of the series to show."""

    queue: Annotated[MaybeName, about("Only this queue; else all of the namespace.")] = ""
    since: Annotated[Time | None, about("The start; by default an hour ago.")] = None
    until: Annotated[Time | None, about("The end; by default now.")] = None
    step_s: Annotated[
        int,
        about(
            "The length of a step: a multiple of 10 for the last two hours, of 300 for the last "
            "eight days. By default the shorter one that covers the range.",
            ge=0,
            le=_STEP_S_MAX,
        ),
    ] = 0


_show_point = shape_of(
    PointView,
    "PointShown",
    "What happened from `at` on, for the length of a step. Times are in seconds.",
)

PointShown: Any = _show_point.shown


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
    return answer(SeriesShown(view.step_s, [_show_point(point) for point in view.points]))

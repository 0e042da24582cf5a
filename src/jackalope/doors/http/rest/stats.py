"""The broker in numbers, over REST."""

from __future__ import annotations

import msgspec

from jackalope.broker import queries
from jackalope.core.lifecycle import LEASED, PENDING, State
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, view_of
from jackalope.doors.http.rest.schemas import Time, to_time
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import StatsView

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

"""Workers over REST: who they are, how they are, and telling one to finish."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from jackalope.broker import queries
from jackalope.broker.queries import Refused
from jackalope.core.commands import DrainWorker
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, by_of, door_of, namespace_of, view_of
from jackalope.doors.http.rest.schemas import Time, to_time
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import WorkerView

routes = Routes("/api/v1", has_namespace=True)


class WorkerStatus(StrEnum):
    """How a worker is, in the words of the task API."""

    ACTIVE = "active"
    IDLE = "idle"
    DEAD = "dead"


class WorkerShown(msgspec.Struct):
    """A worker. Its first fields are those of the task API; `state` says it in our words."""

    worker_id: str
    hostname: str | None
    pid: int | None
    current_tasks: int
    cpu_usage_percent: float | None
    memory_usage_mb: float | None
    last_heartbeat: Time | None
    status: WorkerStatus
    registered_at: Time | None
    state: str
    queues: tuple[str, ...]
    keys: tuple[str, ...]
    slots: int
    labels: dict[str, str]
    stats: dict[str, float]
    gone_at: Time | None
    why_gone: str | None
    succeeded: int
    failed: int
    helps: str | None = None


def show_worker(view: WorkerView) -> WorkerShown:
    """Show a worker."""
    labels, stats = view.labels, view.stats
    if view.state in ("away", "gone"):
        status = WorkerStatus.DEAD
    else:
        is_busy = view.load or view.helps
        status = WorkerStatus.ACTIVE if is_busy else WorkerStatus.IDLE
    pid = labels.get("pid", "")
    return WorkerShown(
        worker_id=view.worker,
        hostname=labels.get("host") or labels.get("hostname"),
        pid=int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 19 else None,
        current_tasks=view.load,
        cpu_usage_percent=stats.get("cpu_percent"),
        memory_usage_mb=_megabytes(stats),
        last_heartbeat=to_time(view.heard_us),
        status=status,
        registered_at=to_time(view.joined_us),
        state=view.state,
        queues=view.queues,
        keys=view.keys,
        slots=view.slots,
        labels=labels,
        stats=stats,
        gone_at=to_time(view.gone_us),
        why_gone=view.why_gone or None,
        succeeded=view.succeeded,
        failed=view.failed,
        helps=view.helps or None,
    )


def _megabytes(stats: dict[str, float]) -> float | None:
    for name in ("memory_bytes", "rss_bytes"):
        if name in stats:
            return stats[name] / 1024 / 1024
    return stats.get("memory_mb")


@routes.get("/workers", "read_tasks", Spec(list[WorkerShown]))
async def list_workers(request: Request) -> Response:
    """List the workers, and those that left a while ago."""
    return answer([show_worker(view) for view in await view_of(request, queries.workers)])


@routes.get("/workers/{worker}", "read_tasks", Spec(WorkerShown, errors=(404,)))
async def read_worker(request: Request, worker: str) -> Response:
    """Return a worker."""
    return answer(await _worker(request, worker))


async def _worker(request: Request, worker: str) -> WorkerShown:
    for view in await view_of(request, queries.workers):
        if view.worker == worker:
            return show_worker(view)
    raise Refused(Refusal(Code.UNKNOWN_WORKER, f"no worker {worker!r}; list the workers"))


@routes.post("/workers/{worker}/drain", "admin", Spec(WorkerShown, errors=(404,)))
async def drain_worker(request: Request, worker: str) -> Response:
    """Give a worker no more tasks, and tell it to finish what it has."""
    command = DrainWorker(worker=worker, namespace=namespace_of(request), by=by_of(request))
    await door_of(request).client_session.ask(command)
    return answer(await _worker(request, worker))

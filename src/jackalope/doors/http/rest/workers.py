"""Workers over REST: who they are, how they are, and telling one to finish."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from jackalope.broker import queries
from jackalope.broker.queries import Refused
from jackalope.core.commands import DrainWorker
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, by_of, door_of, namespace_of, view_of
from jackalope.doors.http.rest.schemas import shape_of
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import WorkerView

routes = Routes("/api/v1", has_namespace=True)


class WorkerStatus(StrEnum):
    """How a worker is, in the words of the task API."""

    ACTIVE = "active"
    IDLE = "idle"
    DEAD = "dead"


def _status(view: WorkerView) -> WorkerStatus:
    if view.state in ("away", "gone"):
        return WorkerStatus.DEAD
    return WorkerStatus.ACTIVE if view.load or view.helps else WorkerStatus.IDLE


def _pid(view: WorkerView) -> int | None:
    pid = view.labels.get("pid", "")
    return int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 19 else None


def _megabytes(view: WorkerView) -> float | None:
    stats = view.stats
    for name in ("memory_bytes", "rss_bytes"):
        if name in stats:
            return stats[name] / 1024 / 1024
    return stats.get("memory_mb")


show_worker = shape_of(
    WorkerView,
    "WorkerShown",
    "A worker. `status` says how it is in the words of the task API, `state` in ours.",
    names={
        "worker": "worker_id",
        "load": "current_tasks",
        "heard_us": "last_heartbeat",
        "joined_us": "registered_at",
    },
    nullable=("why_gone", "helps"),
    defaults={"helps": None},
    hostname=(str | None, lambda view: view.labels.get("host") or view.labels.get("hostname")),
    pid=(int | None, _pid),
    cpu_usage_percent=(float | None, lambda view: view.stats.get("cpu_percent")),
    memory_usage_mb=(float | None, _megabytes),
    status=(WorkerStatus, _status),
)

WorkerShown: Any = show_worker.shown


@routes.get("/workers", "read_tasks", Spec(list[WorkerShown]))
async def list_workers(request: Request) -> Response:
    """List the workers, and those that left a while ago."""
    return answer([show_worker(view) for view in await view_of(request, queries.workers)])


@routes.get("/workers/{worker}", "read_tasks", Spec(WorkerShown, errors=(404,)))
async def read_worker(request: Request, worker: str) -> Response:
    """Return a worker."""
    return answer(await _worker(request, worker))


async def _worker(request: Request, worker: str) -> msgspec.Struct:
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

"""Workers over REST: who they are, how they are, and telling one to finish; and their pools."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from jackalope.broker import queries
from jackalope.broker.queries import About, Refused
from jackalope.core.commands import ActOnGroup, DeclarePool, DeletePool, DrainWorker, GroupAction
from jackalope.core.refusals import Code, Refusal
from jackalope.core.settings import given, shown, taken
from jackalope.core.shapes.pool import PoolSettings
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, ask, nothing, read_body, view_of
from jackalope.doors.http.rest.schemas import MaybeName, about, shape_of
from jackalope.doors.http.router import Routes, Spec
from jackalope.doors.http.vocabulary import alias
from jackalope.wire.views import GroupView, LaunchFailureView, LaunchView, PoolView, WorkerView

routes = Routes("/api/v1", has_namespace=True)


class WorkerStatus(StrEnum):
    """How a worker is, in the words of the task API."""

    ACTIVE = "active"
    IDLE = "idle"
    DEAD = "dead"


def _status(worker: Any) -> WorkerStatus:
    if worker.state in ("away", "gone"):
        return WorkerStatus.DEAD
    return WorkerStatus.ACTIVE if worker.load or worker.helps else WorkerStatus.IDLE


def _pid(worker: Any) -> int | None:
    pid = worker.labels.get("pid", "")
    return int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 19 else None


def _megabytes(worker: Any) -> float | None:
    stats: dict[str, float] = worker.stats
    for name in ("memory_bytes", "rss_bytes"):
        if name in stats:
            return stats[name] / 1024 / 1024
    return stats.get("memory_mb")


show_worker = shape_of(
    WorkerView,
    "WorkerShown",
    "A worker.",
    nullable=("why_gone", "helps"),
    defaults={"helps": None, "resources": {}, "used": {}},
)

WorkerShown: Any = show_worker.shown

alias(
    WorkerShown,
    names={
        "worker": "worker_id",
        "load": "current_tasks",
        "heard_at": "last_heartbeat",
        "joined_at": "registered_at",
    },
    added={
        "status": _status,
        "hostname": lambda worker: worker.labels.get("host") or worker.labels.get("hostname"),
        "pid": _pid,
        "cpu_usage_percent": lambda worker: worker.stats.get("cpu_percent"),
        "memory_usage_mb": _megabytes,
    },
    without=("state",),
)


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
    await ask(request, DrainWorker(worker=worker))
    return answer(await _worker(request, worker))


# Pools: their settings, their groups and workers; and acting on a group by hand. A key may be any
# text, the empty one and `/` included, so it stands in bodies and never in a path.

_show_launch = shape_of(
    LaunchView,
    "LaunchShown",
    "Something that was started for a group: a worker, or a group that scales itself.",
)

_show_group = shape_of(
    GroupView,
    "GroupShown",
    "The workers of one key of a pool. `rate` is attempts that ended, a second.",
    nullable=("trouble",),
    inner={"launches": _show_launch},
)

_show = shape_of(
    PoolView,
    "PoolShown",
    "A pool: its settings, durations as text, and its groups.",
    inner={
        "groups": _show_group,
        "failures": shape_of(LaunchFailureView, "LaunchFailureShown", "A launch that failed."),
    },
    made={"settings": (dict[str, Any], shown)},
)

PoolShown: Any = _show.shown


class PoolList(msgspec.Struct):
    """The pools of a namespace, by name."""

    pools: list[PoolShown]


#: The settings of a pool that change; durations in seconds or as text.
PoolGiven: Any = given(PoolSettings, "PoolGiven", __name__)


class GroupActed(msgspec.Struct, forbid_unknown_fields=True):
    """What to do with the group of a key."""

    action: GroupAction
    key: Annotated[MaybeName, about("Any text; empty for tasks without a key.")] = ""


@routes.get("/pools", "read_tasks", Spec(PoolList))
async def list_pools(request: Request) -> Response:
    """List the pools, with their groups."""
    return answer(PoolList([_show(view) for view in await views(request)]))


@routes.get("/pools/{queue}", "read_tasks", Spec(PoolShown, errors=(404,)))
async def read_pool(request: Request, queue: str) -> Response:
    """Return the pool of a queue, with its groups."""
    return answer(await _pool(request, queue))


@routes.put("/pools/{queue}", "admin", Spec(PoolShown, body=PoolGiven, errors=(404, 409)))
async def declare_pool(request: Request, queue: str) -> Response:
    """Have workers started for a queue, or change how. What is not named stays as it is."""
    changes = taken(PoolSettings, await read_body(request, PoolGiven))
    await ask(request, DeclarePool(queue=queue, changes=changes))
    return answer(await _pool(request, queue))


@routes.delete("/pools/{queue}", "admin", Spec(status=204, errors=(404,)))
async def delete_pool(request: Request, queue: str) -> Response:
    """Have no more workers started for a queue. Those there are go when they are idle."""
    await ask(request, DeletePool(queue=queue))
    return nothing()


@routes.post("/pools/{queue}/groups", "admin", Spec(PoolShown, body=GroupActed, errors=(404, 409)))
async def act_on_group(request: Request, queue: str) -> Response:
    """Start or stop the workers of a key by hand, or let them stay up."""
    wanted = await read_body(request, GroupActed)
    await ask(request, ActOnGroup(queue=queue, key=wanted.key, action=wanted.action))
    return answer(await _pool(request, queue))


async def views(request: Request, queue: str = "") -> list[PoolView]:
    return await view_of(request, queries.pools, About(queue=queue))


async def _pool(request: Request, queue: str) -> msgspec.Struct:
    for view in await views(request, queue):
        return _show(view)
    raise Refused(Refusal(Code.UNKNOWN_POOL, f"queue {queue!r} has no pool; list the pools"))

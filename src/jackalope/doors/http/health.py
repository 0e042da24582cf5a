"""Health: whether the broker is there, and whether it can write and take new tasks.

Owns the health report. It reads memory alone and waits for nothing, so that it answers while the
broker is overloaded or cannot continue. A client needs no API key; where keys are required, a
client without one receives only the status, healthy or not.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from jackalope import __version__
from jackalope.broker.access import acting
from jackalope.broker.telemetry.gauges import count_connected, count_pending
from jackalope.core.api_key import Permission
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, door_of, read_query
from jackalope.doors.http.rest.schemas import MaybeName, about
from jackalope.doors.http.rest.workers import views
from jackalope.doors.http.router import Routes, Spec

routes = Routes()


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the broker is."""

    # `degraded` if it cannot write, or take new tasks, just now
    status: Literal["healthy", "degraded"]
    is_leader: bool | None = None  # whether it is the one that decides; a broker alone always is
    connected_workers: int | None = None  # workers that are there
    pending_tasks: int | None = None  # tasks that wait
    trouble: str = ""  # why it cannot
    role: Literal["leader", "follower"] | None = None  # what it does; a single broker leads
    epoch: int | None = None  # the term of the leader: how often one has become the writer
    applied: int | None = None  # the last batch of the journal that it has applied
    lag_s: float | None = None  # how long it has not caught up with the leader
    quorum: bool | None = None  # whether the log was heard of recently
    leader: str = ""  # the node that leads, in a cluster
    state: str = ""  # of the node, in a cluster
    task_logs: str = ""  # why lines of tasks are dropped, or in memory alone


class Life(msgspec.Struct, frozen=True):
    """The process answers."""

    status: Literal["alive"] = "alive"


_SPEC = Spec(Health, also={503: "It cannot write, or cannot accept new tasks."})


@routes.get("/health", "", _SPEC)
async def read_health(request: Request) -> Response:
    """Tell whether the broker can write, and how full it is."""
    return _health(request)


@routes.get("/api/v1/health", "", _SPEC)
async def read_health_of_api(request: Request) -> Response:
    """Tell whether the broker can write, and how full it is; the same as `/health`."""
    return _health(request)


@routes.get("/health/ready", "", _SPEC)
async def read_readiness(request: Request) -> Response:
    """Tell whether clients may come: a node that follows has what it gets done by the leader."""
    leader = door_of(request).broker.leader
    if leader is None or leader.elsewhere("http") is None:
        return _health(request)
    standing = leader.standing()
    why = "" if standing.is_ready else f"this node is {standing.role}, and may lag"
    return _health(request, "the broker is shutting down" if _is_closing(request) else why)


@routes.get("/health/leader", "", _SPEC)
async def read_leadership(request: Request) -> Response:
    """Tell whether this broker leads and can take tasks, for load balancers. A single one does."""
    return _health(request)


@routes.get("/health/live", "", Spec(Life))
async def read_life(_: Request) -> Response:
    """Tell that the process answers. Only a process that does not should be ended and restarted."""
    return answer(Life())


def _is_closing(request: Request) -> bool:
    return door_of(request).closing.is_set()


def trouble_of(request: Request) -> str:
    """Return why the broker cannot take tasks just now; empty if it can."""
    if _is_closing(request):
        return "the broker is shutting down"
    return door_of(request).broker.health.shortage()


def _health(request: Request, trouble: str | None = None) -> Response:
    trouble = trouble_of(request) if trouble is None else trouble
    health = Health("degraded" if trouble else "healthy")
    asking = acting.get()
    if asking.may(Permission.READ_TASKS) and not asking.is_limited():
        broker = door_of(request).broker
        workers, pending = count_connected(broker), count_pending(broker)
        leads = broker.leader is None or broker.leader.elsewhere("http") is None
        standing = None if broker.leader is None else broker.leader.standing()
        health = Health(
            status=health.status,
            is_leader=leads,
            connected_workers=workers,
            pending_tasks=pending,
            trouble=trouble,
            role="leader" if leads else "follower",
            epoch=broker.engine.epoch if standing is None else standing.epoch,
            applied=broker.engine.sequence,
            lag_s=0.0 if standing is None else standing.lag_s,
            quorum=standing is None or standing.has_quorum,
            leader="" if standing is None else standing.leader,
            state="" if standing is None else standing.role,
            task_logs=broker.logs.trouble,
        )
    return answer(health, 503 if trouble else 200)


# What osrdyne answers over HTTP, so that its clients need no change: which workers are ready.
#
# The numbers are those of pools. `/health` is the door's own and has another shape: a client that
# needs osrdyne's takes `/osrdyne` for the address of its API.

of_pools = Routes(has_namespace=True)


#: States of launches that count as running.
_LOADING, _READY = ("starting", "loading"), "ready"


class Version(msgspec.Struct):
    """Which version of the broker this is."""

    git_describe: str | None


class WorkerMetadata(msgspec.Struct):
    """Which worker, and for which key. `metadata` has its pool and its version."""

    external_id: str
    worker_id: str
    worker_key: str
    metadata: dict[str, str]


class WorkerReadiness(msgspec.Struct):
    """How far a worker has come."""

    worker_metadata: WorkerMetadata
    status: Literal["Loading", "Ready"]


class PoolStatus(msgspec.Struct):
    """The workers that were started for pools, by id."""

    workers: dict[str, WorkerReadiness]


class StatusQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Whose workers."""

    keys: Annotated[tuple[MaybeName, ...], about("Only of these keys.", max_length=100)] = ()
    pool: Annotated[MaybeName, about("Only of this pool.")] = ""


class OsrdyneHealth(msgspec.Struct):
    """Whether the broker can write."""

    status: Literal["ok", "degraded"]


@routes.get("/osrdyne/health", "", Spec(OsrdyneHealth, also={503: "It cannot write."}))
async def read_osrdyne_health(request: Request) -> Response:
    """Tell whether the broker can write, in osrdyne's words."""
    trouble = trouble_of(request)
    return answer(OsrdyneHealth("degraded" if trouble else "ok"), 503 if trouble else 200)


@routes.get("/version", "", Spec(Version))
async def read_version(_: Request) -> Response:
    """Tell which version of the broker this is."""
    return answer(Version(__version__))


@routes.get("/osrdyne/version", "", Spec(Version))
async def read_osrdyne_version(_: Request) -> Response:
    """Tell which version of the broker this is; the same as `/version`."""
    return answer(Version(__version__))


_STATUS = Spec(PoolStatus, query=StatusQuery)


@of_pools.get("/status", "read_tasks", _STATUS)
async def read_status(request: Request) -> Response:
    """Tell which workers of pools are ready, and which still load."""
    return await _status(request)


@of_pools.get("/osrdyne/status", "read_tasks", _STATUS)
async def read_osrdyne_status(request: Request) -> Response:
    """Tell which workers of pools are ready, and which still load; the same as `/status`."""
    return await _status(request)


async def _status(request: Request) -> Response:
    query = read_query(request, StatusQuery)
    workers: dict[str, WorkerReadiness] = {}
    for pool in await views(request, query.pool):
        for group in pool.groups:
            if query.keys and group.key not in query.keys:
                continue
            for launch in group.launches:
                if launch.state != _READY and launch.state not in _LOADING:
                    continue
                about_it = {"pool": pool.queue, "version": launch.version}
                found = WorkerMetadata(launch.external_id, launch.launch, group.key, about_it)
                status: Literal["Loading", "Ready"]
                status = "Ready" if launch.state == _READY else "Loading"
                workers[launch.launch] = WorkerReadiness(found, status)
    return answer(PoolStatus(workers))

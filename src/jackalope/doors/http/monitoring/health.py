"""Health: whether the broker is there, and whether it can write and take new tasks.

Owns the health report. It reads memory alone and waits for nothing, so that it answers while the
broker is overloaded or cannot continue. A client needs no API key; where keys are required, a
client without one receives only the status, healthy or not.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from jackalope.broker.access import acting
from jackalope.broker.telemetry.gauges import count_connected, count_pending
from jackalope.core.api_key import Permission
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, door_of
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


class Life(msgspec.Struct, frozen=True):
    """The process answers."""

    status: Literal["alive"] = "alive"


_SPEC = Spec(Health, also={503: "It cannot write, or take new tasks, just now."})


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
    """Tell whether the broker can take tasks: not without room on the disk, nor while it stops."""
    return _health(request)


@routes.get("/health/live", "", Spec(Life))
async def read_life(_: Request) -> Response:
    """Tell that the process answers. Only a process that does not should be ended and restarted."""
    return answer(Life())


def trouble_of(request: Request) -> str:
    """Return why the broker cannot take tasks just now; empty if it can."""
    door = door_of(request)
    return "the broker stops" if door.closing.is_set() else door.broker.health.shortage()


def _health(request: Request) -> Response:
    trouble = trouble_of(request)
    health = Health("degraded" if trouble else "healthy")
    asking = acting.get()
    if asking.may(Permission.READ_TASKS) and not asking.is_limited():
        broker = door_of(request).broker
        workers, pending = count_connected(broker), count_pending(broker)
        health = Health(health.status, True, workers, pending, trouble)
    return answer(health, 503 if trouble else 200)

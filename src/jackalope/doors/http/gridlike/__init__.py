"""GridLike at the HTTP door: its jobs, its batches, and its workers over WebSockets.

A client or a worker that was written for GridLike works with it unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from litestar import Router
from litestar.types import ControllerRouterHandler

from jackalope.doors.http.errors import Rejected

if TYPE_CHECKING:
    from jackalope.doors.http.server import HttpDoor


#: How all of its paths begin.
_OWN = ("/api/jobs", "/api/batches", "/api/worker")


def owns(path: str) -> bool:
    """Return whether a path is one of GridLike's."""
    return path.startswith(_OWN)


def problem(rejected: Rejected) -> bytes:
    """Write the body of a rejection that does not reach the routes, in GridLike's words."""
    return msgspec.json.encode({"problem": str(rejected)})


def routes(door: HttpDoor) -> Sequence[ControllerRouterHandler]:
    """Return the routes of GridLike."""
    from jackalope.doors.http.gridlike import batches, jobs, worker_socket  # noqa: PLC0415
    from jackalope.doors.http.gridlike.context import Grid  # noqa: PLC0415
    from jackalope.doors.http.gridlike.schemas import PROBLEM_HANDLERS  # noqa: PLC0415

    if not door.gridlike.enabled:
        return []
    grid = Grid(door)
    handlers = [part for module in (jobs, batches, worker_socket) for part in module.handlers(grid)]
    return [Router("/", route_handlers=handlers, exception_handlers=PROBLEM_HANDLERS)]

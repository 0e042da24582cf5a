"""GridLike at the HTTP door: its jobs, its batches, and its workers over WebSockets.

A client or a worker that was written for GridLike works with it unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from litestar import Router
from litestar.types import ControllerRouterHandler

if TYPE_CHECKING:
    from jackalope.doors.http.server import HttpDoor


def routes(door: HttpDoor) -> Sequence[ControllerRouterHandler]:
    """Return the routes of GridLike."""
    from jackalope.doors.http.gridlike import batches, jobs, workers  # noqa: PLC0415
    from jackalope.doors.http.gridlike.grid import Grid  # noqa: PLC0415
    from jackalope.doors.http.gridlike.problems import PROBLEM_HANDLERS  # noqa: PLC0415

    if not door.gridlike.enabled:
        return []
    grid = Grid(door)
    handlers = [part for module in (jobs, batches, workers) for part in module.handlers(grid)]
    return [Router("/", route_handlers=handlers, exception_handlers=PROBLEM_HANDLERS)]

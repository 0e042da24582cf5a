"""The application: every part of the HTTP door, put together.

Owns the list of parts and what all of them share: errors, limits, the description of the API. A
part is a function that takes the door and returns its routes; it knows no other part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.types import ControllerRouterHandler

from jackalope.doors.http import description_page, gridlike, health, metrics
from jackalope.doors.http.access import guarded
from jackalope.doors.http.dashboard import routes as dashboard
from jackalope.doors.http.errors import HANDLERS
from jackalope.doors.http.methods import with_options
from jackalope.doors.http.rest import routes as rest

if TYPE_CHECKING:
    from jackalope.doors.http.server import HttpDoor

Part = Callable[["HttpDoor"], Sequence[ControllerRouterHandler]]

#: Every part of the door. Each has its own package or module.
PARTS: list[Part] = [
    dashboard.routes,
    description_page.routes,
    gridlike.routes,
    health.routes,
    metrics.routes,
    rest.routes,
]


#: The parts for those who watch, and do nothing else.
WATCHING: list[Part] = [health.routes, metrics.routes]


def build(door: HttpDoor, parts: Sequence[Part] = PARTS) -> Litestar:
    """Build the application of a door."""
    return Litestar(
        route_handlers=with_options([route for part in parts for route in part(door)]),
        exception_handlers=HANDLERS,
        middleware=[guarded],
        cors_config=_cors(door),
        request_max_body_size=door.settings.body_bytes_max,
        state=State({"door": door}),
        openapi_config=None,
        logging_config=None,
        debug=False,
    )


def _cors(door: HttpDoor) -> CORSConfig | None:
    """Let pages of other origins call, as far as that is configured."""
    origins = list(door.settings.cors_origins)
    if not origins:
        return None
    told = ["Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]
    return CORSConfig(allow_origins=origins, expose_headers=told, max_age=600)

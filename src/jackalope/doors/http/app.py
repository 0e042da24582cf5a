"""The application: every part of the HTTP door, put together.

Owns the list of parts and what all of them share: errors, limits, the description of the API. A
part is a function that takes the door and returns its routes; it knows no other part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from litestar import Litestar, Request, Response
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, ControllerRouterHandler, Receive, Scope, Send

from jackalope.doors.http import description_page, gridlike, health, metrics, osrdyne
from jackalope.doors.http.access import guard
from jackalope.doors.http.dashboard import routes as dashboard
from jackalope.doors.http.errors import HANDLERS
from jackalope.doors.http.exchange import Asked
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
    osrdyne.routes,
    rest.routes,
]


#: The parts for those who watch, and do nothing else.
WATCHING: list[Part] = [health.routes, metrics.routes]


def build(door: HttpDoor, parts: Sequence[Part] = PARTS) -> Litestar:
    """Build the application of a door."""
    return Litestar(
        route_handlers=with_options([route for part in parts for route in part(door)]),
        exception_handlers=HANDLERS,
        middleware=[called],
        cors_config=_cors(door),
        request_max_body_size=door.settings.body_bytes_max,
        state=State({"door": door}),
        openapi_config=None,
        logging_config=None,
        debug=False,
    )


def called(app: ASGIApp) -> ASGIApp:
    """Put the guard before a route, and then call it as what it is.

    Ours are functions of the request and of parts of its path, and return a response. Routes of the
    framework can be more than that, and at every request it looks for all of it: dependencies,
    hooks, caches, values to be converted. That takes longer than most routes do.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        route = scope["route_handler"]
        guard(route)
        if not isinstance(route, HTTPRouteHandler) or route.has_sync_callable:
            await app(scope, receive, send)
            return
        request: Asked = Request(scope, receive, send)
        there = {"request": request, **scope["path_params"]}
        wanted = route.parsed_fn_signature.parameters
        response: Response[Any] = await route.fn(**{name: there[name] for name in wanted})
        respond = response.to_asgi_response(
            None, request, media_type=route.media_type, status_code=route.status_code
        )
        await respond(scope, receive, send)

    return call


def _cors(door: HttpDoor) -> CORSConfig | None:
    """Let pages of other origins call, as far as that is configured."""
    origins = list(door.settings.cors_origins)
    if not origins:
        return None
    told = ["Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]
    return CORSConfig(allow_origins=origins, expose_headers=told, max_age=600)

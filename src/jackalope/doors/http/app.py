"""The application: every part of the HTTP door, put together.

Owns the list of parts and what all of them share: errors, limits, the description of the API. A
part is a function that takes the door and returns its routes; it knows no other part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from litestar import Litestar, Request, Response
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, ControllerRouterHandler, Receive, Scope, Send
from litestar.utils import normalize_path

from jackalope.doors.http import gridlike, osrdyne
from jackalope.doors.http.dashboard import routes as dashboard
from jackalope.doors.http.errors import HANDLERS, Rejected, turn_away
from jackalope.doors.http.middleware.auth import guard
from jackalope.doors.http.monitoring import health, prometheus
from jackalope.doors.http.openapi import spec
from jackalope.doors.http.paths import names_in
from jackalope.doors.http.request import Asked, with_options
from jackalope.doors.http.rest import routes as rest

if TYPE_CHECKING:
    from jackalope.doors.http.server import HttpDoor

Part = Callable[["HttpDoor"], Sequence[ControllerRouterHandler]]

#: Every part of the door. Each has its own package or module.
PARTS: list[Part] = [
    dashboard.routes,
    spec.routes,
    gridlike.routes,
    health.routes,
    prometheus.routes,
    osrdyne.routes,
    rest.routes,
]


#: What hosts are called. Of any other name the framework says whether there can be such a one.
_HOST = re.compile(rb"[\w.:\[\]-]*", re.ASCII)

#: The parts for those who watch, and do nothing else.
WATCHING: list[Part] = [health.routes, prometheus.routes]


def application(door: HttpDoor, parts: Sequence[Part] = PARTS) -> ASGIApp:
    """Return what answers at a door."""
    app = build(door, parts)
    # Answers to pages of other origins have headers that the framework adds.
    return app if door.settings.cors_origins else Direct(app)


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


def guarded(app: ASGIApp) -> ASGIApp:
    """Put the guard before a route, and then call it as what it is."""

    async def call_guarded(scope: Scope, receive: Receive, send: Send) -> None:
        route = scope["route_handler"]
        scope["path_params"] = names_in(scope["path_params"])
        if _is_plain(route):
            await _call(route, Request(scope, receive, send))
            return
        try:
            guard(route)
        except Rejected as rejected:
            if scope["type"] != ScopeType.WEBSOCKET:
                raise
            await turn_away(rejected, scope, send)
            return
        await app(scope, receive, send)

    return call_guarded


class Direct:
    """The application, with the framework asked for the route alone wherever that will do.

    A layer of the framework costs little, and all of them together as much as most routes. So what
    is found and is one of ours is called right here, and answered by the same handlers if it fails.
    All else goes the whole way: unknown paths, WebSockets, hosts with unusual names.
    """

    def __init__(self, app: Litestar) -> None:
        self._app = app
        self._find = app.asgi_router.handle_routing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        route = self._take(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        request: Asked = Request(scope, receive, send)
        try:
            await _call(route, request)
        except Exception as error:  # noqa: BLE001  every error has its answer
            response = _response_to(error, route, request)
            await response.to_asgi_response(None, request)(scope, receive, send)

    def _take(self, scope: Scope) -> HTTPRouteHandler | None:
        """Find the route of a request, and note it in its scope; None for the whole way."""
        if scope["type"] != ScopeType.HTTP or not _has_usual_host(scope):
            return None
        path, method = normalize_path(scope["path"]), scope["method"]
        try:
            _, route, path, params, template = self._find(path=path, method=method)
        except HTTPException:
            return None
        if not _is_plain(route):
            return None
        scope["app"] = scope["litestar_app"] = self._app
        scope["path"], scope["path_params"], scope["path_template"] = (
            path,
            names_in(params),
            template,
        )
        scope["route_handler"] = route
        return route


def _is_plain(route: object) -> TypeGuard[HTTPRouteHandler]:
    """Return whether a route is one of ours.

    They are functions of the request and of parts of its path, and return a response. Routes of the
    framework can be more than that, and at every request it looks for all of it: dependencies,
    hooks, caches, values to be converted. That takes longer than most routes do.
    """
    return isinstance(route, HTTPRouteHandler) and not route.has_sync_callable


async def _call(route: HTTPRouteHandler, request: Asked) -> None:
    """Let a request to its route, if it may, and send the answer."""
    guard(route)
    there = {"request": request, **request.scope["path_params"]}
    wanted = route.parsed_fn_signature.parameters
    response: Response[Any] = await route.fn(**{name: there[name] for name in wanted})
    respond = response.to_asgi_response(
        None, request, media_type=route.media_type, status_code=route.status_code
    )
    await respond(request.scope, request.receive, request.send)


def _response_to(error: Exception, route: HTTPRouteHandler, request: Asked) -> Response[Any]:
    """Answer an error by the handler of the nearest class for which the route has one."""
    handlers: Mapping[Any, Any] = route.resolve_exception_handlers()
    handler = next(handlers[each] for each in type(error).__mro__ if each in handlers)
    response: Response[Any] = handler(request, error)
    return response


def _has_usual_host(scope: Scope) -> bool:
    return all(_HOST.fullmatch(value) for name, value in scope["headers"] if name == b"host")


def _cors(door: HttpDoor) -> CORSConfig | None:
    """Let pages of other origins call, as far as that is configured."""
    origins = list(door.settings.cors_origins)
    if not origins:
        return None
    told = ["Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]
    return CORSConfig(allow_origins=origins, expose_headers=told, max_age=600)

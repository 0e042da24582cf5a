"""The HTTP door: all of its parts, put together.

Owns the list of routes, its application, and its life from start to stop; and the way of a request:
its route is found, its permission checked, its handler called, and every error answered. No part
knows another.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable, Sequence
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected

from jackalope.broker.access import acting
from jackalope.broker.client_session import ClientSession, Feed
from jackalope.broker.config.schema import GridlikeConfig, HttpConfig
from jackalope.broker.service import Broker
from jackalope.core.api_key import Permission
from jackalope.doors.forwarding import Forwarding
from jackalope.doors.http import dashboard, gridlike, health, openapi, prometheus, vocabulary
from jackalope.doors.http.asgi import (
    HTTP,
    WEBSOCKET,
    ASGIApp,
    Message,
    Receive,
    Response,
    Scope,
    Send,
)
from jackalope.doors.http.auth import Gate, guard
from jackalope.doors.http.errors import Rejected, error_response, rejection
from jackalope.doors.http.forward import Forwarder, Place
from jackalope.doors.http.gridlike import jobs, worker_socket
from jackalope.doors.http.gridlike.context import Grid
from jackalope.doors.http.listener import Listener
from jackalope.doors.http.prometheus import Traffic
from jackalope.doors.http.request import Connection, Request, WebSocket
from jackalope.doors.http.rest import (
    actions,
    api_keys,
    audit,
    cluster,
    contracts,
    events,
    flows,
    key_limits,
    logs,
    namespaces,
    queues,
    requests,
    schedules,
    stats,
    tasks,
    upload_links,
    worker_api,
    workers,
)
from jackalope.doors.http.router import Found, OnError, Route, Router
from jackalope.doors.http.session import Fleet
from jackalope.doors.http.visits import SignedVisits, Visits

#: Every route of the door but those of GridLike.
ROUTES: list[Route] = [
    *(*dashboard.routes, *openapi.routes),
    *(*health.routes, *prometheus.routes, *health.of_pools),
    *(*tasks.routes, *requests.routes, *upload_links.routes, *actions.routes, *queues.routes),
    *key_limits.routes,
    *(*workers.routes, *worker_api.routes, *stats.routes, *schedules.routes, *flows.routes),
    *(*events.routes, *events.updates, *logs.routes, *contracts.routes, *api_keys.routes),
    *(*cluster.routes, *namespaces.routes, *audit.routes),
]

GRIDLIKE: list[Route] = [*jobs.routes, *worker_socket.routes]

#: The routes for those who watch, and do nothing else.
WATCHING: list[Route] = [*health.routes, *prometheus.routes, *cluster.routes]

#: The characters of a host, as RFC 3986 has them.
_HOST = re.compile(rb"[\w!$&'()*+,;=\-.~:\[\]@%]*", re.ASCII)

#: Headers that pages may always send, and what they may see of an answer.
_USUAL_HEADERS = {"Accept", "Accept-Language", "Content-Language", "Content-Type"}
_CORS_HEADERS = {
    b"access-control-allow-headers": b"*",
    b"access-control-allow-methods": b"*",
    b"access-control-expose-headers": b"Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, "
    b"X-RateLimit-Reset",
}

#: How a WebSocket ends that leads nowhere, or whose handler has failed.
_FAILED = 4500


def application(door: HttpDoor, *, is_watching: bool = False) -> ASGIApp:
    """Return what answers at a door, or at its port for those who watch."""
    app: ASGIApp = build(door, is_watching=is_watching)
    origins = door.settings.cors_origins
    return Cors(app, origins) if origins else app


def build(door: HttpDoor, *, is_watching: bool = False) -> Application:
    routes = ROUTES + GRIDLIKE if door.gridlike.enabled else ROUTES
    return Application(
        WATCHING if is_watching else routes, door, error_response, door.settings.body_bytes_max
    )


class Application:
    """Answers requests by their routes."""

    def __init__(
        self, routes: Sequence[Route], owner: Any, on_error: OnError, body_bytes_max: int
    ) -> None:
        self.routes = routes
        self.owner = owner  # what the routes are about: a door, or what its routes share
        self.body_bytes_max = body_bytes_max  # the largest body that is read as a whole
        self.description: dict[str, Any] | None = None  # that of the API, once it was asked for
        self._on_error = on_error
        self._find = Router(routes).find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or serve a WebSocket."""
        if scope["type"] == WEBSOCKET:
            await self._serve(WebSocket(self, scope, receive, send))
            return
        request, on_error = Request(self, scope, receive, send), self._on_error
        try:
            routes, values = self._routes_of(request)
            route = routes.get(request.method)
            if route is None:
                response = _methods(request, routes)
            else:
                on_error = route.on_error or on_error
                response = await _call(route, request, values)
        except Exception as error:  # noqa: BLE001  every error has its answer
            response = on_error(request, error)
        await response.send(scope, receive, send)

    async def _serve(self, socket: WebSocket) -> None:
        try:
            routes, values = self._routes_of(socket)
        except Rejected as rejected:
            await socket.close(_FAILED, str(rejected))
            return
        route = routes.get(WEBSOCKET)
        if route is None:
            await socket.close(_FAILED, "no WebSocket endpoint here")
            return
        try:
            await _call(route, socket, values)
        except ClientDisconnected:
            raise
        except Exception as error:  # noqa: BLE001  every error has its answer
            response = (route.on_error or self._on_error)(socket, error)
            if socket.is_accepted:
                await socket.close(_FAILED, "Internal Server Error")
            else:
                await response.send(socket.scope, socket.receive, socket.send)

    def _routes_of(self, connection: Connection) -> Found:
        for name, value in connection.scope["headers"]:
            if name == b"host" and not _HOST.fullmatch(value):
                raise Rejected(400, "Invalid host header")
        found = self._find(connection.path)
        if found is None:
            raise Rejected(404, f"no resource at {connection.path}; see /api/docs")
        return found


def _methods(request: Request, routes: dict[str, Route]) -> Response:
    """Answer with the methods that a path knows, if those are asked for; else reject."""
    allow = {"Allow": ", ".join(sorted({*routes, "OPTIONS"} - {WEBSOCKET}))}
    if request.method == "OPTIONS":
        request.scope["path_template"] = next(iter(routes.values())).path
        return Response(status=204, headers=allow)
    message = f"method {request.method} is not allowed at {request.path}; see /api/docs"
    raise Rejected(405, message, headers=allow)


async def _call(route: Route, connection: Connection, values: tuple[str, ...]) -> Any:
    """Let a request to its route, if it may."""
    connection.scope["path_template"] = route.path
    try:
        guard(route.needs)
    except Rejected as rejected:
        if rejected.status == 403 and route.needs is Permission.ADMIN:
            about = f"{connection.method} {connection.path}"
            what = route.handler.__name__
            connection.app.owner.broker.note_refused(acting.get(), what, about)
        raise
    vocabulary.choose(connection)
    return await route.handler(connection, **dict(zip(route.parameters(), values, strict=True)))


class Cors:
    """Lets pages of other origins call an application, as far as that is configured."""

    def __init__(self, app: ASGIApp, origins: Iterable[str]) -> None:
        self._app = app
        self._is_open = "*" in origins
        patterns = (re.escape(origin).replace(r"\*", ".*") for origin in origins)
        self._origins = re.compile("|".join(patterns))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what a browser asks beforehand, and add to other answers what it looks for."""
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin or scope["type"] != HTTP:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            asked = headers.get(b"access-control-request-headers", b"").decode("latin-1")
            await self._preflight(origin, asked).send(scope, receive, send)
        else:
            added = self._added(origin, has_cookie=b"cookie" in headers)

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], *added]
                await send(message)

            await self._app(scope, receive, sending)

    def _is_allowed(self, origin: str) -> bool:
        return self._is_open or self._origins.fullmatch(origin) is not None

    def _preflight(self, origin: str, asked: str) -> Response:
        if not self._is_allowed(origin):
            return Response(b"Disallowed CORS Origin", 400, media_type="text/plain; charset=utf-8")
        headers = {
            "Access-Control-Max-Age": "600",
            "Access-Control-Allow-Methods": "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT",
            "Access-Control-Allow-Origin": "*" if self._is_open else origin,
        }
        if not self._is_open:
            headers["Vary"] = "Origin"
        names = {name.strip() for name in asked.split(",") if name.strip()}
        if names:
            headers["Access-Control-Allow-Headers"] = ", ".join(sorted(names | _USUAL_HEADERS))
        return Response(status=204, headers=headers)

    def _added(self, origin: str, *, has_cookie: bool) -> list[tuple[bytes, bytes]]:
        added = dict(_CORS_HEADERS)
        if self._is_open and not has_cookie:
            added[b"access-control-allow-origin"] = b"*"
        elif self._is_allowed(origin):
            added[b"access-control-allow-origin"] = origin.encode("latin-1")
            added[b"vary"] = b"Origin"
        return list(added.items())


# The door: the application, its server, and what its parts share.


class HttpDoor:
    """A door for HTTP and WebSocket."""

    def __init__(
        self,
        broker: Broker,
        settings: HttpConfig | None = None,
        *,
        gridlike: GridlikeConfig | None = None,
        tls: ssl.SSLContext | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        self.broker = broker  # what it opens to
        self.settings = settings or HttpConfig()  # its part of the configuration
        self.gridlike = gridlike or GridlikeConfig()  # the part of GridLike's jobs and workers
        self.port = self.settings.port  # where it listens, once started
        self.names = self.settings.names  # whose words answers use that choose none
        self.client_session = ClientSession(broker)  # the session of all actioners
        self.fleet = Fleet(broker)  # the sessions of workers that have nothing but HTTP
        self.feeds: set[Feed] = set()  # the open subscriptions to events
        self.grid = Grid(self)  # GridLike's jobs and workers
        self.traffic = Traffic()  # how many requests come
        # set when the door closes; waiting and streaming requests end then
        self.closing = asyncio.Event()
        self.has_tls = tls is not None
        if forwarding is None and broker.leader is not None:
            forwarding = Forwarding(broker.leader)
        self.forwarding = forwarding  # None for a broker that is alone
        self.visits = self._visits()  # browsers that have signed in
        self._forward: Forwarder | None = None
        self._listener = Listener(self.settings, broker.backlog, tls)

    async def start(self) -> None:
        self.port = self.visits.port = await self._listener.listen(self.settings.port)
        if self.settings.monitoring_port:
            await self._listen_to_watchers(self.settings.monitoring_port)
        app: ASGIApp = Gate(self._application(), self)
        if self.forwarding is not None:
            app = self._forward = self._forwarder(app, self.forwarding)
            self.forwarding.leader.changed.append(self._leave)
        await self._listener.start(self.traffic.over(app))

    async def stop(self) -> None:
        """Accept no more connections, end what waits, finish what is under way, and close."""
        self.closing.set()
        self.client_session.close()
        self.fleet.close()
        for feed in list(self.feeds):
            feed.close()
        if self.forwarding is not None:
            self.forwarding.end("http")
        await self._listener.stop()
        if self._forward is not None:
            self._forward.close()

    def _visits(self) -> Visits:
        secret = b"" if self.forwarding is None else self.forwarding.secret
        access = self.broker.access
        return SignedVisits(access, secret) if secret else Visits(access)

    def _forwarder(self, app: ASGIApp, forwarding: Forwarding) -> Forwarder:
        settings = self.settings
        place = Place(
            "http",
            self.has_tls,
            settings.prefix.rstrip("/"),
            frozenset(route.path for route in WATCHING),
            settings.monitoring_port,
        )
        forwarder = Forwarder(app, forwarding, place, self._say, lambda: self.broker.sequence)
        self._listener.upgrade = forwarder.upgrade
        return forwarder

    def _say(self, scope: Scope, rejected: Rejected) -> Response:
        is_gridlike = self.gridlike.enabled and gridlike.owns(scope["path"])
        return gridlike.problem(rejected) if is_gridlike else rejection(rejected)

    def _leave(self) -> None:
        """End the subscriptions of a node that leads no more: nothing happens here."""
        if self.broker.leader is not None and self.broker.leader.elsewhere("http") is not None:
            for feed in list(self.feeds):
                feed.close()

    def _application(self) -> ASGIApp:
        """Return what answers: on the port for monitoring, to those who watch alone."""
        everything, port = application(self), self.settings.monitoring_port
        if not port:
            return everything
        watching = application(self, is_watching=True)

        async def by_port(scope: Scope, receive: Receive, send: Send) -> None:
            is_watching = scope["server"] is not None and scope["server"][1] == port
            await (watching if is_watching else everything)(scope, receive, send)

        return by_port

    async def _listen_to_watchers(self, port: int) -> None:
        try:
            await self._listener.listen(port)
        except OSError as error:
            raise OSError(f"http.monitoring_port {port}: {error.strerror}") from None

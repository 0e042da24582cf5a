"""The door of the management API: its application, its gate and its life.

Owns authentication: the password of Basic authentication is the token of an API key, as over AMQP,
and a broker without keys accepts every client. Owns the one place that writes errors, too.
"""

from __future__ import annotations

import binascii
import ssl
from base64 import b64decode
from typing import Any

import structlog
from litestar import Litestar, Request, Response, Router
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Receive, Scope, Send

from jackalope.broker.access import Access, Principal, acting
from jackalope.broker.config.schema import HttpConfig
from jackalope.broker.connection_info import Links
from jackalope.broker.service import Broker
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.management import (
    bindings,
    connections,
    definitions,
    exchanges,
    messages,
    overview,
    policies,
    queues,
)
from jackalope.doors.http.management.conventions import Answer, Problem, Room, answer
from jackalope.doors.http.middleware.auth import admitted, guard
from jackalope.doors.http.transport.listener import Listener
from jackalope.storage import StorageFault

log = structlog.get_logger(component="management")

PATH = "/api"

_NOUNS = (overview, connections, queues, messages, exchanges, bindings, policies, definitions)
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="RabbitMQ Management"'}


class ManagementDoor:
    """A door for those who manage RabbitMQ."""

    def __init__(
        self,
        broker: Broker,
        links: Links,
        settings: HttpConfig,
        *,
        amqp_port: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.port = settings.port  # where it listens, once started
        self._broker = broker
        self._room = Room(broker, links, amqp_port)
        self._settings = settings
        self._listener = Listener(settings, tls)

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: the address cannot be had.
        """
        self.port = self._room.port = await self._listener.listen(self._settings.port)
        await self._listener.start(_gate(build(self._room, self._settings), self._broker))

    async def stop(self) -> None:
        """Accept no more connections, finish what is under way, and close."""
        self._room.desk.close()
        await self._listener.stop()


def build(room: Room, settings: HttpConfig) -> Litestar:
    """Build the application."""
    routes = [route for noun in _NOUNS for route in noun.ROUTES]
    return Litestar(
        route_handlers=[Router(PATH, route_handlers=routes)],
        exception_handlers=_HANDLERS,
        middleware=[_guarded],
        request_max_body_size=settings.body_bytes_max,
        state=State({"room": room}),
        openapi_config=None,
        logging_config=None,
        debug=False,
    )


def _guarded(app: ASGIApp) -> ASGIApp:
    """Refuse a request that lacks the permission of its route."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        guard(scope["route_handler"])
        await app(scope, receive, send)

    return call


def _gate(app: ASGIApp, broker: Broker) -> ASGIApp:
    """Let those in who prove who they are."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        found = _who(dict(scope["headers"]), broker.access, broker.now_us())
        if isinstance(found, Refusal):
            told = answer({"error": "not_authorized", "reason": "Login failed"}, 401, _CHALLENGE)
            await _send(told, send)
            return
        acting.set(found)
        # Names in paths may hold slashes, as the default virtual host does: what is encoded in a
        # path stays so until it is taken apart.
        scope["path"] = scope["raw_path"].decode("latin-1")
        await admitted(app, scope, receive, send, access=broker.access, principal=found)

    return call


def _who(headers: dict[bytes, bytes], access: Access, now_us: int) -> Principal | Refusal:
    scheme, _, told = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() != "basic":
        return Refusal(Code.UNAUTHORISED, "Basic authentication is needed")
    try:
        _, _, password = b64decode(told.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return Refusal(Code.UNAUTHORISED, "the credentials cannot be read")
    return access.admit(password, now_us)


async def _send(told: Answer, send: Send) -> None:
    headers = [(b"content-type", b"application/json")]
    headers += [(name.lower().encode(), text.encode()) for name, text in told.headers.items()]
    start: Any = {"type": "http.response.start", "status": told.status_code, "headers": headers}
    await send(start)
    end: Any = {"type": "http.response.body", "body": told.content, "more_body": False}
    await send(end)


# Errors.


def _told(status: int, error: str, reason: str, headers: dict[str, str] | None = None) -> Answer:
    return answer({"error": error, "reason": reason}, status, headers)


def _on_problem(_: Request[Any, Any, Any], problem: Problem) -> Answer:
    return _told(problem.status, problem.error, str(problem))


def _on_rejected(_: Request[Any, Any, Any], rejected: Rejected) -> Answer:
    return _told(401, "not_authorised", str(rejected))


def _on_storage_fault(_: Request[Any, Any, Any], fault: StorageFault) -> Answer:
    return _told(503, "unavailable", str(fault), {"Retry-After": "1"})


def _on_http(_: Request[Any, Any, Any], error: HTTPException) -> Answer:
    if error.status_code == 404:
        return _told(404, "Object Not Found", "Not Found")
    if error.status_code == 405:
        return _told(405, "Method Not Allowed", "see the reference of the management API")
    return _told(error.status_code, "bad_request", error.detail)


def _on_bug(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log.error("bug", method=request.method, path=request.url.path, exc_info=error)
    return _told(500, "internal_error", "an error in the broker; see its log")


_HANDLERS: dict[int | type[Exception], Any] = {
    Problem: _on_problem,
    Rejected: _on_rejected,
    StorageFault: _on_storage_fault,
    HTTPException: _on_http,
    Exception: _on_bug,
}

"""The door of the management API: its application, its authentication, its start and stop.

Owns authentication: the password of Basic authentication is the token of an API key, as over AMQP,
and a broker without keys accepts every client. Owns the one place that writes errors, too.
"""

from __future__ import annotations

import binascii
import ssl
from base64 import b64decode

import structlog

from jackalope.broker.access import Access, Principal, acting
from jackalope.broker.config.schema import HttpConfig
from jackalope.broker.service import Broker
from jackalope.broker.views.amqp import Links
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.forwarding import Forwarding
from jackalope.doors.http.app import Application
from jackalope.doors.http.asgi import ASGIApp, Receive, Response, Scope, Send
from jackalope.doors.http.auth import admitted
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.forward import Forwarder, Place
from jackalope.doors.http.listener import Listener
from jackalope.doors.http.management import messages, overview, resources
from jackalope.doors.http.management.conventions import Context, Problem, not_found
from jackalope.doors.http.request import Connection, answer
from jackalope.doors.http.router import routable
from jackalope.storage import StorageFault

log = structlog.get_logger(component="management")

#: Every route of the door.
ROUTES = [route for noun in (overview, resources, messages) for route in noun.routes]

_UNAVAILABLE = "unavailable"
#: What the members of a cluster call this door.
_DOOR = "management"
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
        forwarding: Forwarding | None = None,
    ) -> None:
        self.port = settings.port  # where it listens, once started
        self._broker = broker
        self._context = Context(broker, links, amqp_port)
        self._settings = settings
        self._listener = Listener(settings, broker.backlog, tls)
        self._place = Place(_DOOR, tls is not None, settings.prefix.rstrip("/"))
        self._forwarding = forwarding  # None for a broker that is alone
        self._forward: Forwarder | None = None

    async def start(self) -> None:
        self.port = self._context.port = await self._listener.listen(self._settings.port)
        app = _gate(build(self._context, self._settings), self._broker)
        if self._forwarding is not None:
            app = self._forward = Forwarder(
                app, self._forwarding, self._place, _say, lambda: self._broker.sequence
            )
        await self._listener.start(app)

    async def stop(self) -> None:
        """Accept no more connections, finish what is under way, and close."""
        self._context.client_session.close()
        await self._listener.stop()
        if self._forward is not None:
            self._forward.close()


def build(context: Context, settings: HttpConfig) -> Application:
    return Application(ROUTES, context, _error_response, settings.body_bytes_max)


def _gate(app: ASGIApp, broker: Broker) -> ASGIApp:
    """Let those in who prove who they are."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        found = _who(dict(scope["headers"]), broker.access, broker.now_us())
        if isinstance(found, Refusal):
            told = answer({"error": "not_authorized", "reason": "Login failed"}, 401, _CHALLENGE)
            await told.send(scope, receive, send)
            return
        acting.set(found)
        # Names in paths may hold slashes, as the default virtual host does.
        scope["path"] = routable(scope["raw_path"])
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


def _say(_: Scope, rejected: Rejected) -> Response:
    """Answer for a cluster without a leader, or one whose leader is elsewhere."""
    headers = {"Retry-After": "1"} if rejected.status == 503 else rejected.headers
    return answer({"error": _UNAVAILABLE, "reason": str(rejected)}, rejected.status, headers)


def _error_response(connection: Connection, error: Exception) -> Response:
    """Answer an error in RabbitMQ's words."""
    if not isinstance(error, Problem):
        error = _problem_of(connection, error)
    headers = {"Retry-After": "1"} if error.error == _UNAVAILABLE else None
    return answer({"error": error.error, "reason": str(error)}, error.status, headers)


def _problem_of(connection: Connection, error: Exception) -> Problem:
    if isinstance(error, StorageFault):
        return Problem(503, _UNAVAILABLE, str(error))
    if not isinstance(error, Rejected):
        log.error("bug", method=connection.method, path=connection.path, exc_info=error)
        return Problem(500, "internal_error", "internal error; see the broker's log")
    if error.status in (401, 403):
        return Problem(401, "not_authorised", str(error))
    if error.status == 404:
        return not_found()
    if error.status == 405:
        return Problem(405, "Method Not Allowed", "see the reference of the management API")
    return Problem(error.status, "bad_request", str(error))

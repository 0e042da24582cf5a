"""The listener: uvicorn inside the broker's own loop, for one application.

Owns listening sockets and the life of what answers behind them. Signals, processes and loops are
not its business, nor what the application does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import BytesMessage, Request, TextMessage
from wsproto.utilities import LocalProtocolError

from jackalope.broker.backlog import Backlog
from jackalope.broker.config.schema import HttpConfig
from jackalope.core.durations import SECOND
from jackalope.doors.http.asgi import ASGIApp
from jackalope.doors.http.errors import REASONS, ErrorBody

#: How long requests that are under way may take when the door closes.
_GOODBYE_S = 2

_BACKLOG = 1024
_WEBSOCKET_BYTES_MAX = 16 * 1024 * 1024


class Listener:
    """Listens on some ports of one host, and hands requests to an application."""

    def __init__(
        self, settings: HttpConfig, backlog: Backlog, tls: ssl.SSLContext | None = None
    ) -> None:
        self._settings = settings
        self._backlog = backlog
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._server: uvicorn.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        # Takes a connection over that is to become a WebSocket, or returns that it does not.
        self.upgrade: Callable[[PatientProtocol], bool] = lambda _: False

    async def listen(self, port: int) -> int:
        """Take a port, and return which it is."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                self._settings.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, _, _, _, address = found[0]
            taken = socket.create_server(address, family=family, backlog=_BACKLOG)
        except OSError:
            for each in self._sockets:
                each.close()
            raise
        self._sockets.append(taken)
        return int(taken.getsockname()[1])

    async def start(self, application: ASGIApp) -> None:
        settings = self._settings
        patience = Patience(
            settings.max_connections,
            settings.header_bytes_max,
            settings.header_timeout_us / SECOND,
            settings.body_timeout_us / SECOND,
        )
        config = uvicorn.Config(
            application,
            loop="none",
            http=partial(  # type: ignore[arg-type]
                PatientProtocol, patience=patience, backlog=self._backlog, upgrade=self.upgrade
            ),
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            timeout_keep_alive=settings.keep_alive_us // SECOND,
            timeout_graceful_shutdown=_GOODBYE_S,
            ws=partial(PieceProtocol, backlog=self._backlog),  # type: ignore[arg-type]
            ws_max_size=_WEBSOCKET_BYTES_MAX,
            # What is unpacked can be a thousand times what came.
            ws_per_message_deflate=False,
        )
        config.load()
        config.ssl = self._tls
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=self._sockets)
        self._ticking = asyncio.create_task(self._server.main_loop(), name="jackalope-http-door")
        connections = self._server.server_state.connections
        self._looking = asyncio.create_task(
            look_after(connections, patience), name="jackalope-http-patience"
        )

    async def stop(self) -> None:
        """Accept no more connections, finish what is under way, and close."""
        server, self._server = self._server, None
        if self._looking is not None:
            self._looking.cancel()
        if server is not None:
            if self._ticking is not None:
                self._ticking.cancel()
            await server.shutdown(sockets=self._sockets)


class Counted:
    """A connection whose unread bytes count in the sum over all doors, once they hold it up.

    What it was given before that, and one write at most after it, are all that it holds.
    """

    transport: asyncio.Transport
    backlog: Backlog

    def unread_bytes(self) -> int:
        """Return how much the peer has not read."""
        return self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        self.transport.abort()

    def count(self) -> None:
        """Note how much is unread now."""
        self.backlog.note(self, self.unread_bytes())


# WebSockets whose binary messages may be of any size, in pieces.

#: What an application finds among the extensions of its scope: how to cut its answer off, and that
#: it may ask for pieces.
ABORT = "jackalope.abort"
EXTENSION = "jackalope.pieces"

#: The other machine is gone if it does not answer the probes of the system for about this long.
PROBE_AFTER_S = 30
PROBE_EVERY_S = 10
PROBES = 3


class PieceProtocol(Counted, WSProtocol):
    """A WebSocket that can hand on binary messages in pieces."""

    is_in_pieces = False

    def __init__(self, *args: Any, backlog: Backlog, **more: Any) -> None:
        super().__init__(*args, **more)
        self.backlog = backlog

    def pause_writing(self) -> None:
        """Count what the peer does not read."""
        super().pause_writing()
        self.count()

    def resume_writing(self) -> None:
        """Go on with a peer that reads again."""
        super().resume_writing()
        self.backlog.forget(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        self.backlog.forget(self)
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        """Notify the application, which has not begun yet, that there can be pieces."""
        super().handle_connect(event)
        extensions: dict[str, Any] = self.scope["extensions"] or {}
        extensions[EXTENSION] = {}

    def handle_message(self, event: TextMessage | BytesMessage) -> None:
        """Hand on a piece, and read no further until the application has taken it."""
        if not self.is_in_pieces or not isinstance(event, BytesMessage):
            super().handle_message(event)
            return
        piece: Any = {
            "type": "websocket.receive",
            "bytes": bytes(event.data),
            "more": not event.message_finished,
        }
        self.queue.put_nowait(piece)
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    async def send(self, message: Any) -> None:
        """Send as ASGI has it; and besides, fragments of a binary message."""
        kind = message["type"]
        if kind == "websocket.accept" and message.get("pieces"):
            self.is_in_pieces = True
            self.ping_interval = message.get("keepalive_s")
            self.ping_timeout = None
            with suppress(ValueError):  # So uvloop says that the peer is gone already.
                probe(self.transport.get_extra_info("socket"))
        if kind != "websocket.send" or "more" not in message:
            await super().send(message)
            return
        await self.writable.wait()
        if self.disconnected or self.close_sent:
            raise ClientDisconnected
        try:
            fragment = BytesMessage(message["bytes"], message_finished=not message["more"])
            output = self.conn.send(fragment)
        except LocalProtocolError as error:
            raise ClientDisconnected from error
        if not self.transport.is_closing():
            self.transport.write(output)


def probe(connection: socket.socket | None) -> None:
    """Let the system find out, of a connection that is silent, that the other machine is gone."""
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": PROBE_AFTER_S,
        "TCP_KEEPINTVL": PROBE_EVERY_S,
        "TCP_KEEPCNT": PROBES,
        # Probes do not detect data that the peer never acknowledges.
        "TCP_USER_TIMEOUT": 1_000 * (PROBE_AFTER_S + PROBES * PROBE_EVERY_S),
    }
    for name, value in options.items():
        with suppress(AttributeError, OSError):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# The HTTP protocol of a connection, with the limits that keep one peer from harming others.

#: A body that brings less than this in its time stands still.
BODY_BYTES_MIN = 1024

_PHRASES = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
#: How long a connection may take to read the answer that ends it.
_CLOSE_S = 2.0

#: What is larger goes out by itself, so that little is ever held back.
_GATHERED_BYTES_MAX = 64 * 1024

_encode = msgspec.json.Encoder().encode

_log = logging.getLogger("jackalope.http.protocol")
_log.setLevel(logging.ERROR)


@dataclass(frozen=True)
class Patience:
    """What is borne."""

    max_connections: int  # how many there may be at once
    header_bytes_max: int  # the largest head of a request
    header_s: float  # how long a head may take
    body_s: float  # how long a body may stand still, and how long a peer may not read

    @property
    def look_s(self) -> float:
        return min(self.header_s, self.body_s, 4.0) / 4


class Phase(Enum):
    """What the peer has to send next."""

    HEAD = "head"
    BODY = "body"
    NOTHING = "nothing"


class Gathering:
    """The transport as an answer sees it: what it writes without a pause goes out as one."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Hold something back until the answer has ended, or pauses."""
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _GATHERED_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what was held back, unless the peer has gone meanwhile."""
        if self._parts:
            if not self._transport.is_closing():
                self._transport.write(b"".join(self._parts))
            self._parts.clear()
            self._size = 0

    def close(self) -> None:
        """Write what was held back, and close."""
        self.flush()
        self._transport.close()


class PatientProtocol(Counted, HttpToolsProtocol):
    """One connection. Patient, but not for ever."""

    def __init__(
        self,
        *args: Any,
        patience: Patience,
        backlog: Backlog,
        upgrade: Callable[[PatientProtocol], bool],
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._upgrade = upgrade
        self.backlog = backlog
        self.logger = _log  # An error of a peer is reported to the peer, not logged.
        self._patience = patience
        self._phase = Phase.HEAD
        self._since_s = self.loop.time()
        self._head_bytes = 0
        self._body_bytes = 0
        self._deaf_since_s = 0.0
        self._is_over = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the peer, or refuse it because there is no room."""
        super().connection_made(transport)
        self._gathering = Gathering(transport, self.loop)
        if len(self.connections) > self._patience.max_connections:
            most = self._patience.max_connections
            self._end(503, f"{most} connections are open; try again later")

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless the connection is over or the head is too large."""
        if self._is_over:
            return
        if self._phase is Phase.NOTHING and self._is_resting():
            self._begin_head()
        if self._phase is Phase.HEAD:
            self._head_bytes += len(data)
        else:
            self._count_body(len(data))
        super().data_received(data)
        if self._phase is Phase.HEAD and self._head_bytes > self._patience.header_bytes_max:
            self._refuse_head()

    def on_message_begin(self) -> None:
        """Wait for the rest of a head."""
        super().on_message_begin()
        if self._phase is not Phase.HEAD:
            self._begin_head()

    def on_headers_complete(self) -> None:
        """Wait for the body; hand on a head that is not too large."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._patience.header_bytes_max:
            self._refuse_head()
            return
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts != 1 and (hosts or self.parser.get_http_version() != "1.0"):
            # Whatever stands before the door may have looked at another one of them.
            self._end(400, f"a request names its host once, got {hosts} headers Host")
            return
        self._phase, self._since_s, self._body_bytes = Phase.BODY, self.loop.time(), 0
        before: RequestResponseCycle | None = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:  # Else it becomes a WebSocket.
            self.scope["extensions"] = {ABORT: {"now": self.transport.abort}}
            self.cycle.transport = self._gathering  # type: ignore[assignment]

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection on, unless its head was refused."""
        if self._is_over:
            return
        if self._upgrade(self):
            self.backlog.forget(self)
            self.connections.discard(self)
        else:
            super().handle_websocket_upgrade()

    def take_back(self, transport: asyncio.Transport) -> None:
        """Serve a WebSocket after all."""
        super().handle_websocket_upgrade()
        transport.resume_reading()

    def on_body(self, body: bytes) -> None:
        if not self._is_over:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for nothing more."""
        self._phase = Phase.NOTHING
        if not self._is_over:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send the answer before anything else is written."""
        self._gathering.flush()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note since when the peer does not read, and how much."""
        self._deaf_since_s = self.loop.time()
        super().pause_writing()
        self.count()

    def resume_writing(self) -> None:
        """Go on with a peer that reads again."""
        self._deaf_since_s = 0.0
        super().resume_writing()
        self.backlog.forget(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        self.backlog.forget(self)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP in our words."""
        self._end(400, f"{msg.rstrip('.')}; see /api/docs")

    def look(self, now_s: float) -> None:
        """Give up a peer that keeps us waiting for too long."""
        patience, waited_s = self._patience, now_s - self._since_s
        if self._deaf_since_s and now_s - self._deaf_since_s > patience.body_s:
            self.transport.abort()
        elif self._is_over:
            return
        elif self._phase is Phase.HEAD and waited_s > patience.header_s:
            self._end(408, f"no complete request within {patience.header_s:g} s")
        elif self._phase is Phase.BODY and waited_s > patience.body_s:
            if self.flow.read_paused:
                self._since_s = now_s  # It is the application that has not read on.
            else:
                self._end(408, f"the body stalled for {patience.body_s:g} s")

    def _is_resting(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _begin_head(self) -> None:
        self._phase, self._since_s, self._head_bytes = Phase.HEAD, self.loop.time(), 0

    def _count_body(self, size: int) -> None:
        self._body_bytes += size
        if self._body_bytes >= BODY_BYTES_MIN:
            self._since_s, self._body_bytes = self.loop.time(), 0

    def _refuse_head(self) -> None:
        most = self._patience.header_bytes_max
        self._end(431, f"the request line and headers have at most {most} bytes")

    def _end(self, status: int, message: str) -> None:
        """Answer, if nothing was answered yet, and close."""
        if self._is_over:
            return
        self._is_over = True
        cycle: RequestResponseCycle | None = self.cycle
        is_answered = cycle is not None and cycle.response_started and not cycle.response_complete
        if not is_answered and not self.transport.is_closing():
            self.transport.write(_answer(status, message))
        if cycle is not None and not cycle.response_complete:
            # The application that reads the body is notified that it ended, and sends nothing more.
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()
        self.loop.call_later(_CLOSE_S, self.transport.abort)


def _answer(status: int, message: str) -> bytes:
    body = _encode(ErrorBody(message, status, REASONS[status]))
    head = [
        b"HTTP/1.1 %d %s" % (status, _PHRASES[status]),
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"connection: close",
    ]
    if status == 503:
        head.append(b"retry-after: 1")
    return b"\r\n".join([*head, b"", body])


async def look_after(connections: Iterable[Any], patience: Patience) -> None:
    """Look at all connections again and again, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(patience.look_s)
        now_s = loop.time()
        for connection in list(connections):
            if isinstance(connection, PatientProtocol):
                connection.look(now_s)

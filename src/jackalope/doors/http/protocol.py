"""The HTTP protocol of a connection, with the limits that keep one peer from harming others.

Owns how long a head may take and how large it may be, how long a body may stand still, and how
long a peer may not read. Uvicorn parses and answers; what it leaves open is closed here. One timer
of the door looks at all connections, however many there are.

Uvicorn writes the head of an answer, then its body. Here both go out together: each write wakes the
peer, and that costs more than all that uvicorn does for a small answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from jackalope.doors.http.errors import REASONS, ErrorBody

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
    """What is borne.

    Attributes:
        max_connections: how many there may be at once.
        header_bytes_max: the largest head of a request.
        header_s: how long a head may take.
        body_s: how long a body may stand still, and how long a peer may not read.
    """

    max_connections: int
    header_bytes_max: int
    header_s: float
    body_s: float

    @property
    def look_s(self) -> float:
        """Return how often to look at all connections."""
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


class PatientProtocol(HttpToolsProtocol):
    """One connection. Patient, but not for ever."""

    def __init__(self, *args: Any, patience: Patience, **more: Any) -> None:
        super().__init__(*args, **more)
        self.logger = _log  # What a peer does wrong is told to the peer, not to the log.
        self._patience = patience
        self._phase = Phase.HEAD
        self._since_s = self.loop.time()
        self._head_bytes = 0
        self._body_bytes = 0
        self._deaf_since_s = 0.0
        self._is_over = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let the peer in, or tell it that there is no room."""
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
            self.cycle.transport = self._gathering  # type: ignore[assignment]

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection on, unless its head was refused."""
        if not self._is_over:
            super().handle_websocket_upgrade()

    def on_body(self, body: bytes) -> None:
        """Hand on a piece of the body."""
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
        """Note since when the peer does not read."""
        self._deaf_since_s = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Go on with a peer that reads again."""
        self._deaf_since_s = 0.0
        super().resume_writing()

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
            self._end(408, f"no whole request came within {patience.header_s:g} s")
        elif self._phase is Phase.BODY and waited_s > patience.body_s:
            if self.flow.read_paused:
                self._since_s = now_s  # It is the application that has not read on.
            else:
                self._end(408, f"the body stood still for {patience.body_s:g} s")

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
        self._end(431, f"the head of a request has at most {most} bytes")

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
            # Whoever reads the body in there hears that no more comes, and says nothing more.
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

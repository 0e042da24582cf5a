"""WebSockets whose binary messages may be of any size, in pieces.

Owns the protocol class that uvicorn runs for every WebSocket of the door. ASGI knows whole messages
only; what this adds is asked for when a socket is accepted, and costs the others nothing::

    {"type": "websocket.accept", "pieces": True, "keepalive_s": 30}

    {"type": "websocket.receive", "bytes": b"...", "more": True}  # one piece of a binary message
    {"type": "websocket.send", "bytes": b"...", "more": True}  # one fragment of one

A socket in pieces is not read while the application is behind, and `send` waits while the peer is:
a message of a gigabyte costs some hundred kilobytes, either way. Texts still come as a whole, up to
the limit that the server sets for all messages.

`keepalive_s` is how often a ping is sent. Whether it is answered does not matter: a worker that
computes may have nobody at its socket for hours. That the other machine is there at all is found
out by the system, which probes the connection.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import BytesMessage, Request, TextMessage
from wsproto.utilities import LocalProtocolError

#: What an application finds among the extensions of its scope if it may ask for pieces.
EXTENSION = "jackalope.pieces"

#: The other machine is gone if it does not answer the probes of the system for about this long.
PROBE_AFTER_S = 30
PROBE_EVERY_S = 10
PROBES = 3


class PieceProtocol(WSProtocol):
    """A WebSocket that can hand on binary messages in pieces."""

    is_in_pieces = False

    def handle_connect(self, event: Request) -> None:
        """Tell the application, which has not begun yet, that there can be pieces."""
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
        # Of data that nobody acknowledges, probes tell nothing.
        "TCP_USER_TIMEOUT": 1_000 * (PROBE_AFTER_S + PROBES * PROBE_EVERY_S),
    }
    for name, value in options.items():
        with suppress(AttributeError, OSError):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

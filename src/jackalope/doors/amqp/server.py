"""The AMQP door: listens, lets connections in, and keeps an eye on all of them.

Owns the listening socket, the number of connections, and who waits for direct replies. One timer
looks at all connections.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackalope.broker.ids import TaskIds
from jackalope.broker.service import Broker
from jackalope.core.durations import SECOND
from jackalope.doors.amqp.connection import Connection

if TYPE_CHECKING:
    from jackalope.doors.amqp.channel import Channel

_LOOK_EVERY_S = 1.0

#: How long peers may take to answer a goodbye, and how often that is looked at.
_GOODBYE_S = 1.0
_GOODBYE_LOOKS = 50


@dataclass(frozen=True)
class Terms:
    """What the door grants a connection.

    Attributes:
        max_connections: how many there may be at once.
        channel_max: how many channels each may have.
        frame_bytes_max: the largest frame.
        message_bytes_max: the largest body of a message.
        heartbeat_s: how often each side should say something, unless the peer wants it otherwise;
            0 for never. Silence of twice that ends a connection.
        hello_us: how long a new connection may take to introduce itself.
        stuck_us: how long a peer may not read before it is cut off.
    """

    max_connections: int = 10_000
    channel_max: int = 2047
    frame_bytes_max: int = 131_072
    message_bytes_max: int = 128 * 1024 * 1024
    heartbeat_s: int = 60
    hello_us: int = 10 * SECOND
    stuck_us: int = 60 * SECOND


class AmqpDoor:
    """A door for AMQP 0-9-1.

    Attributes:
        port: where it listens, once started.
        connections: all that are open.
        replies: the channel that waits for direct replies under each address.
        ids: makes the ids of tasks.
    """

    def __init__(
        self,
        broker: Broker,
        host: str = "127.0.0.1",
        port: int = 5672,
        terms: Terms | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.broker = broker
        self.host = host
        self.port = port
        self.terms = terms or Terms()
        self.connections: dict[Connection, None] = {}
        self.replies: dict[str, Channel] = {}
        self.ids = TaskIds()
        self.has_tls = tls is not None
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self._shares = 0

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self),
            self.host,
            self.port,
            backlog=1024,
            ssl=self._tls,
            ssl_handshake_timeout=self.terms.hello_us / SECOND if self._tls else None,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.broker.access.changed.append(self._check_access)
        self._watch = asyncio.create_task(self._look_after(), name="jackalope-amqp-door")

    async def stop(self) -> None:
        """Let nobody in any more, say goodbye to those who are there, and close."""
        if self._server is None:
            return
        self._server.close()
        self.broker.access.changed.remove(self._check_access)
        if self._watch is not None:
            self._watch.cancel()
        for connection in list(self.connections):
            connection.end("broker forced connection closure with reason 'shutdown'")
        self._server = None
        for _ in range(_GOODBYE_LOOKS):
            if not self.connections:
                return
            await asyncio.sleep(_GOODBYE_S / _GOODBYE_LOOKS)
        for connection in list(self.connections):
            connection.abort()

    def enter(self, connection: Connection) -> bool:
        """Let a connection in, if there is room."""
        if len(self.connections) >= self.terms.max_connections:
            return False
        self.connections[connection] = None
        return True

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self.connections.pop(connection, None)

    def next_share(self) -> int:
        """Return a number for slots that the consumers of a channel have together."""
        self._shares += 1
        return self._shares

    async def _look_after(self) -> None:
        """Look at every connection now and then: who is silent, who is stuck, who needs a beat."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now_us = self.broker.now_us()
            trouble = self.broker.trouble()
            for connection in list(self.connections):
                connection.look(now_us, trouble)
            self._check_access()

    def _check_access(self) -> None:
        for connection in list(self.connections):
            connection.check_access()

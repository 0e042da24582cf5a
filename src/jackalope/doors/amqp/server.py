"""The AMQP door: listens, lets connections in, and keeps an eye on all of them.

Owns what a connection is granted, and who waits for direct replies; `listener` has the rest.
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
from jackalope.doors.listener import Listener

if TYPE_CHECKING:
    from jackalope.doors.amqp.channel import Channel

_LOOK_EVERY_S = 1.0


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


class AmqpDoor(Listener[Connection]):
    """A door for AMQP 0-9-1.

    Attributes:
        replies: the channel that waits for direct replies under each address.
        ids: makes the ids of tasks.
    """

    name = "amqp"
    goodbye = "broker forced connection closure with reason 'shutdown'"

    def __init__(
        self,
        broker: Broker,
        host: str = "127.0.0.1",
        port: int = 5672,
        terms: Terms | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.terms = terms or Terms()
        super().__init__(broker, host, port, self.terms, tls)
        self.replies: dict[str, Channel] = {}
        self.ids = TaskIds()
        self.has_tls = tls is not None
        self._shares = 0

    def connect(self) -> Connection:
        """Make a connection for a peer that has come."""
        return Connection(self)

    def next_share(self) -> int:
        """Return a number for slots that the consumers of a channel have together."""
        self._shares += 1
        return self._shares

    async def look(self) -> None:
        """Wait a while, then look at every connection."""
        await asyncio.sleep(_LOOK_EVERY_S)
        now_us = self.broker.steady_us()
        shortage = self.broker.shortage()
        for connection in list(self.connections):
            connection.look(now_us, shortage)

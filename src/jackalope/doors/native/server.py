"""The native door: listens, accepts connections, and supervises all of them.

Owns what a connection is granted, and the pulses by which one connection keeps the session of
another alive; `tcp_listener` has the rest.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from dataclasses import dataclass

from jackalope.broker.service import Broker
from jackalope.core.durations import SECOND
from jackalope.doors.native.connection import Connection
from jackalope.doors.tcp_listener import Listener
from jackalope.wire.frames import FRAME_BYTES_MAX

_LOOKS_PER_HEARTBEAT = 4


@dataclass(frozen=True)
class Terms:
    """What the door grants a connection."""

    max_connections: int = 10_000  # how many there may be at once
    frame_bytes_max: int = FRAME_BYTES_MAX  # the largest frame that is read
    # how often each side should say something; silence of three times that ends a connection
    heartbeat_us: int = 10 * SECOND
    hello_us: int = 5 * SECOND  # how long a new connection may take to introduce itself
    unsent_bytes_max: int = 64 * 1024 * 1024  # how much may wait for a peer that does not read
    stuck_us: int = 30 * SECOND  # how long a peer may not read before it is cut off


class NativeDoor(Listener[Connection]):
    """A door for the native protocol."""

    name = "native"
    goodbye = "the broker stops; connect again later"

    def __init__(
        self,
        broker: Broker,
        host: str = "127.0.0.1",
        port: int = 7420,
        terms: Terms | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.terms = terms or Terms()
        super().__init__(broker, host, port, self.terms, tls)
        self.pulses: dict[str, Connection] = {}  # the connection of each pulse

    def connect(self) -> Connection:
        """Make a connection for a peer that has come."""
        return Connection(self)

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        super().leave(connection)
        self.pulses.pop(connection.pulse, None)

    def give_pulse(self, connection: Connection) -> str:
        """Make the secret by which another connection can keep this one's session alive."""
        pulse = secrets.token_hex(16)
        self.pulses[pulse] = connection
        return pulse

    async def look(self) -> None:
        """Wait a while, then look at every connection."""
        await asyncio.sleep(self.terms.heartbeat_us / SECOND / _LOOKS_PER_HEARTBEAT)
        now_us = self.broker.steady_us()
        for connection in list(self.connections):
            connection.look(now_us)

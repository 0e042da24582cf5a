"""The native door: listens, accepts connections, and supervises all of them.

Owns what a connection is granted, and the pulses by which one connection keeps the session of
another alive; `tcp_listener` has the rest.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl

from jackalope.broker.config.schema import NativeConfig
from jackalope.broker.service import Broker
from jackalope.core.durations import SECOND
from jackalope.doors.forwarding import Forwarding
from jackalope.doors.native.connection import Connection
from jackalope.doors.rates import Rates
from jackalope.doors.tcp_listener import Listener

_LOOKS_PER_HEARTBEAT = 4


class NativeDoor(Listener[Connection, NativeConfig]):
    """A door for the native protocol."""

    name = "native"
    sends_on = True
    goodbye = "the broker is shutting down; connect again later"
    hello_us = 5 * SECOND
    stuck_us = 30 * SECOND
    unsent_bytes_max = 64 * 1024 * 1024  # how much may wait for a peer that does not read

    def __init__(
        self,
        broker: Broker,
        config: NativeConfig,
        tls: ssl.SSLContext | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        super().__init__(broker, config, tls, forwarding)
        self.pulses: dict[str, Connection] = {}  # the connection of each pulse
        # how often each API key asks
        self.rates = Rates(config.rate_per_s, config.rate_burst)

    def connect(self) -> Connection:
        return Connection(self)

    def leave(self, connection: Connection) -> None:
        super().leave(connection)
        self.pulses.pop(connection.pulse, None)

    def give_pulse(self, connection: Connection) -> str:
        """Return a secret with which another connection can keep this one's session alive."""
        pulse = secrets.token_hex(16)
        self.pulses[pulse] = connection
        return pulse

    async def look(self) -> None:
        await asyncio.sleep(self.config.heartbeat_us / SECOND / _LOOKS_PER_HEARTBEAT)
        now_us = self.broker.steady_us()
        for connection in list(self.connections):
            connection.look(now_us)

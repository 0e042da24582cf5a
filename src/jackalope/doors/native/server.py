"""The native door: listens, lets connections in, and keeps an eye on all of them.

Owns the listening socket, the number of connections, and the pulses by which one connection keeps
the session of another alive. One timer looks at all connections, however many there are.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from dataclasses import dataclass

from jackalope.broker.service import Broker
from jackalope.core.durations import SECOND
from jackalope.doors.native.connection import Connection
from jackalope.wire.frames import FRAME_BYTES_MAX

_LOOKS_PER_HEARTBEAT = 4

#: How long peers may take to read a goodbye, and how often that is looked at.
_GOODBYE_S = 1.0
_GOODBYE_LOOKS = 50


@dataclass(frozen=True)
class Terms:
    """What the door grants a connection.

    Attributes:
        max_connections: how many there may be at once.
        frame_bytes_max: the largest frame that is read.
        heartbeat_us: how often each side should say something; silence of three times that ends a
            connection.
        hello_us: how long a new connection may take to introduce itself.
        unsent_bytes_max: how much may wait for a peer that does not read.
        stuck_us: how long a peer may not read before it is cut off.
    """

    max_connections: int = 10_000
    frame_bytes_max: int = FRAME_BYTES_MAX
    heartbeat_us: int = 10 * SECOND
    hello_us: int = 5 * SECOND
    unsent_bytes_max: int = 64 * 1024 * 1024
    stuck_us: int = 30 * SECOND


class NativeDoor:
    """A door for the native protocol.

    Attributes:
        port: where it listens, once started.
        connections: all that are open.
        pulses: the connection of each pulse.
    """

    def __init__(
        self,
        broker: Broker,
        host: str = "127.0.0.1",
        port: int = 7420,
        terms: Terms | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.broker = broker
        self.host = host
        self.port = port
        self.terms = terms or Terms()
        self._tls = tls
        self.connections: dict[Connection, None] = {}
        self.pulses: dict[str, Connection] = {}
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None

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
            # Who takes longer to begin than to say HELLO would not be waited for either.
            ssl_handshake_timeout=self.terms.hello_us / SECOND if self._tls else None,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.broker.access.changed.append(self._check_access)
        self._watch = asyncio.create_task(self._look_after(), name="jackalope-native-door")

    async def stop(self) -> None:
        """Let nobody in any more, say goodbye to those who are there, and close."""
        if self._server is None:
            return
        self._server.close()
        self.broker.access.changed.remove(self._check_access)
        if self._watch is not None:
            self._watch.cancel()
        for connection in list(self.connections):
            connection.end("the broker stops; connect again later", notice="goodbye")
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
        self.pulses.pop(connection.pulse, None)

    def give_pulse(self, connection: Connection) -> str:
        """Make the secret by which another connection can keep this one's session alive."""
        pulse = secrets.token_hex(16)
        self.pulses[pulse] = connection
        return pulse

    async def _look_after(self) -> None:
        """Look at every connection now and then: who is silent, who is stuck, who needs a beat."""
        while True:
            await asyncio.sleep(self.terms.heartbeat_us / SECOND / _LOOKS_PER_HEARTBEAT)
            now_us = self.broker.now_us()
            for connection in list(self.connections):
                connection.look(now_us)
            self._check_access()  # A key may have come to its end.

    def _check_access(self) -> None:
        for connection in list(self.connections):
            connection.check_access()

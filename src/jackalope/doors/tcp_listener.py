"""A listener: what the doors that keep connections of their own have in common.

Owns the listening socket, the limit of connections, the timer that checks all of them, however
many there are, and the goodbye. The protocol is the door's own: nothing here knows one.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from jackalope.broker.config.schema import AmqpConfig, NativeConfig
from jackalope.broker.service import Broker
from jackalope.core.durations import SECOND

#: How long peers may take to read a goodbye, and how often that is looked at.
_GOODBYE_S = 1.0
_GOODBYE_LOOKS = 50


class Guest(Protocol):
    """A connection, as far as a listener is concerned."""

    def check_access(self) -> None:
        """Close the connection if the peer would no longer be accepted."""

    def end(self, why: str) -> None:
        """Report the reason to the peer, and close."""

    def abort(self) -> None:
        """Close at once."""


G = TypeVar("G", bound=Guest)
C = TypeVar("C", bound=NativeConfig | AmqpConfig)


class _Away(asyncio.Protocol):
    """A connection to a node that does not lead, of a peer that must find the one that does."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Listener(ABC, Generic[G, C]):
    """A door that listens."""

    #: Its name, and the message to connected peers when it closes.
    name: str
    goodbye: str
    #: How long a new connection may take to introduce itself, and how long a peer may not read.
    hello_us: int
    stuck_us: int
    #: Whether the protocol can name the node that leads; else another node takes no connection.
    sends_on = False

    def __init__(self, broker: Broker, config: C, tls: ssl.SSLContext | None) -> None:
        self.broker = broker
        self.config = config
        self.host = config.host
        self.port = config.port  # where it listens, once started
        self.connections: dict[G, None] = {}  # all that are open
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None

    @abstractmethod
    def connect(self) -> asyncio.Protocol:
        """Make a connection for a new peer."""

    @abstractmethod
    async def look(self) -> None:
        """Wait a while, then check every connection: silence, stalls, heartbeats."""

    async def start(self) -> None:
        """Start listening; raises `OSError` if the address is unavailable."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accept,
            self.host,
            self.port,
            backlog=1024,
            ssl=self._tls,
            # Who takes longer to begin than to introduce itself would not be waited for either.
            ssl_handshake_timeout=self.hello_us / SECOND if self._tls else None,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.broker.access.changed.append(self._check_access)
        self._watch = asyncio.create_task(self._look_after(), name=f"jackalope-{self.name}-door")

    def _accept(self) -> asyncio.Protocol:
        leader = self.broker.leader
        if leader is None or self.sends_on or leader.elsewhere(self.name) is None:
            return self.connect()
        return _Away()

    async def stop(self) -> None:
        """Accept no more connections, send goodbye to those that are open, and close."""
        if self._server is None:
            return
        self._server.close()
        self.broker.access.changed.remove(self._check_access)
        if self._watch is not None:
            self._watch.cancel()
        for connection in list(self.connections):
            connection.end(self.goodbye)
        self._server = None
        for _ in range(_GOODBYE_LOOKS):
            if not self.connections:
                return
            await asyncio.sleep(_GOODBYE_S / _GOODBYE_LOOKS)
        for connection in list(self.connections):
            connection.abort()

    def enter(self, connection: G) -> bool:
        """Register a connection, if the limit allows."""
        if len(self.connections) >= self.config.max_connections:
            return False
        self.connections[connection] = None
        return True

    def leave(self, connection: G) -> None:
        self.connections.pop(connection, None)

    async def _look_after(self) -> None:
        while True:
            await self.look()
            self._check_access()  # A key may have come to its end.

    def _check_access(self) -> None:
        for connection in list(self.connections):
            connection.check_access()

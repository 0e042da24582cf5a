"""A listener: what the doors that keep connections of their own have in common.

Owns the listening socket, the limit of connections, the timer that checks all of them, however
many there are, the goodbye, and who is handed on to another node. The protocol is the door's own:
nothing here knows one.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar, cast

from jackalope.broker.config.schema import AmqpConfig, NativeConfig
from jackalope.broker.service import Broker
from jackalope.core.durations import SECOND
from jackalope.doors.forwarding import Forwarding, Handed, Letter, Way
from jackalope.doors.splice import LastWords, Silence

#: How long peers may take to read a goodbye, and how often that is looked at.
_GOODBYE_S = 1.0
_GOODBYE_LOOKS = 50


class Guest(Protocol):
    """A connection, as far as a listener is concerned."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""

    def data_received(self, data: bytes) -> None:
        """Take what the peer has sent."""

    def check_access(self) -> None:
        """Close the connection if the peer would no longer be accepted."""

    def end(self, why: str) -> None:
        """Report the reason to the peer, and close."""

    def abort(self) -> None:
        """Close at once."""


G = TypeVar("G", bound=Guest)
C = TypeVar("C", bound=NativeConfig | AmqpConfig)


class Doorman(asyncio.Protocol):
    """A connection to a node of a cluster, before it is known what is to be done with it."""

    def __init__(self, door: Listener[Any, Any]) -> None:
        self._door = door
        self._data = b""
        self._transport: asyncio.Transport | None = None
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._door.doormen.add(self)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(self._door.hello_us / SECOND, self.abort)

    def connection_lost(self, _: Exception | None) -> None:
        self._leave()

    def data_received(self, data: bytes) -> None:
        """Look for the letter of another node, and let the door decide."""
        self._data += data
        try:
            found = self._door.read_letter(self._data)
        except ValueError:
            self.abort()
            return
        if found is not None and self._transport is not None:
            transport, (letter, size) = self._transport, found
            self._leave()
            self._door.decide(transport, self._data[size:], letter)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _leave(self) -> None:
        self._door.doormen.discard(self)
        self._transport = None
        if self._patience is not None:
            self._patience.cancel()


class Listener(ABC, Generic[G, C]):
    """A door that listens."""

    #: Its name, and the message to connected peers when it closes.
    name: str
    goodbye: str
    #: How long a new connection may take to introduce itself, and how long a peer may not read.
    hello_us: int
    stuck_us: int
    #: Whether the protocol can name the node that leads.
    sends_on = False

    def __init__(
        self,
        broker: Broker,
        config: C,
        tls: ssl.SSLContext | None,
        forwarding: Forwarding | None = None,
    ) -> None:
        self.broker = broker
        self.config = config
        self.host = config.host
        self.port = config.port  # where it listens, once started
        self.connections: dict[G, None] = {}  # all that are open
        self.doormen: set[Doorman] = set()
        if forwarding is None and broker.leader is not None:
            forwarding = Forwarding(broker.leader)
        self.forwarding = forwarding  # None for a broker that is alone
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None

    @abstractmethod
    def connect(self) -> G:
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
        if self.forwarding is not None:
            return Doorman(self)
        return cast("asyncio.Protocol", self.connect())

    # For a node of a cluster.

    def read_letter(self, data: bytes) -> tuple[Letter | None, int] | None:
        """Return the letter of the node that has handed a connection on; see `Forwarding`."""
        return (None, 0) if self.forwarding is None else self.forwarding.read_letter(data)

    def vouch(self, connection: G, letter: Letter) -> None:
        """Take from a letter what the door would otherwise ask the connection."""

    def last_words(self) -> LastWords:
        """Return what a peer is told if the leader it was handed on to is lost."""
        return Silence()

    def decide(self, peer: asyncio.Transport, data: bytes, letter: Letter | None) -> None:
        """Serve a peer, hand it on to the leader, or close its connection."""
        way = Way.HERE
        if self.forwarding is not None:
            was_forwarded = letter is not None
            way = self.forwarding.way(self.name, follows=self.sends_on, was_forwarded=was_forwarded)
        if way is Way.HAND_ON:
            self.hand_on(peer, data)
        elif way is Way.HERE or (self.sends_on and letter is None):
            self._let_in(peer, data, letter)
        else:
            peer.close()

    def hand_on(self, peer: asyncio.Transport, data: bytes) -> None:
        """Let the leader serve a peer, which has sent some data."""
        forwarding = self.forwarding
        if forwarding is None or not self._has_room():
            peer.close()
            return
        head = forwarding.write_letter(peer) + data
        handed = Handed(
            self.name,
            head,
            self._tls is not None,
            self.stuck_us / SECOND,
            lambda peer: self._let_in(peer, data, None),
        )
        forwarding.hand_on(peer, handed, self.last_words())

    def _let_in(self, peer: asyncio.Transport, data: bytes, letter: Letter | None) -> None:
        connection = self.connect()
        peer.set_protocol(cast("asyncio.Protocol", connection))
        connection.connection_made(peer)
        if letter is not None and letter.host:
            self.vouch(connection, letter)
        if not peer.is_closing():
            peer.resume_reading()
            connection.data_received(data)

    def _has_room(self) -> bool:
        handed_on = 0 if self.forwarding is None else self.forwarding.count(self.name)
        return len(self.connections) + handed_on < self.config.max_connections

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
        for doorman in list(self.doormen):
            doorman.abort()
        if self.forwarding is not None:
            self.forwarding.end(self.name)
        self._server = None
        for _ in range(_GOODBYE_LOOKS):
            if not self.connections:
                return
            await asyncio.sleep(_GOODBYE_S / _GOODBYE_LOOKS)
        for connection in list(self.connections):
            connection.abort()

    def enter(self, connection: G) -> bool:
        """Register a connection, if the limit allows."""
        if not self._has_room():
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

"""Forwarding: what a node that does not lead does with a peer, and how it reaches the leader.

Owns the choice, which is the same for all doors; the way to the door of the leader; and what a node
tells another of the peer whose connection it hands on. It knows no protocol.

Theory of operation. A connection that is handed on begins with a letter of one node to the other:
where the peer is and which certificate it has shown, signed with the secret of the cluster. A node
that gets one and does not lead refuses the connection, so two nodes that take each other for the
leader do not hand it on for ever. HTTP has the same in a header.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import structlog

from jackalope.broker.config.schema import Forward
from jackalope.broker.service import Leader
from jackalope.doors.splice import LastWords, Silence, Splice

log = structlog.get_logger(component="cluster")

#: How long to look for the leader before a peer is given up, how long one try may take, and the
#: pause between two.
FIND_S = 5.0
_CONNECT_S = 3.0
PAUSE_S = 0.1

#: How a letter begins: no frame of the native protocol is so long, and AMQP has its own header.
MAGIC = b"JKSP"
_LENGTH_BYTES = 2
_MAC = "sha256"
_MAC_BYTES = 32
#: The largest letter. A certificate that does not fit is left out.
_LETTER_BYTES_MAX = 16 * 1024


class Way(Enum):
    """What a node does with a peer."""

    HERE = "serve it"
    POINT = "tell it where the leader is, as far as its protocol can"
    HAND_ON = "hand it on to the leader"
    REFUSE = "let it try again, or elsewhere"


def choose(address: str | None, mode: Forward, *, follows: bool, was_forwarded: bool) -> Way:
    """Return what to do with a peer.

    Args:
        address: where the leader is; nothing if none is known, None if this node leads.
        mode: what is configured.
        follows: whether the peer goes where it is sent.
        was_forwarded: whether another node has sent it here, taking this one for the leader.
    """
    if address is None:
        return Way.HERE
    if was_forwarded:
        return Way.REFUSE
    if mode is Forward.ALWAYS or (mode is Forward.AUTO and not follows):
        return Way.HAND_ON
    return Way.POINT if address else Way.REFUSE


class Letter(msgspec.Struct, array_like=True, frozen=True):
    """What a node tells of a peer."""

    host: str = ""
    port: int = 0
    certificate: dict[str, Any] = {}


class Handed(NamedTuple):
    """A connection that is handed on."""

    door: str  # it came to
    head: bytes  # what the leader gets first
    has_tls: bool  # whether the door has
    stuck_s: float  # how long an end may not read
    take_back: Callable[[asyncio.Transport], None]  # serves the peer if this node leads by now


class Forwarding:
    """What the doors of a node share."""

    def __init__(
        self,
        leader: Leader,
        mode: Forward = Forward.NEVER,
        secret: str = "",
        tls: ssl.SSLContext | None = None,
        members: tuple[str, ...] = (),
    ) -> None:
        self.leader = leader
        self.mode = mode
        # The native doors of all nodes, for peers that look for another when this one is lost.
        # Where everything is forwarded, peers may not be able to reach them.
        self.members = () if mode is Forward.ALWAYS else members
        self.tls = tls  # for connections to doors of other nodes that have TLS
        self.splices: dict[Splice, None] = {}  # all that are open
        self._open: Counter[str] = Counter()
        self.spliced: Counter[str] = Counter()  # how many there were, by door
        self.forwarded = 0  # requests over HTTP
        # Those that are under way: the connection to the leader, of which door, and where it is.
        self.requests: dict[asyncio.WriteTransport, tuple[str, str]] = {}
        self.failed = 0  # of both, those for which no leader was reached
        self.secret = secret.encode()
        self._dialling: set[asyncio.Task[None]] = set()
        leader.changed.append(self._check)

    def way(self, door: str, *, follows: bool, was_forwarded: bool = False) -> Way:
        address = self.leader.elsewhere(door)
        return choose(address, self.mode, follows=follows, was_forwarded=was_forwarded)

    # Letters.

    def sign(self, text: bytes) -> bytes:
        return hmac.digest(self.secret, text, _MAC)

    def is_signed(self, text: bytes, mac: bytes) -> bool:
        """Return whether another node has signed it; without a secret it cannot be known."""
        return bool(self.secret) and hmac.compare_digest(self.sign(text), mac)

    def write_letter(self, peer: asyncio.Transport) -> bytes:
        """Return the letter about a peer."""
        host, port = (peer.get_extra_info("peername") or ("", 0))[:2]
        shown = peer.get_extra_info("peercert") or {}
        certificate = {name: shown[name] for name in ("subject", "subjectAltName") if name in shown}
        body = msgspec.msgpack.encode(Letter(str(host), port, certificate))
        if len(body) > _LETTER_BYTES_MAX:
            body = msgspec.msgpack.encode(Letter(str(host), port))
        return MAGIC + len(body).to_bytes(_LENGTH_BYTES) + body + self.sign(body)

    def read_letter(self, data: bytes) -> tuple[Letter | None, int] | None:
        """Return the letter that a connection begins with, and its length; None if more must come.

        There is no letter if it was not another node that has connected. One that is not signed
        says nothing about the peer.

        Raises:
            ValueError: it begins as a letter, and is none.
        """
        if data[: len(MAGIC)] != MAGIC[: len(data)]:
            return None, 0
        begin = len(MAGIC) + _LENGTH_BYTES
        if len(data) < begin:
            return None
        size = int.from_bytes(data[len(MAGIC) : begin])
        if size > _LETTER_BYTES_MAX:
            raise ValueError("the letter of a node is too long")
        end = begin + size + _MAC_BYTES
        if len(data) < end:
            return None
        body, mac = data[begin : begin + size], data[begin + size : end]
        if not self.is_signed(body, mac):
            return Letter(), end
        return msgspec.msgpack.decode(body, type=Letter), end

    # Handing on.

    def hand_on(
        self, peer: asyncio.Transport, hand: Handed, last_words: LastWords | None = None
    ) -> Splice:
        """Connect a peer with a door of the leader."""
        splice = Splice(peer, hand.stuck_s, last_words or Silence(), self._ended)
        splice.door = hand.door
        self.splices[splice] = None
        self._open[hand.door] += 1
        self.spliced[hand.door] += 1
        task = asyncio.create_task(self._dial(splice, hand), name="jackalope-splice")
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)
        return splice

    async def _dial(self, splice: Splice, hand: Handed) -> None:
        """Look for the leader, which may be about to change, and begin."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + FIND_S
        while not splice.is_over:
            address = self.leader.elsewhere(hand.door)
            if address is None:
                peer = splice.release()
                if peer is not None:
                    hand.take_back(peer)
                return
            if address and await self._connect(splice, address, has_tls=hand.has_tls):
                splice.join(address, hand.head)
                return
            if loop.time() > give_up_s:
                self.failed += 1
                log.warning("no leader to hand a connection on to", door=hand.door, last=address)
                splice.end()
                return
            await asyncio.sleep(PAUSE_S)

    async def _connect(self, splice: Splice, address: str, *, has_tls: bool) -> bool:
        host, port = split_address(address)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await asyncio.get_running_loop().create_connection(
                    lambda: splice.far, host, port, ssl=self.tls if has_tls else None
                )
        except (OSError, TimeoutError) as error:
            log.debug("cannot connect to the leader", address=address, error=str(error))
            return False
        if splice.is_over:
            splice.far.abort()
        return True

    def count(self, door: str) -> int:
        """Return how many connections of a door are handed on."""
        return self._open[door]

    def _ended(self, splice: Splice) -> None:
        if self.splices.pop(splice, 0) is None:
            self._open[splice.door] -= 1

    def _check(self) -> None:
        """Close what is connected with a node that leads no more: it may be unable to."""
        for splice in list(self.splices):
            if splice.address and splice.address != self.leader.elsewhere(splice.door):
                splice.end()
        for transport, (door, address) in list(self.requests.items()):
            if address != self.leader.elsewhere(door):
                transport.abort()

    def end(self, door: str) -> None:
        """Close what was handed on from a door, because it closes."""
        for splice in list(self.splices):
            if splice.door == door:
                splice.end()


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)

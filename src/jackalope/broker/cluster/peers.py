"""The other members: what each has told of itself, and when.

Owns one connection to each of them, over which it is asked about once a second. Everything that
wants to know of other nodes reads `Peers.known`: status, metrics, the dashboard, the measure of
clocks, and the leader that cuts the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns

import structlog

from jackalope.broker.clock import wall_us
from jackalope.broker.cluster.leadership import Role
from jackalope.broker.cluster.peer_link import Credentials, PeerGone, PeerLink, connect
from jackalope.broker.cluster.skew import Skew, skew_of
from jackalope.broker.cluster.trimming import Need
from jackalope.wire.peer import AskStatus, NodeStatus

log = structlog.get_logger(component="peers")

#: How often each member is asked.
ASK_EVERY_S = 1.0

#: Of so many answers the one that came soonest tells how far the clocks are apart.
_SAMPLES = 8

_NOT_ASKED = "not asked yet"


@dataclass
class Peer:
    """Another member, as far as this node knows it."""

    name: str
    host: str
    port: int
    status: NodeStatus | None = None  # what it told last
    heard_us: int = 0  # when, by the steady clock of this node; 0 if never
    trouble: str = _NOT_ASKED  # why it cannot be asked; empty if it can
    _clocks: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    @property
    def is_reachable(self) -> bool:
        return not self.trouble

    @property
    def round_trip_us(self) -> int:
        """How long the soonest of the last answers took; 0 if there was none."""
        return min(self._clocks, default=(0, 0))[0]

    @property
    def offset_us(self) -> int:
        """How far its clock is ahead of this node's; wrong by at most half a round trip.

        Its clock is remembered against the steady one, so that this stays right when this node's
        is set, even if the member is gone.
        """
        if not self._clocks:
            return 0
        return min(self._clocks)[1] - (wall_us() - _steady_us())

    def hear(self, status: NodeStatus, sent_us: int, round_trip_us: int) -> None:
        """Note an answer to what was asked at a time of the steady clock."""
        self.status, self.trouble = status, ""
        self.heard_us = _steady_us()
        self._clocks.append((round_trip_us, status.at_us - sent_us - round_trip_us // 2))


class Peers:
    """All members but this node."""

    def __init__(self, members: Mapping[str, tuple[str, int]], who: Credentials) -> None:
        self.known = {
            name: Peer(name, host, port)
            for name, (host, port) in members.items()
            if name != who.node
        }
        self.who = who
        self.heard: list[Callable[[NodeStatus], None]] = []  # called with what each member tells
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to ask."""
        self._tasks = [
            asyncio.create_task(self._keep_asking(peer), name=f"jackalope-peer-{peer.name}")
            for peer in self.known.values()
        ]

    async def stop(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def skew(self) -> Skew | None:
        """Return how far the clocks are apart; None until every member was asked once."""
        if any(peer.trouble == _NOT_ASKED for peer in self.known.values()):
            return None
        return skew_of([each.offset_us for each in self.known.values() if each.heard_us])

    def needs(self, began_us: int) -> list[Need]:
        """Return what the members have of the log; those that never answered are silent since."""
        now_us, needs = _steady_us(), []
        for peer in self.known.values():
            told = peer.status
            silent_us = 0 if peer.is_reachable else now_us - max(peer.heard_us, began_us)
            through = 0 if told is None else min(told.durable, told.mirrored)
            is_restoring = told is not None and told.role == Role.RESTORING
            needs.append(Need(through, silent_us, is_restoring))
        return needs

    async def connect(self, name: str) -> PeerLink:
        """Open a connection of one's own to a member.

        Raises:
            PeerGone: it cannot be reached, or refuses.
        """
        peer = self.known[name]
        link = await connect(peer.host, peer.port, self.who)
        if link.peer != name:
            await link.leave()
            raise PeerGone(f"{peer.host}:{peer.port} is {link.peer!r} and not {name!r}")
        return link

    async def entries(self, name: str, sequence: int, digest: bytes) -> list[bytes] | None:
        """Return what follows an entry in a member's copy of the log; see `PeerLink.entries`.

        Raises:
            PeerGone: it cannot be reached, or refuses.
        """
        link = await self.connect(name)
        try:
            return await link.entries(sequence, digest)
        finally:
            await link.leave()

    async def _keep_asking(self, peer: Peer) -> None:
        while True:
            link = None
            try:
                link = await self.connect(peer.name)
                while True:
                    await self._ask(peer, link)
                    await asyncio.sleep(ASK_EVERY_S)
            except PeerGone as gone:
                if str(gone) != peer.trouble:
                    log.warning("a member cannot be asked", member=peer.name, why=str(gone))
                peer.trouble = str(gone)
            finally:
                if link is not None:
                    await link.leave()
            await asyncio.sleep(ASK_EVERY_S)

    async def _ask(self, peer: Peer, link: PeerLink) -> None:
        sent_us = _steady_us()
        status = await link.ask(AskStatus(), NodeStatus)
        if not peer.is_reachable:
            log.info("a member answers", member=peer.name, role=status.role)
        peer.hear(status, sent_us, _steady_us() - sent_us)
        for heard in self.heard:
            heard(status)


def _steady_us() -> int:
    return monotonic_ns() // 1_000

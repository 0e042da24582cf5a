"""Restoring: a node takes over the state of another one, because the log begins behind its own.

Owns which members are asked, in which order, and one try with each. When to try is the node's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from jackalope.broker.cluster.leadership import Role
from jackalope.broker.cluster.peer_link import PeerGone, PeerLink, PeerRefused
from jackalope.broker.service import Broker
from jackalope.storage import Corrupt, DiskFull, OutOfReach
from jackalope.storage.shared.journal import SharedJournal
from jackalope.storage.snapshots import Incoming, StateMark
from jackalope.wire.peer import AskSnapshot, SnapshotHead

log = structlog.get_logger(component="cluster")

#: How long a member may take to copy its state before the first part comes.
_COPY_S = 600.0


async def receive(
    link: PeerLink, home: Path, is_enough: Callable[[int], str], is_over: Callable[[], bool]
) -> StateMark:
    """Receive the state of a member into a folder; it is there for good when this returns.

    Args:
        link: to the member.
        home: the folder of the node's own state.
        is_enough: returns why the state at a sequence is of no use; nothing if it is.
        is_over: returns whether to give up.

    Raises:
        PeerGone: the member does not answer, refuses, or has a state that is of no use.
        StorageFault: what came is damaged, or cannot be written.
    """
    await link.send(AskSnapshot())
    head = await link.expect(SnapshotHead, _COPY_S)
    if why := is_enough(head.sequence):
        raise PeerRefused(why)
    mark = StateMark(head.sequence, head.digest)
    incoming = await asyncio.to_thread(Incoming, home, mark)
    try:
        async for part in link.parts():
            if is_over():
                raise PeerGone("this node is told to stop")  # noqa: TRY301  it leaves nothing behind
            await asyncio.to_thread(incoming.add, part)
        await asyncio.to_thread(incoming.finish)
    except BaseException:
        incoming.abort()
        raise
    return mark


class Restorer:
    """Takes over the state of whichever member has one that the log continues."""

    def __init__(self, broker: Broker, journal: SharedJournal, is_over: Callable[[], bool]) -> None:
        self._broker = broker
        self._journal = journal
        self._is_over = is_over
        self.is_diverged = False  # its own state is wrong: an older one is better

    async def try_all(self) -> bool:
        """Ask the members one after the other, and return whether one gave its state."""
        for name in self._sources():
            try:
                mark = await self._restore_from(name)
            except (PeerGone, DiskFull, Corrupt, OutOfReach) as fault:
                log.warning("not restored", member=name, fault=str(fault))
                continue
            log.info("restored", member=name, sequence=mark.sequence)
            self.is_diverged = False
            return True
        return False

    def _sources(self) -> list[str]:
        """Return the members that answer, those that have come furthest first, and not the leader.

        A copy costs the one that makes it a little time.
        """
        peers = self._broker.peers
        told = [] if peers is None else [each.status for each in peers.known.values()]
        order = sorted(
            (each.role == Role.LEADING, -each.flushed, each.node)
            for each in told
            if each is not None
        )
        return [name for *_, name in order if peers and peers.known[name].is_reachable]

    async def _restore_from(self, name: str) -> StateMark:
        peers, home = self._broker.peers, self._broker.storage.home
        if peers is None or home is None:
            raise PeerGone("it is not asked yet")
        begins = await self._broker.in_journal(self._journal.begins)
        link = await peers.connect(name)
        try:
            mark = await receive(
                link, home, lambda sequence: self._lacks(sequence, begins), self._is_over
            )
        finally:
            await link.leave()
        await self._broker.adopt()
        return mark

    def _lacks(self, sequence: int, begins: int) -> str:
        """Return why a state is of no use to this node; nothing if it is."""
        is_older = sequence <= self._broker.engine.sequence and not self.is_diverged
        if sequence + 1 < begins or is_older:
            return f"its state ends at batch {sequence}, and the log begins at {begins}"
        return ""

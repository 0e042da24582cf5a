"""Doubt: what a node does when the log does not continue what it has applied.

Owns whom to ask and in which order, and which copies of the log have been found wrong. What anybody
answers is judged by the chain alone, so it does not matter who is right: only one continuation can
have the right digest.

A copy of the log that is damaged serves holes as if nothing were missing. So the same copy is asked
again, which may have lagged for a moment; then every other copy; then the mirrors of the other
nodes. Runs in the thread of the journal.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import structlog

from jackalope.broker.cluster.peer_link import PeerGone
from jackalope.broker.service import Broker
from jackalope.storage import OutOfReach, StorageFault
from jackalope.storage.shared.journal import MESSAGES_PER_READ, Astray, Behind, Heard, SharedJournal
from jackalope.storage.shared.log import Copied

log = structlog.get_logger(component="cluster")

#: What the mirrors of other nodes have behind a digest: the name of each node, and its entries.
Mirrors = Callable[[int, bytes], Iterable[tuple[str, list[bytes]]]]


class Doubt:
    """Finds what continues the chain, and who did not have it."""

    def __init__(self, journal: SharedJournal) -> None:
        self.mirrors: Mirrors = lambda _sequence, _digest: ()
        self.wrong: Counter[str] = Counter()  # how often a copy did not have what others have
        self.suspects: set[str] = set()  # those of them that were not found sound since
        self._journal = journal

    def settle(self, fault: Astray) -> list[Heard]:
        """Return what follows in the log, from the first that has it.

        Raises:
            Astray: none has it.
            OutOfReach: some cannot be asked, and no other has it.
        """
        doubted = self._leader()
        try:
            self._journal.find_place()
            heard = self._journal.follow(0)
        except (Astray, Behind) as again:
            fault = again if isinstance(again, Astray) else fault
        else:
            if heard:
                return heard
        away: OutOfReach | None = None
        for ask in (self._copies(doubted), self._mirrors()):
            try:
                for name, heard in ask:
                    if heard:
                        self._blame(doubted, name, fault)
                        return heard
            except OutOfReach as out:
                away = out
        raise away or fault

    def _copies(self, doubted: str) -> Iterator[tuple[str, list[Heard]]]:
        """Ask the other copies of the log, one after the other."""
        engine = self._journal.log
        asked = {doubted}
        while isinstance(engine, Copied):
            found = engine.read_copy(asked, self._journal.mark.position, MESSAGES_PER_READ)
            if found is None:
                return
            name, messages = found
            asked.add(name)
            yield name, self._judge(name, lambda: self._journal.hear_copy(messages))  # noqa: B023

    def _mirrors(self) -> Iterator[tuple[str, list[Heard]]]:
        mark = self._journal.mark
        for name, entries in self.mirrors(mark.sequence, mark.digest):
            yield (
                f"the mirror of {name}",
                self._judge(name, lambda: self._journal.hear_mirror(entries)),  # noqa: B023
            )

    def _judge(self, name: str, hear: Callable[[], list[Heard]]) -> list[Heard]:
        try:
            return hear()
        except (Astray, Behind) as fault:
            log.warning("no better", copy=name, fault=str(fault))
            return []

    def _leader(self) -> str:
        try:
            return self._journal.log.state().leader
        except StorageFault:
            return ""

    def _blame(self, doubted: str, other: str, fault: StorageFault) -> None:
        """Name the copy that is damaged, and let another one decide."""
        name = doubted or "the log"
        self.wrong[name] += 1
        self.suspects.add(name)
        log.error(
            "a copy of the log is damaged; remove its store, and it is built again",
            copy=doubted,
            instead=other,
            fault=str(fault),
        )
        if isinstance(self._journal.log, Copied) and doubted:
            try:
                self._journal.log.shun(doubted)
            except OutOfReach as away:
                log.warning("the damaged copy goes on deciding", copy=doubted, fault=str(away))


def ask_members(
    broker: Broker, loop: asyncio.AbstractEventLoop, sequence: int, digest: bytes
) -> Iterator[tuple[str, list[bytes]]]:
    """Yield what the other members that answer have behind a digest. Not for the loop's thread."""
    peers = broker.peers
    if peers is None:
        return
    for name in tuple(peers.known):
        asked = asyncio.run_coroutine_threadsafe(peers.entries(name, sequence, digest), loop)
        try:
            yield name, asked.result() or []
        except PeerGone as gone:
            log.warning("a member cannot be asked", member=name, why=str(gone))

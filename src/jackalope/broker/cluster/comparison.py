"""Comparison: a leader tells the digest of its state now and then, and the others compare theirs.

Owns when that is, and of which slice of the state. A node whose state differs has applied the same
records to another effect: a bug, or a broken machine. It must neither lead nor answer.

When a person asks for it, the leader goes round: it tells the digests of all slices, one after the
other. Each is of a moment between two turns, and takes no longer than one of those that are told
now and then.
"""

from __future__ import annotations

import asyncio

import structlog

from jackalope.broker.engine import Turn
from jackalope.broker.service import Broker
from jackalope.core.core import Core
from jackalope.core.state.digest import digest_of, slices_of
from jackalope.storage.faults import Corrupt
from jackalope.storage.shared.journal import Check, SharedJournal

log = structlog.get_logger(component="cluster")

#: After how many batches the next slice is compared.
EVERY_BATCHES = 1_000

#: How long a round waits for the end of a turn before it looks again.
_PAUSE_S = 0.002


class Diverged(Corrupt):
    """The state of this node is not that of the leader after the same batch."""


class Comparison:
    """The digests of one node: told while it leads, compared while it follows."""

    def __init__(self, journal: SharedJournal, every_batches: int = EVERY_BATCHES) -> None:
        self.every_batches = every_batches
        self.compared = 0  # how many slices were found equal
        self.diverged = 0  # how often one was not
        self.differs = ""  # where that was last
        self.is_doubted = False  # it has not been found equal since
        self._journal = journal
        self._last = 0  # the batch after which a digest was made
        self._index = 0
        self._wanted: tuple[int, int] | None = None  # the slice that is next in a round
        self._going_round = asyncio.Lock()

    def take(self, turn: Turn, core: Core) -> None:
        """Make a digest if it is time. Called after every durable turn of a leader."""
        if self._wanted is not None:
            if self._journal.check is None:
                self._tell(core, *self._wanted)
            return
        sequence = self._journal.mark.sequence
        if not turn.body or sequence // self.every_batches == self._last // self.every_batches:
            return
        self._last = sequence
        count = slices_of(core.book)
        self._index = (self._index + 1) % count
        self._tell(core, self._index, count)

    def _tell(self, core: Core, index: int, count: int) -> None:
        digest = digest_of(core.book, index, count)
        self._journal.check = Check(self._journal.mark.sequence, index, count, digest)
        self._wanted = None

    async def go_round(self, broker: Broker) -> int:
        """Tell the digests of all slices, and return how many there are. For the node that leads.

        Raises:
            StorageFault: the log does not take them, because another node leads.
        """
        async with self._going_round:
            count = slices_of(broker.engine.core.book)
            try:
                for index in range(count):
                    while not await self._tell_between_turns(broker, index, count):
                        pass
            finally:
                self._wanted = None
        return count

    async def _tell_between_turns(self, broker: Broker, index: int, count: int) -> bool:
        """Tell the digest of a slice, and return whether it stands in the log."""
        engine, journal = broker.engine, self._journal
        self._wanted = (index, count)
        while self._is_wanted() and (engine.is_turning or journal.check):  # noqa: ASYNC110  no event
            await asyncio.sleep(_PAUSE_S)
        if self._is_wanted():  # If not, `take` was first.
            self._tell(engine.core, index, count)
        await broker.in_journal(journal.tell)
        told = journal.told
        return told is not None and (told.index, told.count) == (index, count)

    def _is_wanted(self) -> bool:
        return self._wanted is not None

    def compare(self, check: Check, core: Core, sequence: int) -> None:
        """Compare the digest of a leader with the state of this node after so many batches.

        Raises:
            Diverged: they differ.
        """
        if check.sequence != sequence:
            return
        self._last, self._index = sequence, check.index
        if digest_of(core.book, check.index, check.count) == check.digest:
            self.compared += 1
            return
        self.diverged += 1
        self.differs = f"after batch {sequence}, in slice {check.index} of {check.count}"
        self.is_doubted = True
        log.error("the state differs from the leader's", batch=sequence, slice=check.index)
        raise Diverged(f"the state of this node {self.differs}, is not that of the leader")

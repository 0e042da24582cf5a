"""Comparison: a leader tells the digest of its state now and then, and the others compare theirs.

Owns when that is, and of which slice of the state. A node whose state differs has applied the same
records to another effect: a bug, or a broken machine. It must neither lead nor answer.
"""

from __future__ import annotations

import structlog

from jackalope.broker.engine import Turn
from jackalope.core.core import Core
from jackalope.core.state.digest import digest_of, slices_of
from jackalope.storage.faults import Corrupt
from jackalope.storage.shared.journal import Check, SharedJournal

log = structlog.get_logger(component="cluster")

#: After how many batches the next slice is compared.
EVERY_BATCHES = 1_000


class Diverged(Corrupt):
    """The state of this node is not that of the leader after the same batch."""


class Comparison:
    """The digests of one node: told while it leads, compared while it follows."""

    def __init__(self, journal: SharedJournal, every_batches: int = EVERY_BATCHES) -> None:
        self.every_batches = every_batches
        self.compared = 0  # how many slices were found equal
        self.diverged = 0  # how often one was not
        self._journal = journal
        self._last = 0  # the batch after which a digest was made
        self._index = 0

    def take(self, turn: Turn, core: Core) -> None:
        """Make a digest if it is time. Called after every durable turn of a leader."""
        sequence = self._journal.mark.sequence
        if not turn.body or sequence // self.every_batches == self._last // self.every_batches:
            return
        self._last = sequence
        count = slices_of(core.book)
        self._index = (self._index + 1) % count
        digest = digest_of(core.book, self._index, count)
        self._journal.check = Check(sequence, self._index, count, digest)

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
        log.error("the state differs from the leader's", batch=sequence, slice=check.index)
        raise Diverged(
            f"the state of this node after batch {sequence} is not that of the leader (slice "
            f"{check.index} of {check.count})"
        )

"""The mirror: the tail of a shared log, in segments on the node's own disk.

Owns nothing but that: entries stand here as they stand in the log, in the same chain, so that a
node starts from its own folder, and what a damaged log has lost can be taken from here.

It is synced now and then, because the log is what is durable. What a power failure or damage takes
from its end is read from the log again.
"""

from __future__ import annotations

from pathlib import Path

from jackalope.core.assertions import must
from jackalope.storage.entry import NO_DIGEST, Entry
from jackalope.storage.faults import StorageFault
from jackalope.storage.ports import INTERVAL_US_DEFAULT, Level
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.segments.segment import numbers_in, path_of, read_header, read_segment


class Mirror(SegmentJournal):
    """The entries of a shared log that one node has."""

    def __init__(self, folder: Path, interval_us: int = INTERVAL_US_DEFAULT) -> None:
        super().__init__(folder, Level.INTERVAL, interval_us)
        self.claim()  # The folder is this node's alone; this begins a segment.

    @property
    def digest(self) -> bytes:
        """The digest of all through the last entry."""
        return self._digest

    @property
    def durable(self) -> int:
        """The last batch in it that a power failure does not take."""
        return self._durable

    def take(self, raw: bytes, entry: Entry) -> None:
        """Store the entry that follows in the log."""
        must(entry.before == self._digest, "an entry of another chain", entry.sequence)
        with self._writing():
            self._refuse_fenced()
            self._put(raw, entry.digest)
            self._last = entry.sequence
        if self._syncer is not None:
            self._syncer.is_due = True

    def epoch(self) -> int:
        """Return the greatest epoch in it; 0 if it has no entry."""
        for number in reversed(numbers_in(self.folder)):
            path = path_of(self.folder, number)
            entries = read_segment(path, read_header(path)).entries
            if entries:
                return entries[-1].epoch
        return 0

    def _note_trim(self) -> None:
        """Leave it out: it would be an entry that the log does not have."""


def open_mirror(folder: Path, applied: int) -> tuple[Mirror, str]:
    """Open the mirror of a node whose history contains so many batches.

    One that is damaged, or ends before that, is set aside, and the log is asked for the rest.

    Returns:
        The mirror, and what was wrong with the one that was there, if something was.
    """
    try:
        mirror = Mirror(folder)
        if mirror.last() >= applied:
            for _ in mirror.read(max(applied, mirror.trimmed())):
                pass
            return mirror, ""
        problem = f"{folder}: ends at batch {mirror.last()}, but history contains {applied}"
        mirror.close()
    except StorageFault as fault:
        problem = str(fault)
    aside = _free_name(folder)
    folder.rename(aside)
    mirror = Mirror(folder)
    mirror.restart(applied, NO_DIGEST)
    return mirror, f"{problem}; set aside as {aside.name}"


def _free_name(folder: Path) -> Path:
    number = 1
    while (name := folder.with_name(f"{folder.name}.damaged-{number}")).exists():
        number += 1
    return name

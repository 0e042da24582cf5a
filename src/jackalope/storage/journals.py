"""Which journal a data folder has, and the change from one kind to the other.

Owns the two places, `journal` and `journal.db`, and that batches are never in neither: the new
journal is complete under its name before the old one goes. After a crash both may be there; then
they have the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from shutil import copytree, rmtree

from jackalope.storage.disk import sync_folder
from jackalope.storage.faults import WAY_OUT, Corrupt, StorageFault, naming_faults
from jackalope.storage.ports import INTERVAL_US_DEFAULT, Journal, Level
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.sqlite.journal import SqliteJournal
from jackalope.storage.sqlite.salvage import name_aside, salvage_journal
from jackalope.storage.sqlite.wal_check import check_wal
from jackalope.storage.witness import Witness

SEGMENTS = "journal"
DATABASE = "journal.db"

_NEW = ".new"
_OLD = ".old"


class JournalKind(StrEnum):
    """How a journal is kept."""

    SEGMENTS = "segments"
    SQLITE = "sqlite"


class JournalPlace:
    """The journal of a data folder, whichever it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segments = folder / SEGMENTS
        self.database = folder / DATABASE

    @property
    def kind(self) -> JournalKind | None:
        """Which journal is there; None if there is none."""
        if self.segments.exists():
            return JournalKind.SEGMENTS
        return JournalKind.SQLITE if self.database.exists() else None

    def path(self, kind: JournalKind | None = None) -> Path:
        return self.database if (kind or self.kind) is JournalKind.SQLITE else self.segments

    def check(self, witness: Witness, level_before: Level | None) -> None:
        """Refuse a journal that is missing, or whose damage only shows before it is opened."""
        witness.refuse_damaged()
        if witness.highest and self.kind is None:
            raise Corrupt(
                f"{self.path()}: missing, but batch {witness.highest} was acknowledged. {WAY_OUT}"
            )
        if self.kind is JournalKind.SQLITE and level_before is not Level.INTERVAL:
            # A power failure at level `interval` may tear more than the last transaction.
            check_wal(self.database)

    def salvage(self) -> list[str]:
        """Keep a copy of a damaged journal, make it readable, and return what is wrong with it."""
        if self.kind is not JournalKind.SEGMENTS:
            return salvage_journal(self.database)
        problems = list(segment_problems(self.segments))
        if problems:
            with naming_faults(self.segments):
                aside = copytree(self.segments, name_aside(self.segments))
            problems[0] += f"; kept as {aside.name}"
        return problems

    def change(self, wanted: JournalKind) -> None:
        """Make the journal one of the wanted kind, with the same batches."""
        with naming_faults(self.folder):
            for unfinished in (self.segments, self.database):
                _remove(unfinished.with_name(unfinished.name + _NEW))
                _remove(unfinished.with_name(unfinished.name + _OLD))
            if self.path(wanted).exists():
                self._remove_other(wanted)
            elif (there := self.kind) is not None:
                self._copy(there, wanted)
                self._remove_other(wanted)

    def open(
        self,
        kind: JournalKind,
        level: Level,
        interval_us: int = INTERVAL_US_DEFAULT,
        witness: Witness | None = None,
        *,
        accepts_loss: bool = False,
    ) -> Journal:
        if kind is JournalKind.SQLITE:
            return SqliteJournal(self.database, level, interval_us, witness)
        return SegmentJournal(self.segments, level, interval_us, witness, accepts_loss=accepts_loss)

    def _copy(self, there: JournalKind, wanted: JournalKind) -> None:
        target = self.path(wanted)
        unfinished = target.with_name(target.name + _NEW)
        make = SqliteJournal if wanted is JournalKind.SQLITE else SegmentJournal
        with (
            closing(self.open(there, Level.FSYNC)) as source,
            # Synced once, at the end: nothing relies on it before.
            closing(make(unfinished, Level.INTERVAL)) as copy,
        ):
            copy.claim()
            copy.restart(source.trimmed())
            for _, body in source.read(source.trimmed()):
                copy.append(body)
            copy.sync()
        unfinished.rename(target)
        sync_folder(self.folder)

    def _remove_other(self, wanted: JournalKind) -> None:
        if wanted is JournalKind.SQLITE:
            if self.segments.exists():
                old = self.segments.with_name(SEGMENTS + _OLD)
                self.segments.rename(old)
                _remove(old)
        elif self.database.exists():
            self.database.unlink()  # First: without its log it would look complete and not be.
            for end in ("-wal", "-shm"):
                self.database.with_name(DATABASE + end).unlink(missing_ok=True)
        sync_folder(self.folder)


def segment_problems(folder: Path) -> Iterator[str]:
    """Yield what is wrong with a journal of segments. Changes nothing."""
    with closing(SegmentJournal(folder)) as journal:
        try:
            for _ in journal.read(journal.trimmed()):
                pass
        except StorageFault as fault:
            yield str(fault)


def _remove(path: Path) -> None:
    if path.is_dir():
        rmtree(path)
    else:
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)

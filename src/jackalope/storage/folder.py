"""The data folder: `journal.db`, `tasks.db`, `blobs/`, and the lock that keeps others out.

Owns what concerns the files together: that one broker has them, and that they belong together.
"""

import fcntl
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from jackalope.core.changes import Changes
from jackalope.core.must import BrokenInvariant
from jackalope.storage.blobs import FolderBlobs
from jackalope.storage.disk import make_folder, sync_file, sync_folder
from jackalope.storage.faults import Corrupt, FolderBusy, naming_faults
from jackalope.storage.history import SqliteHistory
from jackalope.storage.journal import SqliteJournal
from jackalope.storage.memory import MemoryBlobs, MemoryHistory, MemoryJournal
from jackalope.storage.ports import INTERVAL_US_DEFAULT, Blobs, History, Journal, Level
from jackalope.storage.wal import check_wal

JOURNAL = "journal.db"
HISTORY = "tasks.db"
BLOBS = "blobs"
LOCK = "lock"


@dataclass(frozen=True)
class Storage:
    """The journal, the history and the blobs of one broker."""

    level: Level
    journal: Journal
    history: History
    blobs: Blobs
    _opened: ExitStack = field(repr=False, compare=False)

    @classmethod
    def open(
        cls,
        path: Path | None,
        level: Level = Level.FSYNC,
        interval_us: int = INTERVAL_US_DEFAULT,
    ) -> "Storage":
        """Open a data folder, and create what is not there. Level `memory` needs no folder.

        Raises:
            FolderBusy: another process has the folder; it names the process.
            NewerFormat: a later version of Jackalope has written it.
            Corrupt: a file is damaged, or the files do not belong together.
        """
        if level is Level.MEMORY:
            return cls._open_memory()
        if path is None:
            raise BrokenInvariant(f"level {level} needs a folder")
        with ExitStack() as opened, naming_faults(path):
            make_folder(path)
            lock = FolderLock(path)
            opened.callback(lock.close)
            if lock.level_before is not Level.INTERVAL:
                # A power failure at level `interval` may tear more than the last transaction.
                check_wal(path / JOURNAL)
            journal = SqliteJournal(path / JOURNAL, level, interval_us)
            opened.callback(journal.close)
            lock.note(level)
            history = SqliteHistory(path / HISTORY)
            opened.callback(history.close)
            blobs = FolderBlobs(path / BLOBS)
            sync_folder(path)
            check_sequences(path, journal, history)
            return cls(level, journal, history, blobs, opened.pop_all())

    @classmethod
    def _open_memory(cls) -> "Storage":
        opened = ExitStack()
        history = MemoryHistory()
        opened.callback(history.close)
        return cls(Level.MEMORY, MemoryJournal(), history, MemoryBlobs(), opened)

    def flush(self, sequence: int, changes: Changes) -> list[str]:
        """Write changes to history, once the journal is sure to hold what caused them.

        See `History.write`. May be called beside an append.
        """
        self.journal.sync()
        return self.history.write(sequence, changes)

    def close(self) -> None:
        """Close everything and let go of the folder; safe to repeat."""
        self._opened.close()


class FolderLock:
    """Keeps every other broker out of a folder.

    The lock ends with the process, however it ends. The file stays, and names the last holder and
    the level at which it wrote the journal.

    Attributes:
        level_before: the level of the last holder, if any.

    Raises:
        FolderBusy: naming the process that has the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        with naming_faults(self._path):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder, _ = self._read()
                self.close()
                raise FolderBusy(
                    f"{folder}: another broker has this data folder, process {holder}. Stop it "
                    "first, or give this one a folder of its own"
                ) from None
            _, self.level_before = self._read()
        self.note(self.level_before)

    def note(self, level: Level | None) -> None:
        """Write down who has the folder, and at which level the journal is written from now on."""
        with naming_faults(self._path):
            # Always of the same size, so that it needs no room on a full disk.
            line = f"{os.getpid()} {level or ''}".ljust(63)
            os.pwrite(self._descriptor, f"{line}\n".encode(), 0)
            sync_file(self._descriptor)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._descriptor)

    def _read(self) -> tuple[str, Level | None]:
        """Return the last holder's process and level, as far as the file tells."""
        match os.pread(self._descriptor, 100, 0).decode(errors="replace").split():
            case [holder, level] if level in list(Level):
                return holder, Level(level)
            case [holder, *_]:
                return holder, None
            case _:
                return "unknown", None


def check_sequences(folder: Path, journal: Journal, history: History) -> None:
    """Refuse a journal and a history between which batches are missing.

    Raises:
        Corrupt: saying which file is behind, and by how much.
    """
    trimmed, applied, last = journal.trimmed(), history.applied(), journal.last()
    if applied > last:
        problem = f"{JOURNAL} ends at batch {last}, but {HISTORY} already contains batch {applied}"
    elif applied < trimmed:
        problem = f"{HISTORY} ends at batch {applied}, but {JOURNAL} begins at {trimmed + 1}"
    else:
        return
    raise Corrupt(
        f"{folder}: {problem}. The files do not belong together, or one has lost its end; restore "
        "all of them from one backup"
    )

"""The data folder: its databases, `blobs/`, and the lock that keeps other brokers out.

Owns what concerns the files together: that one broker has them, and that they belong together.
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.state.changes import Changes
from jackalope.storage.blobs.folder import FolderBlobs
from jackalope.storage.disk import free_bytes, keep_private, make_folder, sync_file, sync_folder
from jackalope.storage.faults import (
    WAY_OUT,
    Corrupt,
    FolderBusy,
    FolderGone,
    StorageFault,
    naming_faults,
)
from jackalope.storage.journals import JournalKind, JournalPlace
from jackalope.storage.memory import MemoryBlobs, MemoryJournal
from jackalope.storage.ports import INTERVAL_US_DEFAULT, Blobs, Journal, Level
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.shared.journal import SharedJournal
from jackalope.storage.shared.log import LogEngine
from jackalope.storage.shared.mirror import open_mirror
from jackalope.storage.snapshots import FOUNDING, install
from jackalope.storage.sqlite.history import History
from jackalope.storage.sqlite.journal import SqliteJournal
from jackalope.storage.sqlite.salvage import integrity_problems, set_aside
from jackalope.storage.sqlite.series import SeriesStore
from jackalope.storage.sqlite.task_logs import LogStore
from jackalope.storage.witness import Witness

HISTORY = "tasks.db"
SERIES = "series.db"
LOGS = "logs.db"
BLOBS = "blobs"
LOCK = "lock"
ID = "id"
WITNESS = "witness"
SHARDS = "shards"
MIRROR = "mirror"

#: A history up to this size is checked as a whole at every start; that takes about half a second.
CHECKED_BYTES_MAX = 64 * 1024 * 1024

#: How much later than a broker that is killed its writer process may be gone.
_MOMENT_S = 1.0


@dataclass(frozen=True)
class Storage:
    """The journal, the history, the blobs, the series and the task logs of one broker."""

    level: Level
    journal: Journal
    history: History
    blobs: Blobs
    series: SeriesStore
    logs: LogStore
    _opened: ExitStack = field(repr=False, compare=False)
    path: Path | None = None
    witnessed: int = 0  # the highest sequence that was acknowledged before, as far as is known
    # what was found damaged or missing, where a start accepts that; else None
    losses: list[str] | None = None
    problems: list[str] = field(default_factory=list)  # what was found, and mended
    _lock: "FolderLock | None" = field(default=None, repr=False, compare=False)

    @classmethod
    def open(
        cls,
        path: Path | None,
        level: Level = Level.FSYNC,
        interval_us: int = INTERVAL_US_DEFAULT,
        blobs_at: Callable[[str], Blobs] | None = None,
        *,
        kind: JournalKind = JournalKind.SEGMENTS,
        has_writer_process: bool = False,
        accepts_loss: bool = False,
    ) -> "Storage":
        """Open a data folder, and create what is not there. Level `memory` needs no folder.

        Args:
            path: the folder.
            level: what an append promises.
            interval_us: how often the journal is synced at level `interval`.
            blobs_at: makes the store of blobs where they are not in the folder; it receives what
                identifies this folder.
            kind: how the journal is kept; one of the other kind is changed into it.
            has_writer_process: history is written by a process of its own.
            accepts_loss: go on without batches of the journal that are damaged or missing.

        Raises:
            FolderBusy: another process has the folder; it names the process.
            NewerFormat: a later version of Jackalope has written it.
            Corrupt: a file is damaged, or the files do not belong together.
        """
        if level is Level.MEMORY:
            return cls._open_memory()
        if path is None:
            raise BrokenInvariant(f"level {level} needs a folder")
        if (path / SHARDS).exists():
            raise StorageFault(
                f"{path}: the folder belongs to a node of a cluster; start it as one "
                "(`jackalope serve --node`)"
            )
        with ExitStack() as opened, naming_faults(path):
            make_folder(path)
            lock = FolderLock(path)
            opened.callback(lock.close)
            keep_private(path)
            witness = Witness(path / WITNESS)
            opened.callback(witness.close)
            witnessed, place = witness.highest, JournalPlace(path)
            losses = _check(place, lock, witness, accepts_loss)
            if accepts_loss:
                kind = place.kind or kind  # What is damaged is not changed into another kind.
            else:
                place.change(kind)
            journal = place.open(kind, level, interval_us, witness, accepts_loss=accepts_loss)
            opened.callback(journal.close)
            lock.note(level)
            if losses is not None:
                losses += mend_history(path / HISTORY)
            history = History(path / HISTORY, lock.descriptor if has_writer_process else None)
            opened.callback(history.close)
            blobs = FolderBlobs(path / BLOBS) if blobs_at is None else blobs_at(folder_id(path))
            opened.callback(blobs.close)
            series, logs = _open_aside(path, opened)
            sync_folder(path)
            if losses is None:
                check_sequences(path, journal, history, witnessed)
            kept = opened.pop_all()
            return cls(
                level=level,
                journal=journal,
                history=history,
                blobs=blobs,
                series=series,
                logs=logs,
                _opened=kept,
                path=path,
                witnessed=witnessed,
                losses=losses,
                _lock=lock,
            )

    @classmethod
    def open_node(
        cls,
        path: Path,
        log: LogEngine,
        cluster: str,
        node: str,
        blobs: Blobs,
        *,
        has_writer_process: bool = False,
    ) -> "Storage":
        """Open the data folder of a node whose journal is shared, and create what is not there.

        Raises:
            FolderBusy: another process has the folder.
            Corrupt: the history is damaged. The log and another node have all that was in it.
        """
        home = path / SHARDS / "0"
        with ExitStack() as opened, naming_faults(path):
            make_folder(path)
            lock = FolderLock(path)
            opened.callback(lock.close)
            make_folder(home)
            keep_private(home)
            lock.note(Level.FSYNC)
            install(home)  # What was received before a crash.
            if history_is_small(home) and (problems := integrity_problems(home / HISTORY)):
                raise Corrupt(
                    f"{home / HISTORY}: {problems[0]}. Remove the folder {home}: the "
                    "node builds it again from the log"
                )
            history = History(home / HISTORY, lock.descriptor if has_writer_process else None)
            opened.callback(history.close)
            mirror, problem = open_mirror(home / MIRROR, history.applied())
            journal = SharedJournal(log, mirror, cluster, node)
            journal.founding = home / FOUNDING
            opened.callback(journal.close)
            opened.callback(blobs.close)
            series, logs = _open_aside(home, opened)
            sync_folder(home)
            kept = opened.pop_all()
        return cls(
            level=Level.FSYNC,
            journal=journal,
            history=history,
            blobs=blobs,
            series=series,
            logs=logs,
            _opened=kept,
            path=path,
            problems=[problem] if problem else [],
            _lock=lock,
        )

    @classmethod
    def _open_memory(cls) -> "Storage":
        opened = ExitStack()
        history = History(None)
        opened.callback(history.close)
        series, logs = _open_aside(None, opened)
        return cls(
            level=Level.MEMORY,
            journal=MemoryJournal(),
            history=history,
            blobs=MemoryBlobs(),
            series=series,
            logs=logs,
            _opened=opened,
        )

    @property
    def home(self) -> Path | None:
        """The folder of the history; None if it is in memory."""
        if self.path is None:
            return None
        return self.path / SHARDS / "0" if self.journal.is_shared else self.path

    def adopt(self) -> None:
        """Put the copy of another node's state that was received in the place of this one's.

        Nothing may be written meanwhile.
        """
        journal, home = self.journal, self.home
        if home is not None and isinstance(journal, SegmentJournal | SqliteJournal):
            own = journal
            begin = lambda _, mark: own.restart(mark.sequence)  # noqa: E731
            self.history.reopen(lambda: install(home, begin))
            return
        if home is None or not isinstance(journal, SharedJournal):
            raise BrokenInvariant("only a standby or a node takes over another's state")
        journal.mirror.close()
        self.history.reopen(lambda: install(home))
        mirror, _ = open_mirror(home / MIRROR, self.history.applied())
        journal.adopt(mirror)

    def flush(self, sequence: int, changes: Changes) -> list[str]:
        """Write changes to history, once the journal is sure to hold what caused them.

        See `History.write`. May be called during an append.
        """
        self.journal.sync()
        return self.history.write(sequence, changes)

    def room_bytes(self) -> int | None:
        """Return how much more can be written; None where there is no disk, or it is not known.

        What the files have to spare counts: they are written over before they grow.
        """
        if self.path is None:
            return None
        try:
            spare = self.journal.spare_bytes() + self.history.spare_bytes()
            return free_bytes(self.path) + spare
        except (OSError, StorageFault):
            return None

    def check_place(self) -> None:
        """Check that the folder is still where it was opened.

        The open files of a folder that was removed or replaced take writes without an error, and no
        broker ever finds them again.
        """
        if self._lock is not None:
            self._lock.check_place()

    def close(self) -> None:
        """Close everything and let go of the folder; safe to repeat."""
        self._opened.close()


def _open_aside(folder: Path | None, opened: ExitStack) -> tuple[SeriesStore, LogStore]:
    """Open what no task depends on: in a folder, or in memory."""
    series = SeriesStore(None) if folder is None else SeriesStore.open(folder / SERIES)
    opened.callback(series.close)
    logs = LogStore(None) if folder is None else LogStore.open(folder / LOGS)
    opened.callback(logs.close)
    return series, logs


def folder_id(folder: Path) -> str:
    """Return the identity of a data folder, and give it one if it has none."""
    file = folder / ID
    with naming_faults(file):
        if not file.exists():
            unfinished = file.with_suffix(".new")
            with unfinished.open("w") as written:
                written.write(uuid4().hex)
                written.flush()
                sync_file(written.fileno())
            unfinished.rename(file)
            sync_folder(folder)
        return file.read_text().strip()


class FolderLock:
    """Keeps every other broker out of a folder.

    The lock ends with the broker and its writer process, however they end. The file stays, and
    names the last holder and the level at which it wrote the journal.

    Attributes:
        descriptor: of the file. A process that has inherited it holds the lock as well.
        level_before: the level of the last holder, if any.

    Raises:
        FolderBusy: naming the process that has the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        with naming_faults(self._path):
            self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            if not self._take():
                holder, _ = self._read()
                self.close()
                raise FolderBusy(
                    f"{folder}: the data folder is in use by another broker (process {holder}). "
                    "Stop that broker, or use another folder"
                )
            _, self.level_before = self._read()
        self.note(self.level_before)

    def _take(self) -> bool:
        """Take the lock, and return whether that worked within a moment."""
        end = time.monotonic() + _MOMENT_S
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    return False
                time.sleep(_MOMENT_S / 50)
            else:
                return True

    def note(self, level: Level | None) -> None:
        """Write down who has the folder, and at which level the journal is written from now on."""
        with naming_faults(self._path):
            # Always of the same size, so that it needs no room on a full disk.
            line = f"{os.getpid()} {level or ''}".ljust(63)
            os.pwrite(self.descriptor, f"{line}\n".encode(), 0)
            sync_file(self.descriptor)

    def check_place(self) -> None:
        """Check that the file that is locked is still the one at its path."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            found = None
        except OSError:
            return  # Out of reach for now; that does not mean that it has moved.
        if found is None or not os.path.samestat(found, os.fstat(self.descriptor)):
            raise FolderGone(
                f"{self._path.parent}: the data folder was removed, moved or replaced while the "
                "broker ran; the broker is shutting down, because accepted data would be lost. "
                "Restore the folder, or start a broker with a new one"
            )

    def close(self) -> None:
        os.close(self.descriptor)

    def _read(self) -> tuple[str, Level | None]:
        """Return the last holder's process and level, as far as the file has them."""
        match os.pread(self.descriptor, 100, 0).decode(errors="replace").split():
            case [holder, level] if level in list(Level):
                return holder, Level(level)
            case [holder, *_]:
                return holder, None
            case _:
                return "unknown", None


def _check(
    place: JournalPlace, lock: FolderLock, witness: Witness, accepts_loss: bool
) -> list[str] | None:
    """Look at the files before they are opened; return what is wrong if that is accepted."""
    if accepts_loss:
        return place.salvage()
    place.check(witness, lock.level_before)
    history = place.folder / HISTORY
    if history_is_small(place.folder) and (problems := integrity_problems(history)):
        raise Corrupt(f"{history}: {problems[0]}. {WAY_OUT}")
    return None


def history_is_small(folder: Path) -> bool:
    """Return whether a start can check all of the history without taking noticeably longer."""
    path = folder / HISTORY
    return path.exists() and path.stat().st_size <= CHECKED_BYTES_MAX


def mend_history(path: Path) -> list[str]:
    """Build the indexes of a damaged history again, and return what was wrong with it."""
    problems = integrity_problems(path) if path.exists() else []
    if not problems:
        return []
    aside = set_aside(path, is_copied=True)
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.DatabaseError):
        connection.execute("REINDEX")
    if left := integrity_problems(path):
        raise Corrupt(
            f"{path}: {left[0]}, which is not limited to indexes. Restore it and the journal "
            "from the same backup"
        )
    return [f"{path}: indexes rebuilt after {problems[0]}; kept as {aside.name}"]


def check_sequences(folder: Path, journal: Journal, history: History, witnessed: int = 0) -> None:
    """Refuse a journal that lacks batches: its end, or some between history and its beginning."""
    trimmed, applied, last = journal.trimmed(), history.applied(), journal.last()
    if applied > last:
        problem = (
            f"the journal ends at batch {last}, but {HISTORY} already contains batch {applied}"
        )
    elif applied < trimmed:
        problem = f"{HISTORY} ends at batch {applied}, but the journal begins at {trimmed + 1}"
    elif last < witnessed:
        problem = f"the journal ends at batch {last}, but batch {witnessed} was acknowledged"
    else:
        return
    raise Corrupt(
        f"{folder}: {problem}. The files do not belong together, or one has lost its end. {WAY_OUT}"
    )

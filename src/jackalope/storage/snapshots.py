"""Snapshots: the state of one node, copied while it works, and installed in place of another's.

Owns the files of a copy on its way, and that a crash leaves the old state or the new one.

A copy is received in the folder `restoring`, where it is nothing yet. Once it is whole, checked and
on the disk, the folder is renamed to `restored`: from then on it is the state of the node, and
`install` moves it into place. The next start does so if a crash came between.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

import msgspec

from jackalope.storage.disk import make_folder, sync_folder
from jackalope.storage.faults import Corrupt, naming_faults
from jackalope.storage.shared.mirror import Mirror
from jackalope.storage.sqlite.history import sequence_in
from jackalope.storage.sqlite.salvage import integrity_problems

HISTORY = "tasks.db"
MIRROR = "mirror"

#: In the folder of a node whose state is to begin a new log.
FOUNDING = "founding"

#: Blobs that are to be moved to the store of the cluster, by their names.
MOVING = "moving"

_RESTORING = "restoring"
_RESTORED = "restored"
_MARK = "mark"
_COPY = "copy-"


class StateMark(msgspec.Struct, frozen=True):
    """Where in a log a state stands: what follows it there continues this."""

    sequence: int  # of the last batch
    digest: bytes  # of all through it


class Incoming:
    """A copy on its way into a folder."""

    def __init__(self, home: Path, mark: StateMark) -> None:
        self._home = home
        self._folder = home / _RESTORING
        self._mark = mark
        with naming_faults(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)
            make_folder(self._folder)
            self._file: IO[bytes] = (self._folder / HISTORY).open("xb")

    def add(self, data: bytes) -> None:
        """Write some more.

        Raises:
            DiskFull: there is no room.
        """
        with naming_faults(self._folder):
            self._file.write(data)

    def fill(self, copy: Callable[[Path], object]) -> None:
        """Let all of it be written at once, by what makes the copy."""
        self._file.close()
        path = self._folder / HISTORY
        with naming_faults(path):
            path.unlink()
            copy(path)
            self._file = path.open("r+b")

    def finish(self) -> None:
        """Make the copy the state of the node; durable when this returns.

        Raises:
            Corrupt: it is damaged, or of another place in the log.
        """
        path = self._folder / HISTORY
        with naming_faults(path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        _check(path, self._mark)
        with naming_faults(self._folder):
            _write(self._folder / _MARK, msgspec.json.encode(self._mark))
            sync_folder(self._folder)
            self._folder.rename(self._home / _RESTORED)
            sync_folder(self._home)

    def abort(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):
            self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def install(home: Path, begin: Callable[[Path, StateMark], None] | None = None) -> StateMark | None:
    """Put a copy that was received in the place of the history and the mirror.

    Neither may be open. Safe to repeat, after a crash as well; what was not received as a whole is
    removed.

    Args:
        home: the folder of both.
        begin: makes a journal that goes on behind the copy; a mirror if nothing is given.

    Returns:
        Where the copy stands in the log; None if there is none.
    """
    ready = home / _RESTORED
    with naming_faults(ready):
        shutil.rmtree(home / _RESTORING, ignore_errors=True)
        if not (ready / _MARK).exists():
            shutil.rmtree(ready, ignore_errors=True)
            return None
        mark = msgspec.json.decode((ready / _MARK).read_bytes(), type=StateMark)
        if (ready / HISTORY).exists():
            for end in ("-wal", "-shm"):
                (home / f"{HISTORY}{end}").unlink(missing_ok=True)
            (ready / HISTORY).rename(home / HISTORY)
            sync_folder(ready)
        (begin or begin_mirror)(home, mark)
        (ready / _MARK).unlink()
        ready.rmdir()
        sync_folder(home)
    return mark


def mark_founding(home: Path, epoch: int = 0) -> None:
    """Let the node of a folder begin a new log with its state, beyond an epoch."""
    with naming_faults(home):
        _write(home / FOUNDING, str(epoch or "").encode())
        sync_folder(home)


def begin_mirror(home: Path, mark: StateMark) -> None:
    """Make a new mirror, which goes on behind a place of the log."""
    shutil.rmtree(home / MIRROR, ignore_errors=True)
    mirror = Mirror(home / MIRROR)
    mirror.restart(mark.sequence, mark.digest)
    mirror.close()
    sync_folder(home)


def copy_path(home: Path) -> Path:
    """Return a name for a copy that is to be sent."""
    return home / f"{_COPY}{os.urandom(8).hex()}.db"


def drop_copies(home: Path) -> None:
    """Remove copies that a crash has left behind."""
    for left in home.glob(f"{_COPY}*"):
        left.unlink(missing_ok=True)


def _check(path: Path, mark: StateMark) -> None:
    problems = integrity_problems(path)
    if problems:
        raise Corrupt(f"{path}: {problems[0]}; the copy is damaged")
    with closing(sqlite3.connect(path)) as connection:
        sequence = sequence_in(connection)
    if sequence != mark.sequence:
        raise Corrupt(f"{path}: ends at batch {sequence} and not {mark.sequence}")


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())

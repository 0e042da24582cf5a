"""Faults: what can go wrong with storage, and what a person does about it.

Owns the tree of errors and the one place where errors of SQLite and of the system become ours. Each
message states what happened, to which file, and what to do. What is not a fault of storage (a wrong
statement, a broken constraint) is a bug and passes through unchanged.
"""

import errno
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_OUT_OF_REACH = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EISDIR,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
_READ_ERRORS = frozenset({sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ})


#: What to do about damage that stops a start.
WAY_OUT = (
    "Keep a copy of the data folder as it is, and run `jackalope check` on it, which lists the "
    "damage. Restore a backup, or continue without the lost data: `jackalope serve "
    "--accept-loss`"
)


class StorageFault(Exception):
    """Storage did not do what was asked."""

    # whether it is certain that the failed write left nothing behind, so that writing may go on.
    # When it is not, nothing more is written until storage is opened again.
    is_settled = False


class DiskFull(StorageFault):
    """There is no room. The write was taken back as a whole; a later one may succeed."""

    is_settled = True


class SyncFailed(StorageFault):
    """A write or a sync failed: what the disk holds of it is unknown.

    A failed sync is never tried again: the system forgets the failed pages, so that a second try
    succeeds without having written anything.
    """


class Corrupt(StorageFault):
    """Something stored is damaged or missing."""


class OutOfReach(StorageFault):
    """A remote store does not answer, or denies access. Nothing of the write was kept."""

    is_settled = True


class Fenced(StorageFault):
    """Another writer has taken over; this one must stop."""

    is_settled = True


class FolderBusy(StorageFault):
    """Another program holds the data folder, or a file in it."""

    is_settled = True


class FolderGone(StorageFault):
    """The data folder is no longer where it was opened."""


class NewerFormat(StorageFault):
    """The file was written by a later version of Jackalope."""

    is_settled = True


@contextmanager
def naming_faults(file: Path | str) -> Iterator[None]:
    """Turn errors of SQLite and of the system about `file` into faults that name it."""
    try:
        yield
    except sqlite3.Error as error:
        fault = fault_of_sqlite(error, file)
        if fault is None:
            raise
        raise fault from error
    except OSError as error:
        raise fault_of_system(error, file) from error


def fault_of_sqlite(error: sqlite3.Error, file: Path | str) -> StorageFault | None:
    """Name the fault behind an error of SQLite; None when the error is a bug of ours."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # It comes from Python's module: a text that is none, or a call that must not be.
        return _unreadable(file, error) if isinstance(error, sqlite3.OperationalError) else None
    if code in _READ_ERRORS:
        return _unreadable(file, error)
    maker = _MAKERS.get(code & 0xFF)
    return maker(file, error) if maker else None


def fault_of_system(error: OSError, file: Path | str) -> StorageFault:
    """Name the fault behind an error of the operating system."""
    if error.errno in _FULL:
        return _disk_full(file, error)
    if error.errno in _OUT_OF_REACH:
        return _cannot_open(file, error)
    return sync_failed(file, error)


def fenced(file: Path | str, epoch: int) -> Fenced:
    """Name the fault of a journal that has a later writer."""
    return Fenced(
        f"{file}: another broker has become the writer since epoch {epoch}. This one must stop; "
        "its last write was discarded"
    )


def begins_later(file: Path | str, first: int, needed: int) -> Corrupt:
    """Name the fault of a journal in which batches that are needed have been removed."""
    return Corrupt(
        f"{file}: begins at batch {first}, but batch {needed} is needed. The files of the data "
        "folder do not belong together; restore all of them from one backup"
    )


def _disk_full(file: Path | str, error: Exception) -> DiskFull:
    return DiskFull(
        f"{file}: no space left ({error}). The write was rolled back; free some space or raise "
        "the limit, and try again"
    )


def sync_failed(file: Path | str, error: Exception) -> SyncFailed:
    """Name the fault behind a sync, or a write, of which nothing is known."""
    return SyncFailed(
        f"{file}: write failed, the state of the disk is unknown ({error}). Check the disk, then "
        "restart the broker: it recovers everything acknowledged"
    )


def _cannot_open(file: Path | str, error: Exception) -> StorageFault:
    return StorageFault(
        f"{file}: cannot be opened for writing ({error}). Check that the folder exists and is "
        "writable by the user that runs the broker"
    )


def _unreadable(file: Path | str, error: Exception) -> Corrupt:
    return Corrupt(f"{file}: cannot be read ({error}). {WAY_OUT}")


def _locked(file: Path | str, error: Exception) -> FolderBusy:
    return FolderBusy(
        f"{file}: locked by another program ({error}). Close the tool that has it open for "
        "writing, and try again"
    )


#: By the primary code of SQLite, which is the last byte of the extended one.
_MAKERS: dict[int, Callable[[Path | str, Exception], StorageFault]] = {
    sqlite3.SQLITE_FULL: _disk_full,
    sqlite3.SQLITE_IOERR: sync_failed,
    sqlite3.SQLITE_CORRUPT: _unreadable,
    sqlite3.SQLITE_NOTADB: _unreadable,
    sqlite3.SQLITE_BUSY: _locked,
    sqlite3.SQLITE_LOCKED: _locked,
    sqlite3.SQLITE_CANTOPEN: _cannot_open,
    sqlite3.SQLITE_READONLY: _cannot_open,
    sqlite3.SQLITE_PERM: _cannot_open,
}

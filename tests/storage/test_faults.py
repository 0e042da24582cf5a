"""Every error of SQLite and of the system gets its name."""

import errno
import sqlite3

import pytest

from jackalope.storage import Corrupt, DiskFull, FolderBusy, StorageFault, SyncFailed
from jackalope.storage.faults import naming_faults


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError(f"code {code}")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "fault", "is_settled"),
    [
        (sqlite_error(sqlite3.SQLITE_FULL), DiskFull, True),
        (sqlite_error(sqlite3.SQLITE_IOERR_FSYNC), SyncFailed, False),
        (sqlite_error(sqlite3.SQLITE_IOERR_WRITE), SyncFailed, False),
        (sqlite_error(sqlite3.SQLITE_IOERR_READ), Corrupt, False),
        (sqlite_error(sqlite3.SQLITE_IOERR_SHORT_READ), Corrupt, False),
        (sqlite_error(sqlite3.SQLITE_CORRUPT), Corrupt, False),
        (sqlite_error(sqlite3.SQLITE_CORRUPT_INDEX), Corrupt, False),
        (sqlite_error(sqlite3.SQLITE_NOTADB), Corrupt, False),
        (sqlite_error(sqlite3.SQLITE_BUSY), FolderBusy, True),
        (sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT), FolderBusy, True),
        (sqlite_error(sqlite3.SQLITE_READONLY_DIRECTORY), StorageFault, False),
        (sqlite_error(sqlite3.SQLITE_CANTOPEN), StorageFault, False),
        (sqlite3.OperationalError("Could not decode to UTF-8"), Corrupt, False),
        (OSError(errno.ENOSPC, "full"), DiskFull, True),
        (OSError(errno.EDQUOT, "full"), DiskFull, True),
        (OSError(errno.EIO, "broken"), SyncFailed, False),
        (PermissionError(errno.EACCES, "not yours"), StorageFault, False),
        (OSError(errno.EROFS, "read-only"), StorageFault, False),
    ],
    ids=repr,
)
def test_fault_is_named(error: Exception, fault: type[StorageFault], *, is_settled: bool) -> None:
    with pytest.raises(fault) as raised, naming_faults("some.db"):
        raise error
    assert raised.type is fault
    assert str(raised.value).startswith("some.db: ")
    assert str(error) in str(raised.value)
    assert raised.value.is_settled is is_settled


@pytest.mark.parametrize(
    "bug",
    [
        sqlite3.ProgrammingError("closed"),
        sqlite_error(sqlite3.SQLITE_ERROR),
        sqlite_error(sqlite3.SQLITE_CONSTRAINT_UNIQUE),
        ValueError("nothing to do with it"),
    ],
    ids=repr,
)
def test_bug_passes_through(bug: Exception) -> None:
    with pytest.raises(type(bug)) as raised, naming_faults("some.db"):
        raise bug
    assert raised.value is bug

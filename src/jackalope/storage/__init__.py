"""Storage: keeps the journal, the history and the blobs.

`ports` defines what the broker may call and what it can rely on, `faults` what can go wrong. The
rest are backends: SQLite and a folder (`Storage.open`), and memory. Storage decides nothing: it
does not know what a record means or when a task is done.
"""

from jackalope.storage.data_folder import Storage
from jackalope.storage.faults import (
    WAY_OUT,
    Corrupt,
    DiskFull,
    Fenced,
    FolderBusy,
    FolderGone,
    NewerFormat,
    OutOfReach,
    StorageFault,
    SyncFailed,
)
from jackalope.storage.ports import (
    INTERVAL_US_DEFAULT,
    BadCursor,
    BatchSummary,
    Blobs,
    Draft,
    Journal,
    Level,
    Links,
    Page,
    Point,
    Snapshot,
    Sort,
    Unwritten,
)
from jackalope.storage.sqlite.history import History
from jackalope.storage.sqlite.series import SeriesStore
from jackalope.storage.sqlite.task_logs import LogStore

__all__ = [
    "INTERVAL_US_DEFAULT",
    "WAY_OUT",
    "BadCursor",
    "BatchSummary",
    "Blobs",
    "Corrupt",
    "DiskFull",
    "Draft",
    "Fenced",
    "FolderBusy",
    "FolderGone",
    "History",
    "Journal",
    "Level",
    "Links",
    "LogStore",
    "NewerFormat",
    "OutOfReach",
    "Page",
    "Point",
    "SeriesStore",
    "Snapshot",
    "Sort",
    "Storage",
    "StorageFault",
    "SyncFailed",
    "Unwritten",
]

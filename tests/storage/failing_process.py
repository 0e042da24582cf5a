"""What storage does on a disk that fails: run by `test_failing_disk`, with the disk preloaded.

Usage: python -m tests.storage.failing_process KIND SCENARIO FOLDER LIBRARY
"""

import ctypes
import errno
import resource
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.shapes.task_log import LogLine
from jackalope.storage import DiskFull, Level, Storage, StorageFault, SyncFailed
from jackalope.storage.journals import JournalKind
from jackalope.storage.segments.journal import SEGMENT_BYTES_MIN
from jackalope.storage.sqlite import journal
from jackalope.storage.sqlite.task_logs import LogStore, Slice, Wanted
from tests.storage.making import make_changes, make_row

BODY = b"x" * 16_000

#: The kind of journal that this process has.
KIND = JournalKind(sys.argv[1]) if __name__ == "__main__" else JournalKind.SEGMENTS


class Disk:
    """The disk below this process."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)

    def fail_syncs(self) -> None:
        self._library.fail_syncs(errno.EIO)

    def fill(self, after: int = 0) -> None:
        """Have no room left after some more writes."""
        self._library.fail_writes(errno.ENOSPC, after)

    def fail_writes(self) -> None:
        self._library.fail_writes(errno.EIO, 0)

    def heal(self) -> None:
        self._library.fail_syncs(0)
        self._library.fail_writes(0, 0)


def open_storage(folder: Path, level: Level = Level.FSYNC, interval_us: int = 10**9) -> Storage:
    storage = Storage.open(folder, level, interval_us, kind=KIND)
    storage.journal.claim()
    return storage


def check_kept(folder: Path, at_least: int, at_most: int) -> None:
    """Check that opening again finds every acknowledged batch, and that appending goes on."""
    with closing(open_storage(folder)) as storage:
        batches = list(storage.journal.read(0))
        assert batches == [(sequence, BODY) for sequence in range(1, len(batches) + 1)]
        assert at_least <= len(batches) <= at_most
        assert storage.journal.append(BODY) == len(batches) + 1


def check_refuses_all_but_reading(storage: Storage, batches: int) -> None:
    for write in (
        lambda: storage.journal.append(BODY),
        lambda: storage.journal.trim(1),
        storage.journal.claim,
    ):
        with pytest.raises(SyncFailed, match=r"journal(\.db)?: write failed"):
            write()
    assert len(list(storage.journal.read(0))) == batches
    assert storage.journal.last() == batches


def failed_sync(folder: Path, disk: Disk) -> None:
    with closing(open_storage(folder)) as storage:
        for _ in range(3):
            storage.journal.append(BODY)
        disk.fail_syncs()
        with pytest.raises(SyncFailed):
            storage.journal.append(BODY)
        disk.heal()
        check_refuses_all_but_reading(storage, 3)
    check_kept(folder, 3, 4)


def failed_write(folder: Path, disk: Disk) -> None:
    with closing(open_storage(folder)) as storage:
        for _ in range(3):
            storage.journal.append(BODY)
        disk.fail_writes()
        with pytest.raises(SyncFailed):
            storage.journal.append(BODY)
        disk.heal()
        check_refuses_all_but_reading(storage, 3)
    check_kept(folder, 3, 4)


def failed_checkpoint(folder: Path, disk: Disk) -> None:
    journal.WAL_BYTES_MAX = 100_000
    with closing(open_storage(folder)) as storage:
        for _ in range(3):
            storage.journal.append(BODY)
        disk.fail_syncs()
        with pytest.raises(SyncFailed):
            storage.journal.append(BODY)
        disk.heal()
        check_refuses_all_but_reading(storage, 3)
    check_kept(folder, 3, 3)


def failed_sync_at_level_interval(folder: Path, disk: Disk) -> None:
    with closing(open_storage(folder, Level.INTERVAL)) as storage:
        storage.journal.append(BODY)
        storage.journal.sync()
        storage.journal.append(BODY)
        disk.fail_syncs()
        with pytest.raises(SyncFailed):
            storage.journal.sync()
        disk.heal()
        check_refuses_all_but_reading(storage, 2)
        with pytest.raises(SyncFailed):
            storage.flush(2, make_changes())
        assert storage.history.applied() == 0
    check_kept(folder, 1, 2)


def failed_sync_in_the_thread(folder: Path, disk: Disk) -> None:
    with closing(open_storage(folder, Level.INTERVAL, interval_us=1_000)) as storage:
        disk.fail_syncs()
        deadline = time.monotonic() + 20
        count = 0
        with pytest.raises(SyncFailed):  # noqa: PT012
            while time.monotonic() < deadline:
                count = storage.journal.append(b"")
        disk.heal()
        check_refuses_all_but_reading(storage, count)


def failed_sync_of_history(folder: Path, disk: Disk) -> None:
    with closing(open_storage(folder)) as storage:
        storage.journal.append(BODY)
        storage.flush(1, make_changes(make_row(1)))
        disk.fail_syncs()
        with pytest.raises(SyncFailed, match=r"tasks\.db"):
            storage.history.sync()
        disk.heal()
        for write in (
            storage.history.sync,
            lambda: storage.history.write(2, make_changes(make_row(2))),
        ):
            with pytest.raises(SyncFailed):
                write()
        assert storage.history.count("default", Filter()) == {State.READY: 1}
        assert storage.journal.append(BODY) == 2
    check_kept(folder, 2, 2)


def full_disk(folder: Path, disk: Disk) -> None:
    with closing(open_storage(folder)) as storage:
        for _ in range(3):
            storage.journal.append(BODY)
        # Full at once, and after some of the pages of the batch; a segment takes it in one write.
        tries = 5 if KIND is JournalKind.SQLITE else 1
        for after in range(tries):
            disk.fill(after)
            with pytest.raises(DiskFull, match="free some space"):
                storage.journal.append(BODY)
            assert len(list(storage.journal.read(0))) == 3 + after
            disk.heal()
            assert storage.journal.append(BODY) == 4 + after
    check_kept(folder, 3 + tries, 3 + tries)


def full_disk_for_history(folder: Path, disk: Disk) -> None:
    with closing(open_storage(folder)) as storage:
        storage.journal.append(BODY)
        disk.fill(2)
        with pytest.raises(DiskFull):
            storage.flush(1, make_changes(*(make_row(number) for number in range(100))))
        assert storage.history.applied() == 0
        assert storage.history.count("default", Filter()) == {}
        disk.heal()
        storage.flush(1, make_changes(make_row(1)))
        assert storage.history.count("default", Filter()) == {State.READY: 1}


def full_disk_for_blobs(folder: Path, disk: Disk) -> None:
    with closing(open_storage(folder)) as storage:
        for body in (b"small", BODY):
            disk.fill()
            with pytest.raises(DiskFull):
                storage.blobs.write([body])
            disk.heal()
        disk.fail_syncs()
        with pytest.raises(SyncFailed):
            storage.blobs.write([BODY])
        disk.heal()
        assert not any(path.is_file() for path in (folder / "blobs").rglob("*"))
        assert b"".join(storage.blobs.read(storage.blobs.write([BODY]))) == BODY


def full_disk_for_task_logs(folder: Path, disk: Disk) -> None:
    """Lines are dropped while the disk is full, wait in memory at a start, and move from there."""
    task = TaskId(b"t" * 16)

    def write(store: LogStore, number: int) -> None:
        lines = [LogLine(number, number, f"line {number} " + "x" * 10_000)]
        piece = Slice(task, 1, 1, "default", lines, number, number)
        store.write([piece], attempt_bytes_max=1 << 40, bytes_max=1 << 40)

    def numbers(store: LogStore) -> list[int]:
        return [line.number for line in store.read(task, Wanted())]

    folder.mkdir()
    with closing(LogStore.open(folder / "logs.db")) as store:
        write(store, 1)
        disk.fill()
        with pytest.raises(DiskFull):
            write(store, 2)
        disk.heal()
        write(store, 3)
        assert numbers(store) == [1, 3]
        disk.fail_writes()
        with pytest.raises(SyncFailed):
            write(store, 4)
        disk.heal()
        write(store, 5)  # The file is opened again.
        assert numbers(store) == [1, 3, 5]
    disk.fill()
    with closing(LogStore.open(folder / "logs.db")) as store:
        assert "logs.db" in store.trouble
        write(store, 6)
        assert numbers(store) == [6]
        disk.heal()
        while store.trouble:
            write(store, 7)
            time.sleep(0.01)
        assert numbers(store) == [1, 3, 5, 6, 7]
        assert store.bytes == sum(each.size for each in store.attempts(task))


def limited_file_size(folder: Path, disk: Disk) -> None:
    """The system refuses the write in a way that SQLite cannot tell from a broken disk."""
    del disk
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(open_storage(folder)) as storage:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        count = 0
        with pytest.raises(StorageFault, match=r"journal(\.db)?: "):  # noqa: PT012
            while True:
                count = storage.journal.append(BODY)
        assert len(list(storage.journal.read(0))) == count
        with pytest.raises(DiskFull, match="blobs"):
            storage.blobs.write([bytes(300_000)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    check_kept(folder, count, count)


def full_disk_for_a_segment(folder: Path, disk: Disk) -> None:
    """Batches go on as long as there is a segment, and again as soon as there is room for one."""
    with closing(open_storage(folder)) as storage:
        count = storage.journal.append(BODY)
        body = bytes(SEGMENT_BYTES_MIN)
        # While a file is filled with zeros, at its header, and at the batch itself.
        for after in (0, 1, 2, 0, 1):
            disk.fill(after)
            with pytest.raises(DiskFull, match="free some space"):
                storage.journal.append(body)
            disk.heal()
            count = storage.journal.append(BODY)
        assert storage.journal.append(body) == count + 1
        assert list(storage.journal.read(0))[-1] == (count + 1, body)
    assert not list((folder / "journal").glob("unfinished-*"))


SCENARIOS: dict[str, Callable[[Path, Disk], None]] = {
    scenario.__name__: scenario
    for scenario in (
        failed_sync,
        failed_write,
        failed_checkpoint,
        failed_sync_at_level_interval,
        failed_sync_in_the_thread,
        failed_sync_of_history,
        full_disk,
        full_disk_for_a_segment,
        full_disk_for_history,
        full_disk_for_blobs,
        full_disk_for_task_logs,
        limited_file_size,
    )
}

#: Where a kind of journal has no such thing.
ONE_KIND = {
    "failed_checkpoint": JournalKind.SQLITE,
    "full_disk_for_a_segment": JournalKind.SEGMENTS,
    "full_disk_for_task_logs": JournalKind.SEGMENTS,
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[2]](Path(sys.argv[3]), Disk(sys.argv[4]))

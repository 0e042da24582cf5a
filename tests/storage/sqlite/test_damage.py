"""Torn writes are survived, damage is found: on real files, byte by byte."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from jackalope.core.filter import Filter
from jackalope.core.lifecycle import State
from jackalope.storage import Corrupt, Level, Storage
from jackalope.storage.journals import JournalKind
from jackalope.storage.sqlite import journal
from jackalope.storage.sqlite.history import History
from jackalope.storage.sqlite.journal import SqliteJournal
from jackalope.storage.sqlite.wal_check import check_wal
from tests.storage.making import make_changes, make_row, task_id

WAL_HEADER_BYTES = 32
FRAME_BYTES = 24 + 8192


def body(number: int) -> bytes:
    return random.Random(number).randbytes(16_000)


def flip(path: Path, position: int) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[position] ^= 0x40
    path.write_bytes(damaged)


class Crashed:
    """The files of a journal as a crash leaves them: five batches, all of them in the WAL.

    Attributes:
        ends: where in the WAL each batch ends.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "crashed"
        self.folder.mkdir()
        wal = folder / "journal.db-wal"
        self.ends = []
        with closing(SqliteJournal(folder / "journal.db")) as written:
            written.claim()
            for number in range(1, 6):
                written.append(body(number))
                self.ends.append(wal.stat().st_size)
            for name in ("journal.db", "journal.db-wal"):
                shutil.copy(folder / name, self.folder / name)
        self.path = self.folder / "journal.db"
        self.wal = self.folder / "journal.db-wal"
        self.good = self.wal.read_bytes()

    def read(self, wal: bytes) -> list[tuple[int, bytes]]:
        """Return what a journal reads from the files with this WAL; they stay as they are."""
        with_wal = self.folder / "opened"
        with_wal.mkdir(exist_ok=True)
        shutil.copy(self.path, with_wal / "journal.db")
        (with_wal / "journal.db-wal").write_bytes(wal)
        check_wal(with_wal / "journal.db")
        with closing(SqliteJournal(with_wal / "journal.db")) as opened:
            return list(opened.read(0))


@pytest.fixture
def crashed(tmp_path: Path) -> Crashed:
    return Crashed(tmp_path)


BATCHES = [(number, body(number)) for number in range(1, 6)]


# Torn writes.


def test_whole_wal_is_read(crashed: Crashed) -> None:
    assert crashed.read(crashed.good) == BATCHES


def test_last_transaction_cut_off_anywhere(crashed: Crashed) -> None:
    for end in range(crashed.ends[3], crashed.ends[4], 512):
        assert crashed.read(crashed.good[:end]) == BATCHES[:4], end


def test_last_transaction_with_a_sector_that_was_not_written(crashed: Crashed) -> None:
    for start in range(crashed.ends[3], crashed.ends[4], 512):
        end = min(start + 512, crashed.ends[4])
        torn = crashed.good[:start] + bytes(end - start) + crashed.good[end:]
        if torn != crashed.good:
            assert crashed.read(torn) == BATCHES[:4], start


def test_wal_that_was_never_begun(crashed: Crashed) -> None:
    for size in (0, 1, 31, 32, 5_000):
        assert crashed.read(bytes(size)) == []


def test_frames_of_earlier_rounds_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "WAL_BYTES_MAX", 150_000)
    sizes = set()
    with closing(SqliteJournal(tmp_path / "journal.db")) as written:
        written.claim()
        for number in range(60):
            written.append(body(number)[: 4_000 * (number % 4)])
            check_wal(tmp_path / "journal.db")
            sizes.add((tmp_path / "journal.db-wal").stat().st_size)
    assert max(sizes) < 400_000


# Damage in the WAL.


def test_damage_before_the_last_transactions_is_found(crashed: Crashed) -> None:
    chance = random.Random(42)
    header = range(WAL_HEADER_BYTES)
    frames = range(WAL_HEADER_BYTES, crashed.ends[2])
    heads = [
        start + chance.randrange(24)
        for start in range(WAL_HEADER_BYTES, crashed.ends[2], FRAME_BYTES)
    ]
    second_last = range(crashed.ends[2] + 24, crashed.ends[2] + FRAME_BYTES)
    samples = chance.sample(frames, 100) + chance.sample(second_last, 20)
    for position in [*header, *heads, *samples]:
        crashed.wal.write_bytes(crashed.good)
        flip(crashed.wal, position)
        with pytest.raises(Corrupt, match=r"journal\.db-wal: damaged at frame"):
            check_wal(crashed.path)


def test_frame_is_named(crashed: Crashed) -> None:
    flip(crashed.wal, WAL_HEADER_BYTES + 2 * FRAME_BYTES + 500)
    with pytest.raises(Corrupt, match="damaged at frame 3, and 5 transactions"):
        check_wal(crashed.path)


def crash(folder: Path, level: Level) -> Path:
    """Return a copy of a data folder as a crash leaves it, with some batches in its WAL."""
    with closing(Storage.open(folder / "data", level, kind=JournalKind.SQLITE)) as storage:
        storage.journal.claim()
        for number in range(1, 6):
            storage.journal.append(body(number))
        shutil.copytree(folder / "data", folder / "crashed")
    return folder / "crashed"


def test_damaged_wal_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    folder = crash(tmp_path, Level.FSYNC)
    wal = folder / "journal.db-wal"
    flip(wal, wal.stat().st_size // 2)
    damaged = wal.read_bytes()
    with pytest.raises(Corrupt, match="Restore a backup"):
        Storage.open(folder, kind=JournalKind.SQLITE)
    assert wal.read_bytes() == damaged


@pytest.mark.feature("D8")
def test_hole_in_the_wal_is_no_damage_after_level_interval(tmp_path: Path) -> None:
    """There, the system may have written later transactions and not earlier ones."""
    folder = crash(tmp_path, Level.INTERVAL)
    wal = folder / "journal.db-wal"
    flip(wal, wal.stat().st_size // 2)
    with closing(Storage.open(folder, kind=JournalKind.SQLITE)) as storage:
        batches = list(storage.journal.read(0))
    assert 0 < len(batches) < 5
    assert batches == BATCHES[: len(batches)]


# Damage in the files.


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return a journal of five batches that was closed properly."""
    path = tmp_path / "journal.db"
    with closing(SqliteJournal(path)) as written:
        written.claim()
        for number in range(1, 6):
            written.append(body(number))
    return path


def test_flipped_byte_in_a_batch_is_found(stored: Path) -> None:
    flip(stored, stored.read_bytes().index(body(3)[:40]) + 20)
    with closing(SqliteJournal(stored)) as opened:
        reading = opened.read(0)
        assert [next(reading), next(reading)] == BATCHES[:2]
        with pytest.raises(Corrupt, match=r"journal\.db: batch 3 does not match its checksum"):
            next(reading)
        assert list(opened.read(3)) == BATCHES[3:]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM batches WHERE sequence = 3", "batch 3 is missing, the next one is 4"),
        ("DELETE FROM batches WHERE sequence = 1", "batch 1 is missing, the next one is 2"),
        ("UPDATE batches SET sequence = 9 WHERE sequence = 5", "batch 5 is missing"),
        (
            """UPDATE batches SET (body, checksum) = (
                SELECT body, checksum FROM batches WHERE sequence = 1
            ) WHERE sequence = 2""",
            "batch 2 does not match",
        ),
    ],
)
def test_missing_and_misplaced_batches_are_found(
    stored: Path, statement: str, message: str
) -> None:
    with closing(sqlite3.connect(stored)) as tool, tool:
        tool.execute(statement)
    with closing(SqliteJournal(stored)) as opened, pytest.raises(Corrupt, match=message):
        list(opened.read(0))


def test_damaged_tables_are_found(stored: Path) -> None:
    flip(stored, 8192 * 2 + 3)
    with pytest.raises(Corrupt, match="cannot be read"), closing(SqliteJournal(stored)) as opened:
        list(opened.read(0))


@pytest.fixture
def tasks_file(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.db"
    with closing(History(path)) as history:
        rows = [make_row(number, payload=b"payload %d!" % number) for number in (1, 2, 3)]
        # One whose bodies have columns of their own.
        rows.append(make_row(4, state=State.SUCCEEDED, payload=b"payload 4!" * 200))
        history.write(1, make_changes(*rows))
    return path


def test_damaged_task_is_named(tasks_file: Path) -> None:
    flip(tasks_file, tasks_file.read_bytes().index(b"payload 2!"))
    with closing(History(tasks_file)) as history:
        loading = history.load().tasks
        assert next(loading).id == task_id(1)
        with pytest.raises(Corrupt, match=rf"tasks\.db: the row of task {task_id(2).hex()}"):
            next(loading)
        with pytest.raises(Corrupt, match=task_id(2).hex()):
            history.find([task_id(2)])
        assert len(history.find([task_id(1), task_id(3), task_id(4)])) == 3


@pytest.mark.parametrize(
    "damage",
    [
        "row = zeroblob(100)",
        "row = 'text'",
        "(row, row_checksum) = (SELECT row, row_checksum FROM tasks LIMIT 1)",
        "row_checksum = row_checksum + 1",
        "body_checksum = body_checksum + 1",
        "payload = NULL",
        "payload = 5",
        "result = x'00'",
    ],
)
def test_wrong_column_is_found(tasks_file: Path, damage: str) -> None:
    with closing(sqlite3.connect(tasks_file)) as tool, tool:
        tool.execute(f"UPDATE tasks SET {damage} WHERE id = ?", (task_id(4),))  # noqa: S608
    with closing(History(tasks_file)) as history:
        with pytest.raises(Corrupt, match=task_id(4).hex()):
            history.page("default", Filter(), with_bodies=True)
        assert len(list(history.load().tasks)) == 3

"""Torn ends, flipped bits and power cuts: what a journal of segments makes of them.

An acknowledged batch is read as it was written or its loss is reported; nothing else is ever read.
"""

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from unittest.mock import patch

import pytest

from jackalope.core.durations import HOUR
from jackalope.storage import Corrupt, Level
from jackalope.storage.entry import HEAD_BYTES
from jackalope.storage.segments import journal as journal_module
from jackalope.storage.segments import segment
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.segments.segment import HEADER_BYTES, MARK_BYTES, numbers_in, path_of

SECTOR_BYTES = 512


def body(number: int) -> bytes:
    return f"batch {number} ".encode() * number


def written(folder: Path, count: int = 4) -> Path:
    """Return the only segment of a journal with some batches."""
    with closing(SegmentJournal(folder)) as journal:
        journal.claim()
        for number in range(1, count + 1):
            journal.append(body(number))
    return path_of(folder, 1)


def ends(count: int) -> list[int]:
    """Return where each of the frames ends."""
    found = [HEADER_BYTES]
    for number in range(1, count + 1):
        found.append(found[-1] + MARK_BYTES + HEAD_BYTES + len(body(number)))
    return found[1:]


def read(folder: Path) -> list[bytes]:
    """Return the bodies as a new writer finds them, and check that it can go on."""
    with closing(SegmentJournal(folder)) as journal:
        journal.claim()
        bodies = [found for _, found in journal.read(0)]
        assert journal.append(b"next") == len(bodies) + 1
        assert list(journal.read(len(bodies))) == [(len(bodies) + 1, b"next")]
    return bodies


@pytest.mark.parametrize("beyond", ["zeros", "an earlier use"])
def test_torn_at_every_byte(tmp_path: Path, beyond: str) -> None:
    """The last write got as far as some byte: the batch is there as a whole, or not at all."""
    good = written(tmp_path / "made").read_bytes()
    *_, before, end = ends(4)
    rest = bytes(len(good)) if beyond == "zeros" else random.Random(1).randbytes(len(good))
    for cut in range(before, end + 1):
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        path_of(folder, 1).write_bytes(good[:cut] + rest[cut:])
        expected = 4 if cut == end else 3
        assert read(folder) == [body(number) for number in range(1, expected + 1)], cut


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    """It is refused; only in the last batch it looks like a torn end, which the witness refuses."""
    path = written(tmp_path / "journal")
    good = path.read_bytes()
    *_, before, end = ends(4)
    used = [*range(64), *range(HEADER_BYTES, end)]
    chance = random.Random(7)
    for position in used:
        damaged = bytearray(good)
        damaged[position] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with closing(SegmentJournal(path.parent)) as journal:
            if position < before:
                with pytest.raises(Corrupt, match="damaged"):
                    list(journal.read(journal.trimmed()))
            else:
                assert [found for _, found in journal.read(0)] == [body(1), body(2), body(3)]


def test_every_sound_batch_is_salvaged(tmp_path: Path) -> None:
    path = written(tmp_path / "journal")
    good = bytearray(path.read_bytes())
    good[ends(4)[1] + MARK_BYTES + HEAD_BYTES] ^= 1
    path.write_bytes(good)
    with closing(SegmentJournal(path.parent, accepts_loss=True)) as journal:
        assert list(journal.salvage(0)) == [(1, body(1)), (2, body(2)), (3, None), (4, body(4))]


def test_a_missing_segment_is_found(tmp_path: Path) -> None:
    big = bytes(journal_module.SEGMENT_BYTES_MIN // 2)
    with closing(SegmentJournal(tmp_path)) as journal:
        journal.claim()
        for _ in range(12):
            journal.append(big)
    numbers = numbers_in(tmp_path)
    assert len(numbers) > 3
    path_of(tmp_path, numbers[1]).unlink()
    with closing(SegmentJournal(tmp_path)) as journal, pytest.raises(Corrupt, match="batch 2 is"):
        list(journal.read(0))


def test_a_segment_of_another_history_is_found(tmp_path: Path) -> None:
    """Its numbers fit and its entries are sound; only the chain shows it."""
    for name in ("ours", "theirs"):
        for epoch in range(2):
            with closing(SegmentJournal(tmp_path / name)) as journal:
                journal.claim()
                journal.append(f"{name} {epoch}".encode())
    path_of(tmp_path / "ours", 1).write_bytes(path_of(tmp_path / "theirs", 1).read_bytes())
    with closing(SegmentJournal(tmp_path / "ours")) as journal, pytest.raises(Corrupt):
        list(journal.read(0))


# Power cuts: of what was not synced, any sectors may be missing.


class Disk:
    """What is on the disk for certain, and the writes that may be."""

    def __init__(self) -> None:
        self.pending: list[tuple[int, bytes, int]] = []  # inode, what was there before, offset

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        before = os.pread(descriptor, len(data), offset)
        self.pending.append((os.fstat(descriptor).st_ino, before, offset))
        return REAL_PWRITE(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        self.pending = [each for each in self.pending if each[0] != inode]

    def cut(self, folder: Path, chance: random.Random) -> None:
        """Take back some sectors of what was not synced, the latest writes first."""
        files = {path.stat().st_ino: path for path in folder.iterdir()}
        for inode, before, offset in reversed(self.pending):
            if inode not in files:
                continue
            with files[inode].open("r+b") as file:
                begin = offset
                while begin < offset + len(before):
                    end = min(
                        begin // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES, offset + len(before)
                    )
                    if chance.random() < 0.5:
                        file.seek(begin)
                        file.write(before[begin - offset : end - offset])
                    begin = end


REAL_PWRITE = os.pwrite


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    with (
        patch.object(os, "pwrite", disk.pwrite),
        patch.object(segment, "sync_file", disk.sync),
        patch.object(journal_module, "sync_file", disk.sync),
    ):
        yield disk


@pytest.mark.parametrize("level", [Level.FSYNC, Level.INTERVAL])
@pytest.mark.parametrize("seed", range(20))
def test_power_cut(tmp_path: Path, disk: Disk, level: Level, seed: int) -> None:
    """All that was promised is there, in order, and what else is there was written."""
    chance = random.Random(seed)
    bodies: list[bytes] = []
    promised = 0
    for _ in range(4):
        journal = SegmentJournal(tmp_path, level, interval_us=HOUR)
        journal.claim()
        found = [each for _, each in journal.read(0)]
        assert promised <= len(found)
        assert found == bodies[: len(found)]
        bodies = found
        promised = len(bodies)
        for _ in range(chance.randrange(1, 6)):
            bodies.append(chance.randbytes(chance.choice((1, 300, 2_000, 400_000))))
            journal.append(bodies[-1])
            if level is Level.FSYNC:
                promised = len(bodies)
            elif chance.random() < 0.3:
                journal.sync()
                promised = len(bodies)
        # What is in flight when the power fails was promised to nobody.
        if level is Level.FSYNC:
            with patch.object(journal, "_sync_file", side_effect=KeyboardInterrupt):
                with pytest.raises(KeyboardInterrupt):
                    journal.append(b"in flight" * chance.choice((1, 1_000)))
                bodies.append(b"")
        journal._await_spare()  # Its file has no entry; it must only not move meanwhile.
        disk.cut(tmp_path, chance)
        disk.pending.clear()
        if level is Level.FSYNC:
            bodies.pop()
            with closing(SegmentJournal(tmp_path)) as look:
                later = [each for _, each in look.read(0)]
            assert later[: len(bodies)] == bodies
            bodies = later
        journal._syncer = None
        journal.close()


# Files that are used again.


def test_segments_are_used_again(tmp_path: Path) -> None:
    """A journal that is trimmed needs no more of the disk, and grows no file."""
    big = bytes(100_000)
    with closing(SegmentJournal(tmp_path)) as journal:
        journal.claim()
        sizes = []
        for number in range(1, 1_201):
            journal.append(big)
            if number % 50 == 0:
                journal.trim(number - 10)
                sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
        assert sizes[-1] == sizes[len(sizes) // 2]
        assert [sequence for sequence, _ in journal.read(1_190)] == list(range(1_191, 1_201))
        assert journal.spare_bytes() > 0
    with closing(SegmentJournal(tmp_path)) as again:
        assert (again.trimmed(), again.last()) == (1_190, 1_200)


def test_a_new_claim_waits_for_the_file_that_is_being_prepared(tmp_path: Path) -> None:
    begun, dropped, finished = Event(), Event(), Event()

    def prepare(folder: Path, size: int) -> Path:
        begun.set()
        dropped.wait(0.2)  # For as long as a slow disk takes, or until the claim comes too early.
        finished.set()
        return segment.make_spare(folder, size)

    def drop(folder: Path) -> None:
        assert finished.is_set() or not begun.is_set()
        dropped.set()
        segment.drop_unfinished(folder)

    with (
        patch.object(journal_module, "make_spare", prepare),
        closing(SegmentJournal(tmp_path)) as journal,
    ):
        journal.claim()
        while not begun.is_set():
            journal.append(bytes(10_000))
        with patch.object(journal_module, "drop_unfinished", drop):
            journal.claim()


def test_a_start_without_batches_leaves_no_segment_behind(tmp_path: Path) -> None:
    for _ in range(5):
        with closing(SegmentJournal(tmp_path)) as journal:
            journal.claim()
    assert len(numbers_in(tmp_path)) == 1


def test_looking_changes_nothing(tmp_path: Path) -> None:
    with closing(SegmentJournal(tmp_path / "none")) as journal:
        assert (journal.last(), journal.trimmed(), list(journal.read(0))) == (0, 0, [])
    assert not (tmp_path / "none").exists()

"""WAL check: distinguish a damaged write-ahead log from one that merely ends.

SQLite reads a WAL up to the first frame whose checksum is wrong, and takes that for the end: right
after a torn write, but silent loss of everything behind when the damage is in the middle. This
module reads the file before SQLite does and distinguishes the two. It changes nothing.

Theory of operation
===================

The format is https://www.sqlite.org/fileformat2.html#the_write_ahead_log. The file has a header and
frames, one a page. The frames of one round carry the two salts of the header; behind them may stand
frames of an earlier round, with other salts. Checksums are cumulative. The last frame of each
transaction is marked as such.

With a sync at every commit, a transaction begins only when the one before is on the disk. So a
crash can tear the last transaction and no other: at and behind the first bad frame, at most one
frame of the current round can be a commit. Two or more mean that something was there and was
damaged.

What cannot be detected: damage to the very last transaction looks exactly like a torn write, and so
does damage to the mark on the second last commit itself.

Without a sync at every commit the system may write in any order, and this check proves nothing.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from jackalope.storage.faults import WAY_OUT, Corrupt, naming_faults
from jackalope.storage.sqlite.database import PAGE_BYTES

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
#: The lowest bit of the magic number is the byte order of the checksums.
_MAGIC = 0x377F0682
_WORD_MASK = 0xFFFFFFFF

Pair = tuple[int, int]


class _Header(NamedTuple):
    """The header's fields: the size of pages, the salts of the round, where checksums begin."""

    page_bytes: int
    salts: Pair
    sums: Pair
    words: str


class _Frame(NamedTuple):
    """One frame; `summed` are the bytes that its checksum covers."""

    is_commit: bool
    salts: Pair
    sums: Pair
    summed: bytes


def check_wal(database: Path) -> None:
    """Refuse a WAL in which committed transactions stand at or behind a damaged frame."""
    path = Path(f"{database}-wal")
    if not path.exists():
        return
    with naming_faults(path), path.open("rb") as file:
        header = _parse_header(file.read(_HEADER.size))
        frames = _frames(file, header.page_bytes if header else PAGE_BYTES)
        good_count, commits_lost = _scan(header, frames)
    if commits_lost >= 2:
        raise Corrupt(
            f"{path}: damaged at frame {good_count + 1}, and {commits_lost} transactions from "
            f"there on would be lost. {WAY_OUT}"
        )


def _scan(header: _Header | None, frames: Iterator[_Frame]) -> tuple[int, int]:
    """Count the good frames, and the commits of the same round from the first bad frame on."""
    salts = header.salts if header else None
    sums = header.sums if header else (0, 0)
    words = header.words if header else ""
    is_good = header is not None
    good_count = commits_lost = 0
    for frame in frames:
        # Without a header, the first frame has the salts of the round.
        salts = salts or frame.salts
        if is_good:
            sums = _add(sums, frame.summed, words)
            is_good = frame.salts == salts and frame.sums == sums
        if is_good:
            good_count += 1
        elif frame.salts == salts:
            commits_lost += frame.is_commit
    return good_count, commits_lost


def _parse_header(raw: bytes) -> _Header | None:
    """Return the fields of the header, or None when it is damaged or not there."""
    if len(raw) < _HEADER.size:
        return None
    magic, _, page_bytes, _, *pairs = _HEADER.unpack(raw)
    words = ">II" if magic & 1 else "<II"
    sums = _add((0, 0), raw[:24], words)
    if magic & ~1 != _MAGIC or sums != (pairs[2], pairs[3]):
        return None
    return _Header(page_bytes, (pairs[0], pairs[1]), sums, words)


def _frames(file: BinaryIO, page_bytes: int) -> Iterator[_Frame]:
    """Read whole frames; a part of one at the end is a torn write."""
    while len(raw := file.read(_FRAME.size + page_bytes)) == _FRAME.size + page_bytes:
        _, pages_after_commit, *pairs = _FRAME.unpack_from(raw)
        yield _Frame(
            pages_after_commit > 0,
            (pairs[0], pairs[1]),
            (pairs[2], pairs[3]),
            raw[:8] + raw[_FRAME.size :],
        )


def _add(sums: Pair, data: bytes, words: str) -> Pair:
    """Go on with a cumulative checksum."""
    first, second = sums
    for even, odd in struct.iter_unpack(words, data):
        first = (first + even + second) & _WORD_MASK
        second = (second + odd + first) & _WORD_MASK
    return first, second

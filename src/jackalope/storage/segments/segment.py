"""Segments: the files of a journal, named by their number.

Owns the layout of one file and how its end is found. Knows no rule of who may write or trim.

A file is filled with zeros before it is used, so that a write changes neither its size nor its
extents, and a sync has only data to write. Later it is used again under another number. Every frame
begins with the mark of its segment, which is random: what an earlier use left behind does not
count.

    header: magic, mark, number, first sequence, epoch, trimmed, digest before, digest
    frames: mark, entry; from `HEADER_BYTES` on, without a gap
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from jackalope.storage.disk import sync_file, sync_folder
from jackalope.storage.entry import DIGEST_BYTES, HEAD_BYTES, Entry, Kind, decode
from jackalope.storage.faults import WAY_OUT, Corrupt, naming_faults

#: The header has a page of its own, so that no later write can tear it.
HEADER_BYTES = 4096
MARK_BYTES = 8

_MAGIC = b"jacklog1"
_HEADER = struct.Struct("<8s8sQQQQ8s")
_ZEROS = bytes(1024 * 1024)
_SUFFIX = ".log"
_SPARE = "spare-"
_UNFINISHED = "unfinished-"


class Header(NamedTuple):
    """The header of a segment."""

    mark: bytes
    number: int
    first: int  # the sequence of its first batch
    epoch: int  # of its writer
    trimmed: int  # through where batches had been removed when it was begun
    before: bytes  # the digest of the last entry of the segment before


class Scan(NamedTuple):
    """The entries of a segment."""

    entries: list[Entry]
    lost: int  # the first batch that was durable and cannot be read; 0 if there is none


def path_of(folder: Path, number: int) -> Path:
    return folder / f"{number:012d}{_SUFFIX}"


def numbers_in(folder: Path) -> list[int]:
    with naming_faults(folder):
        names = [path.stem for path in folder.glob(f"*{_SUFFIX}")]
    return sorted(int(name) for name in names if name.isdecimal())


# Writing. Errors of the system pass through; the journal names them.


def begin_segment(folder: Path, header: Header, size: int) -> tuple[int, int]:
    """Create a segment, durable when this returns; return its descriptor and its size."""
    file = _spare(folder, size) or make_spare(folder, size)
    descriptor = os.open(file, os.O_RDWR)
    try:
        packed = _HEADER.pack(_MAGIC, *header)
        _write_all(descriptor, (packed + _digest(packed)).ljust(HEADER_BYTES, b"\0"), 0)
        sync_file(descriptor)
        file.rename(path_of(folder, header.number))
        sync_folder(folder)
        return descriptor, os.fstat(descriptor).st_size
    except BaseException:
        os.close(descriptor)
        raise


def write_frame(descriptor: int, mark: bytes, entry: bytes, offset: int) -> int:
    """Write an entry, and return the offset after it."""
    _write_all(descriptor, mark + entry, offset)
    return offset + MARK_BYTES + len(entry)


def make_spare(folder: Path, size: int) -> Path:
    """Create a file for a later segment."""
    unfinished = folder / f"{_UNFINISHED}{uuid4().hex}"
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for offset in range(0, size, len(_ZEROS)):
            _write_all(descriptor, _ZEROS[: size - offset], offset)
        os.fsync(descriptor)
        return unfinished.rename(folder / f"{_SPARE}{uuid4().hex}")
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def spare_segments(folder: Path, numbers: Iterable[int], most: int) -> None:
    """Keep the files of obsolete segments for reuse, up to a limit."""
    for number in numbers:
        path_of(folder, number).rename(folder / f"{_SPARE}{uuid4().hex}")
    spares = sorted(folder.glob(f"{_SPARE}*"), key=lambda path: -path.stat().st_size)
    for path in spares[most:]:
        path.unlink()
    # Before one is written over: after a power failure it must not be there by its old name.
    sync_folder(folder)


def spare_sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.glob(f"{_SPARE}*")]


def drop_unfinished(folder: Path) -> None:
    """Remove the temporary files of a killed writer."""
    for path in folder.glob(f"{_UNFINISHED}*"):
        path.unlink()


def _spare(folder: Path, size: int) -> Path | None:
    """Return the smallest reusable file that is large enough."""
    spares = [(path.stat().st_size, path) for path in folder.glob(f"{_SPARE}*")]
    return min(((have, path) for have, path in spares if have >= size), default=(0, None))[1]


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):  # A disk that is nearly full takes a part, and then refuses.
        written += os.pwrite(descriptor, data[written:], offset + written)


# Reading.


def read_header(path: Path) -> Header:
    with naming_faults(path), path.open("rb") as file:
        header = _header_of(file.read(HEADER_BYTES))
    if header is None or path_of(path.parent, header.number) != path:
        raise Corrupt(f"{path}: the header is damaged. {WAY_OUT}")
    return header


def read_segment(path: Path, header: Header, end: int | None = None) -> Scan:
    """Read the entries of a segment; batches from `end` on belong to the next one."""
    with naming_faults(path):
        raw = path.read_bytes()
    entries: list[Entry] = []
    offset, digest, sequence = HEADER_BYTES, header.before, header.first - 1
    while True:
        entry = decode(raw, offset + MARK_BYTES) if raw.startswith(header.mark, offset) else None
        if entry is None or entry.before != digest:
            lost = _lost(raw, header.mark, offset, sequence + 1)
            return Scan(entries, lost or (sequence + 1 if end and sequence + 1 < end else 0))
        if end and entry.sequence >= end:
            return Scan(entries, 0)
        entries.append(entry)
        offset += MARK_BYTES + HEAD_BYTES + len(entry.body)
        digest = entry.digest
        if entry.kind == Kind.BATCH:
            sequence = entry.sequence


def salvage_segment(path: Path) -> Iterator[Entry]:
    """Yield every intact entry of a segment, also after damage or without a valid header."""
    with naming_faults(path):
        raw = path.read_bytes()
    header = _header_of(raw[:HEADER_BYTES])
    mark = raw[HEADER_BYTES : HEADER_BYTES + MARK_BYTES] if header is None else header.mark
    return _frames(raw, mark, HEADER_BYTES)


def _lost(raw: bytes, mark: bytes, offset: int, sequence: int) -> int:
    """Return an unreadable batch if a later entry states that it was durable."""
    return sequence if any(e.durable >= sequence for e in _frames(raw, mark, offset)) else 0


def _frames(raw: bytes, mark: bytes, offset: int) -> Iterator[Entry]:
    """Yield every intact entry after a mark from an offset on, in any order."""
    while any(mark) and (offset := raw.find(mark, offset)) >= 0:
        entry = decode(raw, offset + MARK_BYTES)
        if entry is not None:
            yield entry
        offset += MARK_BYTES


def _header_of(raw: bytes) -> Header | None:
    packed = raw[: _HEADER.size]
    if raw[_HEADER.size : _HEADER.size + DIGEST_BYTES] != _digest(packed):
        return None
    magic, *fields = _HEADER.unpack(packed)
    return Header(*fields) if magic == _MAGIC else None


def _digest(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=DIGEST_BYTES).digest()

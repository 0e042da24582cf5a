"""Blobs in a folder: payloads and results that are too large for a row.

Owns the files below `blobs/`. A blob is written under a temporary name, synced, and then renamed:
a file with a proper name is whole. The name is random, followed by the checksum of the bytes; the
file holds the bytes and nothing else. A copy from another store keeps the name that it has there.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from io import FileIO
from os import scandir
from pathlib import Path
from uuid import uuid4

from jackalope.core.assertions import BrokenInvariant, must
from jackalope.core.task import BlobRef
from jackalope.storage.disk import make_folder, sync_file, sync_folder
from jackalope.storage.faults import Corrupt, naming_faults
from jackalope.storage.ports import BLOB_NAME, Blobs, Draft

CHUNK_BYTES = 256 * 1024

_UNFINISHED = "unfinished"
_DIGEST_BYTES = 16


class FolderBlobs(Blobs):
    """See `jackalope.storage.ports.Blobs`."""

    drafts_max = 500  # Each has a file open.

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unfinished = folder / _UNFINISHED
        self._drafts: set[str] = set()
        with naming_faults(folder):
            make_folder(self._unfinished)

    def begin(self) -> "FolderDraft":
        return FolderDraft(self._folder, self._unfinished, self._drafts)

    def begin_copy(self, name: str) -> "FolderDraft":
        self._path(name)
        return FolderDraft(self._folder, self._unfinished, self._drafts, name)

    def read(self, ref: BlobRef, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        must(offset >= 0 and (length is None or length >= 0), "not a range", offset, length)
        path = self._path(ref.blob)
        with naming_faults(path):
            size = path.stat().st_size if path.is_file() else None
        if size is None:
            raise _damaged(path, "is missing")
        if size != ref.size:
            raise _damaged(path, f"has {size} bytes instead of {ref.size}")
        end = ref.size if length is None else min(ref.size, offset + length)
        return _read(path, ref, offset, end)

    def ref(self, name: str) -> BlobRef:
        path = self._path(name)
        if not path.is_file():
            raise _damaged(path, "is missing")
        with naming_faults(path):
            return BlobRef(name, path.stat().st_size)

    def delete(self, name: str) -> None:
        path = self._path(name)
        with naming_faults(path):
            path.unlink(missing_ok=True)

    def names(self) -> Iterator[str]:
        with naming_faults(self._folder):
            folders = [path for path in self._folder.glob("??") if path.is_dir()]
        for folder in folders:
            with naming_faults(folder), scandir(folder) as entries:
                names = [entry.name for entry in entries if BLOB_NAME.fullmatch(entry.name)]
            yield from names

    def clear(self) -> int:
        removed = 0
        with naming_faults(self._unfinished):
            # Named first, looked up after: a draft is noted before it has a file.
            for path in list(self._unfinished.iterdir()):
                if path.name not in self._drafts:
                    path.unlink(missing_ok=True)
                    removed += 1
        return removed

    def close(self) -> None:
        """No-op: no file stays open."""

    def _path(self, name: str) -> Path:
        # A name comes from a record, and a record from a client: it must not lead elsewhere.
        if not BLOB_NAME.fullmatch(name):
            raise Corrupt(f"{name!r} is not the name of a blob in {self._folder}")
        return path_of(self._folder, name)


class FolderDraft(Draft):
    """See `jackalope.storage.ports.Draft`."""

    def __init__(self, folder: Path, unfinished: Path, drafts: set[str], name: str = "") -> None:
        self.id = uuid4().hex
        self._name = name
        self._folder = folder
        self._path = unfinished / self.id
        self._drafts = drafts
        self._size = self._checksum = 0
        self._digest = blake2b(digest_size=_DIGEST_BYTES)
        self._drafts.add(self.id)
        self._file: FileIO | None = None
        try:
            with naming_faults(self._path):
                # Without a buffer there is nothing left to be written, and to fail, when it is
                # closed.
                self._file = open(  # noqa: SIM115  a Path has no opener
                    self._path, "xb", buffering=0, opener=_private
                )
        except BaseException:
            self.abort()
            raise

    def add(self, chunk: bytes) -> None:
        file = self._open()
        try:
            with naming_faults(self._path):
                _write_all(file, chunk)
        except BaseException:
            self.abort()
            raise
        self._size += len(chunk)
        self._checksum = zlib.crc32(chunk, self._checksum)
        self._digest.update(chunk)

    def finish(self) -> BlobRef:
        file = self._open()
        name = self._name or f"{self.id}-{self._checksum:08x}"
        path = path_of(self._folder, name)
        try:
            with naming_faults(self._path):
                sync_file(file.fileno())
            with naming_faults(path):
                make_folder(path.parent)
                self._path.rename(path)
        except BaseException:
            self.abort()
            raise
        self._end()
        try:
            with naming_faults(path):
                sync_folder(path.parent)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return BlobRef(name, self._size, self._digest.hexdigest())

    def abort(self) -> None:
        if self.id in self._drafts:
            with suppress(OSError):  # What cannot be removed now is cleared later.
                self._path.unlink(missing_ok=True)
            self._end()

    def _open(self) -> FileIO:
        if self._file is None:
            raise BrokenInvariant(f"draft {self.id} has ended")
        return self._file

    def _end(self) -> None:
        self._drafts.discard(self.id)
        if self._file is not None:
            self._file.close()
            self._file = None


def problem_of(folder: Path, ref: BlobRef) -> str:
    """Read a blob to its end, and return what is wrong with it; nothing if it is sound."""
    path = path_of(folder, ref.blob)
    if not path.is_file():
        return "is missing"
    size = path.stat().st_size
    if size != ref.size:
        return f"has {size} bytes instead of {ref.size}"
    try:
        for _ in _read(path, ref, 0, size):
            pass
    except Corrupt:
        return "does not match its checksum"
    return ""


def _read(path: Path, ref: BlobRef, offset: int, end: int) -> Iterator[bytes]:
    is_whole = offset == 0 and end == ref.size
    # Only the digest vouches for a copy: its name is that of another store.
    digest = blake2b(digest_size=_DIGEST_BYTES) if is_whole and _is_digest(ref) else None
    checksum = 0
    with naming_faults(path):
        file = path.open("rb")
    with file:
        file.seek(offset)
        while offset < end:
            with naming_faults(path):
                chunk = file.read(min(CHUNK_BYTES, end - offset))
            if not chunk:
                raise _damaged(path, f"ends at {offset}")
            offset += len(chunk)
            if digest is not None:
                digest.update(chunk)
            else:
                checksum = zlib.crc32(chunk, checksum)
            yield chunk
    if digest is not None and digest.hexdigest() != ref.digest:
        raise _damaged(path, "does not match its checksum")
    if is_whole and digest is None and not _has_checksum(ref.blob, checksum):
        raise _damaged(path, "does not match the checksum in its name")


def path_of(folder: Path, name: str) -> Path:
    return folder / name[:2] / name


def _is_digest(ref: BlobRef) -> bool:
    """Return whether a reference has a digest of the bytes; a store may have put its own mark."""
    return len(ref.digest) == 2 * _DIGEST_BYTES


def _has_checksum(name: str, checksum: int) -> bool:
    """Return whether a checksum is that of a name; one from elsewhere has none, or another's."""
    _, _, told = name.partition("-")
    return told == f"{checksum:08x}" or len(told) != len(f"{checksum:08x}")


def _write_all(file: FileIO, chunk: bytes) -> None:
    left = memoryview(chunk)
    while left:
        left = left[file.write(left) :]


def _damaged(path: Path, what: str) -> Corrupt:
    return Corrupt(f"{path}: {what}. Check the disk, and restore the file from a backup")


def _private(path: str, flags: int) -> int:
    """Open a file with access for its owner only."""
    return os.open(path, flags, 0o600)

"""Blobs in a folder: payloads and results that are too large for a row.

Owns the files below `blobs/`. A blob is written under a temporary name, synced, and then renamed:
a file with a proper name is whole. The name is chance, followed by the checksum of the bytes; the
file holds the bytes and nothing else.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from uuid import uuid4

from jackalope.core.must import must
from jackalope.core.task import BlobRef
from jackalope.storage.disk import make_folder, sync_file, sync_folder
from jackalope.storage.faults import Corrupt, naming_faults

CHUNK_BYTES = 256 * 1024

_NAME = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}")
_UNFINISHED = "unfinished"


class FolderBlobs:
    """See `jackalope.storage.ports.Blobs`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unfinished = folder / _UNFINISHED
        with naming_faults(folder):
            make_folder(self._unfinished)

    def write(self, chunks: Iterable[bytes]) -> BlobRef:
        """Store a blob; durable when this returns."""
        unfinished = self._unfinished / uuid4().hex
        try:
            size, checksum, digest = self._fill(unfinished, chunks)
            name = f"{unfinished.name}-{checksum:08x}"
            path = self._path(name)
            with naming_faults(path):
                make_folder(path.parent)
                unfinished.rename(path)
                sync_folder(path.parent)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return BlobRef(name, size, digest)

    def read(self, ref: BlobRef, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Return the bytes of a blob in chunks."""
        must(offset >= 0 and (length is None or length >= 0), "not a range", offset, length)
        path = self._path(ref.blob)
        with naming_faults(path):
            size = path.stat().st_size if path.is_file() else None
        if size is None:
            raise _damaged(path, "is missing")
        if size != ref.size:
            raise _damaged(path, f"has {size} bytes instead of {ref.size}")
        end = ref.size if length is None else min(ref.size, offset + length)
        return self._read(path, offset, end, is_whole=offset == 0 and end == size)

    def delete(self, name: str) -> None:
        """Remove a blob; nothing happens if it is not there."""
        path = self._path(name)
        with naming_faults(path):
            path.unlink(missing_ok=True)

    def sweep(self, keep: Callable[[str], bool]) -> int:
        """Remove every blob that is not to be kept and all that crashed writes left behind."""
        with naming_faults(self._folder):
            leftovers = list(self._unfinished.iterdir())
            blobs = (path for path in self._folder.glob("??/*") if _NAME.fullmatch(path.name))
            leftovers += [path for path in blobs if not keep(path.name)]
            for path in leftovers:
                path.unlink()
        return len(leftovers)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _path(self, name: str) -> Path:
        # A name comes from a record, and a record from a client: it must not lead elsewhere.
        if not _NAME.fullmatch(name):
            raise Corrupt(f"{name!r} is not the name of a blob in {self._folder}")
        return self._folder / name[:2] / name

    def _fill(self, path: Path, chunks: Iterable[bytes]) -> tuple[int, int, str]:
        """Write a new file, and return its size, checksum and digest."""
        size = checksum = 0
        digest = blake2b(digest_size=16)
        with naming_faults(path):
            # Without a buffer there is nothing left to be written, and to fail, when it is closed.
            file = path.open("xb", buffering=0)
        with file:
            # The chunks come from elsewhere: what they raise is no fault of this file.
            for chunk in chunks:
                with naming_faults(path):
                    _write_all(file, chunk)
                size += len(chunk)
                checksum = zlib.crc32(chunk, checksum)
                digest.update(chunk)
            with naming_faults(path):
                sync_file(file.fileno())
        return size, checksum, digest.hexdigest()

    def _read(self, path: Path, offset: int, end: int, *, is_whole: bool) -> Iterator[bytes]:
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
                checksum = zlib.crc32(chunk, checksum)
                yield chunk
        if is_whole and f"{checksum:08x}" != path.name[-8:]:
            raise _damaged(path, "does not match the checksum in its name")


def _write_all(file: FileIO, chunk: bytes) -> None:
    left = memoryview(chunk)
    while left:
        left = left[file.write(left) :]


def _damaged(path: Path, what: str) -> Corrupt:
    return Corrupt(f"{path}: {what}. Check the disk, and restore the file from a backup")

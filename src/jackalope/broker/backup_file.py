"""The file of a backup: what is in it, in which order, and how it is found to be whole.

A backup is a tar file: where in the log it stands (`mark.json`), the history (`tasks.db`), batches
that history did not have yet (`journal`, of a broker that is alone), large payloads and results
(`blobs/`) and, last, the digests of all of them (`end.json`), without which it is not whole. Knows
neither how the state is copied nor what is made of it.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import IO

import msgspec

from jackalope.storage import Corrupt, StorageFault
from jackalope.storage.disk import sync_folder
from jackalope.storage.faults import naming_faults
from jackalope.storage.snapshots import HISTORY

MARK = "mark.json"
JOURNAL = "journal"
BLOBS = "blobs/"

_END = "end.json"
_CHUNK_BYTES = 1024 * 1024
_LENGTH_BYTES = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

#: Where the bytes of an entry go, and what opens that, by the name of the entry.
Sink = Callable[[bytes], object]
Opener = Callable[[str, "Backup"], AbstractContextManager[Sink]]


class Backup(msgspec.Struct, frozen=True):
    """What is in a backup."""

    sequence: int  # through which batch the history has everything
    digest: bytes
    cluster: str
    blobs: int = 0
    missing: tuple[str, ...] = ()  # blobs that were gone when they were to be copied
    last: int = 0  # the last batch of all, if some are not in the history


class BackupWriter:
    """Writes a tar file, and remembers the digest of everything in it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._tar = tarfile.TarFile(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)
        self.digests: dict[str, str] = {}

    def add(self, name: str, data: IO[bytes]) -> None:
        info = tarfile.TarInfo(name)
        info.size = data.seek(0, os.SEEK_END)
        info.mode = 0o600
        data.seek(0)
        digest = blake2b()
        while chunk := data.read(_CHUNK_BYTES):
            digest.update(chunk)
        self.digests[name] = digest.hexdigest()
        data.seek(0)
        self._tar.addfile(info, data)

    def add_mark(self, mark: Backup) -> None:
        self.add(MARK, io.BytesIO(msgspec.json.encode(mark)))

    def close(self) -> None:
        self.add(_END, io.BytesIO(msgspec.json.encode(self.digests)))
        self._tar.close()


@contextmanager
def new_backup(path: Path) -> Iterator[BackupWriter]:
    """Lend what writes a backup; there is a file of that name once all of it is written and read.

    A crash leaves a file whose name ends with `.part`, which the next attempt writes over.

    Raises:
        StorageFault: the file cannot be written; there is one; or another backup is written there.
    """
    part = path.with_name(f"{path.name}.part")
    with naming_faults(part):
        file = os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageFault(f"{part}: another backup is being written there") from None
        try:
            with naming_faults(part):
                file.truncate()
                writer = BackupWriter(file)
                yield writer
                writer.close()
                file.flush()
                os.fsync(file.fileno())
            read_backup(part)
            with naming_faults(path):
                os.link(part, path)  # Unlike a rename, it replaces nothing.
                sync_folder(path.parent)
        finally:
            part.unlink(missing_ok=True)


def _skip(name: str, mark: Backup) -> AbstractContextManager[Sink]:  # noqa: ARG001  an `Opener`
    return nullcontext(len)


def read_backup(path: Path, opener: Opener = _skip) -> Backup:
    """Read a backup from its beginning to its end, and give every part to a sink of its own.

    What the sinks were given counts for nothing unless this returns.

    Args:
        path: the file.
        opener: returns where the bytes of an entry go; by default they are only checked.

    Raises:
        Corrupt: the file is damaged, is not whole, or is no backup.
        StorageFault: it cannot be read.
    """
    try:
        with naming_faults(path), path.open("rb") as file:
            return _read(path, file, opener)
    except (tarfile.TarError, EOFError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"{path}: is no whole backup: {error}") from None


def _read(path: Path, file: IO[bytes], opener: Opener) -> Backup:
    digests: dict[str, str] = {}
    expected: dict[str, str] | None = None
    mark: Backup | None = None
    with tarfile.open(fileobj=file, mode="r|") as tar:
        for info in tar:
            body = tar.extractfile(info)
            if body is None or not _is_known(info.name) or info.name in digests:
                raise Corrupt(f"{path}: has {info.name!r}, which no backup has")
            if info.name == _END:
                expected = msgspec.json.decode(body.read(), type=dict[str, str])
            elif info.name == MARK:
                mark = msgspec.json.decode(raw := body.read(), type=Backup)
                digests[MARK] = blake2b(raw).hexdigest()
            elif mark is None:
                raise Corrupt(f"{path}: does not begin with {MARK}: is no backup")
            else:
                with opener(info.name, mark) as sink:
                    digests[info.name] = _pour(body, sink)
    if mark is None or HISTORY not in digests or expected != digests:
        raise Corrupt(f"{path}: is damaged, or not whole")
    blobs = sum(name.startswith(BLOBS) for name in digests)
    return msgspec.structs.replace(mark, blobs=blobs)


def _is_known(name: str) -> bool:
    if name.startswith(BLOBS):
        return _NAME.fullmatch(name.removeprefix(BLOBS)) is not None
    return name in {MARK, HISTORY, JOURNAL, _END}


def _pour(body: IO[bytes], sink: Sink) -> str:
    digest = blake2b()
    while chunk := body.read(_CHUNK_BYTES):
        digest.update(chunk)
        sink(chunk)
    return digest.hexdigest()


# Batches, one behind the other.


def put_batch(file: IO[bytes], body: bytes) -> None:
    file.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)


def batches_in(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the batches of a journal in a backup, from where the file stands."""
    while head := file.read(_LENGTH_BYTES):
        size = int.from_bytes(head, "big")
        body = file.read(size)
        if len(head) < _LENGTH_BYTES or len(body) < size:
            raise Corrupt("a batch of the backup is not whole")
        yield body

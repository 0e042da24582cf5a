"""Backups: the state of a running cluster in one file, and the folder of a founder made of it.

A backup is a tar file: where in the log it stands (`mark.json`), the history (`tasks.db`), large
payloads and results (`blobs/`) and, last, the digests of all of them (`end.json`), without which it
is not whole. It is of one moment. A blob whose task was forgotten while it was made may be missing.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import shutil
import sqlite3
import tarfile
from contextlib import ExitStack, closing
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO

import msgspec

from jackalope.broker.cluster.peer_link import PeerLink
from jackalope.storage import Corrupt, StorageFault
from jackalope.storage.data_folder import SHARDS
from jackalope.storage.disk import make_folder, sync_folder
from jackalope.storage.faults import naming_faults
from jackalope.storage.snapshots import HISTORY, MOVING, Incoming, StateMark, install, mark_founding
from jackalope.wire.peer import AskBlob, AskSnapshot, BlobHead, SnapshotHead

_MARK = "mark.json"
_END = "end.json"
_BLOBS = "blobs/"
_CHUNK_BYTES = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

#: How long a node may take to copy its state.
_COPY_S = 600.0


class Backup(msgspec.Struct, frozen=True):
    """What is in a backup."""

    sequence: int
    digest: bytes
    cluster: str
    blobs: int = 0
    missing: tuple[str, ...] = ()  # blobs that were gone when they were to be copied


class _Writer:
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

    def close(self) -> None:
        self.add(_END, io.BytesIO(msgspec.json.encode(self.digests)))
        self._tar.close()


async def write_backup(link: PeerLink, path: Path, *, has_blobs: bool = True) -> Backup:
    """Write the state of the node at the other end of a link to a file that is not there yet.

    Raises:
        PeerGone: the node does not answer, or refuses.
        StorageFault: the file cannot be written, or the state is damaged.
    """
    part = path.with_name(f"{path.name}.part")
    with naming_faults(part):
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            made = await _write(link, file, path.parent, has_blobs=has_blobs)
            with naming_faults(part):
                file.flush()
                os.fsync(file.fileno())
        with naming_faults(path):
            os.link(part, path)  # Unlike a rename, it replaces nothing.
            sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)
    return made


async def _write(link: PeerLink, file: IO[bytes], beside: Path, *, has_blobs: bool) -> Backup:
    writer = _Writer(file)
    await link.send(AskSnapshot())
    head = await link.expect(SnapshotHead, _COPY_S)
    missing, count = [], 0
    with NamedTemporaryFile(dir=beside) as history:
        await _receive(link, history)
        mark = Backup(head.sequence, head.digest, link.cluster)
        writer.add(_MARK, io.BytesIO(msgspec.json.encode(mark)))
        await asyncio.to_thread(writer.add, HISTORY, history)
        names = await asyncio.to_thread(_blobs_in, history.name) if has_blobs else []
    for name in names:
        size = (await link.ask(AskBlob(name), BlobHead)).size
        if size < 0:
            missing.append(name)
            continue
        with TemporaryFile(dir=beside) as body:
            await _receive(link, body)
            await asyncio.to_thread(writer.add, f"{_BLOBS}{name}", body)
        count += 1
    await asyncio.to_thread(writer.close)
    return msgspec.structs.replace(mark, blobs=count, missing=tuple(missing))


async def _receive(link: PeerLink, file: IO[bytes]) -> None:
    with naming_faults("the backup"):
        async for data in link.parts():
            file.write(data)
        file.flush()


def _blobs_in(history: str) -> list[str]:
    """Return the blobs that a history names."""
    with closing(sqlite3.connect(f"file:{history}?immutable=1", uri=True)) as connection:
        return [name for (name,) in connection.execute("SELECT DISTINCT blob FROM blobs")]


def restore_backup(path: Path, folder: Path) -> Backup:
    """Make the data folder of a founder of a backup; nothing of it is left if that fails.

    Raises:
        Corrupt: the backup is damaged, or not whole.
        StorageFault: the folder is there, or cannot be written.
    """
    if folder.exists():
        raise StorageFault(f"{folder}: exists already; a backup is restored to a new folder")
    home = folder / SHARDS / "0"
    try:
        with naming_faults(folder):
            make_folder(home / MOVING)
        with naming_faults(path), path.open("rb") as file:
            try:
                found = _unpack(path, file, home)
            except (tarfile.TarError, EOFError, msgspec.DecodeError) as error:
                raise Corrupt(f"{path}: is no whole backup: {error}") from None
        mark_founding(home)
        install(home)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return found


def _unpack(path: Path, file: IO[bytes], home: Path) -> Backup:
    digests: dict[str, str] = {}
    told: dict[str, str] | None = None
    mark: Backup | None = None
    incoming: Incoming | None = None
    with tarfile.open(fileobj=file, mode="r|") as tar, ExitStack() as undo:
        for info in tar:
            body = tar.extractfile(info)
            name = info.name.removeprefix(_BLOBS)
            if body is None or not _NAME.fullmatch(name):
                raise Corrupt(f"{path}: has {info.name!r}, which no backup has")
            if info.name == _MARK:
                mark = msgspec.json.decode(raw := body.read(), type=Backup)
                digests[_MARK] = blake2b(raw).hexdigest()
            elif info.name == _END:
                told = msgspec.json.decode(body.read(), type=dict[str, str])
            elif info.name == HISTORY and mark is not None:
                incoming = Incoming(home, StateMark(mark.sequence, mark.digest))
                undo.callback(incoming.abort)
                digests[HISTORY] = _copy(body, incoming)
            elif info.name.startswith(_BLOBS):
                with (home / MOVING / name).open("xb") as blob:
                    digests[info.name] = _copy(body, blob)
        if mark is None or incoming is None or told != digests:
            raise Corrupt(f"{path}: is damaged, or not whole")
        incoming.finish()
    return msgspec.structs.replace(mark, blobs=len(digests) - 2)


def _copy(body: IO[bytes], to: Incoming | IO[bytes]) -> str:
    digest = blake2b()
    while chunk := body.read(_CHUNK_BYTES):
        digest.update(chunk)
        if isinstance(to, Incoming):
            to.add(chunk)
        else:
            to.write(chunk)
    return digest.hexdigest()

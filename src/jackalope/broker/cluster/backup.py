"""Backups: the state of a running cluster in one file, and the folder of a founder made of it.

It is of one moment. A blob whose task was forgotten while it was made may be missing. The file is
that of `broker/backup_file`.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO

import msgspec

from jackalope.broker.backup_file import (
    BLOBS,
    JOURNAL,
    Backup,
    BackupWriter,
    Sink,
    new_backup,
    read_backup,
)
from jackalope.broker.cluster.peer_link import PeerLink
from jackalope.storage import StorageFault
from jackalope.storage.data_folder import SHARDS
from jackalope.storage.disk import make_folder
from jackalope.storage.faults import naming_faults
from jackalope.storage.snapshots import HISTORY, MOVING, Incoming, StateMark, install, mark_founding
from jackalope.wire.peer import AskBlob, AskSnapshot, BlobHead, SnapshotHead

#: How long a node may take to copy its state.
_COPY_S = 600.0


async def write_backup(link: PeerLink, path: Path, *, has_blobs: bool = True) -> Backup:
    """Write the state of the node at the other end of a link to a file that is not there yet.

    Raises:
        PeerGone: the node does not answer, or refuses.
        StorageFault: the file cannot be written, or the state is damaged.
    """
    with new_backup(path) as writer:
        return await _write(link, writer, path.parent, has_blobs=has_blobs)


async def _write(link: PeerLink, writer: BackupWriter, beside: Path, *, has_blobs: bool) -> Backup:
    await link.send(AskSnapshot())
    head = await link.expect(SnapshotHead, _COPY_S)
    missing, count = [], 0
    with NamedTemporaryFile(dir=beside) as history:
        await _receive(link, history)
        mark = Backup(head.sequence, head.digest, link.cluster)
        writer.add_mark(mark)
        await asyncio.to_thread(writer.add, HISTORY, history)
        names = await asyncio.to_thread(blobs_in, history.name) if has_blobs else []
    for name in names:
        size = (await link.ask(AskBlob(name), BlobHead)).size
        if size < 0:
            missing.append(name)
            continue
        with TemporaryFile(dir=beside) as body:
            await _receive(link, body)
            await asyncio.to_thread(writer.add, f"{BLOBS}{name}", body)
        count += 1
    return msgspec.structs.replace(mark, blobs=count, missing=tuple(missing))


async def _receive(link: PeerLink, file: IO[bytes]) -> None:
    with naming_faults("the backup"):
        async for data in link.parts():
            file.write(data)
        file.flush()


def blobs_in(history: str) -> list[str]:
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
        found = _unpack(path, home)
        mark_founding(home)
        install(home)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return found


def _unpack(path: Path, home: Path) -> Backup:
    with ExitStack() as undo:
        incoming: list[Incoming] = []

        @contextmanager
        def opener(name: str, mark: Backup) -> Iterator[Sink]:
            if name == JOURNAL:
                raise StorageFault(
                    f"{path}: the backup of a broker that is alone: make a folder of it with "
                    "`jackalope restore`, and a cluster of that with `jackalope cluster init "
                    "--from`"
                )
            if name == HISTORY:
                incoming.append(Incoming(home, StateMark(mark.sequence, mark.digest)))
                undo.callback(incoming[0].abort)
                yield incoming[0].add
                return
            with (home / MOVING / name.removeprefix(BLOBS)).open("xb") as blob:
                yield blob.write

        found = read_backup(path, opener)
        incoming[0].finish()
    return found

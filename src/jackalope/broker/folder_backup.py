"""Backups of a broker that is alone: its data folder in one file, while it works, and back.

The broker is not asked: what it has acknowledged is in its files. The journal is read first, then
history is copied as it is at one moment. Batches leave the journal only once history has them, so
the copy and the batches behind it have everything that was acknowledged before the backup began. A
blob whose task was forgotten while it was made may be missing.

A folder is restored under another name and gets its own when all of it is there and was checked.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from msgspec.structs import replace

from jackalope.broker.backup_file import (
    BLOBS,
    JOURNAL,
    Backup,
    BackupWriter,
    Sink,
    batches_in,
    new_backup,
    put_batch,
    read_backup,
)
from jackalope.broker.inspection import inspect_folder
from jackalope.storage import Corrupt, StorageFault
from jackalope.storage import data_folder as names
from jackalope.storage.blobs.folder import path_of
from jackalope.storage.disk import make_folder, sync_folder
from jackalope.storage.entry import NO_DIGEST
from jackalope.storage.faults import naming_faults
from jackalope.storage.journals import JournalKind, JournalPlace
from jackalope.storage.ports import Level
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.sqlite.history import sequence_in
from jackalope.storage.sqlite.journal import checksum
from jackalope.storage.sqlite.salvage import integrity_problems

#: How often the end of a journal is read again that is written over meanwhile, and how soon.
_READS_MAX = 20
_READ_AGAIN_S = 0.05

#: What the names of unfinished copies end with.
_COPY = ".part-history"
_RESTORING = ".restoring"


def write_folder_backup(folder: Path, path: Path, *, has_blobs: bool = True) -> Backup:
    """Write everything in a data folder, of a broker that runs or is stopped, to a new file.

    Raises:
        Corrupt: the folder is damaged.
        StorageFault: it is no broker's folder, or the file is there or cannot be written.
    """
    place = JournalPlace(folder)
    if (folder / names.SHARDS).exists():
        raise StorageFault(
            f"{folder}: the folder of a node of a cluster; `jackalope cluster backup` copies that"
        )
    if place.kind is None:
        raise StorageFault(f"{folder}: not a data folder")
    if path.exists():
        raise StorageFault(f"{path}: exists already; choose another name")
    copy = path.with_name(f"{path.name}{_COPY}")
    with new_backup(path) as writer, TemporaryFile(dir=path.parent) as journal:
        try:
            first, last = _read_journal(place, folder / names.HISTORY, journal)
            sequence = _copy_history(folder / names.HISTORY, copy)
            mark = Backup(sequence, NO_DIGEST, "", last=max(sequence, last))
            writer.add_mark(mark)
            with copy.open("rb") as history:
                writer.add(names.HISTORY, history)
        finally:
            copy.unlink(missing_ok=True)
        with TemporaryFile(dir=path.parent) as rest:
            journal.seek(0)
            for at, body in enumerate(batches_in(journal), first):
                if at > sequence:
                    put_batch(rest, body)
            writer.add(JOURNAL, rest)
        count = _add_blobs(folder / names.BLOBS, writer) if has_blobs else 0
    return replace(mark, blobs=count)


def _read_journal(place: JournalPlace, history: Path, to: IO[bytes]) -> tuple[int, int]:
    """Copy what history may not have yet; return the sequences of the first and the last of it."""
    for left in reversed(range(_READS_MAX)):
        to.seek(0)
        to.truncate()
        try:
            first = _sequence_of(history) + 1
            last = first - 1
            for sequence, body in _batches(place, last):
                if sequence != last + 1:
                    raise Corrupt(f"{place.path()}: batch {last + 1} is missing")
                put_batch(to, body)
                last = sequence
        except (StorageFault, sqlite3.DatabaseError, FileNotFoundError) as error:
            # Of a broker that works, a file of the journal may have been used again meanwhile.
            if not left:
                raise Corrupt(f"{error}; `jackalope check` shows what is damaged") from error
            time.sleep(_READ_AGAIN_S)
        else:
            return first, last
    raise Corrupt(f"{place.path()}: cannot be read")


def _batches(place: JournalPlace, after: int) -> Iterator[tuple[int, bytes]]:
    if place.kind is JournalKind.SEGMENTS:
        with closing(SegmentJournal(place.segments)) as journal:
            yield from journal.read(after)
        return
    with closing(_open(place.database)) as connection:
        for sequence, check, body in connection.execute(
            "SELECT sequence, checksum, body FROM batches WHERE sequence > ? ORDER BY sequence",
            (after,),
        ):
            if checksum(sequence, body) != check:
                raise Corrupt(f"{place.database}: batch {sequence} is damaged")
            yield sequence, body


def _copy_history(history: Path, copy: Path) -> int:
    """Copy the history as it is at one moment; return its last batch."""
    copy.unlink(missing_ok=True)
    with naming_faults(copy):
        os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(_open(history)) as connection, closing(sqlite3.connect(copy)) as target:
            connection.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            sequence = sequence_in(target)
    if problems := integrity_problems(copy):
        raise Corrupt(f"{history}: {problems[0]}; `jackalope check` shows what is damaged")
    return sequence


def _sequence_of(history: Path) -> int:
    with closing(_open(history)) as connection:
        return sequence_in(connection)


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)


def _add_blobs(folder: Path, writer: BackupWriter) -> int:
    """Add all blobs, also those that only the journal names."""
    count = 0
    for path in sorted(folder.glob("??/*")):
        try:
            body = path.open("rb")
        except FileNotFoundError:
            continue  # Its task was forgotten meanwhile.
        with body:
            writer.add(f"{BLOBS}{path.name}", body)
        count += 1
    return count


# Restoring.


def restore_folder(path: Path, folder: Path) -> Backup:
    """Make a data folder of a backup, with which a broker goes on; all of it, or nothing.

    Raises:
        Corrupt: the backup is damaged, or not whole.
        StorageFault: the folder is there, or cannot be written.
    """
    if folder.exists():
        raise StorageFault(f"{folder}: exists already; a backup is restored to a new folder")
    made = folder.with_name(f"{folder.name}{_RESTORING}")
    with naming_faults(made):
        shutil.rmtree(made, ignore_errors=True)
        make_folder(made)
    try:
        with TemporaryFile(dir=made) as journal:
            found = _unpack(path, made, journal)
            last = _begin_journal(made, found.sequence, journal)
        _check(path, made)
        with naming_faults(folder):
            _sync_all(made)
            made.rename(folder)
            sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return replace(found, last=last)


def _unpack(path: Path, made: Path, journal: IO[bytes]) -> Backup:
    @contextmanager
    def opener(name: str, mark: Backup) -> Iterator[Sink]:  # noqa: ARG001  an `Opener`
        if name == JOURNAL:
            yield journal.write
            return
        to = made / names.HISTORY
        if name.startswith(BLOBS):
            to = path_of(made / names.BLOBS, name.removeprefix(BLOBS))
        make_folder(to.parent)
        with to.open("xb") as file:
            yield file.write

    found = read_backup(path, opener)
    sequence = _sequence_of(made / names.HISTORY)
    if sequence != found.sequence:
        raise Corrupt(f"{path}: the history ends at batch {sequence} and not {found.sequence}")
    return found


def _begin_journal(made: Path, sequence: int, batches: IO[bytes]) -> int:
    """Make a journal that goes on behind the history; return its last batch."""
    journal = JournalPlace(made).open(JournalKind.SEGMENTS, Level.FSYNC)
    try:
        journal.claim()
        if sequence:
            journal.restart(sequence)
        batches.seek(0)
        for body in batches_in(batches):
            sequence = journal.append(body)
    finally:
        journal.close()
    return sequence


def _check(path: Path, made: Path) -> None:
    """Read all of the new folder as a start does. A blob may be missing: see above."""
    findings = [each for each in inspect_folder(made) if each.what != names.BLOBS]
    problems = [f"{each.what}: {problem}" for each in findings for problem in each.problems]
    if problems:
        raise Corrupt(f"{path}: {problems[0]}")


def _sync_all(made: Path) -> None:
    for place, _, files in os.walk(made):
        for name in files:
            descriptor = os.open(Path(place) / name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(place))

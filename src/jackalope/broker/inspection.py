"""Inspection: check a data folder that no broker has open, without changing it.

Owns what is checked and what is reported: that SQLite finds its files sound, that every
batch and every row can be read as a start would read it, that the files belong together, and that
blobs are there and whole. What to do about damage is `Storage.open` with loss accepted, or a
backup.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from jackalope.core.records import NewerFormat, decode_batch
from jackalope.core.task import BlobRef
from jackalope.storage import FolderBusy, StorageFault
from jackalope.storage.blobs.folder import path_of, problem_of
from jackalope.storage.data_folder import BLOBS, HISTORY, LOCK, WITNESS
from jackalope.storage.journals import JournalKind, JournalPlace, segment_problems
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.sqlite.journal import checksum
from jackalope.storage.sqlite.salvage import PROBLEMS_MAX, integrity_problems
from jackalope.storage.sqlite.schema import WHOLE, from_columns
from jackalope.storage.sqlite.wal_check import check_wal
from jackalope.storage.witness import read_witness

#: How much later than a broker that is killed its writer process may be gone.
_MOMENT_S = 1.0


class Finding(msgspec.Struct, frozen=True):
    """What was checked, how much there is of it, and what is wrong with it."""

    what: str  # the part of the folder
    count: int  # how many things were looked at
    problems: list[str]  # all that is wrong, or the first of it


def inspect_folder(folder: Path) -> list[Finding]:
    """Check everything in a data folder; raises `FolderBusy` if a broker uses it."""
    place = JournalPlace(folder)
    if not (folder / LOCK).exists() and place.kind is None:
        raise StorageFault(f"{folder}: not a data folder")
    with kept_out(folder):
        journal, last, trimmed = _inspect_journal(place)
        refs: dict[str, BlobRef] = {}
        history, applied = _inspect_history(folder / HISTORY, refs)
        findings = [
            _of_files(place),
            journal,
            _of_database(folder / HISTORY, is_wal_checked=False),
            history,
        ]
        findings.append(_inspect_sequences(folder, last, trimmed, applied))
        if (folder / BLOBS).is_dir():
            findings.append(_inspect_blobs(folder, refs))
        return findings


@contextmanager
def kept_out(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder, if it has one, so that no broker starts meanwhile."""
    path = folder / LOCK
    if not path.exists():
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if not _lock(descriptor):
            raise FolderBusy(f"{folder}: the data folder is in use by a broker; stop it first")
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Take a lock; the writer process of a broker that was killed has it for a moment longer."""
    end = time.monotonic() + _MOMENT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_MOMENT_S / 50)
        else:
            return True


def _of_database(path: Path, *, is_wal_checked: bool) -> Finding:
    if not path.exists():
        return Finding(path.name, 0, [])
    problems = integrity_problems(path)
    if is_wal_checked:
        try:
            check_wal(path)
        except StorageFault as fault:
            problems.append(str(fault))
    return Finding(path.name, 1, problems)


def _of_files(place: JournalPlace) -> Finding:
    if place.kind is JournalKind.SEGMENTS:
        return Finding(place.segments.name, 1, list(segment_problems(place.segments)))
    return _of_database(place.database, is_wal_checked=True)


def _inspect_journal(place: JournalPlace) -> tuple[Finding, int, int]:
    """Read every batch as a start does; return also the last one and what was trimmed."""
    count = last = trimmed = 0
    problems: list[str] = []
    try:
        trimmed = last = _trimmed_of(place)
        for sequence, body, is_sound in batches_of(place, trimmed):
            count += 1
            if sequence != last + 1:
                problems.append(f"batches {last + 1} to {sequence - 1} are missing")
            last = sequence
            if problem := _batch_problem(body, is_sound=is_sound):
                problems.append(f"batch {sequence} {problem}")
    except (sqlite3.DatabaseError, StorageFault) as error:
        problems.append(f"batches after {last} cannot be read: {error}")
    return Finding("batches of the journal", count, problems[:PROBLEMS_MAX]), last, trimmed


def batches_of(place: JournalPlace, after: int) -> Iterator[tuple[int, bytes, bool]]:
    """Yield every later batch, and whether it is intact."""
    if place.kind is JournalKind.SEGMENTS:
        with closing(SegmentJournal(place.segments, accepts_loss=True)) as journal:
            for sequence, found in journal.salvage(max(after, journal.trimmed())):
                yield sequence, found or b"", found is not None
    elif place.kind is JournalKind.SQLITE:
        with closing(_open(place.database)) as connection:
            for sequence, check, body in connection.execute(
                "SELECT sequence, checksum, body FROM batches WHERE sequence > ? ORDER BY sequence",
                (after,),
            ):
                yield sequence, body, checksum(sequence, body) == check


def _batch_problem(body: bytes, *, is_sound: bool) -> str:
    if not is_sound:
        return "is missing or damaged"
    try:
        decode_batch(body)
    except (msgspec.DecodeError, NewerFormat, RecursionError) as error:
        return f"cannot be decoded: {error}"
    return ""


def _trimmed_of(place: JournalPlace) -> int:
    """Return the sequence through which batches have been removed."""
    if place.kind is JournalKind.SEGMENTS:
        with closing(SegmentJournal(place.segments, accepts_loss=True)) as journal:
            return journal.trimmed()
    if place.kind is None:
        return 0
    with closing(_open(place.database)) as connection:
        found = connection.execute("SELECT trimmed FROM writer").fetchone()
    return int(found[0]) if found else 0


def _inspect_history(path: Path, refs: dict[str, BlobRef]) -> tuple[Finding, int]:
    """Read every task, note its blobs, and return also the last batch that history has."""
    count = applied = 0
    problems: list[str] = []
    if not path.exists():
        return Finding("tasks in history", 0, []), 0
    try:
        with closing(_open(path)) as connection:
            meta = connection.execute("SELECT value FROM meta WHERE key = 'sequence'").fetchone()
            applied = int(meta[0]) if meta else 0
            for columns in connection.execute(f"SELECT {WHOLE} FROM tasks NOT INDEXED"):  # noqa: S608
                count += 1
                try:
                    row = from_columns(path.name, columns)
                    bodies = (row.payload, row.outcome.result if row.outcome else b"")
                    refs.update((b.blob, b) for b in bodies if isinstance(b, BlobRef))
                except StorageFault as fault:
                    problems.append(str(fault))
    except sqlite3.DatabaseError as error:
        problems.append(f"tasks after the first {count} cannot be read: {error}")
    return Finding("tasks in history", count, problems[:PROBLEMS_MAX]), applied


def _inspect_sequences(folder: Path, last: int, trimmed: int, applied: int) -> Finding:
    witnessed = read_witness(folder / WITNESS) or 0
    problems = []
    if applied > last:
        problems.append(f"the journal ends at batch {last}, {HISTORY} contains batch {applied}")
    if applied < trimmed:
        problems.append(f"{HISTORY} ends at batch {applied}, the journal begins at {trimmed + 1}")
    if max(last, applied) < witnessed:
        problems.append(f"the journal ends at batch {last}, batch {witnessed} was acknowledged")
    return Finding("consistency between files", max(last, applied), problems)


def _inspect_blobs(folder: Path, refs: dict[str, BlobRef]) -> Finding:
    """Read every blob that a task in history names."""
    names: list[str] = []
    try:
        with closing(_open(folder / HISTORY)) as connection:
            names = [name for (name,) in connection.execute("SELECT DISTINCT blob FROM blobs")]
    except sqlite3.DatabaseError:
        return Finding("blobs", 0, [])
    problems = [
        f"{name} {problem}"
        for name in names
        if (problem := _blob_problem(folder / BLOBS, name, refs.get(name)))
    ]
    return Finding("blobs", len(names), problems[:PROBLEMS_MAX])


def _blob_problem(folder: Path, name: str, ref: BlobRef | None) -> str:
    if ref is not None:
        return problem_of(folder, ref)
    # Named by what is no task, which has neither its size nor its digest.
    return "" if path_of(folder, name).is_file() else "is missing"


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)

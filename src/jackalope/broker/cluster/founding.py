"""Founding: the data folder of a broker that is alone becomes the first node of a cluster.

Owns the step from the one to the other, with the broker stopped. Nothing that is there is changed
but for the journal's end: the node's state is a copy below `shards`, at the last batch of the
journal, and the folder is refused to a broker that is alone from then on.

The log of the cluster is empty at first. The founder claims it with the digest of its journal, so
that the chain goes on; until it has, no other node may claim (`cluster.founder`). The others find a
log that begins behind their own state, and take over the founder's.

When a log is lost for good, the node whose mirror is the longest begins a new one in the same way:
the chain goes on from the end of its mirror, in an epoch beyond all that can have been.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec

from jackalope.broker.engine import Engine
from jackalope.broker.inspection import kept_out
from jackalope.core.assertions import must
from jackalope.storage import FolderBusy, Storage, StorageFault
from jackalope.storage.data_folder import BLOBS, SHARDS
from jackalope.storage.disk import make_folder, sync_folder
from jackalope.storage.faults import naming_faults
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.shared.journal import Claim
from jackalope.storage.shared.nats_server import running_in
from jackalope.storage.snapshots import HISTORY, MIRROR, Incoming, StateMark, install, mark_founding
from jackalope.storage.sqlite.history import sequence_in
from jackalope.storage.sqlite.salvage import integrity_problems

#: How far beyond the last known epoch a new log begins: claims may have stood in the lost one of
#: which no mirror is left.
EPOCHS_SKIPPED = 1_000

_NATS = "nats"


def found_from(folder: Path, now_us: int) -> StateMark:
    """Make a node's state of all that is in a data folder, and return where its log goes on.

    Raises:
        StorageFault: the folder is in use, damaged, empty, or a node's already.
    """
    home = folder / SHARDS / "0"
    if not folder.is_dir():
        raise StorageFault(f"{folder}: there is no data folder")
    if home.exists():
        raise StorageFault(f"{folder}: this is the folder of a node already")
    storage = Storage.open(folder)
    try:
        mark = _write_behind(storage, now_us)
        if missing := _missing_blobs(storage, folder):
            raise StorageFault(
                f"{folder}: {missing} blobs are not in the folder, but in another store, which the "
                "nodes would not have. Let their tasks end and be forgotten first"
            )
        make_folder(home)
        mark_founding(home)
        incoming = Incoming(home, mark)
        try:
            incoming.fill(lambda path: storage.history.copy_to(path, int))
            incoming.finish()
        except BaseException:
            incoming.abort()
            raise
        install(home)
    finally:
        storage.close()
    return mark


def _write_behind(storage: Storage, now_us: int) -> StateMark:
    """Let history have everything that is in the journal."""
    engine = Engine(storage.journal, storage.history, storage.blobs)
    flush = engine.begin_flush(now_us)
    if flush is not None:
        engine.write_flush(flush)
        engine.end_flush(flush)
    sequence, journal = storage.history.applied(), storage.journal
    if not sequence:
        raise StorageFault(f"{storage.path}: there is nothing in it")
    must(sequence == engine.sequence, "history has the whole journal", sequence, engine.sequence)
    digest = journal.digest_at(sequence) if isinstance(journal, SegmentJournal) else None
    if digest is None:
        raise StorageFault(f"{storage.path}: the journal does not have batch {sequence}")
    return StateMark(sequence, digest)


def _missing_blobs(storage: Storage, folder: Path) -> int:
    named = set(storage.history.blobs())
    there = set(storage.blobs.names()) if named and (folder / BLOBS).exists() else set()
    return len(named - there)


# A log that is lost.


class Left(msgspec.Struct, frozen=True):
    """What the data folder of a node has, which is stopped."""

    folder: str
    first: int  # the batches in its mirror
    last: int
    digest: bytes  # of the chain through the last batch; empty if the mirror has none
    epoch: int
    applied: int  # the last batch in its history
    leader: str  # the node that claimed last, as far as the mirror shows; empty if it does not
    blobs: int  # large payloads and results that its tasks have
    problem: str = ""  # why no log can be made from it

    @property
    def end(self) -> tuple[int, int]:
        """How far it goes; claims are entries too, but no batches."""
        return self.last, self.epoch


def left_in(folder: Path) -> Left:
    """Read all that the folder of a node has, and change nothing.

    Raises:
        FolderBusy: its broker or its nats-server runs.
        StorageFault: it is no folder of a node, or cannot be read.
    """
    home = folder / SHARDS / "0"
    if not (home / HISTORY).exists() or not (home / MIRROR).is_dir():
        raise StorageFault(f"{folder}: this is not the data folder of a node")
    with kept_out(folder), naming_faults(home):
        _refuse_running(folder)
        mirror = SegmentJournal(home / MIRROR)
        found = mirror.survey()
        problems = [found.problem] if found.problem else []
        problems += [f"{HISTORY}: {each}" for each in integrity_problems(home / HISTORY)[:1]]
        applied = blobs = 0
        if not problems:
            with closing(sqlite3.connect(f"file:{home / HISTORY}?mode=ro", uri=True)) as history:
                applied = sequence_in(history)
                (blobs,) = history.execute("SELECT count(DISTINCT blob) FROM blobs").fetchone()
        if applied > found.last:
            problems.append(f"the mirror ends at batch {found.last}, history at {applied}")
        return Left(
            str(folder),
            found.first,
            found.last,
            b"" if found.problem else mirror.digest_at(found.last) or b"",
            found.epoch,
            applied,
            msgspec.msgpack.decode(found.claim, type=Claim).writer if found.claim else "",
            blobs,
            "; ".join(problems),
        )


def lacks(chosen: Left, others: Iterable[Left]) -> list[str]:
    """Return what others have that a log made from one of them would not have."""
    mirror = SegmentJournal(Path(chosen.folder) / SHARDS / "0" / MIRROR)
    said = []
    for other in others:
        if other.last > chosen.last:
            said.append(
                f"{other.folder} has the batches {chosen.last + 1} to {other.last}, which "
                f"{chosen.folder} does not have"
            )
        elif other.end > chosen.end:
            said.append(f"{other.folder} has a later claim than {chosen.folder}")
        elif other.digest and (here := mirror.digest_at(other.last)) not in (None, other.digest):
            said.append(
                f"{other.folder} has another batch {other.last} than {chosen.folder}: "
                f"{other.digest.hex()}, not {(here or b'').hex()}"
            )
    return said


def found_again(folder: Path, epoch: int) -> str:
    """Let the node of a folder begin a new log where its mirror ends, beyond an epoch.

    Returns:
        The name under which the store of the old log is kept; empty if there is none.

    Raises:
        StorageFault: it is in use, or cannot be written.
    """
    with kept_out(folder), naming_faults(folder):
        _refuse_running(folder)
        mark_founding(folder / SHARDS / "0", epoch + EPOCHS_SKIPPED)
        if not (folder / _NATS).exists():
            return ""
        number = 1
        while (aside := folder / f"{_NATS}.lost-{number}").exists():
            number += 1
        (folder / _NATS).rename(aside)
        sync_folder(folder)
        return aside.name


def _refuse_running(folder: Path) -> None:
    pid = running_in(folder / _NATS)
    if pid is not None:
        raise FolderBusy(
            f"{folder}: its nats-server runs (process {pid}), and may be a part of a log that is "
            "alive; end it first"
        )

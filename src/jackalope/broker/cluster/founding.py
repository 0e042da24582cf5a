"""Founding: the data folder of a broker that is alone becomes the first node of a cluster.

Owns the step from the one to the other, with the broker stopped. Nothing that is there is changed
but for the journal's end: the node's state is a copy below `shards`, at the last batch of the
journal, and the folder is refused to a broker that is alone from then on.

The log of the cluster is empty at first. The founder claims it with the digest of its journal, so
that the chain goes on; until it has, no other node may claim (`cluster.founder`). The others find a
log that begins behind their own state, and take over the founder's.
"""

from __future__ import annotations

from pathlib import Path

from jackalope.broker.engine import Engine
from jackalope.core.assertions import must
from jackalope.storage import Storage, StorageFault
from jackalope.storage.data_folder import BLOBS, SHARDS
from jackalope.storage.disk import make_folder
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.snapshots import Incoming, StateMark, install, mark_founding


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

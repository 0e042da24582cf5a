"""Recovery: rebuilding the core from what is stored.

History gives the state up to the batch that it has applied; the journal has every batch after that.
Together they are exactly the state before the crash.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from jackalope.core import Core
from jackalope.core.must import BrokenInvariant
from jackalope.core.records import AnyRecord, NewerFormat, decode_batch
from jackalope.storage import Corrupt, History, Journal
from jackalope.storage import NewerFormat as NewerFile


def recover(journal: Journal, history: History) -> tuple[Core, int]:
    """Return the core as it was, and the sequence of the last batch in it.

    Raises:
        StorageFault: what is stored cannot be read; nothing is skipped.
    """
    core = Core()
    with _collecting_no_garbage():
        snapshot = history.load()
        core.book.restore(
            snapshot.counters,
            snapshot.queues,
            snapshot.limits,
            snapshot.tasks,
            snapshot.tallies,
            api_keys=snapshot.api_keys,
            answers=snapshot.answers,
            definitions=snapshot.definitions,
        )
    sequence = snapshot.sequence
    for sequence, records in _batches(journal, snapshot.sequence):
        for record in records:
            try:
                core.apply(record)
            except (BrokenInvariant, KeyError) as error:
                raise Corrupt(
                    f"batch {sequence} of the journal does not follow from what stands before it: "
                    f"{type(error).__name__}: {error}; restore the data folder from a copy"
                ) from error
    return core, sequence


@contextmanager
def _collecting_no_garbage() -> Iterator[None]:
    """Spare a million new objects, none of them garbage, being looked through again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _batches(journal: Journal, after: int) -> Iterator[tuple[int, list[AnyRecord]]]:
    for sequence, body in journal.read(after):
        try:
            yield sequence, decode_batch(body)
        except NewerFormat as error:
            raise NewerFile(f"batch {sequence} of the journal has {error}") from error
        except msgspec.DecodeError as error:
            raise Corrupt(
                f"batch {sequence} of the journal cannot be decoded: {error}; "
                "restore the data folder from a copy"
            ) from error

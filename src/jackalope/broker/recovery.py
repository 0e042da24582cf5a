"""Recovery: rebuilding the core from what is stored.

History gives the state up to the batch that it has applied; the journal has every batch after that.
Together they are exactly the state before the crash.

A start that accepts loss leaves out what cannot be read, and what no longer follows from the rest.
What is left must be sound in itself, or there is no start.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from jackalope.core import Core
from jackalope.core.invariants import check
from jackalope.core.must import BrokenInvariant
from jackalope.core.records import AnyRecord, NewerFormat, decode_batch
from jackalope.core.values import shape_problem
from jackalope.storage import WAY_OUT, Corrupt, History, Journal
from jackalope.storage import NewerFormat as NewerFile

#: By how much fences go on beyond the last known one after a loss: more than lost batches had.
FENCES_PER_LOSS = 10**9

#: Deep enough to decode what an earlier version accepted and could not read again.
_DEEP = 5_000


def recover(journal: Journal, history: History) -> tuple[Core, int]:
    """Return the core as it was, and the sequence of the last batch in it.

    Raises:
        StorageFault: what is stored cannot be read; nothing is skipped.
    """
    core, applied = _load(history)
    sequence = applied
    for sequence, records in _batches(journal, applied):
        for record in records:
            try:
                core.apply(record)
            except (BrokenInvariant, KeyError) as error:
                raise Corrupt(
                    f"batch {sequence} of the journal does not follow from what stands before it: "
                    f"{type(error).__name__}: {error}. {WAY_OUT}"
                ) from error
    return core, sequence


def recover_what_is_left(
    journal: Journal, history: History, witnessed: int, losses: list[str]
) -> tuple[Core, int]:
    """Return the core without what is damaged or missing, and the sequence to go on behind.

    No number is given out again: the sequence is beyond every batch that was acknowledged, and
    fences go on far beyond those that the lost batches may have had.

    Args:
        journal: what is left of it.
        history: must be sound.
        witnessed: the highest sequence that was acknowledged, as far as is known.
        losses: what is lost is added to this.

    Raises:
        StorageFault: what is left does not hold together, or history cannot be read.
    """
    core, applied = _load(history)
    lost = list(_left_out(core, journal, applied))
    end = max(journal.last(), applied)
    if witnessed > end:
        lost.append(f"batches {end + 1} to {witnessed} of the journal are missing")
    losses += lost
    if not losses:
        return core, end
    core.book.counters.fence += FENCES_PER_LOSS
    try:
        check(core)
    except BrokenInvariant as error:
        raise Corrupt(
            f"what is left does not hold together ({error}); restore the data folder from a backup"
        ) from error
    return core, max(end, witnessed)


def _left_out(core: Core, journal: Journal, applied: int) -> Iterator[str]:
    """Apply what can be applied, and yield what cannot."""
    for sequence, body in journal.salvage(applied):
        if body is None:
            yield f"batch {sequence} of the journal is damaged or missing"
            continue
        try:
            records, unread = _sound_records(body)
        except (msgspec.DecodeError, NewerFormat, RecursionError) as error:
            yield f"batch {sequence} of the journal cannot be decoded: {error}"
            continue
        if unread:
            yield f"{unread} records of batch {sequence} of the journal cannot be decoded"
        for record in records:
            try:
                core.apply(record)
            except (BrokenInvariant, KeyError) as error:
                kind = type(record).__name__
                yield f"a {kind} in batch {sequence} does not follow from what is left: {error}"


def _sound_records(body: bytes) -> tuple[list[AnyRecord], int]:
    """Decode a batch, without records that nest too deep; return also how many those are."""
    try:
        return decode_batch(body), 0
    except RecursionError:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(_DEEP)
        try:
            records = decode_batch(body)
        finally:
            sys.setrecursionlimit(limit)
    sound = [record for record in records if _is_decodable(record)]
    return sound, len(records) - len(sound)


def _is_decodable(record: AnyRecord) -> bool:
    spec = getattr(record, "spec", None)
    headers = spec.options.headers if spec is not None and spec.options is not None else None
    return not shape_problem(headers)


def _load(history: History) -> tuple[Core, int]:
    """Return the core as history has it, and the sequence of the last batch in it."""
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
    return core, snapshot.sequence


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
        except (msgspec.DecodeError, RecursionError) as error:
            raise Corrupt(
                f"batch {sequence} of the journal cannot be decoded: {error}. {WAY_OUT}"
            ) from error

"""The engine: decide, store, send; and write behind.

Owns the order in which those happen, which is all that durability needs. It reads no clock and has
no thread: the caller runs the steps, from one thread unless a step is documented otherwise.

Theory of operation
===================

A turn takes a batch of commands through three steps::

    turn = engine.decide(now_us, commands)  # the core decides; memory is now ahead of the disk
    engine.store(turn)  # one append, one fsync; may run in another thread
    effects = engine.settle(turn)  # what may now be sent

The next turn begins when this one is settled. Commands that arrive meanwhile gather into it: that
is group commit, and why throughput does not cost durability. If `store` raises, call `fail` in
place of `settle`: memory knows things that the disk does not, so the core is thrown away and
rebuilt from the disk, the batch is refused, and so is every later one until `heal` finds the
journal writable again.

A flush takes what changed in memory to history, behind the journal::

    flush = engine.begin_flush()  # between turns
    engine.write_flush(flush)  # may run in another thread, during turns
    engine.end_flush(flush)  # between turns; ended tasks leave memory

Only one flush is under way at a time. What history has on disk for good is trimmed from the journal
by the next `store`, which is the only writer of the journal.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec
import structlog

from jackalope.calendar import CronCalendar
from jackalope.core import Core
from jackalope.core.assertions import BrokenInvariant, must
from jackalope.core.commands import AnyCommand, ForgetTasks
from jackalope.core.context import Missing
from jackalope.core.durations import SECOND
from jackalope.core.effects import Effect, Reply
from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.invariants import check
from jackalope.core.limits import TASKS_PER_FILTER_MAX
from jackalope.core.records import (
    LEVEL,
    AnyRecord,
    NewerFormat,
    decode_batch,
    encode_batch,
    is_lasting,
    level_of,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.state.changes import Changes
from jackalope.core.task import Task, unnamed
from jackalope.core.values import shape_problem
from jackalope.storage import WAY_OUT, Blobs, Corrupt, History, Journal, StorageFault
from jackalope.storage import NewerFormat as NewerFile

log = structlog.get_logger(component="broker")

#: History is synced, and the journal trimmed, when this many batches could go.
TRIM_BATCHES_DEFAULT = 1_000

#: How many batches are kept at most for a standby that does not come.
KEEP_BATCHES_MAX = 50_000

#: How many tasks past their retention go at once; more where a flush writes many, so that what goes
#: keeps up with what comes.
FORGET_AT_ONCE = 5_000

#: How often a flush looks for such tasks even if nothing changes.
FORGET_EVERY_US = 30 * SECOND


class Turn(msgspec.Struct):
    """A batch of commands: what was decided, and what to send once it is durable."""

    commands: list[AnyCommand]
    records: list[AnyRecord]
    effects: list[Effect]
    body: bytes = b""
    is_stored: bool = False


class Flush(msgspec.Struct):
    """Changes on their way to history, with the sequence of the last batch in them."""

    sequence: int
    changes: Changes
    now_us: int
    blobs: list[str] = []
    overdue_us: int = 0


class Engine:
    """Drives one core over one storage.

    Attributes:
        core: the state; do not keep a reference, a fault replaces it.
        history: where ended tasks are; behind the core by at most what was not flushed.
        blobs: where large payloads and results are.
        epoch: of the journal, which grows with every writer that claims it.
        sequence: the last batch that is durable.
        fault: why writes are refused, or None.
        is_turning: a turn is under way, and memory may be ahead of the disk.
        next_forget_us: when to look again for what has been kept for long enough.
    """

    def __init__(
        self,
        journal: Journal,
        history: History,
        blobs: Blobs,
        trim_batches: int = TRIM_BATCHES_DEFAULT,
        *,
        witnessed: int = 0,
        losses: list[str] | None = None,
    ) -> None:
        self._trim_batches = trim_batches
        self._journal = journal
        self.is_shared = journal.is_shared  # Other nodes have the journal too.
        self.history = history
        self.blobs = blobs
        # Who writes a shared one is decided later.
        self.epoch = 0 if self.is_shared else self._journal.claim()
        self.fault: StorageFault | None = None
        if losses is None:
            self._recover()
        else:
            self._accept(witnessed, losses)
        self.next_forget_us = 0
        self._overdue_us = 0
        self._synced = 0
        self.keep_after: int | None = None  # what a standby has; None if there is none
        self.is_turning = False
        self._flush: Flush | None = None

    def _accept(self, witnessed: int, losses: list[str]) -> None:
        """Continue with the remaining data, and make it the stored state."""
        found = recover_what_is_left(self._journal, self.history, witnessed, losses)
        self.core, self.sequence = found
        for loss in losses:
            log.error("loss accepted", loss=loss)
        if losses:
            changes = self.core.book.take_changes()
            self.core.book.stored(changes)
            unowned = self.history.write(self.sequence, changes)
            self.history.sync()
            self._journal.restart(self.sequence)
            self._delete_unnamed(unowned)

    # Turns.

    def decide(self, now_us: int, commands: list[AnyCommand]) -> Turn:
        """Let the core decide a batch of commands."""
        must(not self.is_turning, "one turn at a time")
        if self.fault is not None:
            return Turn(commands, [], _refuse_all(commands, self.fault))
        self.is_turning = True
        self.core.book.let_go()  # By now the ends of the last turn have been sent.
        records: list[AnyRecord] = []
        effects: list[Effect] = []
        for command in commands:
            try:
                self._recall(command)
                new_records, new_effects = self.core.handle(now_us, command)
            except StorageFault:
                raise
            except Exception:
                if self.core.is_changing:
                    raise  # Memory may be half changed: the node stops with nothing written.
                log.exception("command refused after an error", command=type(command).__name__)
                effects += _refuse([command], _INTERNAL)
                continue
            records += new_records
            effects += new_effects
        lasting = list(filter(is_lasting, records)) if self.core.book.has_volatile else records
        body = encode_batch(lasting, self.core.level) if lasting else b""
        return Turn(commands, records, effects, body)

    def store(self, turn: Turn) -> None:
        """Make a turn durable. May run in another thread. On `StorageFault` call `fail`."""
        if turn.body:
            self._trim()  # Before the append: a turn whose batch is on disk must not fail any more.
            self.sequence = self._journal.append(turn.body)
        turn.is_stored = True

    def _trim(self) -> None:
        """Remove from the journal what history has for good, but what a standby still needs."""
        through = self._synced
        if self.keep_after is not None and self.sequence - self.keep_after < KEEP_BATCHES_MAX:
            through = min(through, self.keep_after)
        if through - self._journal.trimmed() >= self._trim_batches:
            self._journal.trim(through)

    def settle(self, turn: Turn) -> list[Effect]:
        """End a durable turn, and return the effects that may now be sent."""
        must(turn.is_stored, "nothing is told before it is stored")
        self.is_turning = False
        return turn.effects

    def fail(self, turn: Turn, fault: StorageFault) -> list[Effect]:
        """End a turn that could not be stored, and return the refusals.

        Memory is ahead of the disk: it is rebuilt, so that reads return only what is durable.
        Raises `StorageFault` if the disk cannot even be read; the node must stop.
        """
        self.is_turning = False
        self.fault = fault
        self._flush = None
        self._recover()
        return _refuse_all(turn.commands, fault)

    def heal(self) -> bool:
        """Try to write again after a fault, and return whether that works now.

        The caller then hands in `Recover`: workers have been forgotten and join again.
        """
        if self.fault is None:
            return True
        try:
            self.sequence = self._journal.append(encode_batch([], self.core.level))
            # All that history lacks, at once: if there is room for that, there is room.
            changes = self.core.book.take_changes()
            self.core.book.stored(changes)
            self._delete_unnamed(self.history.write(self.sequence, changes))
        except StorageFault as fault:
            self.fault = fault
            self._recover()
            return False
        self.fault = None
        return True

    # Following: what another node has decided.

    def follow(self, sequence: int, body: bytes) -> list[AnyRecord]:
        """Apply a batch that stands in the shared journal, and return its records.

        Raises:
            NewerFile: a later version of Jackalope has written it.
            Corrupt: it does not follow from what was applied before.
        """
        must(not self.is_turning, "a node that decides does not follow")
        must(sequence == self.sequence + 1, "batches are applied in order", sequence, self.sequence)
        self.core.book.let_go()
        records = _records_of(sequence, body)
        _apply(self.core, sequence, records)
        self.use_level(level_of(body))
        self.sequence = sequence
        self._trim()
        return records

    def stored(self) -> tuple[Core, int]:
        """Build a state from what is stored. May run in another thread, while nothing is stored."""
        return recover(self._journal, self.history)

    def rebuild(self, stored: tuple[Core, int]) -> None:
        """Go on with a state that was built from what is stored."""
        self.is_turning = False
        self.fault = None
        self._flush = None
        self._use(stored)

    def _recover(self) -> None:
        self._use(self.stored())

    def _use(self, stored: tuple[Core, int]) -> None:
        self.core, self.sequence = stored
        if self.is_shared:
            self.use_level(self.core.book.counters.level)
            self.core.book.slice_up()

    # The level of the records in a shared journal.

    def use_level(self, level: int) -> None:
        """Make records of a level, if it is higher than that of the journal; 0 for no level yet."""
        counters = self.core.book.counters
        counters.level = max(counters.level, level)
        self.core.level = min(counters.level or LEVEL, LEVEL)

    def append_empty(self, level: int) -> None:
        """Let an empty batch of a level stand in the journal, in the journal's thread."""
        self.sequence = self._journal.append(encode_batch([], level))
        self.use_level(level)

    def durable(self) -> int:
        """Return the batch through which history is safe from a power failure."""
        return max(self._synced, self._journal.trimmed())

    def sync_history(self) -> None:
        """Make what history has safe from a power failure. May run in another thread."""
        self._synced = max(self._synced, self.history.sync())

    # Writing behind.

    def begin_flush(self, now_us: int) -> Flush | None:
        """Take what history lacks; None if that is nothing or a flush is under way.

        Periodically there is a flush without changes, which only removes expired tasks.
        """
        must(not self.is_turning, "flushes begin between turns")
        if self._flush is not None or self.fault is not None:
            return None
        if not self.core.book.has_changes() and now_us < self.next_forget_us:
            return None
        self.next_forget_us = now_us + FORGET_EVERY_US
        self._flush = Flush(self.sequence, self.core.book.take_changes(), now_us)
        return self._flush

    def write_flush(self, flush: Flush) -> None:
        """Write changes to history, and remove tasks whose retention is over.

        May run in another thread, during turns. On `StorageFault` call `fail_flush`.
        """
        self._journal.sync()  # History must never be ahead of a journal that can still be lost.
        flush.blobs = self.history.write(flush.sequence, flush.changes)
        limit = max(FORGET_AT_ONCE, 2 * len(flush.changes.tasks))
        flush.overdue_us = self.history.overdue_us(flush.now_us, limit)
        if flush.sequence - self._journal.trimmed() >= self._trim_batches:
            self._synced = self.history.sync()

    def end_flush(self, flush: Flush) -> None:
        """Evict ended tasks from memory, and delete unreferenced blobs."""
        if self._flush is not flush:
            return  # A fault has replaced the core meanwhile.
        self._flush = None
        self.core.book.stored(flush.changes)
        self._overdue_us = flush.overdue_us
        if flush.blobs:
            self._delete_unnamed(flush.blobs)

    def forgetting(self) -> ForgetTasks | None:
        """Return the command that lets go of what has been kept for long enough, if there is any.

        It goes into the next turn. Storage removes rows and blobs once its record is durable.
        """
        through_us, self._overdue_us = self._overdue_us, 0
        return ForgetTasks(through_us=through_us) if through_us else None

    def fail_flush(self, flush: Flush, fault: StorageFault) -> None:
        """Refuse writes from now on, because what history lacks can no longer be determined."""
        must(flush is self._flush or self._flush is None, "one flush at a time")
        self.fault = fault
        self._flush = None
        self._recover()

    def _delete_unnamed(self, blobs: list[str]) -> None:
        """Delete blobs that no row names, except those that a task in memory does."""
        for blob in unnamed(self.core.book, blobs):
            self.blobs.delete(blob)

    # Reading.

    def unnamed(self, blobs: Iterable[str]) -> list[str]:
        """Return those of the blobs that no task in memory names; none while there is a fault."""
        return unnamed(self.core.book, blobs) if self.fault is None else []

    def find(self, namespace: str, task_id: TaskId, alias: str = "") -> Task | None:
        """Find a task by its id or alias, in memory or else in history. Changes neither."""
        book = self.core.book
        ns = book.namespaces.get(namespace)
        if ns is None:
            return None
        task = book.tasks.get(ns.aliases.get(alias, NO_TASK) if alias else task_id)
        if task is None:
            history = self.history
            rows = history.find_aliases(namespace, [alias]) if alias else history.find([task_id])
            task = next(filter(None, map(book.from_history, rows)), None)
        return task if task is not None and task.queue.namespace is ns else None

    def _recall(self, command: AnyCommand) -> None:
        """Load the ended tasks that the command names back into memory, and what those name."""
        missing = self.core.missing(command)
        if missing is None:
            return
        asked = set(missing.ids)
        self._recall_all(missing)
        for _ in range(_RECALLS_MAX):
            missing = self.core.missing(command)
            ids = [] if missing is None else [each for each in missing.ids if each not in asked]
            if not ids:
                return
            asked.update(ids)
            self.core.book.recall(self.history.find(ids))

    def _recall_all(self, missing: Missing) -> None:
        if missing.ids:
            self.core.book.recall(self.history.find(missing.ids))
        if missing.aliases:
            self.core.book.recall(self.history.find_aliases(missing.namespace, missing.aliases))
        if missing.filter is not None:
            self._recall_matching(missing.namespace, missing.filter)

    def _recall_matching(self, namespace: str, wanted: Filter) -> None:
        """Recall as many ended tasks as one command may change, and one more to detect more.

        Skips rows that memory knows to be changed or gone.
        """
        wanting, cursor = TASKS_PER_FILTER_MAX + 1, ""
        while wanting > 0:
            page = self.history.page(
                namespace, wanted, limit=wanting, cursor=cursor, with_bodies=True
            )
            wanting -= self.core.book.recall(page.rows)
            cursor = page.cursor
            if not cursor:
                return


#: A flow names its nodes, and these what they waited for.
_RECALLS_MAX = 4

_INTERNAL = Refusal(Code.INTERNAL, "internal error; nothing was changed; see the broker's log")


def _refuse_all(commands: list[AnyCommand], fault: StorageFault) -> list[Effect]:
    if fault.is_settled:
        outcome = "nothing was changed; try again later"
    else:
        outcome = "it is unknown whether this was stored; repeat it with the same ids"
    return _refuse(commands, Refusal(Code.STORAGE_FAILED, f"{outcome}: {fault}", SECOND))


def _refuse(commands: list[AnyCommand], refusal: Refusal) -> list[Effect]:
    return [Reply(c.session, c.ref, refusal) for c in commands if c.ref]


# Recovery: rebuilding the core from what is stored.

#: By how much fences go on beyond the last known one after a loss: more than lost batches had.
FENCES_PER_LOSS = 10**9

#: Deep enough to decode what an earlier version accepted and could not read again.
_DEEP = 5_000


def recover(journal: Journal, history: History) -> tuple[Core, int]:
    """Return the recovered core and the sequence of its last batch; nothing is skipped."""
    core, applied = _load(history)
    sequence = applied
    level = core.book.counters.level
    for sequence, body in journal.read(applied):
        _apply(core, sequence, _records_of(sequence, body))
        if journal.is_shared:
            level = max(level, level_of(body))
    core.book.counters.level = level
    return core, sequence


def _apply(core: Core, sequence: int, records: list[AnyRecord]) -> None:
    try:
        core.apply(*records)
    except (BrokenInvariant, KeyError) as error:
        raise Corrupt(
            f"batch {sequence} of the journal does not follow from the batches before it: "
            f"{type(error).__name__}: {error}. {WAY_OUT}"
        ) from error


def recover_what_is_left(
    journal: Journal, history: History, witnessed: int, losses: list[str]
) -> tuple[Core, int]:
    """Return the core without what is damaged or missing, and the sequence to continue after.

    No number is reused: the sequence is beyond every batch that was acknowledged (`witnessed`, as
    far as known), and fences continue far beyond those that the lost batches may have had. Adds
    what is lost to `losses`. Raises `StorageFault` if the rest is inconsistent or history
    unreadable.
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
            f"the remaining data is inconsistent ({error}); restore the data folder from a backup"
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
                yield (
                    f"a {kind} in batch {sequence} does not follow from the remaining batches: "
                    f"{error}"
                )


def _sound_records(body: bytes) -> tuple[list[AnyRecord], int]:
    """Decode a batch without records that nest too deep; return also how many those are."""
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
    """Return the core as history has it, and the sequence of its last batch."""
    core = Core()
    core.calendar = CronCalendar()
    with _collecting_no_garbage():
        snapshot = history.load()
        core.book.restore(snapshot.counters, snapshot.entities, snapshot.tasks, snapshot.answers)
    return core, snapshot.sequence


@contextmanager
def _collecting_no_garbage() -> Iterator[None]:
    """Suspend garbage collection, which would scan a million live objects repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _records_of(sequence: int, body: bytes) -> list[AnyRecord]:
    try:
        return decode_batch(body)
    except NewerFormat as error:
        raise NewerFile(f"batch {sequence} of the journal has {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise Corrupt(
            f"batch {sequence} of the journal cannot be decoded: {error}. {WAY_OUT}"
        ) from error

"""The checker of a cluster: sees what the log stores, what nodes apply and what they tell.

The shadow hangs at the log, so it is the truth. A node that has applied the same batches must be
equal to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec

import msgspec

from jackalope.broker.engine import Turn
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment, Effect, Reply, SendToSession
from jackalope.core.ids import TaskId
from jackalope.core.records import TaskSubmitted, decode_batch
from jackalope.core.refusals import Code, Refusal
from jackalope.core.state.changes import Changes
from jackalope.core.task import BlobRef
from jackalope.storage import StorageFault
from jackalope.storage.entry import CHAINED, NO_DIGEST, Entry, Kind, decode
from jackalope.storage.shared.chunks import Joiner
from jackalope.storage.shared.journal import Claim
from tests.simulation.checker import Checker, Violation, _encode, _unfinished, demand
from tests.simulation.cluster.process import ClusterWorld

if TYPE_CHECKING:
    from tests.simulation.cluster.machine import Life, Machine

#: Every so many batches the state is compared.
_SAMPLE = 8

P = ParamSpec("P")


def _noticed(
    check: Callable[Concatenate[ClusterChecker, P], None],
) -> Callable[Concatenate[ClusterChecker, P], None]:
    """Let the world end with what a check finds, even where the code would go on."""

    @wraps(check)
    def careful(self: ClusterChecker, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            check(self, *args, **kwargs)
        except Exception as error:
            self.world.failure = self.world.failure or error
            raise

    return careful


class Batch(NamedTuple):
    """A batch in the log."""

    epoch: int
    body: bytes


class ClusterChecker(Checker):
    """Knows what stands in the log, and who wrote it."""

    def __init__(self, world: ClusterWorld) -> None:
        super().__init__()
        self.world = world
        self.batches: dict[int, Batch] = {}
        self.writers: dict[int, str] = {}
        self.claimed_us: dict[int, int] = {}
        self.epoch = self.sequence = 0
        self.told = 0  # the greatest sequence that anybody was told of
        self.blobs: dict[str, bytes] | None = None  # the store, if it is looked at
        self._submitted: set[TaskId] = set()
        self._digest = NO_DIGEST
        self._joiner = Joiner()
        self._refused: set[tuple[int, Batch]] = set()
        self._samples: dict[int, tuple[bytes, Changes]] = {}
        self._told_fences: dict[int, tuple[int, int]] = {}

    # What the log stores.

    @_noticed
    def on_stored(self, position: int, message: bytes) -> None:
        raw = self._joiner.add(message)
        if raw is None:
            return
        entry = decode(raw)
        if entry is None:
            raise Violation(f"message {position} is no entry")
        demand(entry.before == self._digest, "the chain is unbroken", position, entry)
        if entry.kind in CHAINED:
            self._digest = entry.digest
        if entry.kind == Kind.CLAIM:
            self._on_claim(entry)
            return
        demand(entry.epoch == self.epoch, "only the writer of an epoch writes", entry, self.epoch)
        if entry.kind == Kind.BATCH:
            self._on_batch(entry)

    def _on_claim(self, entry: Entry) -> None:
        demand(entry.epoch > self.epoch, "epochs grow, each with one writer", entry, self.epoch)
        demand(entry.sequence == self.sequence, "a claim counts all batches", entry)
        self.epoch = entry.epoch
        self.writers[entry.epoch] = msgspec.msgpack.decode(entry.body, type=Claim).writer
        self.claimed_us[entry.epoch] = self.world.now_us
        self.world.say("log", f"epoch {entry.epoch} of {self.writers[entry.epoch]}")
        self.counts["Claims"] += 1

    def _on_batch(self, entry: Entry) -> None:
        demand(entry.sequence == self.sequence + 1, "batches are counted", entry, self.sequence)
        self.sequence = entry.sequence
        batch = self.batches[entry.sequence] = Batch(entry.epoch, entry.body)
        demand((entry.sequence, batch) not in self._refused, "what is refused is not kept", entry)
        self.on_durable(decode_batch(entry.body))
        if entry.sequence % _SAMPLE == 0:
            self._samples[entry.sequence] = _print_of(self.shadow.book.snapshot())

    def _on_submitted(self, record: TaskSubmitted) -> None:
        super()._on_submitted(record)
        spec = record.spec
        # One that was forgotten and is submitted again may name what went with it.
        if isinstance(spec.payload, BlobRef) and spec.id not in self._submitted:
            is_there = self.blobs is None or spec.payload.blob in self.blobs
            demand(is_there, "what is named is there", record)
        self._submitted.add(spec.id)

    # What nodes do.

    @_noticed
    def on_applied(self, life: Life) -> None:
        """Take a node that has applied a batch, or stored one: it must be where the shadow was."""
        engine = life.broker.engine
        demand(engine.sequence <= self.sequence, "only what stands in the log is applied")
        if engine.sequence not in self._samples:
            return
        self.counts["Compared"] += 1
        expected, there = self._samples[engine.sequence]
        found, its = _print_of(engine.core.book.snapshot())
        if found != expected:
            self._differ(life.machine.name, engine.sequence, there, its)

    @_noticed
    def on_restored(self, life: Life) -> None:
        """Take a node that has taken over the state of another."""
        self.counts["Restored"] += 1
        life.machine.has_lost_disk = False
        self.world.say(life.machine.name, f"is restored at {life.broker.engine.sequence}")
        self.on_applied(life)

    @_noticed
    def on_cut(self, life: Life, machines: list[Machine], begins: int, size: int) -> None:
        """Take a log that a node has cut, so that it begins with a batch, or behind it."""
        self.counts["Cuts"] += 1
        own = life.machine.history.applied()
        demand(own + 1 >= begins, "who cuts has what is cut", life.machine.name, own, begins)
        if size > life.node.trimmer.keep.bytes_max:
            return
        for machine in machines:
            peer, has = life.peers.known.get(machine.name), machine.history.applied()
            if peer is not None and peer.is_reachable and not machine.has_lost_disk:
                demand(has + 1 >= begins, "what a member needs is kept", machine.name, has, begins)

    def _differ(self, name: str, sequence: int, expected: Changes, found: Changes) -> None:
        for kind in ("tasks", "entities", "answers"):
            pairs = zip(getattr(expected, kind), getattr(found, kind), strict=False)
            different = [pair for pair in pairs if pair[0] != pair[1]][:1]
            counts = len(getattr(expected, kind)), len(getattr(found, kind))
            demand(
                not different and counts[0] == counts[1],
                f"nodes are equal: {name} at {sequence}: {kind}",
                counts,
                different,
            )
        counters = expected.counters, found.counters
        raise Violation(f"nodes are equal: {name} at {sequence}: counters: {counters}")

    @_noticed
    def on_refused(self, sequence: int, batch: Batch) -> None:
        """Take a batch of which a journal says that nothing of it was or will be kept."""
        if not decode_batch(batch.body):
            return  # It only tries whether there is room.
        demand(self.batches.get(sequence) != batch, "what is refused is not kept", batch)
        self._refused.add((sequence, batch))

    @_noticed
    def on_settled(self, life: Life, turn: Turn, effects: list[Effect]) -> None:
        """Take a turn whose effects leave now."""
        name, engine = life.machine.name, life.broker.engine
        self._check_fences(life.node.view.epoch, effects)
        if not turn.body:
            is_led = self.writers.get(self.epoch) == name
            decided = [each for each in effects if not _is_storage_refusal(each)]
            demand(not decided or is_led, "who is deposed decides nothing", name, decided)
            return
        batch = self.batches.get(engine.sequence)
        demand(batch is not None and batch.body == turn.body, "told only when stored", name)
        if batch is not None:
            is_led = self.writers[batch.epoch] == name
            demand(is_led, "effects are of an epoch in which the node led", name, batch.epoch)
            self._check_late(life, batch.epoch)
        if effects:
            self.told = max(self.told, engine.sequence)
        if engine.sequence == self.sequence:
            self.on_turn(engine.core, turn)

    def _check_late(self, life: Life, epoch: int) -> None:
        """Demand that what was in doubt is not told once another node has led for a while."""
        since_us = min((us for each, us in self.claimed_us.items() if each > epoch), default=None)
        if since_us is None or life.process.thaws_us > since_us:
            return
        is_late = self.world.now_us - since_us > SECOND
        demand(not is_late, "what is known late is left to who leads", life.machine.name, epoch)

    @_noticed
    def on_told(self, life: Life, effect: Effect) -> None:
        """Take an effect that leaves a node."""
        writer = self.writers.get(life.node.view.epoch)
        demand(writer == life.machine.name, "who leads tells", effect)
        self._told_fence = 0  # Sessions are told in any order; `_check_fences` knows the turns.
        self.on_effect(effect)

    def _check_fences(self, epoch: int, effects: list[Effect]) -> None:
        """Demand that fences grow from turn to turn, and over epochs."""
        messages = [each.message for each in effects if isinstance(each, SendToSession)]
        fences = [each.fence for each in messages if isinstance(each, Assignment)]
        if not fences:
            return
        first, last = self._told_fences.get(epoch, (min(fences), 0))
        demand(min(fences) > last, "fences that are told grow", fences, last)
        self._told_fences[epoch] = (first, max(fences))
        for other, (low, high) in self._told_fences.items():
            is_right = min(fences) > high if other < epoch else max(fences) < low
            demand(other == epoch or is_right, "fences grow over epochs", fences, other, epoch)

    @_noticed
    def on_blob_deleted(self, life: Life, name: str) -> None:
        """Take a blob that a node deletes."""
        self.counts["BlobsDeleted"] += 1
        led = [epoch for epoch, writer in self.writers.items() if writer == life.machine.name]
        demand(led and life.leads, "only who leads deletes blobs", life.machine.name, name)
        if led:
            self._check_late(life, max(led))
        for task in self.shadow.book.tasks.values():
            is_named = isinstance(task.payload, BlobRef) and task.payload.blob == name
            demand(not is_named or self._is_forgotten(task), "what is named stays", task)

    @_noticed
    def on_fault(self, life: Life, fault: StorageFault) -> None:
        """Take the end of a node that ended by itself."""
        raise Violation(f"{life.machine.name} goes on, or stands still: {fault!r}") from fault

    @_noticed
    def on_read(self, life: Life, asked: int, sequence: int) -> None:
        """Take the answer to a read at a node that led when it was asked."""
        self.counts["Reads"] += 1
        demand(sequence >= asked, "reads are linearizable", life.machine.name, asked, sequence)


def _is_storage_refusal(effect: Effect) -> bool:
    """Return whether an effect says no more than that nothing can be stored just now."""
    body = effect.body if isinstance(effect, Reply) else None
    return isinstance(body, Refusal) and body.code is Code.STORAGE_FAILED


def _print_of(snapshot: Changes) -> tuple[bytes, Changes]:
    """Return what is equal on nodes that have applied the same, as a digest and as it is."""
    unfinished = _unfinished(snapshot)
    counters: Any = unfinished.counters
    fence = max(counters.fence, counters.reserved)
    numbers = (fence, counters.rank, counters.horizon_us)
    parts = (unfinished.tasks, unfinished.entities, unfinished.answers, numbers)
    return blake2b(_encode(parts), digest_size=8).digest(), unfinished

"""The checks: what must hold of every run, whatever was done to it.

Each takes the evidence and returns what it found wrong, in sentences. That nothing was found means
little unless something was done: `summary` counts it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.records import AttemptFinished, TaskSubmitted, decode_batch
from jackalope.storage.entry import CHAINED, NO_DIGEST, Entry, Kind
from jackalope.storage.shared.journal import Beat, Claim
from tests.chaos import linearizability
from tests.chaos.evidence import Evidence, NodeState
from tests.chaos.history import NEVER, Op
from tests.chaos.load import LETTERS, digest
from tests.simulation.checker import Checker, Violation

#: At most so many findings of a kind are told.
_TOLD_MAX = 5


class _Any(dict[str, Any]):
    """A worker of a real run has as many slots, and knows as many tasks, as it says."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self._value = value

    def __missing__(self, _key: str) -> object:
        return self._value


def lost(evidence: Evidence) -> list[str]:
    """Nothing that was acknowledged is lost: it is in the log and on every node, as it was sent."""
    found = [f"acknowledged, and not in the log: {op}" for op in lost_ops(evidence)]
    return found + [
        f"{op.task} was acknowledged, and {node.name} does not have it"
        for op in evidence.ops
        if op.kind == "submit" and op.outcome == "ok"
        for node in evidence.nodes
        if op.task not in node.rows
    ]


def lost_ops(evidence: Evidence) -> list[Op]:
    """Return what was acknowledged, and is not in the log as it was sent."""
    kept = {
        ("publish" if queue == LETTERS else task, digest(body))
        for queue, task, body in _submitted(evidence)
    }
    return [
        op
        for op in evidence.ops
        if op.outcome == "ok"
        and op.kind in {"submit", "publish"}
        and ("publish" if op.kind == "publish" else op.task, op.value) not in kept
    ]


def doubled(evidence: Evidence) -> list[str]:
    """Nothing was stored, begun or finished twice that was asked for once."""
    return [f"{task} was submitted, begun or finished twice" for task in doubles(evidence)]


def doubles(evidence: Evidence) -> set[str]:
    """Return what was done twice: tasks by their ids, messages by the digests of their bodies."""
    done = Counter(
        (digest(body) if queue == LETTERS else task, "submitted")
        for queue, task, body in _submitted(evidence)
    )
    for entry in _batches(evidence):
        done.update(
            (record.task.hex(), "finished")
            for record in decode_batch(entry.body)
            if isinstance(record, AttemptFinished)
        )
    done.update((op.task, op.value) for op in evidence.ops if op.kind == "start")
    return {what for (what, _), count in done.items() if count > 1}


def _submitted(evidence: Evidence) -> Iterator[tuple[str, str, bytes]]:
    """Yield queue, task and payload of all that is in the log."""
    for entry in _batches(evidence):
        for record in decode_batch(entry.body):
            if isinstance(record, TaskSubmitted) and isinstance(record.spec.payload, bytes):
                yield record.spec.queue, record.spec.id.hex(), record.spec.payload


def _batches(evidence: Evidence) -> Iterator[Entry]:
    for _, entry in evidence.entries():
        if entry is not None and entry.kind == Kind.BATCH:
            yield entry


def replay(evidence: Evidence) -> list[str]:
    """The records obey every rule of the simulation, and each node is where they lead."""
    checker = Checker()
    checker.slots, checker.names = _Any(2**30), _Any(None)
    nodes: dict[int, list[NodeState]] = defaultdict(list)
    for node in evidence.nodes:
        nodes[node.sequence].append(node)
    reached = 0
    try:
        for entry in _batches(evidence):
            checker.on_durable(decode_batch(entry.body))
            reached = entry.sequence
            for node in nodes.pop(entry.sequence, ()):
                checker.compare(node.core)
    except (Violation, BrokenInvariant, KeyError) as violation:
        return [f"batch {reached + 1}: {violation!r}"]
    return [
        f"{node.name} has applied batch {sequence}, which is not in the log"
        for sequence, each in nodes.items()
        if sequence
        for node in each
    ]


def attempts(evidence: Evidence) -> list[str]:
    """Of several attempts at a task only the last, with the greatest fence, finishes."""
    begun: dict[str, int] = defaultdict(int)
    told: dict[str, set[int]] = defaultdict(set)
    for op in evidence.ops:
        if op.kind == "start":
            begun[op.task] = max(begun[op.task], int(op.value))
        if op.kind == "read" and op.outcome == "succeeded" and op.value:
            told[op.task].add(int(op.value))
    return [
        f"{task} was finished by {sorted(fences)}, and last begun by {begun[task]}"
        for task, fences in told.items()
        if fences != {begun[task]}
    ]


def chain(evidence: Evidence) -> list[str]:
    """The log has no gap, is one chain, and is the same for all who read it."""
    found = (
        evidence.forks
        + [
            f"position {number} of the log is missing"
            for number, (position, _) in enumerate(evidence.messages, 1)
            if position != number
        ][:1]
    )
    before, sequence = NO_DIGEST, 0
    for position, entry in evidence.entries():
        if entry is None:
            found.append(f"position {position} is damaged")
            continue
        if entry.before != before:
            found.append(f"position {position} does not continue the chain")
        sequence += entry.kind == Kind.BATCH
        if entry.sequence != sequence:
            found.append(f"position {position} has sequence {entry.sequence}, not {sequence}")
        if entry.kind in CHAINED:
            before = entry.digest
    return found


def epochs(evidence: Evidence) -> list[str]:
    """Epochs grow, each has one writer, and time does not go back."""
    found: list[str] = []
    epoch = at_us = 0
    writers: dict[int, set[str]] = defaultdict(set)
    for led, name in evidence.led:
        writers[led].add(name)
    for position, entry in evidence.entries():
        if entry is None:
            continue
        is_claim = entry.kind == Kind.CLAIM
        if entry.epoch <= epoch if is_claim else entry.epoch != epoch:
            found.append(f"position {position} is of epoch {entry.epoch} after {epoch}")
        epoch = entry.epoch
        if is_claim:
            writers[epoch].add(msgspec.msgpack.decode(entry.body, type=Claim).writer)
        for told_us in _times(entry.kind, entry.body):
            if told_us < at_us:
                found.append(f"position {position}: time goes back by {at_us - told_us} us")
            at_us = max(at_us, told_us)
    found += [
        f"epoch {led} has writers {names}" for led, names in writers.items() if len(names) > 1
    ]
    return found


def _times(kind: int, body: bytes) -> list[int]:
    if kind == Kind.BATCH:
        return [record.at_us for record in decode_batch(body)]
    told_us = msgspec.msgpack.decode(body, type=Beat).at_us if kind == Kind.BEAT else 0
    return [told_us] if told_us else []


def equality(evidence: Evidence) -> list[str]:
    """Nodes that have applied the same batches have the same tasks, row by row."""
    found = []
    first, *rest = sorted(evidence.nodes, key=lambda node: -node.sequence)
    for node in rest:
        if node.sequence != first.sequence:
            found.append(f"{node.name} is at {node.sequence}, {first.name} at {first.sequence}")
            continue
        for task in sorted(first.rows.keys() | node.rows.keys()):
            one, other = first.rows.get(task), node.rows.get(task)
            if one != other:
                one, other = one or {}, other or {}
                fields = sorted(key for key in one | other if one.get(key) != other.get(key))
                found.append(f"{task} on {first.name} and {node.name} differs in {fields}")
    return found


def linear(evidence: Evidence) -> list[str]:
    """What clients and workers saw of each task has one order that explains it."""
    return [
        f"no order explains {task}: " + "; ".join(map(str, history))
        for task, history in linearizability.violations(evidence.ops).items()
    ]


Check = Callable[[Evidence], list[str]]

CHECKS: tuple[Check, ...] = (lost, doubled, replay, attempts, chain, epochs, equality, linear)


def problems(evidence: Evidence) -> list[str]:
    """Return everything that is wrong with a run."""
    found = []
    for check in CHECKS:
        told = check(evidence)
        found += [f"{check.__name__}: {each}" for each in told[:_TOLD_MAX]]
        if len(told) > _TOLD_MAX:
            found.append(f"{check.__name__}: and {len(told) - _TOLD_MAX} more")
    return found


def acknowledged(evidence: Evidence) -> int:
    """Return how many operations were answered."""
    return sum(op.back != NEVER and op.process[:1] in "crp" for op in evidence.ops)

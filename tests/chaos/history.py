"""The history of a run: what clients and workers did, when, and what they were told.

Owns the lines of the files in which they note it, and the same as EDN, which Jepsen's checkers
read. Times are nanoseconds of the machine's steady clock, which all processes share.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

#: An operation that nobody was told the outcome of may take effect at any later time.
NEVER = 2**63 - 1


class Op(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that was asked of the cluster about one task."""

    process: str
    kind: str  # submit, kill, read, start, finish; publish over AMQP
    task: str
    call: int
    back: int = NEVER  # when the answer came
    outcome: str = ""  # what it said; empty if none came
    value: str = ""  # the digest of the payload that was sent; the fence of an attempt or a result


class Notes:
    """A file of operations, to which one process adds."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def add(self, op: Op) -> None:
        self._file.write(msgspec.json.encode(op) + b"\n")


def now() -> int:
    return time.monotonic_ns()


def read(folder: Path) -> list[Op]:
    """Return all operations of a run, by the time of their call."""
    decode = msgspec.json.Decoder(Op).decode
    ops = [
        decode(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")  # A process may be killed while it writes.
    ]
    return sorted(ops, key=lambda op: op.call)


def to_edn(ops: Iterable[Op]) -> Iterator[str]:
    """Yield a history as Jepsen has it: each operation an `:invoke`, and what came of it.

    A process there does one thing at a time, so each operation takes a free number; one without
    an answer keeps its number for ever. Values are `[task value]`, as of independent keys.
    """
    events: list[tuple[int, int, int, Op]] = []
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    count = 0
    for index, op in enumerate(sorted(ops, key=lambda op: op.call)):
        while busy and busy[0][0] < op.call:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            process = heapq.heappop(free)
        else:
            process, count = count, count + 1
        events.append((op.call, 0, process, op))
        if op.back != NEVER:
            heapq.heappush(busy, (op.back, process))
            events.append((op.back, index + 1, process, op))
    for at, is_end, process, op in sorted(events, key=lambda event: event[:3]):
        kind = ":ok" if is_end else ":invoke"
        value = op.outcome or op.value if is_end else op.value
        yield (
            f"{{:process {process}, :type {kind}, :f :{op.kind}, "
            f':value ["{op.task}" "{value}"], :time {at}}}'
        )

"""Stages: what became of the time of one submit or one round trip, from the marks on its way.

One request is on its way at a time, so that what was marked between its begin and its end is its
own. The way is followed forwards to the worker, and from its report forwards again; that report is
found from the end backwards, since the broker may have heard of the beginning of the attempt first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from bench.latency.marks import Mark

#: The nanoseconds of each stage, in the order of the way.
Stages = dict[str, int]

_BROKER = (
    ("decoded", "decode"),
    ("posted", "check, make the command, post it"),
    ("turn", "until the turn begins"),
    ("core", "core"),
    ("decided", "encode the batch"),
    ("sync", "journal, before the sync"),
    ("synced", "sync"),
)


class Track:
    """The marks of one process, in their order."""

    def __init__(self, marks: Iterable[Mark]) -> None:
        self._marks = sorted(marks, key=attrgetter("at_ns"))

    def between(self, begin_ns: int, end_ns: int) -> Track:
        """Return the marks of one request."""
        at = attrgetter("at_ns")
        first = bisect_left(self._marks, begin_ns, key=at)
        last = bisect_left(self._marks, end_ns, first, key=at)
        track = Track(())
        track._marks = self._marks[first:last]  # In order already.
        return track

    def first(self, what: str, after_ns: int, *, not_of: int = 0, of: int = 0) -> Mark | None:
        """Return the first mark of its kind from a time on."""
        return next(
            (m for m in self._marks if m.at_ns >= after_ns and _fits(m, what, not_of, of)), None
        )

    def last(self, what: str, before_ns: int, *, not_of: int = 0, of: int = 0) -> Mark | None:
        """Return the last mark of its kind before a time."""
        marks = reversed(self._marks)
        return next((m for m in marks if m.at_ns < before_ns and _fits(m, what, not_of, of)), None)


def _fits(mark: Mark, what: str, not_of: int, of: int) -> bool:
    return mark.what == what and (not of or mark.whose == of) and mark.whose != (not_of or -1)


class _Walk:
    """Goes from mark to mark. The way to one that is missing counts as a part of the next."""

    def __init__(self, begin_ns: int) -> None:
        self.at_ns = begin_ns
        self.stages: Stages = {}

    def to(self, mark: Mark | None, stage: str) -> None:
        if mark is not None:
            self.stages[stage] = mark.at_ns - self.at_ns
            self.at_ns = mark.at_ns

    def through_broker(self, broker: Track, prefix: str) -> None:
        for what, stage in _BROKER:
            self.to(broker.first(what, self.at_ns), f"{prefix}: {stage}")


def of_submit(begin_ns: int, end_ns: int, tracks: Mapping[str, Track]) -> Stages | None:
    """Return the stages of one submit; None if the marks do not tell."""
    client, broker = (tracks[role].between(begin_ns, end_ns) for role in ("client", "broker"))
    walk = _Walk(begin_ns)
    walk.to(client.first("write", begin_ns), "client: encode")
    read = broker.first("read", walk.at_ns)
    reply = client.last("read", end_ns)
    if read is None or reply is None:
        return None
    walk.to(read, "write, wire, wake the broker")
    walk.through_broker(broker, "broker")
    walk.to(broker.first("deliver", walk.at_ns), "broker: settle, route the reply")
    walk.to(broker.first("write", walk.at_ns, of=read.whose), "broker: make the frame")
    walk.to(reply, "write, wire, wake the client")
    walk.to(Mark("", end_ns), "client: decode, resolve")
    return walk.stages


def of_round_trip(begin_ns: int, end_ns: int, tracks: Mapping[str, Track]) -> Stages | None:
    """Return the stages of one round trip; None if the marks do not tell."""
    client, broker, worker = (
        tracks[role].between(begin_ns, end_ns) for role in ("client", "broker", "worker")
    )
    walk = _Walk(begin_ns)
    walk.to(client.first("write", begin_ns), "client: encode")
    read, result = broker.first("read", walk.at_ns), client.last("read", end_ns)
    if read is None or result is None:
        return None
    ours = read.whose
    walk.to(read, "write, wire, wake the broker")
    walk.through_broker(broker, "submit")
    walk.to(broker.first("write", walk.at_ns, not_of=ours), "submit: assignment to its frame")
    walk.to(worker.first("read", walk.at_ns), "write, wire, wake the worker")
    walk.to(worker.first("assigned", walk.at_ns), "worker: decode")
    walk.to(worker.first("called", walk.at_ns), "worker: begin, hand over to its loop")
    walk.to(worker.first("ended", walk.at_ns), "worker: the function")
    answer = broker.last("write", result.at_ns, of=ours)
    synced = broker.last("synced", answer.at_ns) if answer else None
    turn = broker.last("turn", synced.at_ns) if synced else None
    report = broker.last("read", turn.at_ns, not_of=ours) if turn else None
    sent = worker.last("write", report.at_ns) if report else None
    if report is None or sent is None or sent.at_ns < walk.at_ns:
        return None
    walk.to(sent, "worker: hand back, encode")
    walk.to(report, "write, wire, wake the broker again")
    walk.through_broker(broker, "finish")
    walk.to(answer, "finish: result to its frame")
    walk.to(result, "write, wire, wake the client")
    walk.to(Mark("", end_ns), "client: decode, resolve")
    return walk.stages


def names(found: Sequence[Stages]) -> list[str]:
    """Return every stage that was seen, in the order of the way."""
    longest = max(found, key=len, default={})
    rest = dict.fromkeys(name for stages in found for name in stages)
    return [*longest, *(name for name in rest if name not in longest)]

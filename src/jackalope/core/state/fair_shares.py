"""Fair shares: whose turn it is, where several have work waiting.

Owns the order of turns between the shares of a queue, between the queues of a worker, and between
the namespaces of a worker. Knows nothing of tasks. Nothing of it is durable: after a restart all
start equal, which costs none of them more than one turn.

Theory of operation
===================

This is start-time fair queueing. Each member has a virtual time `at`; the one with the least is
next, and being served moves it on by `QUANTUM / weight`. Among equals it is the one that has been
there for longest. So while a member waits, another of the same weight has at most one turn more
than it; and in general turns divided by weights differ by `1 / weight + 1 / other weight` at most.

The clock is the virtual time of what was served last. A member that begins to wait starts at the
clock: it has no credit for having been idle. One that has just been served and comes back starts
where it would be if it had stayed, so nothing is gained by submitting one task at a time. That is
why a member that has nothing left is remembered until the clock has passed it, or none waits.

A member may be passed over for long although it waits: because of limits, or because no worker
that is there can take its tasks. It falls behind the clock and is first when it can be served, but
goes on from the clock: what it missed is no credit either.

A clock that only follows what is served stands still while ever new members arrive: all of them
start at the clock, before those that were served once. So it also moves on by itself, at half the
pace at which those that wait would if they were served evenly. Then the members that arrive too
fast wait, and not those that were there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush, nlargest

#: The virtual time that a turn takes at weight 1. All times are whole numbers, so that nothing is
#: lost by rounding; the greatest weight and 100,000 shares divide it well.
QUANTUM = 2**60

#: A turn has room below it for the order of tasks within a member, and for a serial number.
_ORDER_BITS = 80
_SERIAL_BITS = 64


class Turn:
    """The place of a member among others.

    Attributes:
        at: its virtual time.
        place: what turns are compared by. Differences within a member, as of `ready_queue.order`,
            may be added.
        step: the virtual time that one turn takes.
    """

    __slots__ = ("at", "place", "step")

    def __init__(self, weight: int = 1) -> None:
        self.at = 0
        self.place = 0
        self.step = QUANTUM // weight


class Clock:
    """The virtual time of members that take turns."""

    __slots__ = ("_serial", "now")

    def __init__(self) -> None:
        self.now = 0
        self._serial = 0

    def serve(self, turn: Turn) -> None:
        """Note that a member had its turn."""
        start = max(turn.at, self.now)
        self.now = max(self.now, start)
        self.put(turn, start + turn.step)

    def put(self, turn: Turn, at: int) -> None:
        """Let a member be at this time, behind those that are there."""
        self._serial += 1
        turn.at = at
        turn.place = ((at << _SERIAL_BITS) + self._serial) << _ORDER_BITS


class FairShare(Turn):
    """The ready tasks of one queue that have the same value of its fairness key.

    Attributes:
        size: how many there are.
        value: the value of the key; empty for those that have none.
        parked: the time at which it is to be forgotten, if it has nothing by then.
    """

    __slots__ = ("parked", "size", "value", "weight")

    def __init__(self, value: str, weight: int) -> None:
        super().__init__(weight)
        self.value = value
        self.weight = weight
        self.size = 0
        self.parked = -1


class FairShares(Clock):
    """The shares of one queue, of which each is served in its turn."""

    __slots__ = ("_idle", "_shares", "_weight", "count", "weights")

    def __init__(self, weights: Mapping[str, int]) -> None:
        super().__init__()
        self.weights = weights  # of the shares whose weight is not 1
        self._shares: dict[str, FairShare] = {}  # those that wait, or are ahead of the clock
        self.count = 0  # how many wait
        self._weight = 0  # of these together
        self._idle: list[tuple[int, str]] = []  # those that have nothing, by when they are past

    def enter(self, value: str, count: int) -> FairShare:
        """Count ready tasks in, and return their share."""
        share = self._shares.get(value)
        if share is None:
            share = self._shares[value] = FairShare(value, self.weights.get(value, 1))
        if not share.size:
            self.count += 1
            self._weight += share.weight
            self.put(share, max(share.at, self.now))
        share.size += count
        return share

    def leave(self, share: FairShare, count: int) -> None:
        """Count tasks out that are no longer ready."""
        share.size -= count
        if not share.size:
            self.count -= 1
            self._weight -= share.weight
            if share.at <= self.now:
                del self._shares[share.value]
            elif share.at != share.parked:
                share.parked = share.at
                heappush(self._idle, (share.at, share.value))

    def serve(self, turn: Turn) -> None:
        super().serve(turn)
        self.now += QUANTUM // (2 * self._weight)
        idle = self._idle
        while idle and idle[0][0] <= self.now:
            _, value = heappop(idle)
            share = self._shares.get(value)
            if share is not None and not share.size and share.at <= self.now:
                del self._shares[value]

    def clear(self) -> None:
        """Start again, all equal, because nothing waits."""
        self._shares.clear()
        self._idle.clear()
        self._weight = 0

    def weigh(self, weights: Mapping[str, int]) -> None:
        """Give the shares other weights, from their next turns on."""
        self.weights = weights
        for share in self._shares.values():
            share.weight = weights.get(share.value, 1)
            share.step = QUANTUM // share.weight
        self._weight = sum(share.weight for share in self.waiting())

    def waiting(self) -> Iterable[FairShare]:
        """Yield the shares that have tasks."""
        return (share for share in self._shares.values() if share.size)

    def deepest(self, count: int) -> list[FairShare]:
        """Return the shares with the most tasks, those first."""
        return nlargest(count, self.waiting(), key=lambda share: share.size)

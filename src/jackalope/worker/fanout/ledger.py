"""The ledger of a fan-out: which batch of items is where, and what has come back.

Owns that every item is merged exactly once, however often it was computed, and how large a batch
is. Knows neither sockets nor threads but for its lock: it is called from whichever thread has
something to report, and calls `on_work` and `on_news` without the lock.

Theory of operation. Items come in batches, in order. A batch waits, is held by one peer or more,
and is done when each of its items has a result. The first result of an item counts, and later ones
are dropped. An item that is to be tried again becomes a batch of its own, whose result goes to its
place in the batch that it came from. A batch that lost several peers may have killed them: it is
taken apart, so that one bad item takes no others along, and an item that goes on losing peers has
failed.

Batches are as large as about `BATCH_S` of work, by what items took so far: the cost of handing
over is then small against the work, and no peer is far ahead at the end. What waits to be consumed
is bounded, so that a slow consumer holds up the input and not the memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from jackalope.core.task import Error
from jackalope.errors import JackalopeError
from jackalope.wire.fanout import ItemFailed

#: How much work a batch should be, and how many items at the most.
BATCH_S = 0.05
BATCH_ITEMS_MAX = 4_096
BATCH_BYTES = 512 * 1024

#: What may be under way or unread at once.
WINDOW_ITEMS = 65_536
WINDOW_BYTES = 64 * 1024 * 1024

#: After how many lost helpers a batch is taken apart, and an item has failed.
LOSSES_MAX = 3

OnError = Literal["fail", "collect"]
_MISSING: Any = object()


class ItemError(JackalopeError):
    """An item of a fan-out failed for good."""

    def __init__(self, index: int, error: Error) -> None:
        super().__init__(f"item {index}: {error.type}: {error.message}")
        self.index = index  # the place of the item among all items
        self.error = error  # type, message and trace of what was raised


class Batch:
    """Some items on their way."""

    __slots__ = (
        "begin",
        "count",
        "data",
        "holders",
        "losses",
        "missing",
        "number",
        "parent",
        "results",
        "retrying",
        "tries",
    )

    def __init__(self, number: int, begin: int, count: int, data: bytes) -> None:
        self.number = number  # names it
        self.begin = begin  # the place of its first item among all items
        self.count = count  # how many items it has
        self.data = data  # the items, encoded
        # the batch that it was taken out of, and the place there
        self.parent: tuple[Batch, int] | None = None
        self.tries = 0  # how often its item has failed
        self.losses = 0  # how many helpers were lost with it
        self.holders: set[object] = set()  # who has it
        self.retrying: set[int] = set()  # the places of items that became batches of their own
        self.results: list[Any] = []  # what came back
        self.missing = count  # how many results have not

    def put(self, at: int, value: Any) -> bool:
        """Store the result of one item, and return whether it was the first."""
        if not self.results:
            self.results = [_MISSING] * self.count
        if self.results[at] is not _MISSING:
            return False
        self.results[at] = value
        self.missing -= 1
        return True

    def is_open(self, at: int) -> bool:
        """Return whether an item has no result yet."""
        return self.missing > 0 and (not self.results or self.results[at] is _MISSING)


class Ledger:
    """The state and outcome of the items of one `map`."""

    def __init__(
        self,
        *,
        is_ordered: bool = True,
        retries: int = 0,
        on_error: OnError = "fail",
        total: int | None = None,
        item_s: float = 0.0,
    ) -> None:
        self._lock = threading.Lock()
        self._is_ordered = is_ordered
        self._retries = retries
        self._on_error = on_error
        self.total = total  # how many items there will be, if that is known
        self.done = 0  # how many have a result
        self.failure: BaseException | None = None  # why the whole has failed
        self.on_work: Callable[[], None] = _nothing  # called when there may be something to take
        # called when there may be results, or room for more items
        self.on_news: Callable[[], None] = _nothing
        self._batches: dict[int, Batch] = {}
        self._waiting: deque[Batch] = deque()
        self._held: dict[object, dict[int, Batch]] = {}
        self._results: dict[int, list[Any]] = {}
        self._unordered: deque[list[Any]] = deque()
        self._next_out = 0
        self._numbers = 0
        self._items_in = 0
        self._unread = 0
        self._bytes = 0
        self._is_complete = False
        self.item_s = item_s  # how long an item takes, as far as is known
        self._item_bytes = 0.0
        # What is known need not be felt for with small batches first.
        self._size = BATCH_ITEMS_MAX if item_s else 0
        self._peers = 1

    # The owner's side: items in, results out.

    def room(self) -> int:
        """Return how many items the next batch should have; 0 if none is wanted now."""
        if self._is_complete or len(self._waiting) >= 2 * self._peers:
            return 0
        if self._unread and (self._unread >= WINDOW_ITEMS or self._bytes >= WINDOW_BYTES):
            return 0
        return self._fitting()

    def offer(self, count: int, data: bytes) -> None:
        with self._lock:
            self._numbers += 1
            batch = Batch(self._numbers, self._items_in, count, data)
            self._items_in += count
            self._unread += count
            self._bytes += len(data)
            per_item = len(data) / count
            self._item_bytes = max(per_item, 0.9 * self._item_bytes + 0.1 * per_item)
            self._batches[batch.number] = batch
            self._waiting.append(batch)
        self.on_work()

    def complete(self) -> None:
        self._is_complete = True

    def take_results(self) -> list[Any]:
        """Return results that are due to be read; none if there are none yet."""
        with self._lock:
            if self._is_ordered:
                results = self._results.pop(self._next_out, [])
                self._next_out += len(results)
            else:
                results = self._unordered.popleft() if self._unordered else []
            self._unread -= len(results)
            if not self._unread:
                self._bytes = 0
        return results

    @property
    def is_starved(self) -> bool:
        return not self._waiting

    @property
    def is_over(self) -> bool:
        """Whether every item was given in and every result read."""
        return self._is_complete and not self._unread

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.on_news()

    # The peers' side: batches out, results in.

    def enlist(self, count: int) -> None:
        """Take how many peers there are."""
        self._peers = max(1, count)
        self.on_news()

    def take(self, peer: object, *, is_careful: bool = False) -> Batch | None:
        """Give a peer a batch, if there is one for it.

        A careful peer is not given what may have killed others, as long as there are others.
        """
        with self._lock:
            for _ in range(len(self._waiting)):
                batch = self._waiting.popleft()
                if not batch.missing or batch.number not in self._batches:
                    continue
                is_risky = is_careful and batch.losses > 1 and self._peers > 1
                if peer in batch.holders or is_risky:
                    self._waiting.append(batch)
                    continue
                batch.holders.add(peer)
                self._held.setdefault(peer, {})[batch.number] = batch
                break
            else:
                return None
            is_short = len(self._waiting) < 2 * self._peers
        if is_short and not self._is_complete:
            self.on_news()
        return batch

    def answer(
        self,
        peer: object,
        number: int,
        begin: int,
        values: list[Any],
        failed: Iterable[ItemFailed] = (),
        *,
        busy_us: int = 0,
    ) -> None:
        """Take the report of a peer on a batch, or on a part of it. Ignore repeated reports."""
        with self._lock:
            batch = self._batches.get(number)
            if batch is None:
                self._held.get(peer, {}).pop(number, None)
                return
            if not 0 <= begin < begin + len(values) <= batch.count:
                raise ValueError(f"{len(values)} results from {begin} on; it has {batch.count}")
            if busy_us > 0:
                self._learn(busy_us / 1e6 / batch.count)
            self._merge(batch, begin, values, {failure.at: failure for failure in failed})
            if begin + len(values) >= batch.count or not batch.missing:
                self._held.get(peer, {}).pop(number, None)
            is_news = self._settle(batch)
        if is_news or self.failure is not None:
            self.on_news()
        if self._waiting:
            self.on_work()

    def holds(self, peer: object) -> int:
        return len(self._held.get(peer, ()))

    def give_back(self, peer: object, *, is_lost: bool) -> None:
        """Offer the batches of a peer that is lost, or silent, to others."""
        with self._lock:
            held = self._held.get(peer, {})
            for batch in held.values():
                if batch.missing and batch not in self._waiting:
                    if is_lost:
                        batch.holders.discard(peer)
                        batch.losses += 1
                    self._wait_again(batch)
            if is_lost:
                self._held.pop(peer, None)
        self.on_work()
        self.on_news()

    # In the lock.

    def _merge(
        self, batch: Batch, begin: int, values: list[Any], failed: dict[int, ItemFailed]
    ) -> None:
        if not failed and len(values) == batch.count == batch.missing:
            batch.results, batch.missing = values, 0  # As nearly always.
            self.done += 0 if batch.parent else batch.count
            return
        for at, value in enumerate(values, begin):
            if at not in failed:
                self._put(batch, at, value)
            elif batch.is_open(at) and at not in batch.retrying:
                self._on_failed(batch, failed[at])

    def _put(self, batch: Batch, at: int, value: Any) -> None:
        if batch.put(at, value) and batch.parent is None:
            self.done += 1

    def _settle(self, batch: Batch) -> bool:
        """Check a batch whose last result may have come; return whether there is something new."""
        while not batch.missing:
            if self._batches.pop(batch.number, None) is None:
                return False
            for peer in batch.holders:
                self._held.get(peer, {}).pop(batch.number, None)
            if batch.parent is None:
                if self._is_ordered:
                    self._results[batch.begin] = batch.results
                else:
                    self._unordered.append(batch.results)
                return True
            whole, at = batch.parent
            self._put(whole, at, batch.results[0])
            batch = whole
        return False

    def _on_failed(self, batch: Batch, failure: ItemFailed) -> None:
        if failure.can_retry and batch.tries < self._retries:
            self._single_out(batch, failure.at, tries=batch.tries + 1)
        else:
            self._give_up(batch, failure.at, failure.error)

    def _give_up(self, batch: Batch, at: int, error: Error) -> None:
        failed = ItemError(batch.begin + at, error)
        if self._on_error == "collect":
            self._put(batch, at, failed)
        elif self.failure is None:
            self.failure = failed

    def _single_out(self, batch: Batch, at: int, *, tries: int, losses: int = 0) -> None:
        if batch.count == 1:
            batch.tries, batch.losses = tries, max(batch.losses, losses)
            batch.holders.clear()
            self._waiting.append(batch)
            return
        batch.retrying.add(at)
        self._numbers += 1
        raw = msgspec.msgpack.decode(batch.data, type=list[msgspec.Raw])[at]
        one = Batch(self._numbers, batch.begin + at, 1, b"\x91" + bytes(raw))
        one.parent, one.tries, one.losses = (batch, at), tries, losses
        self._batches[one.number] = one
        self._waiting.append(one)

    def _wait_again(self, batch: Batch) -> None:
        if batch.losses < LOSSES_MAX:
            self._waiting.appendleft(batch)
            return
        if batch.count > 1:
            for at in range(batch.count):
                if batch.is_open(at) and at not in batch.retrying:
                    self._single_out(batch, at, tries=batch.tries, losses=1)
            return
        message = f"{batch.losses} helpers were lost while they had it"
        self._give_up(batch, 0, Error("HelperLost", message))
        self._settle(batch)

    def _learn(self, item_s: float) -> None:
        known = self.item_s
        self.item_s = item_s if not known else 0.7 * known + 0.3 * item_s

    def _fitting(self) -> int:
        """Return how many items make a batch of the right size now."""
        if not self.item_s:
            return 1
        size = min(BATCH_S / max(self.item_s, 1e-7), 4 * max(self._size, 1), BATCH_ITEMS_MAX)
        size = min(size, BATCH_BYTES / max(self._item_bytes, 1))
        if self.total is not None:
            size = min(size, (self.total - self._items_in) / (3 * self._peers))
        self._size = max(1, int(size))
        return self._size


def _nothing() -> None:
    pass

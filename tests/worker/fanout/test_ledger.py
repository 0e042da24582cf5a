"""The ledger: every item is merged once, whatever becomes of those who compute it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import pytest

from jackalope.core.task import Error
from jackalope.wire.fanout import ItemFailed
from jackalope.worker.fanout.ledger import (
    BATCH_BYTES,
    BATCH_ITEMS_MAX,
    BATCH_S,
    LOSSES_MAX,
    WINDOW_BYTES,
    WINDOW_ITEMS,
    Batch,
    ItemError,
    Ledger,
)

OOPS = Error("Oops", "sorry")


def give_in(ledger: Ledger, *items: Any) -> None:
    ledger.offer(len(items), msgspec.msgpack.encode(list(items)))


def items_of(batch: Batch) -> list[Any]:
    items: list[Any] = msgspec.msgpack.decode(batch.data)
    return items


def take(ledger: Ledger, peer: object) -> Batch:
    batch = ledger.take(peer)
    assert batch is not None
    return batch


def compute(ledger: Ledger, peer: object, batch: Batch, **more: Any) -> None:
    """Answer each item with its tenfold."""
    ledger.answer(peer, batch.number, 0, [10 * item for item in items_of(batch)], **more)


def read(ledger: Ledger) -> list[Any]:
    return [result for results in iter(ledger.take_results, []) for result in results]


@pytest.mark.feature("J34")
def test_results_come_in_the_order_of_the_items() -> None:
    ledger = Ledger()
    give_in(ledger, 1, 2)
    give_in(ledger, 3)
    first, second = take(ledger, "a"), take(ledger, "b")
    compute(ledger, "b", second)
    assert read(ledger) == []
    compute(ledger, "a", first)
    assert read(ledger) == [10, 20, 30]
    before = ledger.is_over
    ledger.complete()
    assert (before, ledger.is_over) == (False, True)
    assert ledger.done == 3


def test_results_come_as_they_are_ready() -> None:
    ledger = Ledger(is_ordered=False)
    give_in(ledger, 1, 2)
    give_in(ledger, 3)
    first, second = take(ledger, "a"), take(ledger, "b")
    compute(ledger, "b", second)
    assert read(ledger) == [30]
    compute(ledger, "a", first)
    assert read(ledger) == [10, 20]


def test_what_a_lost_peer_had_goes_to_another_and_its_late_answer_does_not_count() -> None:
    ledger = Ledger()
    give_in(ledger, 1, 2)
    batch = take(ledger, "lost")
    assert ledger.take("other") is None
    ledger.give_back("lost", is_lost=True)
    again = take(ledger, "other")
    assert again is batch
    compute(ledger, "other", again)
    ledger.answer("lost", batch.number, 0, ["late", "late"])
    assert read(ledger) == [10, 20]
    assert ledger.done == 2


def test_what_a_silent_peer_has_goes_to_another_and_the_first_answer_counts() -> None:
    ledger = Ledger()
    give_in(ledger, 1, 2)
    batch = take(ledger, "silent")
    ledger.give_back("silent", is_lost=False)
    assert ledger.take("silent") is None  # It has it already.
    assert take(ledger, "other") is batch
    compute(ledger, "silent", batch)
    ledger.answer("other", batch.number, 0, ["late", "late"])
    assert read(ledger) == [10, 20]
    assert (ledger.holds("silent"), ledger.holds("other")) == (0, 0)


def test_answers_in_parts_from_two_peers_are_merged() -> None:
    ledger = Ledger()
    give_in(ledger, 1, 2, 3)
    batch = take(ledger, "a")
    ledger.give_back("a", is_lost=False)
    take(ledger, "b")
    ledger.answer("a", batch.number, 0, [10])
    ledger.answer("b", batch.number, 0, ["late", 20])
    ledger.answer("a", batch.number, 1, ["late", 30])
    assert read(ledger) == [10, 20, 30]
    assert ledger.done == 3


def failed(at: int, *, can_retry: bool = True) -> list[ItemFailed]:
    return [ItemFailed(at, OOPS, can_retry)]


def test_an_item_that_failed_is_tried_again_alone() -> None:
    ledger = Ledger(retries=1)
    give_in(ledger, 1, 2, 3)
    ledger.answer("a", take(ledger, "a").number, 0, [10, None, 30], failed(1))
    assert read(ledger) == []
    alone = take(ledger, "a")
    assert items_of(alone) == [2]
    compute(ledger, "a", alone)
    assert read(ledger) == [10, 20, 30]


@pytest.mark.parametrize(("retries", "can_retry"), [(0, True), (5, False)])
def test_an_item_that_failed_for_good_fails_the_whole(retries: int, can_retry: bool) -> None:
    ledger = Ledger(retries=retries)
    give_in(ledger, 7)
    give_in(ledger, 8, 9)
    take(ledger, "a")
    ledger.answer("a", take(ledger, "a").number, 0, [80, None], failed(1, can_retry=can_retry))
    assert isinstance(ledger.failure, ItemError)
    assert (ledger.failure.index, ledger.failure.error) == (2, OOPS)


def test_items_that_failed_for_good_can_be_collected() -> None:
    ledger = Ledger(retries=1, on_error="collect")
    give_in(ledger, 1, 2)
    ledger.answer("a", take(ledger, "a").number, 0, [None, 20], failed(0))
    ledger.answer("a", take(ledger, "a").number, 0, [None], failed(0))
    error, value = read(ledger)
    assert isinstance(error, ItemError)
    assert (error.index, error.error, value) == (0, OOPS, 20)
    assert ledger.failure is None
    assert ledger.done == 2


def test_a_single_item_that_failed_is_tried_again_as_it_is() -> None:
    ledger = Ledger(retries=2, on_error="collect")
    give_in(ledger, 1)
    for _ in range(2):
        ledger.answer("a", take(ledger, "a").number, 0, [None], failed(0))
    compute(ledger, "a", take(ledger, "a"))
    assert read(ledger) == [10]


def test_an_item_that_kills_its_helpers_fails_and_takes_no_other_along() -> None:
    ledger = Ledger(on_error="collect")
    give_in(ledger, *range(5))
    deaths = 0
    while (batch := ledger.take("helper")) is not None:
        if 3 in items_of(batch):
            deaths += 1
            ledger.give_back("helper", is_lost=True)
        else:
            compute(ledger, "helper", batch)
    results = read(ledger)
    assert results[:3] + results[4:] == [0, 10, 20, 40]
    assert isinstance(results[3], ItemError)
    assert (results[3].index, results[3].error.type) == (3, "HelperLost")
    assert deaths == 2 * LOSSES_MAX - 1


def test_the_owner_leaves_what_may_have_killed_others_to_others() -> None:
    ledger = Ledger()
    ledger.enlist(2)
    give_in(ledger, 1)
    give_in(ledger, 2)
    for _ in range(2):
        take(ledger, "victim")
        ledger.give_back("victim", is_lost=True)
    other = take(ledger, "other")
    assert items_of(other) == [1]
    ledger.give_back("other", is_lost=False)
    mine = ledger.take("owner", is_careful=True)
    assert mine is not None
    assert items_of(mine) == [2]
    assert ledger.take("owner", is_careful=True) is None
    ledger.enlist(1)
    assert ledger.take("owner", is_careful=True) is other


@pytest.mark.parametrize(("begin", "count"), [(0, 0), (0, 3), (2, 1), (-1, 1), (1, 2)], ids=str)
def test_answers_that_do_not_fit_are_refused(begin: int, count: int) -> None:
    ledger = Ledger()
    give_in(ledger, 1, 2)
    batch = take(ledger, "a")
    with pytest.raises(ValueError, match="it has 2"):
        ledger.answer("a", batch.number, begin, [0] * count)
    compute(ledger, "a", batch)
    assert read(ledger) == [10, 20]


# How large a batch is, and how much is under way.


def test_batches_grow_to_a_certain_time() -> None:
    ledger = Ledger()
    sizes = []
    for _ in range(20):
        sizes.append(ledger.room())
        give_in(ledger, *range(sizes[-1]))
        compute(ledger, "a", take(ledger, "a"), busy_us=1_000 * sizes[-1])
        read(ledger)
    assert sizes[:3] == [1, 4, 16]
    assert sizes[-1] == BATCH_S / 0.001


def test_batches_begin_as_large_as_is_known_to_be_right() -> None:
    assert Ledger().room() == 1
    assert Ledger(item_s=BATCH_S / 500).room() == 500
    assert Ledger(item_s=BATCH_S / 500, total=30).room() == 10


def test_batches_have_limits_and_shrink_towards_the_end() -> None:
    ledger = Ledger(total=100_000)
    sizes = []
    while count := ledger.room():
        sizes.append(count)
        give_in(ledger, *[0] * count)
        compute(ledger, "a", take(ledger, "a"), busy_us=1)
        read(ledger)
        if sum(sizes) == 100_000:
            ledger.complete()
    assert max(sizes) == BATCH_ITEMS_MAX
    assert sizes[-1] == 1


def test_large_items_make_small_batches() -> None:
    ledger = Ledger()
    give_in(ledger, b"x" * (BATCH_BYTES // 2))
    ledger.answer("a", take(ledger, "a").number, 0, [0], busy_us=1)
    assert ledger.room() == 1


def test_nothing_more_is_wanted_while_enough_waits() -> None:
    ledger = Ledger()
    give_in(ledger, 1)
    assert ledger.room() == 1
    give_in(ledger, 2)
    assert ledger.room() == 0
    ledger.enlist(2)
    assert ledger.room() == 1


@pytest.mark.parametrize(
    ("items", "size"), [(WINDOW_ITEMS, 1), (1, WINDOW_BYTES)], ids=["items", "bytes"]
)
def test_nothing_more_is_wanted_while_too_much_is_unread(items: int, size: int) -> None:
    ledger = Ledger()
    ledger.offer(items, bytes(max(size, items)))
    batch = take(ledger, "a")
    assert ledger.room() == 0
    ledger.answer("a", batch.number, 0, [0] * items)
    assert ledger.room() == 0
    read(ledger)
    assert ledger.room() == 1


# Long random stories.


class Story:
    """Peers that compute, fail, freeze, die and come back."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.is_ordered = self.chance.random() < 0.5
        self.ledger = Ledger(is_ordered=self.is_ordered, retries=50, on_error="collect")
        self.peers: dict[str, list[Batch]] = {f"p{n}": [] for n in range(4)}
        self.late: list[tuple[str, Batch]] = []
        self.items: Iterator[int] = iter(range(self.chance.choice((1, 50, 500))))
        self.out: list[Any] = []

    def play(self) -> list[Any]:
        while not self.ledger.is_over:
            self.fill()
            self.chance.choice((self.take, self.take, self.answer, self.answer, self.trouble))()
            self.out += read(self.ledger)
        return self.out

    def fill(self) -> None:
        while count := self.ledger.room():
            chunk = list(islice(self.items, count))
            if not chunk:
                self.ledger.complete()
                return
            give_in(self.ledger, *chunk)

    def take(self) -> None:
        peer = self.chance.choice(list(self.peers))
        batch = self.ledger.take(peer)
        if batch is not None:
            self.peers[peer].append(batch)

    def answer(self) -> None:
        peer = self.chance.choice(list(self.peers))
        if self.peers[peer]:
            self.say(peer, self.peers[peer].pop(0))
        elif self.late and self.chance.random() < 0.2:
            self.say(*self.late.pop())

    def say(self, peer: str, batch: Batch) -> None:
        values = [10 * item for item in items_of(batch)]
        middle = self.chance.randint(0, len(values))
        for begin, end in ((0, middle), (middle, len(values))):
            part = list(range(begin, end))
            bad = [at for at in part if self.chance.random() < 0.05]
            if part:
                failures = [ItemFailed(at, OOPS) for at in bad]
                said = [None if at in bad else values[at] for at in part]
                busy_us = self.chance.randint(0, 9_000)
                self.ledger.answer(peer, batch.number, begin, said, failures, busy_us=busy_us)

    def trouble(self) -> None:
        if self.chance.random() < 0.8:
            return
        peer = self.chance.choice(list(self.peers))
        held = self.peers[peer]
        if self.chance.random() < 0.5:
            self.ledger.give_back(peer, is_lost=False)
            return
        # Its answers are still on their way, and come after it was given up.
        self.late += [(peer, batch) for batch in held]
        held.clear()
        self.ledger.give_back(peer, is_lost=True)


@pytest.mark.parametrize("seed", range(60))
def test_each_item_is_merged_once_whatever_happens(seed: int) -> None:
    story = Story(seed)
    results = story.play()
    lost = {result.index for result in results if isinstance(result, ItemError)}
    values = [result for result in results if not isinstance(result, ItemError)]
    expected = [10 * item for item in range(len(results)) if item not in lost]
    assert (values if story.is_ordered else sorted(values)) == expected
    assert story.ledger.done == len(results)
    assert len(lost) <= len(results) // 10

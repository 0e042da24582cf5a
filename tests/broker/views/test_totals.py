"""How often tasks are counted."""

from jackalope.broker.views.lists import TOTALS_MAX, Totals
from jackalope.core.filter import Filter
from jackalope.core.lifecycle import State
from jackalope.storage import History, Unwritten


class Slow(History):
    """A history whose counting takes its time, on a clock of its own."""

    def __init__(self, cost_s: float) -> None:
        super().__init__(None)
        self.cost_s = cost_s
        self.now_s = 0.0
        self.counted = 0
        self.size = 0

    def count(
        self, namespace: str, wanted: Filter, unwritten: Unwritten | None = None
    ) -> dict[State, int]:
        self.now_s += self.cost_s
        self.counted += 1
        return {State.READY: self.size, State.DEAD: 1}


def totals_of(history: Slow) -> Totals:
    return Totals(lambda: history.now_s, lambda: history.now_s)


def test_quick_counts_are_always_new() -> None:
    history = Slow(cost_s=0.0001)
    totals = totals_of(history)
    assert totals.count(history, "default", Filter()) == 1
    history.size = 5
    assert totals.count(history, "default", Filter()) == 6


def test_slow_counts_are_told_again_for_fifty_times_their_cost() -> None:
    history = Slow(cost_s=0.01)
    totals = totals_of(history)
    assert totals.count(history, "default", Filter()) == 1
    history.size = 5
    history.now_s += 0.49
    assert totals.count(history, "default", Filter()) == 1
    history.now_s += 0.02
    assert totals.count(history, "default", Filter()) == 6
    assert history.counted == 2


def test_no_count_is_older_than_five_seconds() -> None:
    history = Slow(cost_s=2.0)
    totals = totals_of(history)
    totals.count(history, "default", Filter())
    history.size = 5
    history.now_s += 5.01
    assert totals.count(history, "default", Filter()) == 6


def test_each_filter_and_namespace_has_its_own() -> None:
    history = Slow(cost_s=0.01)
    totals = totals_of(history)
    totals.count(history, "default", Filter())
    history.size = 5
    assert totals.count(history, "default", Filter(queue="other")) == 6
    assert totals.count(history, "elsewhere", Filter()) == 6


def test_few_are_remembered() -> None:
    history = Slow(cost_s=0.01)
    totals = totals_of(history)
    for number in range(TOTALS_MAX + 1):
        totals.count(history, str(number), Filter())
    history.now_s = 0.0
    counted = history.counted
    totals.count(history, "1", Filter())
    assert history.counted == counted
    totals.count(history, "0", Filter())
    assert history.counted == counted + 1

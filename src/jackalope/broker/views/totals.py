"""Totals: how many tasks a list has in all.

Owns the counts that are remembered. Counting looks at every task that matches, so it gets slower as
history grows, while a page of a list does not. What took long to count is therefore cached for a
while: pages that are asked for all the time cannot keep the disk busy with counting. What is
quickly counted is always counted again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from jackalope.core.filter import Filter
from jackalope.storage import History, Unwritten

#: What takes less than this to count is not remembered.
_QUICK_S = 0.002

#: How long a count is good for: this many times as long as it took, and not longer than this.
_TIMES_ITS_COST = 50
_AGE_S_MAX = 5.0

#: How many counts are remembered.
TOTALS_MAX = 100


class Totals:
    """Cached counts of history. Not thread-safe."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._now_s = now_s
        # Not the time that passed: who had to wait for a busy machine has not counted for longer.
        self._spent_s = spent_s
        self._known: OrderedDict[tuple[str, Filter], tuple[float, int]] = OrderedDict()

    def count(
        self, history: History, namespace: str, wanted: Filter, unwritten: Unwritten | None = None
    ) -> int:
        """Return how many tasks match, possibly cached for a short while if counting is slow."""
        name = (namespace, wanted)
        until_s, total = self._known.get(name, (0.0, 0))
        if self._now_s() < until_s:
            return total
        begin_s = self._spent_s()
        total = sum(history.count(namespace, wanted, unwritten).values())
        total += unwritten.count if unwritten else 0
        took_s = self._spent_s() - begin_s
        self._known.pop(name, None)
        if took_s >= _QUICK_S:
            good_s = min(_TIMES_ITS_COST * took_s, _AGE_S_MAX)
            self._known[name] = (self._now_s() + good_s, total)
            if len(self._known) > TOTALS_MAX:
                self._known.popitem(last=False)
        return total

"""Skew: how far the clocks of the members are apart, and which node must not decide because of it.

Knows offsets, and not how they are measured. The leader's clock is the cluster's: one that is an
hour ahead fires every timer of the next hour. One that is behind harms little, because time goes on
from the last record; so where two clocks differ and no third tells which is wrong, the earlier one
is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from statistics import median_low
from typing import NamedTuple

import structlog

from jackalope.core.durations import SECOND

log = structlog.get_logger(component="cluster")

#: People are told of a greater difference.
WARN_US = SECOND


class Skew(NamedTuple):
    """How far this node's clock is from those of the other members."""

    worst_us: int = 0  # the greatest difference to one of them
    ahead_us: int = 0  # of the median of all; negative if it is behind

    def refusal(self, max_us: int) -> str:
        """Return why this node may not lead; nothing if its clock is right."""
        if abs(self.ahead_us) <= max_us:
            return ""
        side = "ahead of" if self.ahead_us > 0 else "behind"
        return f"its clock is {abs(self.ahead_us) / SECOND:.0f} s {side} that of the other members"


def skew_of(offsets_us: Collection[int]) -> Skew:
    """Return the skew of a node, of how far the clock of each other member is ahead of its own."""
    worst_us = max((abs(each) for each in offsets_us), default=0)
    return Skew(worst_us, -median_low([0, *offsets_us]))


class ClockRule:
    """Keeps a node from leading while its clock is wrong, and warns when clocks differ."""

    def __init__(self, measure: Callable[[], Skew | None], max_us: int) -> None:
        self._measure = measure
        self._max_us = max_us
        self._is_told = False

    def refusal(self) -> str:
        """Return why this node may not lead; nothing if it may."""
        skew = self._measure()
        if skew is None:
            return "it has not compared its clock with those of the other members yet"
        if (skew.worst_us > WARN_US) is not self._is_told:
            self._is_told = not self._is_told
            what = "the clocks of members differ" if self._is_told else "the clocks agree again"
            log.warning(what, worst_s=skew.worst_us / SECOND, ahead_s=skew.ahead_us / SECOND)
        return skew.refusal(self._max_us)

"""Skew: how far the clocks of the members are apart, and which node must not decide because of it.

Pure: knows offsets, not how they are measured. The leader's clock is the cluster's: one that is an
hour ahead fires every timer of the next hour. One that is behind harms little, because time goes on
from the last record; so where two clocks differ and no third tells which is wrong, the earlier one
is believed.
"""

from __future__ import annotations

from collections.abc import Collection
from statistics import median_low
from typing import NamedTuple

from jackalope.core.durations import SECOND

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

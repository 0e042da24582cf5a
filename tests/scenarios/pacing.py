"""Paces of submitted tasks, as scripts write them."""

from __future__ import annotations

from jackalope.core.shapes.pace import Pace, Pacing
from tests.scenarios.language import Order


def read_pace(order: Order) -> Pace | None:
    """Read a pace: one of `debounce=`, `throttle=` and `replace`."""
    key, at_most_us = order.text("pace_key"), order.duration_us("at_most")
    drops, replaces = order.flag("drop"), order.flag("replace")
    for how in (Pacing.DEBOUNCE, Pacing.THROTTLE):
        if span_us := order.duration_us(how):
            return Pace(how, key, span_us, at_most_us, drops)
    return Pace(Pacing.REPLACE, key, 0, at_most_us, drops) if replaces else None

"""Needs of tasks and resources of workers, as scripts write them."""

from __future__ import annotations

from typing import Any

from jackalope.core.shapes.needs import ONE, Needs, parse_amount, read_labels, read_needs
from tests.scenarios.language import Order, ScriptError


def read_task_needs(order: Order) -> Needs | None:
    """Read `needs=gpu:1,arch:arm64`, `prefer=`, `avoid=` and `sticky=`."""
    problems: list[str] = []
    pairs = _pairs(order, "needs")
    numbers = [(name, value * ONE) for name, value in pairs.items() if isinstance(value, int)]
    others = {name: value for name, value in pairs.items() if not isinstance(value, int)}
    wanted = read_needs(others, problems)
    resources = tuple(sorted([*numbers, *wanted.resources]))  # The core judges the numbers.
    prefer = read_labels(_pairs(order, "prefer"), problems, "prefer")
    avoid = read_labels(_pairs(order, "avoid"), problems, "avoid")
    needs = Needs(resources, wanted.labels, prefer, avoid, order.text("sticky"))
    if problems:
        raise ScriptError("; ".join(problems))
    return None if needs == Needs() else needs


def read_resources(order: Order) -> dict[str, int]:
    """Read `resources=gpu:2,mem:64GiB`."""
    return {name: parse_amount(value) for name, value in _pairs(order, "resources").items()}


def policy_needs(order: Order) -> dict[str, object]:
    """Read the needs in a policy."""
    needs = _pairs(order, "needs")
    return {"needs": needs} if needs else {}


def _pairs(order: Order, name: str) -> dict[str, Any]:
    """Read names with values; a whole number is one, and `a|b` is a list."""
    found: dict[str, Any] = {}
    for text in order.list(name):
        key, _, value = text.partition(":")
        is_number = value.removeprefix("-").isdigit()
        found[key] = int(value) if is_number else value.split("|") if "|" in value else value
    return found

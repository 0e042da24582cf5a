"""Verbs of limits by key, and how their settings and the keys of tasks are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from tests.scenarios.language import Order, parse_duration_us

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage


def limit(stage: Stage, order: Order) -> list[str]:
    """Declare a limit: `limit per-user queue=q keys=user concurrency=2`."""
    name, actor = order.word("a limit"), stage.actor(order)
    changes: dict[str, object] = {}
    for key, text in order.rest().items():
        if key == "keys":
            changes[key] = tuple(text.split(","))
        elif key == "per":
            changes["per_us"] = parse_duration_us(text)
        else:
            changes[key] = int(text) if text.lstrip("-").isdecimal() else text
    return stage.send(DeclareLimits(limits={name: changes}, **actor))


def unlimit(stage: Stage, order: Order) -> list[str]:
    return stage.send(DeleteLimit(name=order.word("a limit"), **stage.actor(order)))


def gates(stage: Stage, _: Order) -> list[str]:
    """Show the use of every limit."""
    return [
        f"{'/'.join(name)}: {gate.use} in flight, {gate.queued()} queued"
        for world in stage.core.book.namespaces.values()
        for name, gate in sorted(world.gates.gates.items())
    ]


def read_keys(order: Order) -> dict[str, str]:
    """Read keys: `keys=user:7,tenant:acme`."""
    return dict(pair.split(":", 1) for pair in order.list("keys"))


LIMITING: dict[str, Callable[[Stage, Order], list[str]]] = {
    "limit": limit,
    "unlimit": unlimit,
    "gates": gates,
}

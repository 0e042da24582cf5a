"""Limits as clients see them: what each allows, how much of it is used, and when it lets go.

Owns which values of keys a list names: the busiest, so that its size does not grow with theirs, and
none to a client that may not see the tasks they come from.
"""

from __future__ import annotations

from heapq import nlargest

from jackalope.broker.access import acting, sees
from jackalope.core.limits import GATES_SHOWN_MAX
from jackalope.core.shapes.limit import Limit
from jackalope.core.state.book import Book
from jackalope.core.state.gates import Gate, GateName
from jackalope.core.state.queue import Namespace
from jackalope.wire.views import GateView, KeyLimitView, LimitView


def tag_limit_views(book: Book, namespace: str) -> list[LimitView]:
    """Return the limits of tags, by tag."""
    gates = (book.namespaces.get(namespace) or Namespace(namespace)).gates
    return [_tag_view(tag, most, gates.gates) for tag, most in sorted(gates.tags.items())]


def _tag_view(tag: str, most: int, gates: dict[GateName, Gate]) -> LimitView:
    gate = gates.get(("", tag))
    return LimitView(tag, most) if gate is None else LimitView(tag, most, gate.use, gate.queued())


def key_limit_views(book: Book, namespace: str, now_us: int) -> list[KeyLimitView]:
    """Return the limits by key, by name, without those of queues that the client cannot see."""
    home = (book.namespaces.get(namespace) or Namespace(namespace)).gates
    limits = {
        name: limit
        for name, limit in sorted(home.limits.items())
        if not limit.settings.queue or sees(limit.settings.queue)
    }
    used: dict[str, list[GateView]] = {name: [] for name in limits}
    for gate in home.gates.values():
        if gate.name[0] in used:
            used[gate.name[0]].append(_gate_view(gate, now_us))
    return [_limit_view(limit, used[name]) for name, limit in limits.items()]


def _limit_view(limit: Limit, gates: list[GateView]) -> KeyLimitView:
    may_name = bool(limit.settings.queue) or not acting.get().queues
    busiest = nlargest(
        GATES_SHOWN_MAX, gates, key=lambda each: (each.waiting, each.in_flight, each.opens_us)
    )
    return KeyLimitView(
        name=limit.name,
        settings=limit.settings,
        in_flight=sum(each.in_flight for each in gates),
        waiting=sum(each.waiting for each in gates),
        opens_us=min((each.opens_us for each in gates if each.opens_us), default=0),
        gate_count=len(gates),
        gates=busiest if may_name else [],
    )


def _gate_view(gate: Gate, now_us: int) -> GateView:
    opens_us = gate.opens_us if gate.opens_us > now_us else 0
    return GateView(gate.name[1:], gate.use, gate.queued(), opens_us)

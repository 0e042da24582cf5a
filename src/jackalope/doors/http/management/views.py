"""Views of the book: queues, exchanges, bindings and rules as RabbitMQ shows them.

Owns the fields. Each is true or not there: what we do not count is not shown as nought. Called
between two turns, from `Broker.read`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jackalope.broker.access import acting, sees
from jackalope.broker.engine import Engine
from jackalope.core.amqp.lifetimes import consumers_of
from jackalope.core.api_key import Permission
from jackalope.core.core import Core
from jackalope.core.lifecycle import LEASED
from jackalope.core.shapes.exchange import (
    DEFAULT_EXCHANGE,
    GIVEN_NAMES,
    AmqpTraits,
    Binding,
    Exchange,
    Rule,
    requests_queue,
)
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.state.topology import lane_of
from jackalope.doors.http.management.conventions import NODE, key_of, not_found
from jackalope.wire.amqp_errors import DEFAULT_VHOST, namespace_of, vhost_of

Item = dict[str, Any]

#: How a queue that was declared by another door looks over AMQP.
_DURABLE = AmqpTraits()


def namespaces(
    engine: Engine, vhost: str | None = None, needs: Permission = Permission.READ_TASKS
) -> list[Namespace]:
    """Return the namespaces that the client may read: all, or the one of a virtual host.

    A virtual host need not be made: it is empty until something is in it. The default one is
    always among them.

    Raises:
        Problem: the client may not read this one.
    """
    there = engine.core.book.namespaces
    principal = acting.get()
    if vhost is None:
        names = sorted({*there, namespace_of(DEFAULT_VHOST)}, key=vhost_of)
    else:
        names = [namespace_of(vhost)]
    seen = [name for name in names if principal.refuse(needs, name) is None]
    if vhost is not None and not seen:
        raise not_found()
    return [there.get(name) or Namespace(name) for name in seen]


def queues(namespace: Namespace) -> Iterator[Queue]:
    """Yield the queues of a namespace that the client may see, by name."""
    yield from (queue for name, queue in sorted(namespace.queues.items()) if sees(name))


def queue_in(engine: Engine, vhost: str, name: str) -> Queue:
    """Return a queue.

    Raises:
        Problem: there is none of this name.
    """
    return place_in(engine, vhost, name)[0]


def place_in(
    engine: Engine, vhost: str, name: str, needs: Permission = Permission.READ_TASKS
) -> tuple[Queue, str | None]:
    """Return the queue that a name means, and the key if it means the requests to a pool.

    Raises:
        Problem: there is none of this name.
    """
    there = namespaces(engine, vhost, needs)[0].queues
    home, key = (name, None) if name in there else lane_of(there, name) or (name, None)
    queue = there.get(home)
    if queue is None or not sees(home):
        raise not_found()
    return queue, key


def keys_of(core: Core, queue: Queue) -> list[str]:
    """Return the keys of a pool that have requests or workers."""
    if queue.pool is None:
        return []
    pool = core.pools.by_name.get((queue.namespace.name, queue.name))
    waiting = {lane.key for lane in queue.line.lanes.values() if lane.size}
    return sorted(waiting | set(() if pool is None else pool.groups))


def show_requests(core: Core, queue: Queue, key: str, *, with_numbers: bool = True) -> Item:
    """Show the requests of a key as the queue that osrdyne would have for them."""
    shown = show_queue(core, queue, with_numbers=False)
    shown |= {"arguments": {}, "durable": False, "name": requests_queue(queue.name, key)}
    if not with_numbers:
        return shown
    consumers = consumers_of(core, queue, key)
    ready = sum(lane.size for lane in queue.line.of_key(key))
    leased = sum(
        task.queue is queue and task.key == key for each in consumers for task in each.held.values()
    )
    return shown | {
        "consumers": len(consumers),
        "effective_policy_definition": {},
        "messages": ready + leased,
        "messages_ready": ready,
        "messages_unacknowledged": leased,
        "operator_policy": None,
        "policy": None,
        "state": "running",
    }


def exchange_in(engine: Engine, vhost: str, name: str) -> Exchange:
    """Return an exchange.

    Raises:
        Problem: there is none of this name.
    """
    exchange = namespaces(engine, vhost)[0].topology.exchanges.get(name)
    if exchange is None:
        raise not_found()
    return exchange


def show_queue(core: Core, queue: Queue, *, with_numbers: bool = True) -> Item:
    """Show a queue, with how much is in it if wished."""
    traits = queue.traits or _DURABLE
    shown = {
        "arguments": traits.arguments,
        "auto_delete": traits.auto_delete,
        "durable": traits.durable,
        "exclusive": traits.owner > 0,
        "name": queue.name,
        "node": NODE,
        "state": "running" if with_numbers else "live",
        "type": traits.arguments.get("x-queue-type", "classic"),
        "vhost": vhost_of(queue.namespace.name),
    }
    if not with_numbers:
        return shown
    rule = queue.namespace.topology.rules.get(traits.rule)
    total = queue.unfinished()
    leased = sum(queue.counts[state] for state in LEASED)
    return shown | {
        "consumers": len(consumers_of(core, queue)),
        "effective_policy_definition": rule.definition if rule else {},
        "messages": total,
        "messages_ready": total - leased,
        "messages_unacknowledged": leased,
        "operator_policy": None,
        "policy": traits.rule or None,
    }


def show_exchange(namespace: Namespace, exchange: Exchange) -> Item:
    """Show an exchange."""
    shown = {
        "arguments": exchange.arguments,
        "auto_delete": exchange.auto_delete,
        "durable": exchange.durable,
        "internal": exchange.internal,
        "name": exchange.name,
        "type": str(exchange.kind),
        "vhost": vhost_of(namespace.name),
    }
    return shown | ({"policy": exchange.rule} if exchange.rule else {})


def bindings(namespace: Namespace) -> Iterator[Binding]:
    """Yield every binding of a namespace, those of the default exchange to each queue included."""
    yield from (
        Binding(DEFAULT_EXCHANGE, queue.name, key=queue.name) for queue in queues(namespace)
    )
    for _, binding in sorted(namespace.topology.bindings.items()):
        if binding.is_to_exchange or sees(binding.to):
            yield binding


def show_binding(namespace: Namespace, binding: Binding, *, with_key: bool = True) -> Item:
    """Show a binding."""
    shown = {
        "source": binding.source,
        "vhost": vhost_of(namespace.name),
        "destination": binding.to,
        "destination_type": "exchange" if binding.is_to_exchange else "queue",
        "routing_key": binding.key,
        "arguments": binding.arguments,
    }
    return shown | ({"properties_key": key_of(binding)} if with_key else {})


def show_rule(namespace: Namespace, rule: Rule) -> Item:
    """Show a rule, which RabbitMQ calls a policy."""
    return {
        "vhost": vhost_of(namespace.name),
        "name": rule.name,
        "pattern": rule.pattern,
        "apply-to": str(rule.applies_to),
        "definition": rule.definition,
        "priority": rule.priority,
    }


def is_given(exchange: Exchange) -> bool:
    """Return whether an exchange is always there, and so belongs to no definition."""
    return exchange.name in GIVEN_NAMES


def owned(queue: Queue) -> bool:
    """Return whether a queue is of one connection alone, and so belongs to no definition."""
    return queue.traits is not None and queue.traits.owner > 0

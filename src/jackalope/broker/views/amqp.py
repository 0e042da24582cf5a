"""Views for AMQP's doors: what names mean, what is declared, what queues hold, who is connected.

Owns the questions that a door has to answer before it can make a command, or while it writes a
reply, and the shapes in which one door reports its connections to another. Called between two
turns. Changes nothing, keeps nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from jackalope.broker.access import sees
from jackalope.core import Core
from jackalope.core.amqp.arguments import QUORUM, type_of
from jackalope.core.amqp.lifetimes import consumers_of
from jackalope.core.lifecycle import LEASED
from jackalope.core.shapes.exchange import (
    DEFAULT_EXCHANGE,
    AmqpTraits,
    Binding,
    Exchange,
    Rule,
    requests_queue,
)
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.state.topology import lane_of

if TYPE_CHECKING:
    from jackalope.broker.engine import Engine

#: How a queue that was declared by another door looks over AMQP.
_DURABLE = AmqpTraits()


def place_of(engine: Engine, namespace: str, name: str) -> tuple[str, str | None]:
    """Return the queue of a name, and the key if it stands for the requests of a pool."""
    found = engine.core.book.namespaces.get(namespace)
    lane = None if found is None or name in found.queues else lane_of(found.queues, name)
    return (name, None) if lane is None else lane


def takes_requests(engine: Engine, namespace: str, exchange: str) -> bool:
    found = engine.core.book.namespaces.get(namespace) if exchange else None
    return found is not None and exchange in found.topology.requests


def has_pool(engine: Engine, namespace: str, name: str) -> bool:
    queue = _queue(engine, namespace, name)
    return queue is not None and queue.pool is not None


def is_quorum(engine: Engine, namespace: str, name: str) -> bool:
    queue = _queue(engine, namespace, name)
    traits = None if queue is None else queue.traits
    return traits is not None and type_of(traits.arguments) == QUORUM


def ready_in(engine: Engine, namespace: str, name: str) -> int:
    queue = _queue(engine, namespace, name)
    return 0 if queue is None else queue.line.size


def _queue(engine: Engine, namespace: str, name: str) -> Queue | None:
    return engine.core.book.queue(namespace, name)


class ConsumerView(NamedTuple):
    """The core's state of a consumer."""

    slots: int = 0
    priority: int = 0
    is_exclusive: bool = False
    is_active: bool = False


def view_of_consumer(engine: Engine, session: int) -> ConsumerView:
    """Return the view of a session's consumer; one that is gone has no slots."""
    worker = engine.core.roster.sessions.get(session)
    if worker is None:
        return ConsumerView()
    known = worker.consumer
    if known is None:
        return ConsumerView(worker.slots)
    return ConsumerView(worker.slots, known.priority, known.is_exclusive, not known.is_waiting)


# What is declared, for the management API: in one namespace, and only what the client may see.


class AmqpQueueView(msgspec.Struct, frozen=True):
    """A queue, or the requests of a key of a pool as a queue."""

    namespace: str
    name: str
    queue: str  # the queue that it is, or whose requests it stands for
    key: str | None
    kind: str
    arguments: dict[str, Any]
    durable: bool
    auto_delete: bool
    is_owned: bool  # whether it is of one connection alone
    consumers: int
    unfinished: int
    leased: int
    rule: str = ""  # the name of the rule that applies to it
    definition: dict[str, Any] = {}  # what that rule sets


class Totals(NamedTuple):
    """The totals of a namespace."""

    queues: int
    exchanges: int
    unfinished: int
    leased: int


def namespaces(engine: Engine) -> set[str]:
    return set(engine.core.book.namespaces)


def totals(engine: Engine, namespace: str) -> Totals:
    found = _namespace(engine, namespace)
    queues = [queue for queue in found.queues.values() if sees(queue.name)]
    return Totals(
        len(queues),
        len(found.topology.exchanges),
        sum(queue.unfinished() for queue in queues),
        sum(queue.counts[state] for queue in queues for state in LEASED),
    )


def queues_in(engine: Engine, namespace: str) -> list[AmqpQueueView]:
    """Return views of the queues of a namespace by name, each before the keys of its pool."""
    shown = []
    for name, queue in sorted(_namespace(engine, namespace).queues.items()):
        if sees(name):
            keys = _keys_of(engine.core, queue)
            shown += [_show_queue(engine.core, queue), *keys]
    return shown


def queue_in(engine: Engine, namespace: str, name: str) -> AmqpQueueView | None:
    """Return the view of the queue that a name stands for."""
    home, key = place_of(engine, namespace, name)
    queue = _queue(engine, namespace, home)
    if queue is None or not sees(home):
        return None
    return _show_queue(engine.core, queue) if key is None else _show_key(engine.core, queue, key)


def exchanges_in(engine: Engine, namespace: str) -> list[Exchange]:
    return [each for _, each in sorted(_namespace(engine, namespace).topology.exchanges.items())]


def rules_in(engine: Engine, namespace: str) -> list[Rule]:
    return [each for _, each in sorted(_namespace(engine, namespace).topology.rules.items())]


def bindings_in(engine: Engine, namespace: str) -> list[Binding]:
    """Return every binding, including those of the default exchange to each queue."""
    found = _namespace(engine, namespace)
    return [
        *(Binding(DEFAULT_EXCHANGE, name, key=name) for name in sorted(found.queues) if sees(name)),
        *(
            binding
            for _, binding in sorted(found.topology.bindings.items())
            if binding.is_to_exchange or sees(binding.to)
        ),
    ]


def _namespace(engine: Engine, name: str) -> Namespace:
    """Return a namespace; an unknown one is empty and is not created."""
    return engine.core.book.namespaces.get(name) or Namespace(name)


def _show_queue(core: Core, queue: Queue) -> AmqpQueueView:
    traits = queue.traits or _DURABLE
    rule = queue.namespace.topology.rules.get(traits.rule)
    return AmqpQueueView(
        namespace=queue.namespace.name,
        name=queue.name,
        queue=queue.name,
        key=None,
        kind=type_of(traits.arguments),
        arguments=traits.arguments,
        durable=traits.durable,
        auto_delete=traits.auto_delete,
        is_owned=traits.owner > 0,
        consumers=len(consumers_of(core, queue)),
        unfinished=queue.unfinished(),
        leased=sum(queue.counts[state] for state in LEASED),
        rule=traits.rule,
        definition=rule.definition if rule else {},
    )


def _keys_of(core: Core, queue: Queue) -> list[AmqpQueueView]:
    """Return views of the keys of a pool that have requests or workers."""
    if queue.pool is None:
        return []
    pool = core.pools.by_name.get((queue.namespace.name, queue.name))
    waiting = {lane.key for lane in queue.line.lanes.values() if lane.size}
    keys = sorted(waiting | set(() if pool is None else pool.groups))
    return [_show_key(core, queue, key) for key in keys]


def _show_key(core: Core, queue: Queue, key: str) -> AmqpQueueView:
    """Return the view of a key's requests as the queue that osrdyne would have for them."""
    consumers = consumers_of(core, queue, key)
    ready = sum(lane.size for lane in queue.line.of_key(key))
    leased = sum(
        task.queue is queue and task.key == key for each in consumers for task in each.held.values()
    )
    return msgspec.structs.replace(
        _show_queue(core, queue),
        name=requests_queue(queue.name, key),
        key=key,
        arguments={},
        durable=False,
        consumers=len(consumers),
        unfinished=ready + leased,
        leased=leased,
        rule="",
        definition={},
    )


# Connection details: what a door reports about its open connections.


class LinkConsumer(msgspec.Struct, frozen=True):
    """A consumer on a channel."""

    tag: str
    queue: str
    is_acknowledging: bool = True
    is_exclusive: bool = False
    is_active: bool = True
    prefetch: int = 0
    arguments: dict[str, Any] = {}


class LinkChannel(msgspec.Struct, frozen=True):
    """A channel of a connection."""

    number: int
    prefetch: int = 0  # how many deliveries each new consumer may hold; 0 for any number
    prefetch_of_all: int = 0  # how many all of its consumers may hold together; 0 for any number
    unanswered: int = 0  # deliveries that the peer has not answered
    is_confirming: bool = False  # whether publishes are confirmed
    is_transactional: bool = False  # whether publishes wait for a commit
    consumers: tuple[LinkConsumer, ...] = ()


class Link(msgspec.Struct, frozen=True):
    """A connection."""

    name: str  # what distinguishes it from every other: both of its ends
    namespace: str
    user: str
    peer: tuple[str, int]
    here: tuple[str, int]
    protocol: str
    is_encrypted: bool
    properties: dict[str, Any]  # what the peer reports about itself
    since_us: int  # when it was opened
    heartbeat_s: int
    frame_bytes_max: int
    channel_max: int
    channels: tuple[LinkChannel, ...] = ()


class Links(Protocol):
    """The connections of a door."""

    def all(self) -> list[Link]:
        """Return every open connection."""

    def close(self, name: str, why: str) -> bool:
        """Close a connection, and return whether there was one of this name."""

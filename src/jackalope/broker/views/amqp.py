"""Views for AMQP's doors: what a name means, and how much is in a queue.

Owns the questions that a door has to answer before it can make a command, or while it writes a
reply. Called between two turns. Changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jackalope.core.amqp.arguments import QUORUM, type_of
from jackalope.core.state.topology import lane_of

if TYPE_CHECKING:
    from jackalope.broker.engine import Engine
    from jackalope.core.state.queue import Queue


def place_of(engine: Engine, namespace: str, name: str) -> tuple[str, str | None]:
    """Return the queue that a name means, and the key if it means the requests of a pool."""
    found = engine.core.book.namespaces.get(namespace)
    lane = None if found is None or name in found.queues else lane_of(found.queues, name)
    return (name, None) if lane is None else lane


def takes_requests(engine: Engine, namespace: str, exchange: str) -> bool:
    """Return whether what is published to an exchange are requests to a pool."""
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
    """Return how many tasks of a queue wait for a consumer."""
    queue = _queue(engine, namespace, name)
    return 0 if queue is None else queue.line.size


def _queue(engine: Engine, namespace: str, name: str) -> Queue | None:
    return engine.core.book.queue(namespace, name)


class ConsumerView(NamedTuple):
    """What the core knows of a consumer."""

    slots: int = 0
    priority: int = 0
    is_exclusive: bool = False
    is_active: bool = False


def view_of_consumer(engine: Engine, session: int) -> ConsumerView:
    """Show the consumer of a session; one that is gone has no slots."""
    worker = engine.core.roster.sessions.get(session)
    if worker is None:
        return ConsumerView()
    known = worker.consumer
    if known is None:
        return ConsumerView(worker.slots)
    return ConsumerView(worker.slots, known.priority, known.is_exclusive, not known.is_waiting)

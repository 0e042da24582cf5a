"""The room of the management API: what every route needs.

Owns how a route asks the broker, and how numbers and consumers are found for a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jackalope.broker.access import acting, sees
from jackalope.broker.engine import Engine
from jackalope.broker.links import Link, LinkChannel, LinkConsumer, Links
from jackalope.broker.queries import Refused
from jackalope.broker.reading import Reading
from jackalope.broker.service import Broker
from jackalope.core.access import Permission
from jackalope.core.command import Scope
from jackalope.core.effects import Answered
from jackalope.core.messaging import AnyMessaging
from jackalope.doors.http.desk import Desk
from jackalope.doors.http.management.words import (
    NODE,
    Asked,
    Problem,
    namespace_of,
    not_found,
    problem_of,
    vhost_of,
)

Item = dict[str, Any]

_BY = "management"


class Room:
    """What the routes share.

    Attributes:
        broker: what they ask.
        amqp_port: where AMQP is spoken.
        port: where this API is.
    """

    def __init__(self, broker: Broker, links: Links, amqp_port: int) -> None:
        self.broker = broker
        self.amqp_port = amqp_port
        self.port = 0
        self.desk = Desk(broker)
        self._links = links

    async def ask(self, command: AnyMessaging) -> Answered:
        """Have a command done.

        Raises:
            Problem: the broker refuses.
        """
        try:
            return await self.desk.ask(command)
        except Refused as refused:
            raise problem_of(refused) from None

    async def has(self, look: Callable[[Engine], object]) -> bool:
        """Tell whether something is there."""
        try:
            await self.broker.read(look)
        except Problem as problem:
            if problem.status != 404:
                raise
            return False
        return True

    def links(self, vhost: str | None = None) -> list[Link]:
        """Return the connections that a key may see; one that is limited to queues sees none.

        Raises:
            Problem: the key may not look at this virtual host.
        """
        return [] if acting.get().queues else self._links_to(vhost)

    def _links_to(self, vhost: str | None) -> list[Link]:
        principal = acting.get()
        if vhost is not None and principal.refuse(Permission.READ_TASKS, namespace_of(vhost)):
            raise not_found()
        return [
            link
            for link in self._links.all()
            if vhost in (None, vhost_of(link.namespace))
            and principal.refuse(Permission.READ_TASKS, link.namespace) is None
        ]

    def close_link(self, name: str, why: str) -> bool:
        """Close a connection, and tell whether there was one."""
        return any(link.name == name for link in self.links()) and self._links.close(name, why)

    def consumers(self, vhost: str | None = None, queue: str | None = None) -> list[Item]:
        """Show the consumers of a queue, of a virtual host, or all."""
        return [
            _show_consumer(link, channel, consumer)
            for link in self._links_to(vhost)
            for channel in link.channels
            for consumer in channel.consumers
            if queue in (None, consumer.queue) and sees(consumer.queue)
        ]

    def add_numbers(self, items: list[Item]) -> None:
        """Add to queues how much happened in them since the start, and how fast."""
        totals = self.broker.meter.totals()
        rates: dict[str, dict[str, float]] = {}
        for item in items:
            namespace = namespace_of(item["vhost"])
            reading = totals.get((namespace, item["name"]))
            if reading is None:
                continue
            if namespace not in rates:
                rates[namespace] = self.broker.series.rates(
                    namespace, self.broker.now_us(), self.broker.started_us, lambda _: True
                )
            item["message_stats"] = message_stats(reading, rates[namespace].get(item["name"], 0.0))


def admit_to(namespace: str) -> None:
    """Let only administrators of all of a namespace make or delete it.

    Raises:
        Problem: the key is limited to queues, or to another namespace.
    """
    who = acting.get()
    refusal = who.refuse(Permission.ADMIN, namespace) or who.refuse_scope(Scope.NAMESPACE)
    if refusal is not None:
        raise problem_of(Refused(refusal))


def message_stats(reading: Reading, ack_rate: float) -> Item:
    """Show how much happened, in RabbitMQ's words."""
    return {
        "publish": reading.submitted,
        "deliver_get": reading.queued.number(),
        "ack": reading.succeeded,
        "ack_details": {"rate": ack_rate},
    }


def room_of(request: Asked) -> Room:
    """Return the room of a request."""
    room: Room = request.app.state.room
    return room


def by() -> str:
    """Return who acts, as histories show it."""
    return acting.get().signed(_BY)


def _show_consumer(link: Link, channel: LinkChannel, consumer: LinkConsumer) -> Item:
    return {
        "arguments": consumer.arguments,
        "ack_required": consumer.is_acknowledging,
        "active": consumer.is_active,
        "activity_status": "up" if consumer.is_active else "waiting",
        "channel_details": {
            "connection_name": link.name,
            "name": f"{link.name} ({channel.number})",
            "node": NODE,
            "number": channel.number,
            "peer_host": link.peer[0],
            "peer_port": link.peer[1],
            "user": link.user,
        },
        "consumer_tag": consumer.tag,
        "exclusive": consumer.is_exclusive,
        "prefetch_count": consumer.prefetch,
        "queue": {"name": consumer.queue, "vhost": vhost_of(link.namespace)},
    }

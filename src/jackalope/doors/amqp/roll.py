"""The roll: the connections of the AMQP door, as it tells others of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackalope.broker.links import Link, LinkChannel, LinkConsumer
from jackalope.doors.amqp.channel import Channel
from jackalope.doors.amqp.consuming import PREFETCH_MAX

if TYPE_CHECKING:
    from jackalope.doors.amqp.connection import Connection
    from jackalope.doors.amqp.outlets import Subscription
    from jackalope.doors.amqp.server import AmqpDoor

_PROTOCOL = "AMQP 0-9-1"


class Roll:
    """Everybody who is connected to an AMQP door."""

    def __init__(self, door: AmqpDoor) -> None:
        self._door = door

    def all(self) -> list[Link]:
        """Return every connection that is open."""
        return [self._link(each) for each in self._door.connections if each.session]

    def close(self, name: str, why: str) -> bool:
        """Close a connection, and tell whether there was one of this name."""
        for each in list(self._door.connections):
            if each.session and self._name(each) == name:
                each.end(why)
                return True
        return False

    def _name(self, connection: Connection) -> str:
        host, port = connection.peer
        return f"{host}:{port} -> {self._door.host}:{self._door.port}"

    def _link(self, connection: Connection) -> Link:
        terms = self._door.terms
        return Link(
            name=self._name(connection),
            namespace=connection.namespace,
            user=connection.user,
            peer=connection.peer,
            here=(self._door.host, self._door.port),
            protocol=_PROTOCOL,
            is_encrypted=self._door.has_tls,
            properties=connection.properties,
            since_us=connection.opened_us,
            heartbeat_s=connection.heartbeat_s,
            frame_bytes_max=connection.frame_bytes_max,
            channel_max=terms.channel_max,
            channels=tuple(_channel(each) for _, each in sorted(connection.channels.items())),
        )


def _channel(channel: Channel) -> LinkChannel:
    return LinkChannel(
        number=channel.number,
        prefetch=channel.prefetch,
        prefetch_of_all=channel.share[1],
        unanswered=len(channel.unanswered),
        is_confirming=channel.publisher.is_confirming,
        is_transactional=channel.publisher.is_transacting,
        consumers=tuple(_consumer(each) for each in channel.subscriptions.values()),
    )


def _consumer(subscription: Subscription) -> LinkConsumer:
    worker = subscription.broker.engine.core.roster.sessions.get(subscription.session)
    known = None if worker is None else worker.consumer
    is_limited = worker is not None and not subscription.no_ack and worker.slots < PREFETCH_MAX
    return LinkConsumer(
        tag=subscription.tag,
        queue=subscription.queue,
        is_acknowledging=not subscription.no_ack,
        is_exclusive=known is not None and known.is_exclusive,
        is_active=known is not None and not known.is_waiting,
        prefetch=worker.slots if worker is not None and is_limited else 0,
        arguments={"x-priority": known.priority} if known is not None and known.priority else {},
    )

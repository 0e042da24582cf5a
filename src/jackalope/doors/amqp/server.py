"""The AMQP door: listens, accepts connections, and supervises all of them.

Owns what a connection is granted, and who waits for direct replies; `tcp_listener` has the rest.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from jackalope.broker.config.schema import AmqpConfig
from jackalope.broker.service import Broker
from jackalope.broker.views.amqp import Link, LinkChannel, LinkConsumer, view_of_consumer
from jackalope.core.durations import SECOND
from jackalope.doors.amqp.channel import Channel
from jackalope.doors.amqp.connection import Connection
from jackalope.doors.amqp.declare import PREFETCH_MAX
from jackalope.doors.amqp.last_words import LastWords
from jackalope.doors.forwarding import Forwarding, Letter
from jackalope.doors.tcp_listener import Listener
from jackalope.task_ids import TaskIds

if TYPE_CHECKING:
    from jackalope.doors.amqp.deliveries import Subscription

_LOOK_EVERY_S = 1.0


class AmqpDoor(Listener[Connection, AmqpConfig]):
    """A door for AMQP 0-9-1."""

    name = "amqp"
    goodbye = "broker forced connection closure with reason 'shutdown'"
    hello_us = 10 * SECOND
    stuck_us = 60 * SECOND

    def __init__(
        self,
        broker: Broker,
        config: AmqpConfig,
        tls: ssl.SSLContext | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        super().__init__(broker, config, tls, forwarding)
        # the channel that waits for direct replies under each address
        self.replies: dict[str, Channel] = {}
        self.ids = TaskIds()  # makes the ids of tasks
        self.has_tls = tls is not None
        self._shares = 0

    def connect(self) -> Connection:
        return Connection(self)

    def vouch(self, connection: Connection, letter: Letter) -> None:
        connection.peer = (letter.host, letter.port)
        if self.has_tls:
            connection.certificate = letter.certificate

    def last_words(self) -> LastWords:
        return LastWords()

    def next_share(self) -> int:
        """Return a new id for slots that the consumers of a channel share."""
        self._shares += 1
        return self._shares

    async def look(self) -> None:
        await asyncio.sleep(_LOOK_EVERY_S)
        now_us = self.broker.steady_us()
        shortage = self.broker.health.shortage()
        for connection in list(self.connections):
            connection.look(now_us, shortage)


# The connections of the AMQP door, as shown to other doors.

_PROTOCOL = "AMQP 0-9-1"


class ConnectionRegistry:
    """All connections of an AMQP door."""

    def __init__(self, door: AmqpDoor) -> None:
        self._door = door

    def all(self) -> list[Link]:
        return [self._link(each) for each in self._door.connections if each.session]

    def close(self, name: str, why: str) -> bool:
        for each in list(self._door.connections):
            if each.session and self._name(each) == name:
                each.end(why)
                return True
        return False

    def _name(self, connection: Connection) -> str:
        host, port = connection.peer
        return f"{host}:{port} -> {self._door.host}:{self._door.port}"

    def _link(self, connection: Connection) -> Link:
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
            channel_max=self._door.config.channel_max,
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
    known = view_of_consumer(subscription.broker.engine, subscription.session)
    is_limited = not subscription.no_ack and known.slots < PREFETCH_MAX
    return LinkConsumer(
        tag=subscription.tag,
        queue=subscription.queue,
        is_acknowledging=not subscription.no_ack,
        is_exclusive=known.is_exclusive,
        is_active=known.is_active,
        prefetch=known.slots if is_limited else 0,
        arguments={"x-priority": known.priority} if known.priority else {},
    )

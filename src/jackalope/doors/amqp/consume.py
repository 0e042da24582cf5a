"""Consumers of a channel: which tasks one takes, and how many at a time.

Owns what the name of a queue means, which may be the requests of a key of a pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jackalope.broker.views import amqp as views
from jackalope.core.commands.amqp import Consume
from jackalope.core.shapes.pool import LAUNCH_LABEL, POOL_LABEL
from jackalope.doors.amqp.deliveries import NO_ACK_WINDOW
from jackalope.wire.amqp_errors import ChannelFault, ConnectionFault, kind_of

if TYPE_CHECKING:
    from jackalope.doors.amqp.channel import Channel
    from jackalope.doors.amqp.connection import Connection

#: How many tasks a consumer without a limit of its own may hold: as many as one could ask for.
PREFETCH_MAX = 65_535


def place_of(connection: Connection, name: str) -> tuple[str, str | None]:
    """Return the queue of a name, and the key if it stands for the requests of a pool."""
    return views.place_of(connection.broker.engine, connection.namespace, name)


def consumer_of(channel: Channel, name: str, tag: str, args: dict[str, Any]) -> Consume:
    """Return the command that registers a consumer; raises `AmqpError`."""
    no_ack, connection = args["no_ack"], channel.connection
    queue, key = place_of(connection, name)
    labels = {"door": "amqp", "tag": tag, "peer": f"{connection.peer[0]}:{connection.peer[1]}"}
    is_shared = bool(channel.share[0])
    if is_shared and views.is_quorum(connection.broker.engine, connection.namespace, queue):
        where = f"queue '{name}' in vhost '{connection.vhost}'"
        raise ConnectionFault(540, f"{where} does not support global qos")
    slots = channel.prefetch or PREFETCH_MAX
    if key is not None:
        # The user name of a worker identifies its launch. One that sets no prefetch is given one
        # request at a time: a request that kills it must not cost another request a try.
        labels |= {POOL_LABEL: queue, LAUNCH_LABEL: connection.user}
        slots = channel.prefetch or (PREFETCH_MAX if channel.share[1] else 1)
    return Consume(
        queue=queue,
        key=key,
        consumer="",
        slots=NO_ACK_WINDOW if no_ack else slots,
        credit=NO_ACK_WINDOW if no_ack else None,
        share=0 if no_ack else channel.share[0],
        share_slots=channel.share[1],
        exclusive=args["exclusive"],
        priority=_priority(connection, name, args["arguments"]),
        owner=connection.session,
        labels=labels,
        namespace=connection.namespace,
    )


def _priority(connection: Connection, queue: str, arguments: dict[str, Any]) -> int:
    priority = arguments.get("x-priority", 0)
    if isinstance(priority, int):
        return priority
    where = f"queue '{queue}' in vhost '{connection.vhost}'"
    reason = f'"expected integer, got {kind_of(priority)}"'
    raise ChannelFault(406, f"invalid arg 'x-priority' for {where}: {reason}")

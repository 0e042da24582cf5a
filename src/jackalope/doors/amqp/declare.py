"""Declarations of a channel: exchanges, queues, bindings and consumers.

Owns how these methods become commands, what their answers look like, and what the name of a queue
means, which may be the requests of a key of a pool.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jackalope.broker.views import amqp as views
from jackalope.core.commands.amqp import (
    Bind,
    Consume,
    OpenExchange,
    OpenQueue,
    PurgeQueue,
    RemoveExchange,
    RemoveQueue,
    Unbind,
)
from jackalope.core.effects import Answered, Dropped, QueueOpened
from jackalope.core.shapes.exchange import GENERATED, REPLY_TO, Binding, Exchange, Kind
from jackalope.core.shapes.pool import LAUNCH_LABEL, POOL_LABEL
from jackalope.doors.amqp.deliveries import NO_ACK_WINDOW
from jackalope.wire.amqp import ChannelFault, ConnectionFault, Method, kind_of

if TYPE_CHECKING:
    from jackalope.doors.amqp.channel import Channel
    from jackalope.doors.amqp.connection import Connection


#: How many tasks a consumer without a limit of its own may hold: as many as one could ask for.
PREFETCH_MAX = 65_535

AnyShape = TypeVar("AnyShape", bound=msgspec.Struct)


def _plain(channel: Channel, method: Method, answer: str) -> Callable[[Answered], None]:
    """Return a callback that sends an empty confirmation, unless `no-wait` is set."""

    def done(_: Answered) -> None:
        if not method.args.get("no_wait", False):
            channel.send(answer)

    return done


def _counted(channel: Channel, method: Method, answer: str) -> Callable[[Answered], None]:
    """Return a callback that sends a confirmation with the number of messages removed."""

    def done(body: Answered) -> None:
        if isinstance(body, Dropped) and not method.args["no_wait"]:
            channel.send(answer, message_count=body.count)

    return done


def _command(channel: Channel, method: Method, shape: type[AnyShape], **fields: Any) -> AnyShape:
    """Make a command from the arguments that have the names of its fields."""
    connection = channel.connection
    known = {
        **method.args,
        "owner": connection.session,
        "namespace": connection.namespace,
        "by": connection.user,
        **fields,
    }
    return shape(**{name: known[name] for name in shape.__struct_fields__ if name in known})


# Exchanges.


def declare_exchange(channel: Channel, method: Method) -> None:
    args = method.args
    kind = args["type"]
    if args["passive"]:
        kind = Kind.DIRECT
    elif kind not in tuple(Kind):
        raise ConnectionFault(503, f"unknown exchange type '{kind}'")
    if not args["exchange"]:
        raise ChannelFault(403, "operation not permitted on the default exchange")
    exchange = _command(channel, method, Exchange, name=args["exchange"], kind=Kind(kind))
    command = _command(channel, method, OpenExchange, exchange=exchange)
    channel.ask(command, method, _plain(channel, method, "exchange.declare-ok"))


def delete_exchange(channel: Channel, method: Method) -> None:
    command = _command(channel, method, RemoveExchange)
    channel.ask(command, method, _plain(channel, method, "exchange.delete-ok"))


def bind_exchange(channel: Channel, method: Method) -> None:
    args = method.args
    _bind(channel, method, args["destination"], is_to_exchange=True, key=args["routing_key"])


def _bind(
    channel: Channel, method: Method, to: str, *, is_to_exchange: bool = False, key: str
) -> None:
    args = method.args
    source = args["source"] if is_to_exchange else args["exchange"]
    binding = Binding(source, to, is_to_exchange, key, args["arguments"])
    shape: type[Bind | Unbind] = Bind if method.name.endswith(".bind") else Unbind
    command = _command(channel, method, shape, binding=binding)
    channel.ask(command, method, _plain(channel, method, f"{method.name}-ok"))


# Queues.


def declare_queue(channel: Channel, method: Method) -> None:
    args = method.args
    name = args["queue"]
    if name.startswith(REPLY_TO):
        _declare_reply_to(channel, method)
        return
    if not name:
        name = "" if args["passive"] else f"{GENERATED}{token_urlsafe(16)}"
    queue, key = place_of(channel.connection, name)
    generated = not args["queue"]
    command = _command(channel, method, OpenQueue, queue=queue, key=key, generated=generated)

    def done(body: Answered) -> None:
        if isinstance(body, QueueOpened) and not args["no_wait"]:
            channel.send(
                "queue.declare-ok",
                queue=body.queue,
                message_count=body.ready,
                consumer_count=body.consumers,
            )

    channel.last_queue = name
    channel.ask(command, method, done)


def _declare_reply_to(channel: Channel, method: Method) -> None:
    """Answer whether a client still waits for direct replies: an RPC server asks this way."""
    name, connection = method.args["queue"], channel.connection
    if name != REPLY_TO and name not in connection.door.replies:
        raise ChannelFault(404, f"no queue '{name}' in vhost '{connection.vhost}'")
    connection.flush()
    channel.last_queue = name
    if not method.args["no_wait"]:
        channel.send("queue.declare-ok", queue=name, message_count=0, consumer_count=1)


def bind_queue(channel: Channel, method: Method) -> None:
    queue, key = method.args["queue"], method.args["routing_key"]
    if not queue:
        queue = _last_queue(channel)
        key = key or queue
    _bind(channel, method, queue, key=key)


def purge_queue(channel: Channel, method: Method) -> None:
    _remove(channel, method, PurgeQueue)


def delete_queue(channel: Channel, method: Method) -> None:
    _remove(channel, method, RemoveQueue)


def _remove(channel: Channel, method: Method, shape: type[PurgeQueue | RemoveQueue]) -> None:
    """Delete or purge a queue."""
    queue, key = place_of(channel.connection, method.args["queue"] or _last_queue(channel))
    command = _command(channel, method, shape, queue=queue, key=key)
    channel.ask(command, method, _counted(channel, method, f"{method.name}-ok"))


def _last_queue(channel: Channel) -> str:
    if not channel.last_queue:
        raise ChannelFault(404, "no previously declared queue")
    return channel.last_queue


DECLARING: dict[str, Callable[[Channel, Method], None]] = {
    "exchange.declare": declare_exchange,
    "exchange.delete": delete_exchange,
    "exchange.bind": bind_exchange,
    "exchange.unbind": bind_exchange,
    "queue.declare": declare_queue,
    "queue.bind": bind_queue,
    "queue.unbind": bind_queue,
    "queue.purge": purge_queue,
    "queue.delete": delete_queue,
}


# Consumers.


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

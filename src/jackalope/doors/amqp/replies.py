"""Direct replies: answers that go to the channel that waits for them, and never into a queue.

Owns how one is handed over, whether another channel publishes it or the broker itself gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from jackalope.core.effects import DirectReply
from jackalope.core.task import BlobRef
from jackalope.storage import StorageFault
from jackalope.wire import amqp

if TYPE_CHECKING:
    from jackalope.doors.amqp.channel import Channel

log = structlog.get_logger(component="amqp")


def hand_over(waiting: Channel, reply: DirectReply) -> None:
    """Hand a reply to the channel that waits for it."""
    if isinstance(reply.body, BlobRef):
        waiting.connection.run(_load(waiting, reply, reply.body))
    else:
        write(waiting, reply.address, reply.properties, reply.body)


def write(waiting: Channel, address: str, properties: bytes, body: bytes) -> None:
    """Write a reply to the channel that waits for it."""
    number, connection = waiting.number, waiting.connection
    consumer = amqp.short_string(waiting.reply_to[1].encode())
    route = amqp.encode_route("", address)
    tag = waiting.next_tag()
    connection.write(
        amqp.encode_deliver(number, consumer, tag, redelivered=False, route=route)
        + amqp.encode_content(number, properties, body, connection.frame_bytes_max)
    )


async def _load(waiting: Channel, reply: DirectReply, ref: BlobRef) -> None:
    """Hand a reply over whose body is in the blob store."""
    blobs = waiting.connection.broker.blobs
    try:
        body = await blobs.off_loop(lambda: b"".join(blobs.read(ref)))
    except StorageFault as fault:
        log.warning("an answer cannot be loaded", address=reply.address, why=str(fault))
        waiting.connection.end(f"an answer cannot be loaded: {fault}")
        return
    if not waiting.is_closed():
        write(waiting, reply.address, reply.properties, body)
        waiting.connection.flush()

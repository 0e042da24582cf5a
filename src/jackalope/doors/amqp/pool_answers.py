"""Pool answers: replies that an AMQP consumer publishes to a caller connected by another door.

And direct replies, at the end: those that go to the channel that waits for them, and into no queue.

Owns the address that such a task of a pool is given, and the answer from when it is published until
the delivery is acknowledged: only then it is the result of the task. If the consumer is lost before
that, or returns the task, the answer is discarded, and the next consumer of the task answers. Parts
of an answer are forwarded at once, and not stored.

Only the connection that has the delivery can answer it, so an address need not be a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from jackalope.broker.access import THE_BROKER
from jackalope.core.amqp.replies import OK
from jackalope.core.commands import Fail, FailAttempts, Finish, FinishAttempts
from jackalope.core.commands.amqp import Publication
from jackalope.core.effects import DirectReply
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.refusals import Refusal
from jackalope.core.shapes.exchange import REPLY_TO
from jackalope.core.task import BlobRef, Error
from jackalope.storage import StorageFault
from jackalope.wire import amqp
from jackalope.wire import amqp_properties as properties
from jackalope.wire.amqp import ChannelFault, ConnectionFault
from jackalope.wire.amqp_properties import BadProperties
from jackalope.wire.messages import subject_of

if TYPE_CHECKING:
    from jackalope.core.effects import Assignment
    from jackalope.doors.amqp.channel import Channel
    from jackalope.doors.amqp.connection import Connection
    from jackalope.doors.amqp.deliveries import Delivery

_BEGINNING = f"{REPLY_TO}.answer."


class Answer:
    """The state of the answer to one delivery."""

    __slots__ = ("address", "body", "error", "is_given", "parts")

    def __init__(self, channel: Channel, tag: int, given: Assignment) -> None:
        # where it is published to
        self.address = f"{_BEGINNING}{channel.number}.{tag}.{given.task.hex()}.{given.fence}"
        self.body = b""  # what was answered; empty until it was
        self.error: Error | None = None  # what was answered if that is no good end
        self.is_given = False  # the answer is there, and a further one does not count
        self.parts = 0  # how many parts of it were passed on


def take(connection: Connection, message: Publication) -> bool:
    """Store a message if it answers a delivery of this connection, and return whether it does."""
    if not message.key.startswith(_BEGINNING):
        return False
    channel, delivery = _place_of(connection, message.key)
    answer = None if delivery is None else delivery.answer
    if channel is None or delivery is None or answer is None or answer.address != message.key:
        return False
    status, is_part = _told(message.properties)
    if is_part:
        _pass_on(connection, delivery, answer, message.body)
    elif not answer.is_given:
        _keep(channel, answer, status, message.body)
    # It is confirmed like any message, but leads nowhere else.
    message.body, message.persistent, message.mandatory = b"", False, False
    return True


def give(channel: Channel, delivery: Delivery, answer: Answer) -> None:
    """Send the answer to an acknowledged delivery to the caller that waits for it."""
    connection, receiver = channel.connection, delivery.receiver
    if answer.error is not None:
        connection.flush()
        failure = Fail(delivery.task, delivery.fence, answer.error)
        command = FailAttempts(session=receiver.session, attempts=[failure])
        connection.broker.post(command, THE_BROKER)
    elif len(answer.body) > INLINE_BYTES_MAX:
        connection.hold(answer.address)
        connection.run(_give_large(connection, delivery, answer))
        return
    else:
        connection.finish(receiver.session, delivery.task, delivery.fence, answer.body)
    receiver.answered()


def _place_of(connection: Connection, address: str) -> tuple[Channel | None, Delivery | None]:
    """Return the delivery that an address may belong to, and its channel."""
    number, tag = [*address.removeprefix(_BEGINNING).split("."), ""][:2]
    if not all(each.isascii() and each.isdigit() and len(each) < 20 for each in (number, tag)):
        return None, None
    channel = connection.channels.get(int(number))
    return channel, None if channel is None else channel.unanswered.get(int(tag))


def _keep(channel: Channel, answer: Answer, status: str, body: bytes) -> None:
    most = channel.connection.door.config.message_bytes_max
    if channel.kept_bytes + len(body) > most:
        text = f"answers of more than {most} bytes without an acknowledgement"
        raise ChannelFault(406, f"{text}; acknowledge each after its answer")
    channel.kept_bytes += len(body)
    answer.body, answer.is_given = body, True
    if status != OK:
        answer.error = answer.error or _error(status, body)


def _pass_on(connection: Connection, delivery: Delivery, answer: Answer, body: bytes) -> None:
    """Forward a part; if that fails the answer becomes an error, so that nothing is missing."""
    part = msgspec.msgpack.encode((answer.parts, body))
    told = connection.broker.message_hub.broadcast(
        connection.namespace, subject_of(delivery.task), "", part
    )
    answer.parts += 1
    if isinstance(told, Refusal):
        answer.error = Error("PartTooLarge", told.message)


def _told(raw: bytes) -> tuple[str, bool]:
    """Return the status that a worker reports, OK by default, and whether more follows."""
    try:
        headers = properties.headers_of(properties.split(raw))
        status = properties.value(headers["x-status"]) if "x-status" in headers else OK
        is_part = properties.value(headers.get("x-non-terminating-response", b"V"))
    except BadProperties as problem:
        raise ConnectionFault(502, str(problem)) from None
    text = status.decode(errors="replace") if isinstance(status, bytes) else str(status)
    return text, bool(is_part)


class _OsrdyneError(msgspec.Struct):
    """An error in osrdyne's format; other fields are ignored."""

    type: str
    message: str


def _error(status: str, body: bytes) -> Error:
    try:
        told = msgspec.json.decode(body, type=_OsrdyneError)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Error(status, body.decode(errors="replace"))
    return Error(told.type, told.message)


async def _give_large(connection: Connection, delivery: Delivery, answer: Answer) -> None:
    """Store an answer that is too large for a record; the peer is not read from meanwhile."""
    blobs, receiver = connection.broker.blobs, delivery.receiver
    try:
        ref = await blobs.off_loop(lambda: blobs.write([answer.body]))
    except StorageFault as fault:
        connection.fail(ConnectionFault(541, f"the answer could not be stored: {fault}"))
    else:
        attempts = [Finish(delivery.task, delivery.fence, ref)]
        command = FinishAttempts(session=receiver.session, attempts=attempts)
        connection.broker.post(command, THE_BROKER)
        receiver.answered()
    connection.release(answer.address)


# Direct replies: answers that go to the channel that waits for them, and never into a queue.

log = structlog.get_logger(component="amqp")


def hand_over(waiting: Channel, reply: DirectReply) -> None:
    if isinstance(reply.body, BlobRef):
        waiting.connection.run(_load(waiting, reply, reply.body))
    else:
        write(waiting, reply.address, reply.properties, reply.body)


def write(waiting: Channel, address: str, properties: bytes, body: bytes) -> None:
    number, connection = waiting.number, waiting.connection
    consumer = amqp.short_string(waiting.reply_to[1].encode())
    route = amqp.encode_route("", address)
    tag = waiting.next_tag()
    connection.write(
        amqp.encode_deliver(number, consumer, tag, redelivered=False, route=route)
        + amqp.encode_content(number, properties, body, connection.frame_bytes_max)
    )


async def _load(waiting: Channel, reply: DirectReply, ref: BlobRef) -> None:
    """Deliver a reply whose body is in the blob store."""
    try:
        body = await waiting.connection.broker.blobs.load(ref)
    except StorageFault as fault:
        log.warning("an answer cannot be loaded", address=reply.address, why=str(fault))
        waiting.connection.end(f"an answer cannot be loaded: {fault}")
        return
    if not waiting.is_closed():
        write(waiting, reply.address, reply.properties, body)
        waiting.connection.flush()

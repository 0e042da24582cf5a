"""Publishing on a channel: messages as they arrive, confirmations, returns and transactions.

Owns the message that is just arriving, the count of confirmations, and what a transaction holds
back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jackalope.broker.access import THE_BROKER
from jackalope.broker.views import amqp as views
from jackalope.core.api_key import Permission
from jackalope.core.commands.amqp import Publication, PublishMessages
from jackalope.core.durations import MILLISECOND
from jackalope.core.effects import Answered, Published
from jackalope.core.limits import NAME_CHARS_MAX, TIME_US_MAX
from jackalope.core.refusals import Refusal
from jackalope.core.shapes.exchange import REPLY_TO
from jackalope.doors.amqp.pool_answers import take, write
from jackalope.wire import amqp
from jackalope.wire.amqp import ChannelFault, ConnectionFault
from jackalope.wire.amqp_properties import REPLY_TO as REPLY_TO_FLAG
from jackalope.wire.amqp_properties import BadProperties, Headline, headline, join, short, split

if TYPE_CHECKING:
    from jackalope.doors.amqp.channel import Channel

#: The largest properties of a message, headers included.
PROPERTIES_BYTES_MAX = 128 * 1024

#: How much a transaction may hold back.
TRANSACTION_ITEMS_MAX = 100_000


class Publisher:
    """What one channel publishes.

    Attributes:
        is_arriving: a message has begun to arrive, and is not complete.
        is_confirming: the peer is sent a confirmation of messages that are durable.
        is_transacting: messages and answers wait for a commit.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._connection = channel.connection
        self.is_arriving = False
        # The last method, and the last properties with what was read in them: most messages of a
        # channel go where the one before went, and many look like it.
        self._payload: bytes | None = None
        self._method: dict[str, Any] = {}
        self._seen: tuple[bytes, str] | None = None
        self._known = (Headline(), b"")
        self._size = -1
        self._properties = b""
        self._parts: list[bytes] = []
        self._received = 0
        self._confirmed = 0
        self.is_confirming = self.is_transacting = False
        self._held_messages: list[Publication] = []
        self._held_answers: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    # Messages as they arrive.

    def begin(self, payload: bytes, args: dict[str, Any]) -> None:
        """Begin a message with `basic.publish`."""
        if args["immediate"]:
            raise ConnectionFault(540, "immediate=true")
        self._payload, self._method = payload, args
        self._size, self.is_arriving = -1, True

    def begin_again(self, payload: bytes) -> bool:
        """Begin a message if the method is that of the one before, and return whether it is."""
        if payload != self._payload:
            return False
        self._size, self.is_arriving = -1, True
        return True

    def on_content(self, kind: int, payload: bytes) -> None:
        """Process the next frame of a message; raises `AmqpError`."""
        if not self.is_arriving:
            raise ConnectionFault(505, "expected method frame, got non method frame instead")
        if (kind == amqp.CONTENT_HEADER) != (self._size < 0):
            raise unexpected()
        if kind == amqp.CONTENT_HEADER:
            class_id, self._size, self._properties = amqp.decode_content_header(payload)
            self._parts, self._received = [], 0
            most = self._connection.door.config.message_bytes_max
            if class_id != amqp.BASIC:
                text = f"expected content header for class 60, got one for class {class_id} instead"
                raise ConnectionFault(505, text, amqp.BASIC, 40)
            if self._size > most:
                self.is_arriving = False
                text = f"message size {self._size} is larger than configured max size {most}"
                raise ChannelFault(406, text)
        else:
            self._parts.append(payload)
            self._received += len(payload)
        if self._received > self._size:
            raise ConnectionFault(501, "more content than was announced")
        if self._received == self._size:
            self.is_arriving = False
            body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts = []
            self._take(body)

    def _take(self, body: bytes) -> None:
        """Process a complete message."""
        message = self._message(body)
        if self.is_transacting:
            if len(self._held_messages) >= TRANSACTION_ITEMS_MAX:
                raise ChannelFault(406, f"more than {TRANSACTION_ITEMS_MAX} in one transaction")
            self._held_messages.append(message)
        else:
            self._publish(message)

    def _message(self, body: bytes) -> Publication:
        args, connection = self._method, self._connection
        looks = (self._properties, self._channel.reply_to[0])
        if looks != self._seen:
            self._known = self._read(self._properties)
            self._seen = looks
        known, properties = self._known
        return Publication(
            connection.door.ids.next(connection.broker.now_us()),
            args["exchange"],
            args["routing_key"],
            properties,
            body,
            args["mandatory"],
            # A request to a pool is stored, whatever its sender asks: it will be answered.
            known.is_persistent or self._is_request(args["exchange"]),
            known.priority,
            _expiration_us(known.expiration),
            known.name[:NAME_CHARS_MAX],
        )

    def _read(self, properties: bytes) -> tuple[Headline, bytes]:
        """Read properties, and put in where replies go."""
        try:
            known = headline(properties)
        except BadProperties as problem:
            raise ConnectionFault(502, str(problem)) from None
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise ChannelFault(406, f"properties of more than {PROPERTIES_BYTES_MAX} bytes")
        if known.user_id and known.user_id != self._connection.user:
            text = f"user_id property set to '{known.user_id}' but authenticated user was"
            raise ChannelFault(406, f"{text} '{self._connection.user}'")
        is_direct = known.reply_to == REPLY_TO
        return known, self._with_address(properties) if is_direct else properties

    def _is_request(self, exchange: str) -> bool:
        connection = self._connection
        return views.takes_requests(connection.broker.engine, connection.namespace, exchange)

    def _with_address(self, properties: bytes) -> bytes:
        """Replace the pseudo-queue in properties by this channel's reply address."""
        address = self._channel.reply_to[0]
        if not address:
            raise ChannelFault(406, "fast reply consumer does not exist")
        raw = split(properties)
        raw[REPLY_TO_FLAG] = short(address)
        return join(raw)

    def _publish(self, message: Publication) -> None:
        is_direct = message.key.startswith(REPLY_TO) and not message.exchange
        # To the broker a direct reply leads nowhere: it need not be sent one that has arrived,
        # unless a confirmation of it must keep its place among others.
        has_arrived = is_direct and (take(self._connection, message) or self._reply(message))
        if not has_arrived or self.is_confirming:
            self._connection.publish(self._channel, message)

    def _reply(self, message: Publication) -> bool:
        """Deliver a direct reply, and return whether a client was waiting for it."""
        waiting = self._connection.door.replies.get(message.key)
        if waiting is None or not self._connection.principal.may(Permission.SUBMIT_TASKS):
            return False
        message.mandatory = False
        write(waiting, message.key, message.properties, message.body)
        if waiting.connection is not self._connection:
            waiting.connection.flush()
        return True

    # Handing over to the broker.

    def post(self, messages: list[Publication]) -> None:
        """Submit messages to the broker, which reports the outcome of each."""
        connection = self._connection
        command = PublishMessages(
            session=connection.session,
            messages=messages,
            namespace=connection.namespace,
            by=connection.principal.signed(connection.user),
        )
        first = self._confirmed + 1
        if self.is_confirming:
            self._confirmed += len(messages)
        is_confirming = self.is_confirming

        def done(body: Answered) -> None:
            self._tell(messages, first if is_confirming else 0, body)

        command.ref = connection.new_ref(done)
        refusal = connection.broker.post(command, connection.principal, len(messages))
        if refusal is not None:
            connection.drop_ref(command.ref)
            self._channel.refuse(refusal, amqp.BASIC, 40)

    def _tell(self, messages: list[Publication], first: int, body: Answered) -> None:
        """Report the outcomes of its messages to the peer."""
        channel = self._channel
        if isinstance(body, Refusal):
            channel.refuse(body, amqp.BASIC, 40)
            return
        if not isinstance(body, Published) or channel.is_closed():
            return
        for index in body.unrouted:
            self._return(messages[index])
        if first:
            ended = len(messages) if body.failed is None else body.failed[0]
            self._confirm(first, ended, body.refused)
        if body.failed is not None:
            channel.refuse(body.failed[1], amqp.BASIC, 40)

    def _confirm(self, first: int, ended: int, refused: tuple[int, ...]) -> None:
        begin = 0
        for index in (*refused, ended):
            if index > begin:
                last = first + index - 1
                is_multiple = index - begin > 1
                self._connection.write(amqp.encode_ack(self._channel.number, last, is_multiple))
            if index < ended:
                self._channel.send("basic.nack", delivery_tag=first + index)
            begin = index + 1

    def _return(self, message: Publication) -> None:
        channel = self._channel
        channel.send(
            "basic.return",
            reply_code=312,
            reply_text="NO_ROUTE",
            exchange=message.exchange,
            routing_key=message.key,
        )
        self._connection.write(
            amqp.encode_content(
                channel.number, message.properties, message.body, self._connection.frame_bytes_max
            )
        )

    # Confirmations and transactions.

    def confirm(self) -> None:
        if self.is_transacting:
            raise ChannelFault(406, "cannot switch from tx to confirm mode")
        self._connection.flush()
        self.is_confirming = True

    def begin_transaction(self) -> None:
        if self.is_confirming:
            raise ChannelFault(406, "cannot switch from confirm to tx mode")
        self._connection.flush()
        self.is_transacting = True

    def hold_back(self, answer: Callable[..., None], *args: Any) -> bool:
        """Defer an acknowledgement if a transaction is open, and return whether it is."""
        if self.is_transacting:
            if len(self._held_answers) >= TRANSACTION_ITEMS_MAX:
                raise ChannelFault(406, f"more than {TRANSACTION_ITEMS_MAX} in one transaction")
            self._held_answers.append((answer, args))
        return self.is_transacting

    def commit(self) -> None:
        """Submit what was deferred, and answer the peer once it is durable."""
        self._refuse_without_transaction()
        messages, self._held_messages = self._held_messages, []
        answers, self._held_answers = self._held_answers, []
        for message in messages:
            self._publish(message)
        self._connection.flush()
        for answer, args in answers:
            answer(*args)
        barrier = PublishMessages(messages=[], namespace=self._connection.namespace)

        def done(_: Answered) -> None:
            if not self._channel.is_closed():
                self._channel.send("tx.commit-ok")
                self._channel.go_on()

        self._channel.wait()
        # Acknowledgements need no permission to publish; nor does waiting for what was committed.
        self._connection.ask(barrier, done, THE_BROKER)

    def roll_back(self) -> None:
        self._refuse_without_transaction()
        self._held_messages.clear()
        self._held_answers.clear()

    def _refuse_without_transaction(self) -> None:
        if not self.is_transacting:
            raise ChannelFault(406, "channel is not transactional")


def unexpected() -> ConnectionFault:
    """Return the error for a frame other than the expected content header."""
    text = "expected content header for class 60, got non content header frame instead"
    return ConnectionFault(505, text, amqp.BASIC, 40)


def _expiration_us(text: str) -> int:
    """Return the expiration of a message; negative if it has none."""
    if not text:
        return -1
    if text.isascii() and text[0] == "-" and text[1:].isdigit():
        raise ChannelFault(406, f"invalid expiration '{text}': {{value_negative,{int(text)}}}")
    if not text.isascii() or not text.isdigit() or int(text) * MILLISECOND > TIME_US_MAX:
        raise ChannelFault(406, f"invalid expiration '{text}': no_integer")
    return int(text) * MILLISECOND

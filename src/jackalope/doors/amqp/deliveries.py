"""Deliveries: the broker's tasks as messages to the consumers of a channel.

Owns the session of a consumer, or of a client that gets tasks one by one; large bodies are loaded
on the way, in order. `Delivery` stores what identifies a delivery on the channel.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from jackalope.broker.access import THE_BROKER
from jackalope.broker.blobs import without_payload
from jackalope.broker.views import amqp as views
from jackalope.core.commands.amqp import GrantCredit, StopConsuming
from jackalope.core.durations import MILLISECOND
from jackalope.core.effects import (
    Assignment,
    ConsumerCancelled,
    DeliveryTimedOut,
    Effect,
    Joined,
    Reply,
)
from jackalope.core.ids import TaskId
from jackalope.core.refusals import Refusal
from jackalope.core.shapes.envelope import make_envelope
from jackalope.core.task import BlobRef, Envelope
from jackalope.doors.amqp.pool_answers import Answer
from jackalope.storage import StorageFault
from jackalope.wire.amqp import (
    BASIC,
    ChannelFault,
    encode_content,
    encode_deliver,
    encode_method,
    encode_route,
    short_string,
)

if TYPE_CHECKING:
    from jackalope.doors.amqp.channel import Channel

#: How many tasks are on their way to a consumer that does not acknowledge.
NO_ACK_WINDOW = 1_000


class Delivery(NamedTuple):
    """A task delivered on a channel and not acknowledged yet."""

    receiver: Receiver
    task: TaskId
    fence: int
    answer: Answer | None = None  # what it answers, if a caller of another door waits for that


class Receiver:
    """A session of the broker on a channel.

    Attributes:
        session: its number.
        queue: the queue whose tasks come out here.
        unanswered: how many deliveries of it the peer has not answered.
        is_stopped: nothing comes out any more, but what did may not be answered yet.
        is_over: its session is closed.
    """

    def __init__(self, channel: Channel, queue: str, *, no_ack: bool) -> None:
        self.channel = channel
        self.queue = queue
        self.no_ack = no_ack
        self.unanswered = 0
        self.is_stopped = self.is_over = False
        self.broker, self.namespace = channel.connection.broker, channel.connection.namespace
        self.session = self.broker.open_session(self)
        self._spent = 0
        self._waiting: deque[Assignment] = deque()
        self._loading: asyncio.Task[None] | None = None

    def deliver(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self.on_reply(effect)
            elif isinstance(effect.message, Assignment):
                self._take(effect.message)
            elif isinstance(effect.message, ConsumerCancelled):
                self.on_cancelled()
            elif isinstance(effect.message, DeliveryTimedOut):
                self._time_out(effect.message.timeout_us)
        self.refill()
        self.channel.connection.flush()

    def refill(self) -> None:
        """Grant more credit once half of what may be in flight to the peer was sent."""
        if self._spent >= NO_ACK_WINDOW // 2 and self.channel.connection.is_read():
            command = GrantCredit(session=self.session, credit=self._spent)
            self.broker.post(command, THE_BROKER)
            self._spent = 0

    def end(self, why: str) -> None:
        """Close the connection, because the broker no longer knows the session."""
        self.channel.connection.end(why)

    def close(self) -> None:
        """Close the session, which releases what is not acknowledged."""
        self.is_over = True
        if self._loading is not None:
            self._loading.cancel()
        self.broker.close_session(self.session)

    def answered(self) -> None:
        """Count an acknowledgement; close the session if it is no longer needed."""
        self.unanswered -= 1
        self.close_if_done()

    def close_if_done(self) -> None:
        """Close the session if it is stopped and everything is acknowledged."""
        if self.is_stopped and not self.unanswered:
            self.channel.connection.flush()
            self.close()

    def _time_out(self, timeout_us: int) -> None:
        text = f"delivery acknowledgement on channel {self.channel.number} timed out."
        used = f"Timeout value used: {timeout_us // MILLISECOND} ms."
        more = "This timeout value can be configured, see consumers doc guide to learn more"
        self.channel.fail(ChannelFault(406, f"{text} {used} {more}"))

    # For the kinds of receivers.

    def on_reply(self, reply: Reply) -> None:
        """Take an answer."""

    def on_cancelled(self) -> None:
        """Handle the removal of the queue."""

    def on_loaded(self) -> None:
        """Continue after the last large body was delivered."""

    def on_given_back(self) -> None:
        """Continue after a task whose body cannot be loaded was released."""

    def send(self, tag: int, given: Assignment, envelope: Envelope, body: bytes) -> None:
        """Write a delivery."""

    # Deliveries.

    def _take(self, given: Assignment) -> None:
        payload = given.payload
        if self._waiting or isinstance(payload, BlobRef):
            self._waiting.append(given)
            if self._loading is None or self._loading.done():
                self._loading = asyncio.get_running_loop().create_task(self._load())
        else:
            self._hand_over(given, payload)

    def _hand_over(self, given: Assignment, body: bytes) -> None:
        channel = self.channel
        tag, answer, envelope = channel.next_tag(), None, given.envelope
        if envelope is None:
            if not self.no_ack and views.has_pool(self.broker.engine, self.namespace, given.queue):
                answer = Answer(channel, tag, given)
            reply_to = "" if answer is None else answer.address
            headers = given.options.headers
            envelope = make_envelope(given.queue, given.task, given.name, headers, reply_to)
        if self.no_ack:
            if isinstance(given.payload, BlobRef):
                channel.connection.finish(self.session, given.task, given.fence)
            self._spent += 1
        else:
            self.unanswered += 1
            channel.unanswered[tag] = Delivery(self, given.task, given.fence, answer)
        self.send(tag, given, envelope, body)

    async def _load(self) -> None:
        """Load large bodies one by one, and deliver what waited behind them."""
        while self._waiting:
            given = self._waiting[0]
            try:
                body = await self.broker.blobs.load(given.payload)
            except StorageFault as fault:
                self._waiting.popleft()
                self._give_back(given, fault)
                continue
            self._waiting.popleft()
            self._hand_over(given, body)
            self.channel.connection.flush()
        self.on_loaded()
        self.channel.connection.flush()

    def is_loading(self) -> bool:
        """Return whether deliveries wait for large bodies."""
        return bool(self._waiting)

    def _give_back(self, given: Assignment, fault: StorageFault) -> None:
        """Release a task whose body is unavailable, or end it if the body is lost."""
        self.broker.post(without_payload(self.session, given, fault), THE_BROKER)
        self.on_given_back()


class Subscription(Receiver):
    """A consumer of a channel."""

    def __init__(
        self, channel: Channel, queue: str, tag: str, *, no_ack: bool, no_wait: bool
    ) -> None:
        super().__init__(channel, queue, no_ack=no_ack)
        self.tag = tag  # its name on the channel
        self._tag = short_string(tag.encode())
        self._no_wait = no_wait
        self._is_stopping = False
        self._route = ("", "", b"")

    def stop(self, *, no_wait: bool) -> None:
        """Take no more tasks. The session stays until the broker's reply, behind the last task."""
        self._no_wait = no_wait
        self.broker.post(StopConsuming(session=self.session, ref=1), THE_BROKER)

    def on_reply(self, reply: Reply) -> None:
        """Report to the peer that the consumer was added, was refused, or has stopped."""
        channel = self.channel
        if isinstance(reply.body, Refusal):
            channel.refuse(reply.body, BASIC, 20)
        elif isinstance(reply.body, Joined):
            if not self._no_wait:
                channel.send("basic.consume-ok", consumer_tag=self.tag)
                channel.go_on()
        else:
            self._is_stopping = True
            if not self.is_loading():
                self.on_loaded()

    def on_loaded(self) -> None:
        """Report that the consumer has stopped, once everything is delivered."""
        if not self._is_stopping:
            return
        self._is_stopping, self.is_stopped = False, True
        if not self._no_wait:
            self.channel.send("basic.cancel-ok", consumer_tag=self.tag)
            self.channel.go_on()
        self.close_if_done()

    def on_cancelled(self) -> None:
        """Notify the peer that the queue was deleted, if it supports that."""
        channel = self.channel
        if channel.subscriptions.get(self.tag) is self:
            channel.retire(self)
            if channel.connection.can("consumer_cancel_notify"):
                channel.send("basic.cancel", consumer_tag=self.tag, no_wait=True)
            self.is_stopped = True
            self.close_if_done()

    def send(self, tag: int, given: Assignment, envelope: Envelope, body: bytes) -> None:
        channel = self.channel
        exchange, key, route = self._route
        if envelope.exchange != exchange or envelope.key != key or not route:
            route = encode_route(envelope.exchange, envelope.key)
            self._route = (envelope.exchange, envelope.key, route)
        number, most = channel.number, channel.connection.frame_bytes_max
        redelivered = given.attempt > 1
        channel.connection.write(
            encode_deliver(number, self._tag, tag, redelivered=redelivered, route=route)
            + encode_content(number, envelope.properties, body, most)
        )


class Getter(Receiver):
    """The receiver of a queue for `basic.get`."""

    def on_reply(self, reply: Reply) -> None:
        """Report to the peer that there is no message, or the refusal."""
        if isinstance(reply.body, Refusal):
            self.channel.drop_getter(self)
            self.channel.refuse(reply.body, BASIC, 70)
        elif not isinstance(reply.body, Joined):
            self.on_given_back()

    def on_given_back(self) -> None:
        """Report to the peer that there is no message."""
        self.channel.send("basic.get-empty")
        self.channel.go_on()

    def send(self, tag: int, given: Assignment, envelope: Envelope, body: bytes) -> None:
        channel = self.channel
        most = channel.connection.frame_bytes_max
        channel.connection.write(
            encode_method(
                channel.number,
                "basic.get-ok",
                delivery_tag=tag,
                redelivered=given.attempt > 1,
                exchange=envelope.exchange,
                routing_key=envelope.key,
                message_count=views.ready_in(self.broker.engine, self.namespace, self.queue),
            )
            + encode_content(channel.number, envelope.properties, body, most)
        )
        channel.go_on()

"""One channel of an AMQP connection: methods in, commands out; answers in, methods out.

Owns the state of a channel: consumers, deliveries that are not answered, confirmations, the message
that is just arriving. Declarations are in `declare`, messages in `publish`.

A channel acts on one method at a time. While one waits for the broker's answer, those behind it
wait as well, so that each acts on what the one before has done and answers keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from jackalope.broker.access import THE_BROKER
from jackalope.core.amqp.replies import address_of
from jackalope.core.commands import AnyCommand, Fail, FailAttempts, Held, ReleaseAttempts, Verdict
from jackalope.core.commands.amqp import LimitShare, TakeTask, WaitForReplies
from jackalope.core.effects import Answered
from jackalope.core.refusals import Refusal
from jackalope.core.shapes.exchange import REPLY_TO
from jackalope.core.task import Error
from jackalope.doors.amqp.declare import DECLARING, consumer_of, place_of
from jackalope.doors.amqp.deliveries import Delivery, Getter, Receiver, Subscription
from jackalope.doors.amqp.pool_answers import give
from jackalope.doors.amqp.publish import Publisher, unexpected
from jackalope.wire import amqp
from jackalope.wire.amqp import AmqpError, ChannelFault, ConnectionFault, fault_of

if TYPE_CHECKING:
    from jackalope.doors.amqp.connection import Connection

CONSUMERS_PER_CHANNEL_MAX = 10_000
GETTERS_PER_CHANNEL_MAX = 64

_REJECTED = Error("Rejected", "the consumer rejected it")


class Channel:
    """The broker's end of one channel."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number  # its number
        self.subscriptions: dict[str, Subscription] = {}  # its consumers, by tag
        # deliveries that the peer has not answered, by their tag, oldest first
        self.unanswered: dict[int, Delivery] = {}
        self.last_queue = ""  # the queue that was declared last: no name means this one
        self.publisher = Publisher(self)  # what it publishes
        self.prefetch = 0  # how many tasks new consumers may hold; 0 for any number
        # the number of the slots that all consumers have together, and how many those are
        self.share = (0, 0)
        # where direct replies come to, if they are waited for
        self.reply_to: tuple[str, str] = ("", "")
        self.kept_bytes = 0  # the size of all answers that are kept until they are acknowledged
        self._tags = count(1)
        self._stopped: list[Receiver] = []
        self._getters: dict[tuple[str, bool], Getter] = {}
        self._is_closed = self._is_closing = False

    # For the connection.

    def on_frame(self, kind: int, payload: bytes) -> None:
        if self._is_closing:
            self._on_closing(kind, payload)
        elif kind == amqp.METHOD:
            self._on_method(payload)
        elif kind in (amqp.CONTENT_HEADER, amqp.BODY):
            try:
                self.publisher.on_content(kind, payload)
            except ChannelFault as fault:
                fault.class_id, fault.method_id = amqp.BASIC, 40
                raise
        else:
            raise ConnectionFault(501, f"frame of an unknown type {kind}")

    def receivers(self) -> Iterator[Receiver]:
        yield from self.subscriptions.values()
        yield from self._getters.values()
        yield from self._stopped

    def close(self) -> None:
        """Release everything that the channel holds."""
        if self._is_closed:
            return
        self._is_closed = True
        self.connection.flush()
        self.go_on()
        self._tell_waiting(is_over=True)
        for receiver in list(self.receivers()):
            receiver.close()
        self.subscriptions.clear()
        self._getters.clear()
        self._stopped.clear()
        self.unanswered.clear()

    def fail(self, fault: AmqpError) -> None:
        """Close the channel because of an error of the peer, and wait for its acknowledgement."""
        if self._is_closed:
            return
        if isinstance(fault, ConnectionFault):
            self.connection.fail(fault)
            return
        self.close()
        self._is_closing = True
        self.send(
            "channel.close",
            reply_code=fault.code,
            reply_text=fault.text,
            class_id=fault.class_id,
            method_id=fault.method_id,
        )

    # For receivers and declarations.

    def is_closed(self) -> bool:
        return self._is_closed

    def wait(self) -> None:
        """Process no further method of the peer until `go_on`."""
        self.connection.awaiting.add(self.number)

    def go_on(self) -> None:
        """Process what the peer sent behind a method that is answered now."""
        self.connection.answered(self.number)

    def retire(self, subscription: Subscription) -> None:
        """Remove a cancelled consumer; its session stays until everything is acknowledged."""
        del self.subscriptions[subscription.tag]
        self._stopped = [receiver for receiver in self._stopped if not receiver.is_over]
        self._stopped.append(subscription)

    def next_tag(self) -> int:
        return next(self._tags)

    def send(self, name: str, **args: Any) -> None:
        self.connection.write(amqp.encode_method(self.number, name, **args))

    def refuse(self, refusal: Refusal, class_id: int = 0, method_id: int = 0) -> None:
        """Close the channel or the connection because of a refusal."""
        fault = fault_of(refusal, self.connection.vhost)
        fault.class_id, fault.method_id = class_id, method_id
        self.fail(fault)

    def ask(
        self, command: AnyCommand, method: amqp.Method, done: Callable[[Answered], None]
    ) -> None:
        """Send a command to the broker; a refusal closes the channel."""

        def answered(body: Answered) -> None:
            if self._is_closed:
                return
            if isinstance(body, Refusal):
                self.refuse(body, method.class_id, method.method_id)
            else:
                done(body)
                self.go_on()

        self.wait()
        self.connection.ask(command, answered)

    def drop_getter(self, getter: Getter) -> None:
        self._getters = {name: each for name, each in self._getters.items() if each is not getter}
        getter.close()

    # Methods.

    def _on_method(self, payload: bytes) -> None:
        if self.publisher.is_arriving:
            raise unexpected()
        if self.publisher.begin_again(payload):
            return
        method = amqp.decode_method(payload)
        handler = _HANDLERS.get(method.name)
        declare = DECLARING.get(method.name)
        try:
            if method.name == "basic.publish":
                self.publisher.begin(payload, method.args)
            elif handler is not None:
                handler(self, method)
            elif declare is not None:
                declare(self, method)
            else:
                raise ConnectionFault(503, f"{method.name} is not for a channel that is open")
        except AmqpError as fault:
            fault.class_id, fault.method_id = method.class_id, method.method_id
            raise

    def _on_closing(self, kind: int, payload: bytes) -> None:
        if kind != amqp.METHOD:
            return
        name = amqp.decode_method(payload).name
        if name == "channel.close":
            self.send("channel.close-ok")
        if name in ("channel.close", "channel.close-ok"):
            self.connection.channels.pop(self.number, None)

    def _on_open(self, _: amqp.Method) -> None:
        raise ConnectionFault(504, "second 'channel.open' seen")

    def _on_close(self, _: amqp.Method) -> None:
        self.close()
        self.connection.channels.pop(self.number, None)
        self.send("channel.close-ok")

    def _on_flow(self, method: amqp.Method) -> None:
        if not method.args["active"]:
            raise ConnectionFault(540, "active=false")
        self.send("channel.flow-ok", active=True)

    # Consumers.

    def _on_qos(self, method: amqp.Method) -> None:
        if method.args["prefetch_size"]:
            raise ConnectionFault(540, f"prefetch_size!=0 ({method.args['prefetch_size']})")
        wanted = method.args["prefetch_count"]
        if method.args["global"]:
            number = self.share[0] or self.connection.door.next_share()
            is_late = not self.share[0] and bool(self.subscriptions)
            self.share = (number, wanted)
            self.connection.flush()
            limit = LimitShare(share=number, slots=wanted)
            self.connection.broker.post(limit, THE_BROKER)
            if is_late:
                self._join_share()
        else:
            self.prefetch = wanted
        self.send("basic.qos-ok")

    def _join_share(self) -> None:
        """Move the existing consumers to the shared slots of the channel."""
        for subscription in self.subscriptions.values():
            number, slots = self.share
            command = LimitShare(session=subscription.session, share=number, slots=slots)
            self.connection.broker.post(command, THE_BROKER)

    def _on_consume(self, method: amqp.Method) -> None:
        args, connection = method.args, self.connection
        queue, tag = args["queue"] or self.last_queue, args["consumer_tag"]
        if not queue:
            raise ChannelFault(404, "no previously declared queue")
        tag = tag or f"amq.ctag-{token_urlsafe(16)}"
        if tag in self.subscriptions or tag == self.reply_to[1]:
            raise ConnectionFault(530, f"attempt to reuse consumer tag '{tag}'")
        if len(self.subscriptions) >= CONSUMERS_PER_CHANNEL_MAX:
            raise ConnectionFault(506, f"{CONSUMERS_PER_CHANNEL_MAX} consumers on one channel")
        if queue == REPLY_TO:
            self._wait_for_replies(tag, args)
            return
        no_ack, command = args["no_ack"], consumer_of(self, queue, tag, args)
        connection.flush()
        subscription = Subscription(self, queue, tag, no_ack=no_ack, no_wait=args["no_wait"])
        command.session, command.ref = subscription.session, 1
        command.consumer = f"{connection.user or 'amqp'}-{subscription.session}"
        refusal = connection.broker.post(command, connection.principal)
        if refusal is not None:
            subscription.close()
            self.refuse(refusal, method.class_id, method.method_id)
            return
        self.subscriptions[tag] = subscription
        if not args["no_wait"]:
            self.wait()

    def _wait_for_replies(self, tag: str, args: dict[str, Any]) -> None:
        if not args["no_ack"]:
            raise ChannelFault(406, "reply consumer cannot acknowledge")
        if self.reply_to[0]:
            raise ChannelFault(406, "reply consumer already set")
        self.reply_to = (address_of(self.connection.session, token_urlsafe(24)), tag)
        refusal = self._tell_waiting(is_over=False)
        if refusal is not None:
            self.reply_to = ("", "")
            self.refuse(refusal, amqp.BASIC, 20)
        elif not args["no_wait"]:
            self.send("basic.consume-ok", consumer_tag=tag)

    def _tell_waiting(self, *, is_over: bool) -> Refusal | None:
        """Register the reply address with the broker, and with the door, whose channels reply."""
        address, connection = self.reply_to[0], self.connection
        if not address:
            return None
        command = WaitForReplies(session=connection.session, address=address, is_over=is_over)
        refusal = connection.broker.post(command, connection.principal)
        if is_over:
            connection.door.replies.pop(address, None)
        elif refusal is None:
            connection.door.replies[address] = self
        return refusal

    def _on_cancel(self, method: amqp.Method) -> None:
        tag, no_wait = method.args["consumer_tag"], method.args["no_wait"]
        subscription = self.subscriptions.get(tag)
        self.connection.flush()
        if subscription is not None:
            self.retire(subscription)
            subscription.stop(no_wait=no_wait)
            if not no_wait:
                self.wait()
            return
        if tag and tag == self.reply_to[1]:
            self._tell_waiting(is_over=True)
            self.reply_to = ("", "")
        if not no_wait:
            self.send("basic.cancel-ok", consumer_tag=tag)

    def _on_get(self, method: amqp.Method) -> None:
        args, connection = method.args, self.connection
        queue = args["queue"] or self.last_queue
        if not queue:
            raise ChannelFault(404, "no previously declared queue")
        place, key = place_of(connection, queue)
        command = TakeTask(
            queue=place,
            key=key,
            consumer="",
            at_once=args["no_ack"],
            owner=connection.session,
            namespace=connection.namespace,
        )
        connection.flush()
        getter = self._getter(queue, no_ack=args["no_ack"])
        command.session, command.ref = getter.session, 1
        command.consumer = f"{connection.user or 'amqp'}-{getter.session}"
        refusal = connection.broker.post(command, connection.principal)
        if refusal is not None:
            self.refuse(refusal, method.class_id, method.method_id)
        else:
            self.wait()

    def _getter(self, queue: str, *, no_ack: bool) -> Getter:
        """Find or make the receiver for `basic.get` of a queue; an idle one may be evicted."""
        getter = self._getters.get((queue, no_ack))
        if getter is None:
            if len(self._getters) >= GETTERS_PER_CHANNEL_MAX:
                idle = [name for name, each in self._getters.items() if not each.unanswered]
                for name in idle:
                    self._getters.pop(name).close()
            getter = self._getters[queue, no_ack] = Getter(self, queue, no_ack=no_ack)
        return getter

    # Answers to deliveries.

    def _on_ack(self, method: amqp.Method) -> None:
        args = method.args
        if not self.publisher.hold_back(self.ack, args["delivery_tag"], args["multiple"]):
            self.ack(args["delivery_tag"], args["multiple"])

    def ack(self, tag: int, multiple: bool) -> None:
        for delivery in self._answered(tag, is_multiple=multiple):
            receiver, task, fence, answer = delivery
            if answer is not None:
                self.kept_bytes -= len(answer.body)
                give(self, delivery, answer)
            else:
                self.connection.finish(receiver.session, task, fence)
                receiver.answered()

    def _on_nack(self, method: amqp.Method) -> None:
        tag, requeue = method.args["delivery_tag"], method.args["requeue"]
        multiple = method.args.get("multiple", False)
        if not self.publisher.hold_back(self.nack, tag, multiple, requeue):
            self.nack(tag, multiple, requeue)

    def nack(self, tag: int, multiple: bool, requeue: bool) -> None:
        """Requeue or reject deliveries."""
        self._give(self._answered(tag, is_multiple=multiple), is_back=requeue)

    def _on_recover(self, method: amqp.Method) -> None:
        if not method.args["requeue"]:
            raise ConnectionFault(540, "requeue=false")
        self._give(self._answered(0, is_multiple=True), is_back=True)
        if method.name == "basic.recover":
            self.send("basic.recover-ok")

    def _give(self, deliveries: list[Delivery], *, is_back: bool) -> None:
        """Requeue tasks, or end them as rejected."""
        self.connection.flush()
        by_receiver: dict[Receiver, list[Delivery]] = {}
        for delivery in deliveries:
            if delivery.answer is not None:
                self.kept_bytes -= len(delivery.answer.body)
            by_receiver.setdefault(delivery.receiver, []).append(delivery)
        for receiver, given in by_receiver.items():
            command: AnyCommand
            if is_back:
                held = [Held(each.task, each.fence) for each in given]
                command = ReleaseAttempts(session=receiver.session, attempts=held)
            else:
                fails = [Fail(each.task, each.fence, _REJECTED, Verdict.REJECT) for each in given]
                command = FailAttempts(session=receiver.session, attempts=fails)
            self.connection.broker.post(command, THE_BROKER, len(given))
            for _ in given:
                receiver.answered()

    def _answered(self, tag: int, *, is_multiple: bool) -> list[Delivery]:
        """Remove and return the deliveries that an acknowledgement covers."""
        unanswered = self.unanswered
        if not is_multiple:
            delivery = unanswered.pop(tag, None)
            if delivery is None:
                raise ChannelFault(406, f"unknown delivery tag {tag}")
            return [delivery]
        if tag and tag not in unanswered:
            raise ChannelFault(406, f"unknown delivery tag {tag}")
        tags = []
        for each in unanswered:
            if tag and each > tag:
                break
            tags.append(each)
        return [unanswered.pop(each) for each in tags]

    # Confirmations and transactions.

    def _on_confirm(self, method: amqp.Method) -> None:
        self.publisher.confirm()
        if not method.args["no_wait"]:
            self.send("confirm.select-ok")

    def _on_transaction(self, method: amqp.Method) -> None:
        if method.name == "tx.select":
            self.publisher.begin_transaction()
            self.send("tx.select-ok")
        elif method.name == "tx.commit":
            self.publisher.commit()
        else:
            self.publisher.roll_back()
            self.send("tx.rollback-ok")


_HANDLERS: dict[str, Callable[[Channel, amqp.Method], None]] = {
    "channel.open": Channel._on_open,  # noqa: SLF001  its own
    "channel.close": Channel._on_close,  # noqa: SLF001
    "channel.flow": Channel._on_flow,  # noqa: SLF001
    "basic.qos": Channel._on_qos,  # noqa: SLF001
    "basic.consume": Channel._on_consume,  # noqa: SLF001
    "basic.cancel": Channel._on_cancel,  # noqa: SLF001
    "basic.get": Channel._on_get,  # noqa: SLF001
    "basic.ack": Channel._on_ack,  # noqa: SLF001
    "basic.nack": Channel._on_nack,  # noqa: SLF001
    "basic.reject": Channel._on_nack,  # noqa: SLF001
    "basic.recover": Channel._on_recover,  # noqa: SLF001
    "basic.recover-async": Channel._on_recover,  # noqa: SLF001
    "confirm.select": Channel._on_confirm,  # noqa: SLF001
    "tx.select": Channel._on_transaction,  # noqa: SLF001
    "tx.commit": Channel._on_transaction,  # noqa: SLF001
    "tx.rollback": Channel._on_transaction,  # noqa: SLF001
}

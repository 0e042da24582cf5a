"""Messages: one connection's end of the message hub.

Owns the translation between frames and the hub, and which use of the hub each frame is.
"""

from __future__ import annotations

from collections.abc import Callable

from jackalope.broker.access import Principal
from jackalope.broker.events import Events as Happenings
from jackalope.broker.events import Subscription
from jackalope.broker.message_hub import (
    TO_HEAR,
    TO_SEND,
    TO_TAKE_CALLS,
    MessageHub,
    Seat,
    refuse_messages,
)
from jackalope.core.api_key import Permission
from jackalope.core.effects import Accepted
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.native.outgoing import answer
from jackalope.wire.messages import (
    Broadcast,
    Call,
    Called,
    CallReplied,
    CallReply,
    CallStage,
    Events,
    Happened,
    Heard,
    Listen,
    Message,
    Subscribe,
)

Messages = Call | CallReply | Listen | Broadcast


class Messaging:
    """The messages of one connection."""

    def __init__(
        self,
        message_hub: MessageHub,
        write: Callable[[Message], None],
        is_stuck: Callable[[], bool],
    ) -> None:
        self._switchboard = message_hub
        self._write = write
        self._is_stuck = is_stuck
        self._seat: Seat | None = None

    def take(self, message: Messages, principal: Principal, namespace: str) -> int:
        """Process a message of the peer, and return how many frames it caused for others."""
        if self._seat is None:
            self._seat = self._switchboard.sit(namespace, self)
        refusal = refuse_messages(principal, _needs(message))
        outcome = refusal or self._act(self._seat, message)
        if message.ref:
            body = outcome if isinstance(outcome, Refusal) else Accepted(outcome)
            self._write(answer(message.ref, body))
        return 0 if isinstance(outcome, Refusal) else outcome

    def end(self) -> None:
        if self._seat is not None:
            self._switchboard.leave(self._seat)

    def _act(self, seat: Seat, message: Messages) -> int | Refusal:
        message_hub = self._switchboard
        if isinstance(message, Call):
            return message_hub.call(seat, message.ref, message.recipient, message.body) or 1
        if isinstance(message, CallReply):
            if message.stage is CallStage.LOST:
                return Refusal(Code.INVALID, "only the broker reports a call as lost")
            return message_hub.reply(seat, message.call, message.stage, message.body) or 1
        if isinstance(message, Broadcast):
            return message_hub.broadcast(
                seat.namespace, message.subject, message.sender, message.body
            )
        count = len(message.recipients) + len(message.broadcasts)
        if message.begin:
            return message_hub.listen(seat, message.recipients, message.broadcasts) or count
        message_hub.unlisten(seat, message.recipients, message.broadcasts)
        return count

    # From the message_hub.

    def is_slow(self) -> bool:
        return self._is_stuck()

    def called(self, call: int, recipient: str, body: bytes) -> None:
        self._write(Called(call, recipient, body))

    def replied(self, ref: int, stage: CallStage, body: bytes) -> None:
        self._write(CallReplied(ref, stage, body))

    def heard(self, subject: str, sender: str, body: bytes, missed: int) -> None:
        self._write(Heard(subject, sender, body, missed))


def _needs(message: Messages) -> list[Permission]:
    if isinstance(message, Call | Broadcast):
        return [TO_SEND]
    if isinstance(message, CallReply) or message.recipients:
        is_reading = isinstance(message, Listen) and bool(message.broadcasts)
        return [TO_TAKE_CALLS] + [TO_HEAR] * is_reading
    return [TO_HEAR]


# Subscriptions: the events that one connection asks for.


class Listening:
    """The event subscription of one connection, if it has one."""

    def __init__(self, write: Callable[[Message], None], is_stuck: Callable[[], bool]) -> None:
        self._write = write
        self._is_stuck = is_stuck
        self._subscription: Subscription | None = None
        self._missed = 0

    def begin(
        self, events: Happenings, principal: Principal, namespace: str, message: Subscribe
    ) -> None:
        """Subscribe as requested, replacing the earlier subscription."""
        self.end(events)
        self._subscription = Subscription(
            self._take, namespace, message.queue, message.task, queues=principal.queues
        )
        events.subscribe(self._subscription)

    def end(self, events: Happenings) -> None:
        if self._subscription is not None:
            events.unsubscribe(self._subscription)

    def _take(self, events: list[Happened]) -> None:
        if self._is_stuck():
            self._missed += len(events)
            return
        self._write(Events(events, self._missed))
        self._missed = 0

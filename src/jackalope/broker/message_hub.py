"""The message hub: messages outside of tasks, from session to session.

Owns which session takes calls for which recipient, which one receives which broadcasts, and which
calls wait for a reply. Nothing here is durable or decides about tasks: a message is forwarded at
once, or its sender receives an error at once. Namespaces see nothing of each other.

Theory of operation: a line is one session's end. Of several lines that take calls for one
recipient, the latest has them: after a broken connection the new one counts, although the broker
may not have noticed the end of the old one. When it goes, the line before has them again.

A line that reads too slowly is skipped: it is not called, and misses broadcasts, whose number it
receives. So no session waits for it, and what is kept for it stays bounded.

Rights: sending a message makes others do something, as submitting a task does; taking calls is
work; and receiving broadcasts is reading. Messages go to the whole namespace, so a key for some
queues alone does not cover them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from jackalope.broker.access import Principal
from jackalope.core.api_key import Permission
from jackalope.core.durations import MILLISECOND
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.wire.messages import CallStage, Interest

#: What one session may have at once.
RECIPIENTS_PER_SESSION_MAX = 10_000
INTERESTS_PER_SESSION_MAX = 1_000
CALLS_PER_SESSION_MAX = 10_000

#: The largest body of a call, a reply or a broadcast. What is larger belongs into a task.
MESSAGE_BYTES_MAX = 1024 * 1024

#: How often a recipient may report that a call takes longer; further reports are dropped.
PENDING_PER_CALL_MAX = 100

_SLOW_RETRY_US = 500 * MILLISECOND

#: What each use of the hub needs.
TO_SEND = Permission.SUBMIT_TASKS
TO_TAKE_CALLS = Permission.WORK
TO_HEAR = Permission.READ_TASKS


def refuse_messages(
    who: Principal, needs: Iterable[Permission], namespace: str | None = None
) -> Refusal | None:
    """Refuse a use of the hub that a key does not permit."""
    for permission in needs:
        refusal = who.refuse(permission, namespace)
        if refusal is not None:
            return refusal
    if who.queues:
        message = "messages require an API key for all queues of the namespace"
        return Refusal(Code.FORBIDDEN, message)
    return None


class Subscriber(Protocol):
    """A session's end of the message hub. No method may block."""

    def is_slow(self) -> bool:
        """Return whether the session does not read what it is sent."""

    def called(self, call: int, recipient: str, body: bytes) -> None:
        """Deliver a call for a recipient."""

    def replied(self, ref: int, stage: CallStage, body: bytes) -> None:
        """Deliver a reply to a call of this session."""

    def heard(self, subject: str, sender: str, body: bytes, missed: int) -> None:
        """Deliver a broadcast."""


@dataclass(eq=False, slots=True)
class Seat:
    """The subscriptions and calls of one session."""

    namespace: str  # where it is
    line: Subscriber  # its end
    recipients: set[str] = field(default_factory=set)  # those that it takes calls for
    interests: set[Interest] = field(default_factory=set)  # the broadcasts that it subscribed to
    made: set[int] = field(default_factory=set)  # calls that it waits for
    taken: set[int] = field(default_factory=set)  # calls that it has to reply to
    missed: int = 0  # how many broadcasts it missed since the last one that it received


@dataclass(eq=False, slots=True)
class _Call:
    """A call that waits for a reply."""

    ref: int
    recipient: str
    caller: Seat
    callee: Seat
    pending: int = 0


class MessageHub:
    """Forwards messages from session to session."""

    def __init__(self) -> None:
        self._recipients: dict[tuple[str, str], list[Seat]] = {}
        self._listeners: dict[str, dict[Seat, None]] = {}
        self._calls: dict[int, _Call] = {}
        self._last_call = 0

    def sit(self, namespace: str, line: Subscriber) -> Seat:
        """Register a session."""
        return Seat(namespace, line)

    def leave(self, seat: Seat) -> None:
        """Remove a session. Callers that wait for its reply are notified."""
        for recipient in seat.recipients:
            self._drop_recipient(seat, recipient)
        seat.recipients.clear()
        seat.interests.clear()
        self._drop_listener(seat)
        for number in list(seat.made):
            self._end(number)
        for number in list(seat.taken):
            call = self._end(number)
            call.caller.line.replied(call.ref, CallStage.LOST, b"")

    # Listening.

    def listen(
        self, seat: Seat, recipients: tuple[str, ...], interests: tuple[Interest, ...]
    ) -> Refusal | None:
        """Add subscriptions to recipients and broadcasts."""
        names = [*recipients, *(part for one in interests for part in (one.sender, one.subject))]
        if "" in recipients:
            return Refusal(Code.INVALID, "the name of the recipient must not be empty")
        if too_long := _too_long(names):
            return too_long
        new_recipients = set(recipients) - seat.recipients
        new_interests = set(interests) - seat.interests
        if len(seat.recipients) + len(new_recipients) > RECIPIENTS_PER_SESSION_MAX:
            return _too_many("recipients", RECIPIENTS_PER_SESSION_MAX)
        if len(seat.interests) + len(new_interests) > INTERESTS_PER_SESSION_MAX:
            return _too_many("interests in broadcasts", INTERESTS_PER_SESSION_MAX)
        for recipient in new_recipients:
            self._recipients.setdefault((seat.namespace, recipient), []).append(seat)
        seat.recipients |= new_recipients
        seat.interests |= new_interests
        if seat.interests:
            self._listeners.setdefault(seat.namespace, {})[seat] = None
        return None

    def unlisten(
        self, seat: Seat, recipients: tuple[str, ...], interests: tuple[Interest, ...]
    ) -> None:
        """Remove subscriptions to recipients and broadcasts."""
        for recipient in seat.recipients.intersection(recipients):
            self._drop_recipient(seat, recipient)
        seat.recipients.difference_update(recipients)
        seat.interests.difference_update(interests)
        if not seat.interests:
            self._drop_listener(seat)

    def _drop_listener(self, seat: Seat) -> None:
        listeners = self._listeners.get(seat.namespace, {})
        if listeners.pop(seat, self) is None and not listeners:
            del self._listeners[seat.namespace]

    def _drop_recipient(self, seat: Seat, recipient: str) -> None:
        place = (seat.namespace, recipient)
        seats = self._recipients[place]
        seats.remove(seat)
        if not seats:
            del self._recipients[place]

    # Calls.

    def call(self, seat: Seat, ref: int, recipient: str, body: bytes) -> Refusal | None:
        """Send a call to the session that takes calls for a recipient. Ref 0 expects no reply."""
        if refusal := _too_large(body):
            return refusal
        seats = self._recipients.get((seat.namespace, recipient))
        if not seats:
            message = f"no subscriber for calls to {recipient[:NAME_CHARS_MAX]!r}"
            return Refusal(Code.UNKNOWN_RECIPIENT, message)
        callee = seats[-1]
        if callee.line.is_slow():
            message = f"{recipient!r} is not reading its messages; call again later"
            return Refusal(Code.OVERLOADED, message, _SLOW_RETRY_US)
        if max(len(seat.made), len(callee.taken)) >= CALLS_PER_SESSION_MAX:
            return _too_many("calls that wait for a reply", CALLS_PER_SESSION_MAX)
        self._last_call += 1
        number = self._last_call
        if ref:
            self._calls[number] = _Call(ref, recipient, seat, callee)
            seat.made.add(number)
            callee.taken.add(number)
        callee.line.called(number, recipient, body)
        return None

    def reply(self, seat: Seat, number: int, stage: CallStage, body: bytes) -> Refusal | None:
        """Forward the reply of a recipient. It is dropped if no caller waits for it."""
        call = self._calls.get(number)
        if call is None or call.callee is not seat:
            return None
        if refusal := _too_large(body):
            # The caller must not wait for ever for what does not come.
            self._end(number)
            call.caller.line.replied(call.ref, CallStage.ERROR, refusal.message.encode())
            return refusal
        if stage is not CallStage.PENDING:
            self._end(number)
        elif call.pending >= PENDING_PER_CALL_MAX:
            return None
        call.pending += 1
        call.caller.line.replied(call.ref, stage, body)
        return None

    def _end(self, number: int) -> _Call:
        call = self._calls.pop(number)
        call.caller.made.discard(number)
        call.callee.taken.discard(number)
        return call

    # Broadcasts.

    def broadcast(self, namespace: str, subject: str, sender: str, body: bytes) -> int | Refusal:
        """Send a broadcast to its subscribers in a namespace, and return how many those are."""
        refusal = _too_large(body) or _too_long([subject, sender])
        if refusal is not None:
            return refusal
        count = 0
        for listener in list(self._listeners.get(namespace, ())):
            if not any(one.is_meant(sender, subject) for one in listener.interests):
                continue
            count += 1
            if listener.line.is_slow():
                listener.missed += 1
                continue
            missed, listener.missed = listener.missed, 0
            listener.line.heard(subject, sender, body, missed)
        return count


def _too_large(body: bytes) -> Refusal | None:
    if len(body) <= MESSAGE_BYTES_MAX:
        return None
    message = (
        f"the message has {len(body)} bytes, at most {MESSAGE_BYTES_MAX} are allowed; send "
        "a task instead"
    )
    return Refusal(Code.TOO_LARGE, message)


def _too_long(names: list[str]) -> Refusal | None:
    if all(len(name) <= NAME_CHARS_MAX for name in names):
        return None
    message = f"names of recipients, senders and subjects have at most {NAME_CHARS_MAX} characters"
    return Refusal(Code.INVALID, message)


def _too_many(what: str, most: int) -> Refusal:
    return Refusal(
        Code.TOO_MANY, f"the session has {most} {what}, the maximum; wait until some end"
    )

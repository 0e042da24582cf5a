"""Messages: calls and broadcasts between sessions, and events, next to tasks.

Owns the handlers of calls, broadcasts and events of this session, and its calls that wait for a
reply. Bodies are bytes; sender and receiver define what they mean. Handlers are registered again
over each new connection, as are those whose first registration had no answer in time. A call is
never repeated: if the connection is lost, its waiter is passed the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jackalope.client.deadlines import Within
from jackalope.errors import ConfigError, ConnectionLost, JackalopeError, Rejected
from jackalope.transport.connection import Connection
from jackalope.wire.messages import (
    AnyMessage,
    Broadcast,
    Call,
    Called,
    CallReplied,
    CallReply,
    CallStage,
    Events,
    Heard,
    Interest,
    Listen,
    Subscribe,
)

if TYPE_CHECKING:
    from jackalope.client.session.session import Session

#: How many recipients one frame names when all are registered again.
_RECIPIENTS_PER_FRAME = 1_000


class IncomingCall:
    """A call to a recipient of this session."""

    __slots__ = ("_connection", "_number", "body", "recipient")

    def __init__(self, connection: Connection, called: Called) -> None:
        self._connection = connection
        self._number = called.call
        self.recipient = called.recipient  # who is called
        self.body = called.body  # what it is about

    def reply(self, stage: CallStage, body: bytes = b"") -> None:
        """Report a stage of the call. Lost if the connection is over: the caller then knows."""
        self._connection.send(CallReply(0, self._number, stage, body))


#: Takes the calls for a recipient. Must not block.
Taker = Callable[[IncomingCall], None]
#: Hears broadcasts. Must not block.
Hearer = Callable[[Heard], None]
#: Called with the outcome of a call; an error means that nothing more will come.
Waiter = Callable[[CallReplied | JackalopeError], None]


class Messages:
    """What one session says and hears beside tasks."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._connection: Connection | None = None
        self._takers: dict[str, Taker] = {}
        self._hearers: dict[Hearer, Interest] = {}
        self._waiters: dict[int, Waiter] = {}
        self._subscription: tuple[Subscribe, Callable[[Events], None]] | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether no caller waits for anything."""
        is_quiet = not (self._takers or self._hearers or self._waiters)
        return is_quiet and self._subscription is None

    # Listening.

    async def take_calls(self, recipient: str, taker: Taker, timeout_s: float | None) -> None:
        """Take the calls for a recipient."""
        if recipient in self._takers:
            raise ConfigError(f"calls for {recipient!r} are taken here already")
        self._takers[recipient] = taker
        try:
            await self._session.request(Listen(0, (recipient,)), timeout_s=timeout_s)
        except Rejected:
            self._takers.pop(recipient, None)
            raise

    async def leave_calls(self, recipient: str, timeout_s: float | None) -> None:
        """Take the calls for a recipient no more."""
        if self._takers.pop(recipient, None) is None:
            raise ConfigError(f"calls for {recipient!r} are not taken here")
        await self._session.request(Listen(0, (recipient,), (), begin=False), timeout_s=timeout_s)

    async def hear(self, interest: Interest, hearer: Hearer, timeout_s: float | None) -> None:
        """Hear broadcasts. Each hearer has one interest."""
        self._hearers[hearer] = interest
        try:
            await self._session.request(Listen(0, (), (interest,)), timeout_s=timeout_s)
        except Rejected:
            self._hearers.pop(hearer, None)
            raise

    async def unhear(self, hearer: Hearer, timeout_s: float | None) -> None:
        """Remove a hearer; the broker is told if no other one has the same interest."""
        interest = self._hearers.pop(hearer, None)
        if interest is not None and interest not in self._hearers.values():
            message = Listen(0, (), (interest,), begin=False)
            await self._session.request(message, timeout_s=timeout_s)

    async def subscribe(
        self, subscription: Subscribe, reader: Callable[[Events], None], timeout_s: float | None
    ) -> None:
        """Have events sent, in place of those of an earlier subscription."""
        self._subscription = subscription, reader
        try:
            await self._session.request(subscription, timeout_s=timeout_s)
        except Rejected:
            self._subscription = None
            raise

    # Speaking.

    async def call(
        self, recipient: str, body: bytes, waiter: Waiter, timeout_s: float | None
    ) -> None:
        """Call a recipient, and return when the call is on its way. Replies come to the waiter."""
        async with Within(timeout_s, f"the call to {recipient!r} was not taken"):
            connection = await self._session.connected()
            message = Call(0, recipient, body)
            answered = connection.request(message)
            self._waiters[message.ref] = waiter
            try:
                await answered
            except BaseException:
                self._waiters.pop(message.ref, None)
                raise

    def forget(self, waiter: Waiter) -> None:
        """Wait no longer for the reply to a call."""
        for ref in [ref for ref, other in self._waiters.items() if other is waiter]:
            del self._waiters[ref]

    async def broadcast(
        self,
        subject: str,
        sender: str,
        body: bytes,
        *,
        timeout_s: float | None,
        can_repeat: bool = False,
    ) -> int:
        """Tell everybody who wants to hear it, and return how many sessions those are."""
        message = Broadcast(0, subject, sender, body)
        answer: dict[str, Any] = await self._session.request(
            message, timeout_s=timeout_s, can_repeat=can_repeat
        )
        return int(answer["count"])

    # The connection.

    def connected(self, connection: Connection) -> None:
        """Register everybody who listens."""
        self._connection = connection
        for listen in self._listening(begin=True):
            connection.ask(listen, _whatever)
        if self._subscription is not None:
            connection.ask(self._subscription[0], _whatever)

    async def leave(self, timeout_s: float) -> None:
        """End every registration, and wait for the broker to confirm it.

        It may notice the end of a connection only after a call that another session sends later.
        """
        connection = self._connection
        if connection is None or not connection.is_open:
            return
        answers = [connection.request(listen) for listen in self._listening(begin=False)]
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*answers, return_exceptions=True)

    def _listening(self, *, begin: bool) -> Iterator[Listen]:
        """Yield the requests that begin or end all registrations."""
        names = list(self._takers)
        interests = tuple(set(self._hearers.values()))
        for first in range(0, max(len(names), bool(interests)), _RECIPIENTS_PER_FRAME):
            part = tuple(names[first : first + _RECIPIENTS_PER_FRAME])
            yield Listen(0, part, () if first else interests, begin=begin)

    def lost(self, error: JackalopeError) -> None:
        """Tell everybody who waits for a reply that it will not come."""
        self._connection = None
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            waiter(ConnectionLost(f"{error}; the call may have been taken, but its reply is lost"))

    def take(self, message: AnyMessage) -> None:
        """Pass on what the broker brings."""
        if isinstance(message, Called):
            taker = self._takers.get(message.recipient)
            if self._connection is not None and taker is not None:
                taker(IncomingCall(self._connection, message))
        elif isinstance(message, CallReplied):
            is_final = message.stage is not CallStage.PENDING
            waiter = self._waiters.pop(message.call, None) if is_final else None
            waiter = waiter or self._waiters.get(message.call)
            if waiter is not None:
                waiter(message)
        elif isinstance(message, Heard):
            for hearer, interest in list(self._hearers.items()):
                if interest.is_meant(message.sender, message.subject):
                    hearer(message)
        elif isinstance(message, Events) and self._subscription is not None:
            self._subscription[1](message)


def _whatever(_: Any, __: JackalopeError | None) -> None:
    """Take no notice: a registration that was good before is refused only with the session."""

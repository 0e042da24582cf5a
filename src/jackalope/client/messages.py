"""Messages: calls and broadcasts next to tasks, on the client's side. A part of `Jackalope`.

Owns the values in messages, the functions that answer calls, and the streams of broadcasts and
events. None of it is stored by the broker: a call is answered, refused at once, or fails; a
broadcast reaches the clients that listen at that moment.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import msgspec

from jackalope.client import option_checks
from jackalope.client.deadlines import Within
from jackalope.client.option_checks import one_of, wait_s
from jackalope.client.session.messages import IncomingCall
from jackalope.client.session.session import Session, SessionOwner
from jackalope.client.submit_options import UNSET
from jackalope.core.task import Error
from jackalope.errors import CallFailed, ConnectionLost, JackalopeError
from jackalope.tasks.serialization import decode_value, encode_value, error_of
from jackalope.wire.messages import (
    CallReplied,
    CallStage,
    Events,
    Happened,
    Heard,
    Interest,
    Subscribe,
)

#: How many broadcasts and events wait for a reader before further ones are left out.
BROADCASTS_MAX = 10_000
EVENTS_MAX = 10_000

R = TypeVar("R")
V = TypeVar("V")

#: Answers calls: gets the value of the call, and returns that of the reply.
Answerer = Callable[[Any], Any | Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class BroadcastMessage:
    """A broadcast."""

    value: Any  # what was said
    subject: str  # what about
    sender: str  # by whom, in the sender's own words


class Messaging(SessionOwner):
    """Calls and broadcasts."""

    # Calls.

    async def rpc(
        self,
        recipient: str,
        value: Any = None,
        *,
        timeout: float | None = UNSET,  # noqa: ASYNC109  as for results
    ) -> Any:
        """Call a recipient, and return its answer.

        Args:
            recipient: the name of a recipient: see `rpc_subscribe`.
            value: what to say.
            timeout: how many seconds the answer may take; None for as long as it takes.

        Raises:
            Rejected: there is no such recipient now (`unknown_recipient`), or another refusal.
            CallFailed: the recipient raised an exception, or disconnected.
            ConnectionLost: the connection was lost before the answer came.
            Timeout: no answer came in time.
        """
        timeout_s = self.timeout_of(UNSET if timeout == UNSET else wait_s(timeout))
        recipient = one_of("recipient", option_checks.text, recipient)
        messages = self.session().messages
        reply: asyncio.Future[CallReplied] = asyncio.get_running_loop().create_future()

        def replied(word: CallReplied | JackalopeError) -> None:
            if reply.done():
                return
            if isinstance(word, JackalopeError):
                reply.set_exception(word)
            elif word.stage is not CallStage.PENDING:
                reply.set_result(word)

        async with Within(timeout_s, f"no answer from {recipient!r}"):
            try:
                await messages.call(recipient, encode_value("msgpack", value), replied, None)
                return _value_of(recipient, await reply)
            finally:
                messages.forget(replied)
                if not reply.cancel() and not reply.cancelled():
                    reply.exception()  # Retrieved on purpose: no caller waits for it.

    async def rpc_subscribe(self, recipient: str, function: Answerer) -> None:
        """Answer the calls to a recipient from now on, on this event loop, over reconnects too.

        Where several sessions answer to one name, the latest one has the calls.

        Args:
            recipient: the name.
            function: gets the value of a call and returns that of the answer; what it raises, the
                caller gets as `CallFailed`. A coroutine function runs on this loop, a plain one in
                a thread.

        Raises:
            ConfigError: this client answers to the name already.
            Rejected: the broker said no.
            Timeout: no answer came in time.
        """
        recipient = one_of("recipient", option_checks.text, recipient)
        session = self.session()
        running: set[asyncio.Task[None]] = set()

        def taker(call: IncomingCall) -> None:
            task = asyncio.ensure_future(_answer(call, function))
            running.add(task)
            task.add_done_callback(running.discard)

        await session.messages.take_calls(recipient, taker, self.timeout_s)

    async def rpc_unsubscribe(self, recipient: str) -> None:
        """Answer to a name no more. Answers to calls that were taken are still given.

        Raises:
            ConfigError: this client does not answer to the name.
        """
        recipient = one_of("recipient", option_checks.text, recipient)
        await self.session().messages.leave_calls(recipient, self.timeout_s)

    # Broadcasts.

    async def broadcast(self, value: Any = None, *, subject: str = "", sender: str = "") -> int:
        """Tell everybody who listens now, and return how many sessions those are.

        Args:
            value: what to say.
            subject: what about; listeners choose by it.
            sender: by whom; listeners choose by it as well.

        Raises:
            Rejected: the broker said no.
            ConnectionLost: the connection was lost, and it is not known whether it was said.
            Timeout: no answer came in time.
        """
        subject = one_of("subject", option_checks.text, subject)
        sender = one_of("sender", option_checks.text, sender)
        return await self.session().messages.broadcast(
            subject, sender, encode_value("msgpack", value), timeout_s=self.timeout_s
        )

    def broadcasts(self, *, subject: str = "*", sender: str = "*") -> BroadcastStream:
        """Return what is broadcast from now on, by some senders and about some subjects.

            async with app.broadcasts(subject="door.*") as broadcasts:
                async for broadcast in broadcasts:
                    print(broadcast.subject, broadcast.value)

        Args:
            subject: what about; `*` stands for any text.
            sender: by whom; `*` stands for any text.
        """
        sender = one_of("sender", option_checks.text, sender)
        return BroadcastStream(
            self, Interest(sender, one_of("subject", option_checks.text, subject))
        )


# Streams: what the broker pushes, as iterators.


class _Pushed(Generic[R, V]):
    """An endless iterator. What its reader is too slow for is left out, and counted."""

    def __init__(self, app: SessionOwner, most: int) -> None:
        self._app = app
        self._most = most
        self._unread: deque[R] = deque()
        self._news = asyncio.Event()
        self._is_open = False
        self._failure: JackalopeError | None = None
        # how many were left out because the reader was too slow. What happens while there is no
        # connection is not counted.
        self.missed = 0

    async def __aenter__(self) -> Self:
        """Begin: what happens from now on will come.

        Raises:
            Rejected: the broker said no.
            Timeout: no answer came in time.
        """
        self._failure = None
        await self._open()
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> V:
        if not self._is_open:
            await self.__aenter__()
        while not self._unread:
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        return self._read(self._unread.popleft())

    async def aclose(self) -> None:
        """Listen no more."""
        self._is_open = False
        await self._close()

    def _take(self, pushed: list[R], missed: int) -> None:
        room = self._most - len(self._unread)
        self._unread.extend(pushed[:room])
        self.missed += missed + max(0, len(pushed) - room)
        self._news.set()

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    @abstractmethod
    def _read(self, raw: R) -> V: ...


class BroadcastStream(_Pushed[Heard, BroadcastMessage]):
    """An endless iterator of broadcasts. Goes on by itself after a lost connection."""

    def __init__(self, app: Messaging, interest: Interest) -> None:
        super().__init__(app, BROADCASTS_MAX)
        self._interest = interest

    async def _open(self) -> None:
        messages = self._app.session().messages
        await messages.hear(self._interest, self._hear, self._app.timeout_s)

    async def _close(self) -> None:
        await self._app.session().messages.unhear(self._hear, self._app.timeout_s)

    def _hear(self, heard: Heard) -> None:
        self._take([heard], heard.missed)

    def _read(self, raw: Heard) -> BroadcastMessage:
        return BroadcastMessage(decode_value("msgpack", raw.body), raw.subject, raw.sender)


class EventStream(_Pushed[Happened, Happened]):
    """An endless iterator of what happens. Goes on by itself after a lost connection.

    It has a session of its own, because a session has one subscription.
    """

    def __init__(self, app: SessionOwner, subscription: Subscribe) -> None:
        super().__init__(app, EVENTS_MAX)
        self._subscription = subscription
        self._session: Session | None = None
        self.gaps = 0  # how often the connection was lost; what happened meanwhile is not told

    async def _open(self) -> None:
        session = self._session = self._app.new_session()
        session.on_lost, session.on_failed = self._lost, self._failed
        try:
            await session.open(self._app.timeout_s, wait=False)
            await session.messages.subscribe(self._subscription, self._hear, self._app.timeout_s)
        except BaseException:
            await self._close()
            raise

    async def close(self) -> None:
        """Listen no more, as `aclose`."""
        await self.aclose()

    async def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _hear(self, events: Events) -> None:
        self._take(events.events, events.missed)

    def _lost(self, _: ConnectionLost) -> None:
        self.gaps += 1

    def _failed(self, error: JackalopeError) -> None:
        self._failure = error
        self._news.set()

    def _read(self, raw: Happened) -> Happened:
        return raw


# Calls, seen from both ends.


async def _answer(call: IncomingCall, function: Answerer) -> None:
    try:
        value = decode_value("msgpack", call.body)
        if inspect.iscoroutinefunction(function):
            result = await function(value)
        else:
            result = await asyncio.to_thread(function, value)
            if inspect.isawaitable(result):  # An object that is called as a coroutine function.
                result = await result
        call.reply(CallStage.RESULT, encode_value("msgpack", result))
    except asyncio.CancelledError:
        call.reply(CallStage.CANCELLED)
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it is the caller's to hear
        call.reply(CallStage.ERROR, msgspec.msgpack.encode(error_of(error)))


def _value_of(recipient: str, reply: CallReplied) -> Any:
    if reply.stage is CallStage.RESULT:
        return decode_value("msgpack", reply.body)
    if reply.stage is CallStage.ERROR:
        raise CallFailed(recipient, _error_in(reply.body))
    if reply.stage is CallStage.LOST:
        raise CallFailed(recipient, Error("ConnectionLost", "it disconnected before it answered"))
    raise CallFailed(recipient, Error("Cancelled", "it gave up the call"))


def _error_in(body: bytes) -> Error:
    """Read the description of an exception; programs in other languages may send any text."""
    try:
        return msgspec.msgpack.decode(body, type=Error)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Error("Error", body.decode(errors="replace"))

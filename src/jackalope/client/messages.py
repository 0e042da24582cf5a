"""Messaging: calls and broadcasts next to tasks, on the client's side. A part of `Jackalope`.

Owns the values in messages, the functions that answer calls, and the streams of broadcasts. None of
it is stored by the broker: a call is answered, refused at once, or fails; a broadcast reaches the
clients that listen at that moment.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from jackalope.client import option_checks
from jackalope.client.deadlines import Within
from jackalope.client.option_checks import one_of, wait_s
from jackalope.client.session.line import Dial
from jackalope.client.session.messages import IncomingCall
from jackalope.client.session.session import SessionOwner
from jackalope.client.submit_options import UNSET
from jackalope.core.ids import TaskId
from jackalope.core.task import Error
from jackalope.errors import CallFailed, ConnectionLost, JackalopeError
from jackalope.tasks.serialization import decode_value, encode_value, error_of
from jackalope.transport.address import Address
from jackalope.transport.connection import Backoff, Connection
from jackalope.wire.messages import (
    AnyMessage,
    CallReplied,
    CallStage,
    Events,
    Happened,
    Heard,
    Hello,
    Interest,
    Subscribe,
)

#: How many broadcasts wait for a reader before further ones are left out.
BROADCASTS_MAX = 10_000

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

    @abstractmethod
    def timeout_of(self, timeout_s: float | None) -> float | None:
        """Return the time that a call may take, if it does not say so itself."""

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
            recipient: the name under which somebody answers: see `rpc_subscribe`.
            value: what to say.
            timeout: how many seconds the answer may take; None for as long as it takes.

        Raises:
            Rejected: nobody answers to this name now (`unknown_recipient`), or another no.
            CallFailed: whoever answers raised an exception, or went away.
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
                    reply.exception()  # Nobody will ask for it; that is no oversight.

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


class BroadcastStream:
    """An endless iterator of broadcasts. Goes on by itself after a lost connection."""

    def __init__(self, app: Messaging, interest: Interest) -> None:
        self._app = app
        self._interest = interest
        self._heard: deque[Heard] = deque()
        self._news = asyncio.Event()
        self._is_listening = False
        # how many broadcasts were left out because the reader was too slow. What is said while
        # there is no connection is not counted.
        self.missed = 0

    async def __aenter__(self) -> Self:
        """Begin to listen: what is said from now on will be heard.

        Raises:
            Rejected: the broker said no.
            Timeout: no answer came in time.
        """
        messages = self._app.session().messages
        await messages.hear(self._interest, self._take, self._app.timeout_s)
        self._is_listening = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BroadcastMessage:
        if not self._is_listening:
            await self.__aenter__()
        while not self._heard:
            self._news.clear()
            await self._news.wait()
        heard = self._heard.popleft()
        return BroadcastMessage(decode_value("msgpack", heard.body), heard.subject, heard.sender)

    async def aclose(self) -> None:
        """Listen no more."""
        self._is_listening = False
        await self._app.session().messages.unhear(self._take, self._app.timeout_s)

    def _take(self, heard: Heard) -> None:
        self.missed += heard.missed
        if len(self._heard) >= BROADCASTS_MAX:
            self.missed += 1
        else:
            self._heard.append(heard)
        self._news.set()


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
        raise CallFailed(recipient, Error("ConnectionLost", "it went away before it had answered"))
    raise CallFailed(recipient, Error("Cancelled", "it gave up the call"))


def _error_in(body: bytes) -> Error:
    """Read the description of an exception; programs in other languages may send any text."""
    try:
        return msgspec.msgpack.decode(body, type=Error)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Error("Error", body.decode(errors="replace"))


# Events: what happens in the broker, as it happens.

#: How many events wait for a reader before further ones are left out.
EVENTS_MAX = 10_000


class EventStream:
    """An endless iterator of what happens. Comes back by itself after a lost connection."""

    def __init__(
        self, address: Address, hello: Hello, queue: str, task: TaskId, dial: Dial = Connection.open
    ) -> None:
        self._dial = dial
        self._address = address
        self._hello = hello
        self._queue = queue
        self._task = task
        self._connection: Connection | None = None
        self._events: deque[Happened] = deque()
        self._news = asyncio.Event()
        self._loss: ConnectionLost | None = None
        self._backoff = Backoff()
        self.missed = 0  # how many events were left out because the reader was too slow
        self.gaps = 0  # how often the connection was lost; what happened meanwhile is not told

    async def __aenter__(self) -> Self:
        """Subscribe: what happens from now on will be told.

        Raises:
            ConnectionLost: the broker cannot be reached.
            Rejected: it does not want us.
        """
        await self._subscribe()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Happened:
        if self._connection is None and self._loss is None:
            await self._subscribe()
        while not self._events:
            if self._loss is not None:
                await self._come_back()
                continue
            self._news.clear()
            await self._news.wait()
        return self._events.popleft()

    async def close(self) -> None:
        """Hear no more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _subscribe(self) -> None:
        connection = await self._dial(
            self._address, self._hello, heard=self._heard, lost=self._lost
        )
        try:
            await connection.request(Subscribe(0, self._queue, self._task))
        except BaseException:
            connection.abort("not subscribed")
            raise
        self._connection, self._loss = connection, None

    async def _come_back(self) -> None:
        self.gaps += 1
        while self._loss is not None:
            await asyncio.sleep(self._backoff.next_s())
            try:
                await self._subscribe()
            except ConnectionLost as error:
                self._loss = error
        self._backoff.reset()

    def _heard(self, message: AnyMessage) -> None:
        if not isinstance(message, Events):
            return
        room = EVENTS_MAX - len(self._events)
        self._events.extend(message.events[:room])
        self.missed += message.missed + max(0, len(message.events) - room)
        self._news.set()

    def _lost(self, error: ConnectionLost) -> None:
        self._connection = None
        self._loss = error
        self._news.set()

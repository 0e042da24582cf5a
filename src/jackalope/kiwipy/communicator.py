"""A kiwipy communicator over Jackalope, in the place of the one over RabbitMQ.

Owns kiwipy's interface: names, arguments, exceptions and their meaning. May be used from any
thread; the connection lives on a thread of its own, on which subscribers are called, and a small
process keeps the leases of tasks, so that neither a busy main thread nor a busy subscriber makes
this process look dead.

After a lost connection it comes back by itself: subscribers are registered again, tasks go on, and
what is sent meanwhile waits for the connection, as long as the time-out allows.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

import kiwipy

from jackalope.client.app import DEFAULT_ADDRESS, Jackalope
from jackalope.client.session.messages import IncomingCall
from jackalope.client.session.session import Session
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.core.refusals import Code
from jackalope.errors import ConnectionLost, JackalopeError, Rejected
from jackalope.kiwipy.queue import PLAIN, Queue, TaskTraits
from jackalope.kiwipy.serialization import DECODER, ENCODER, Coding, Decoder, Encoder
from jackalope.kiwipy.task_queue import ListedTask, TaskQueue, listed_tasks
from jackalope.kiwipy.threads import LoopThread, Reply, at_home, is_pending, levels_of
from jackalope.log_setup import follow_host
from jackalope.wire.messages import CallReplied, CallStage, Heard, Interest

log = logging.getLogger("jackalope.aiida")

#: As kiwipy has them.
MESSAGE_EXCHANGE = "kiwipy.messages"
TASK_EXCHANGE = "kiwipy.tasks"
TASK_QUEUE = "kiwipy.tasks"
TASK_TIMEOUT_S = 5.0

CloseCallback = Callable[[Any, BaseException | None], Any]


class JackalopeCommunicator(kiwipy.Communicator):  # type: ignore[misc]
    """A communicator over Jackalope. Make it with `connect`."""

    def __init__(
        self,
        connection_params: str | Mapping[str, Any] | None = None,
        *,
        message_exchange: str = MESSAGE_EXCHANGE,
        task_exchange: str = TASK_EXCHANGE,  # noqa: ARG002  a queue's name says enough here
        task_queue: str = TASK_QUEUE,
        task_prefetch_size: int = 0,  # noqa: ARG002  as with RabbitMQ, which refuses another
        task_prefetch_count: int = 0,
        encoder: Encoder = ENCODER,
        decoder: Decoder = DECODER,
        testing_mode: bool = False,
        async_task_timeout: float = TASK_TIMEOUT_S,
        describe: Callable[[Any], TaskTraits] = lambda _: PLAIN,
        is_plain: bool = False,
        lease: float = 0.0,
    ) -> None:
        """Connect.

        Args:
            connection_params: an address such as `jackalope://host:7420/namespace`, or the
                arguments of `Jackalope` by name.
            message_exchange: calls and broadcasts reach those who have the same.
            task_exchange: means nothing here.
            task_queue: the queue of the tasks that are sent and subscribed to.
            task_prefetch_size: means nothing here.
            task_prefetch_count: how many tasks to hold at once; 0 for no limit.
            encoder: makes bytes of values.
            decoder: makes values of bytes.
            testing_mode: debug the event loop.
            async_task_timeout: how many seconds a call of a method may take.
            describe: returns what is known of a task that is sent to the default queue. Called by
                the thread that sends.
            is_plain: plain values need no encoder, also where one is given.
            lease: after so many seconds without a sign of this process, tasks of the default queue
                that it holds are given to others, and before that it is killed; 0 for never.

        Raises:
            Rejected: the broker does not want us.
            TimeoutError: it cannot be reached.
        """
        follow_host()
        self._app = _app_of(connection_params)
        self._exchange = message_exchange
        self._coding = Coding(encoder, decoder, is_plain=is_plain)
        self._describe = describe
        self._rpc_subscribers: dict[str, Callable[..., Any]] = {}
        self._broadcast_subscribers: dict[Any, Callable[..., Any]] = {}
        self._queues: dict[str, list[Queue]] = {}
        self._close_callbacks: list[Callable[[], CloseCallback | None]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._thread = LoopThread("jackalope-communicator", async_task_timeout)
        self._thread.loop.set_debug(testing_mode)
        try:
            self._session, self._server = self._thread.wait_for(self._open())
        except BaseException:
            self._thread.end()
            raise
        self._default = self._new_queue(task_queue, task_prefetch_count, lease)

    @classmethod
    def connect(
        cls, connection_params: str | Mapping[str, Any] | None = None, **settings: Any
    ) -> JackalopeCommunicator:
        """Connect; see the class for what may be set."""
        return cls(connection_params, **settings)

    def __str__(self) -> str:
        return f"JackalopeCommunicator({self._app.address})"

    async def _open(self) -> tuple[Session, str]:
        session = self._app.session()
        session.on_lost = self._on_lost
        session.stays_connected = True
        await session.open(self._thread.timeout_s)
        return session, (await session.connected()).welcome.server

    # Life.

    @property
    def server_properties(self) -> dict[str, Any]:
        """What the broker reports about itself."""
        product, _, version = self._server.partition(" ")
        return {"product": product, "version": version, "host": self._app.address.host}

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop on which subscribers are called."""
        return self._thread.loop

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The same, under the name that users of the communicator over RabbitMQ know."""
        return self._thread.loop

    def is_closed(self) -> bool:
        """Return whether it was closed."""
        return self._is_closed

    def is_connected(self) -> bool:
        """Return whether it has a connection to the broker now."""
        return self._session.is_connected

    def needs_broker(self) -> bool:
        """Return whether it cannot do without a broker: it listens, or waits for an answer."""
        queues = [queue for queues in list(self._queues.values()) for queue in queues]
        return not self._session.is_idle or any(queue.has_subscribers for queue in queues)

    def close(self) -> None:
        """Close it, and hand back the tasks that are not done. Safe to repeat."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.wait_for(self._close())
        finally:
            self._thread.end()
        self._call_back(None)

    async def _close(self) -> None:
        for queues in self._queues.values():
            for queue in queues:
                await queue.close()
        await self._app.close()

    def add_close_callback(self, callback: CloseCallback, weak: bool = False) -> None:
        """Have a function called with this and the reason each time that a connection has ended.

        With `weak` it is forgotten when no other reference to it is left.
        """
        self._ensure_open()
        self._close_callbacks.append(weakref.ref(callback) if weak else lambda: callback)

    def _on_lost(self, error: ConnectionLost) -> None:
        self._call_back(error)

    def _call_back(self, error: BaseException | None) -> None:
        for callback in [reference() for reference in self._close_callbacks]:
            if callback is not None:
                try:
                    callback(self, error)
                except Exception:
                    log.exception("a close callback raised an exception")

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise kiwipy.CommunicatorClosed

    # Tasks.

    def add_task_subscriber(self, subscriber: Callable[..., Any], identifier: Any = None) -> Any:
        """Have the tasks of the default queue given to a function, and return its identifier.

        Raises:
            DuplicateSubscriberIdentifier: the identifier is taken.
        """
        self._ensure_open()
        return self._thread.wait_for(self._default.add_subscriber(subscriber, identifier))

    def remove_task_subscriber(self, identifier: Any) -> None:
        """Give no more tasks to a subscriber.

        Raises:
            ValueError: there is no such subscriber.
        """
        self._ensure_open()
        self._thread.wait_for(self._default.remove_subscriber(identifier))

    def task_send(self, task: Any, no_reply: bool = False) -> kiwipy.Future | None:
        """Send a task to the default queue; it is durable when this returns.

        Returns:
            The future of its result; None with `no_reply`.

        Raises:
            TaskRejected: the broker did not accept it.
            TimeoutError: no answer came in time. It may have been accepted all the same.
        """
        self._ensure_open()
        traits = self._describe(task)
        return self._thread.wait_for(self._default.send(task, no_reply=no_reply, traits=traits))

    def unfinished_tasks(self) -> Iterator[ListedTask]:
        """Yield every unfinished task of the default queue, also those that a worker holds."""
        self._ensure_open()
        return listed_tasks(self._app, self._default, self._thread)

    def task_queue(
        self,
        queue_name: str,
        prefetch_size: int = 0,  # noqa: ARG002  as for the default queue
        prefetch_count: int = 0,
    ) -> TaskQueue:
        """Return a queue by its name."""
        self._ensure_open()
        return TaskQueue(self._new_queue(queue_name, prefetch_count), self._thread)

    def _new_queue(self, name: str, prefetch: int, lease_s: float = 0.0) -> Queue:
        async def make() -> Queue:
            return Queue(
                self._session,
                name,
                self._coding,
                prefetch=prefetch,
                timeout_s=self._thread.timeout_s,
                communicator=self,
                lease_s=lease_s,
            )

        queue = self._thread.wait_for(make())
        self._queues.setdefault(name, []).append(queue)
        return queue

    # Calls.

    def add_rpc_subscriber(self, subscriber: Callable[..., Any], identifier: Any = None) -> Any:
        """Have calls to an identifier answered by a function, and return the identifier.

        Raises:
            DuplicateSubscriberIdentifier: the identifier is taken.
        """
        self._ensure_open()
        identifier = str(uuid.uuid4()) if identifier is None else identifier
        self._thread.wait_for(self._add_rpc_subscriber(subscriber, str(identifier)))
        return identifier

    async def _add_rpc_subscriber(self, subscriber: Callable[..., Any], identifier: str) -> None:
        if identifier in self._rpc_subscribers:
            raise kiwipy.DuplicateSubscriberIdentifier(f"RPC identifier '{identifier}'")
        self._rpc_subscribers[identifier] = subscriber = at_home(subscriber)

        def taker(call: IncomingCall) -> None:
            self._on_call(subscriber, call)

        # After a time-out it stays: it will be registered together with the next connection.
        try:
            await self._session.messages.take_calls(
                self._recipient(identifier), taker, self._thread.timeout_s
            )
        except Rejected as error:
            del self._rpc_subscribers[identifier]
            raise kiwipy.DeliveryFailed(str(error)) from error

    def remove_rpc_subscriber(self, identifier: Any) -> None:
        """Answer calls to an identifier no more.

        Raises:
            ValueError: there is no such subscriber.
        """
        self._ensure_open()
        self._thread.wait_for(self._remove_rpc_subscriber(str(identifier)))

    async def _remove_rpc_subscriber(self, identifier: str) -> None:
        if self._rpc_subscribers.pop(identifier, None) is None:
            raise ValueError(f"Unknown subscriber '{identifier}'")
        recipient = self._recipient(identifier)
        await self._session.messages.leave_calls(recipient, self._thread.timeout_s)

    def rpc_send(self, recipient_id: Any, msg: Any) -> kiwipy.Future:
        """Call a recipient, and return the future of its answer.

        Raises:
            UnroutableError: there is no subscriber with this identifier.
            DeliveryFailed: the call could not be handed over.
            TimeoutError: the broker did not answer in time.
        """
        self._ensure_open()
        return self._thread.wait_for(self._rpc_send(str(recipient_id), self._coding.encode(msg)))

    async def _rpc_send(self, recipient: str, body: bytes) -> kiwipy.Future:
        reply, levels = Reply(), 0

        def replied(word: CallReplied | JackalopeError) -> None:
            nonlocal levels
            if isinstance(word, JackalopeError):
                reply.fail(kiwipy.DeliveryFailed(str(word)))
            elif word.stage is CallStage.PENDING:
                levels += 1
                reply.pending(levels)
            else:
                self._on_reply(reply, recipient, word)

        name, timeout_s = self._recipient(recipient), self._thread.timeout_s
        try:
            await self._session.messages.call(name, body, replied, timeout_s)
        except Rejected as error:
            if error.code == Code.UNKNOWN_RECIPIENT:
                raise kiwipy.UnroutableError(f"Unknown rpc recipient '{recipient}'") from error
            raise kiwipy.DeliveryFailed(str(error)) from error
        except ConnectionLost as error:
            raise kiwipy.DeliveryFailed(str(error)) from error
        return reply.first

    def _on_reply(self, reply: Reply, recipient: str, word: CallReplied) -> None:
        if word.stage is CallStage.LOST:
            reply.fail(kiwipy.DeliveryFailed(f"'{recipient}' disconnected before it answered"))
        elif word.stage is CallStage.CANCELLED:
            reply.cancel()
        elif word.stage is CallStage.ERROR:
            reply.fail(kiwipy.RemoteException(word.body.decode(errors="replace")))
        else:
            try:
                reply.finish(self._coding.decode(word.body))
            except Exception as error:  # noqa: BLE001  a foreign decoder may raise anything
                reply.fail(error)

    def _on_call(self, subscriber: Callable[..., Any], call: IncomingCall) -> None:
        try:
            result = subscriber(self, self._coding.decode(call.body))
            if is_pending(result):
                self._run(self._reply_later(result, call))
            else:
                call.reply(CallStage.RESULT, self._coding.encode(result))
        except (kiwipy.CancelledError, asyncio.CancelledError):
            call.reply(CallStage.CANCELLED)
        except Exception as error:  # noqa: BLE001  whatever it is, it is the caller's to hear
            call.reply(CallStage.ERROR, str(error).encode(errors="replace"))

    async def _reply_later(self, result: Any, call: IncomingCall) -> None:
        try:
            async with aclosing(levels_of(result)) as steps:
                async for step in steps:
                    if step is None:
                        call.reply(CallStage.PENDING)
                    else:
                        call.reply(CallStage.RESULT, self._coding.encode(step[0]))
        except (kiwipy.CancelledError, asyncio.CancelledError):
            call.reply(CallStage.CANCELLED)
        except Exception as error:  # noqa: BLE001  whatever it is, it is the caller's to hear
            call.reply(CallStage.ERROR, str(error).encode(errors="replace"))

    def _recipient(self, identifier: str) -> str:
        return f"{self._exchange}/{identifier}"

    # Broadcasts.

    def add_broadcast_subscriber(
        self, subscriber: Callable[..., Any], identifier: Any = None
    ) -> Any:
        """Call a function with every broadcast, and return its identifier.

        Raises:
            DuplicateSubscriberIdentifier: the identifier is taken.
        """
        self._ensure_open()
        identifier = identifier or str(uuid.uuid4())
        self._thread.wait_for(self._add_broadcast_subscriber(subscriber, identifier))
        return identifier

    async def _add_broadcast_subscriber(
        self, subscriber: Callable[..., Any], identifier: Any
    ) -> None:
        if identifier in self._broadcast_subscribers:
            raise kiwipy.DuplicateSubscriberIdentifier(f"Broadcast identifier '{identifier}'")
        self._broadcast_subscribers[identifier] = at_home(subscriber)
        if len(self._broadcast_subscribers) == 1:
            interest = Interest("*", f"{self._exchange}/*")
            try:
                await self._session.messages.hear(interest, self._on_heard, self._thread.timeout_s)
            except Rejected as error:
                del self._broadcast_subscribers[identifier]
                raise kiwipy.DeliveryFailed(str(error)) from error

    def remove_broadcast_subscriber(self, identifier: Any) -> None:
        """Remove a subscriber of broadcasts.

        Raises:
            ValueError: there is no such subscriber.
        """
        self._ensure_open()
        self._thread.wait_for(self._remove_broadcast_subscriber(identifier))

    async def _remove_broadcast_subscriber(self, identifier: Any) -> None:
        if self._broadcast_subscribers.pop(identifier, None) is None:
            raise ValueError(f"Broadcast subscriber '{identifier}' unknown")
        if not self._broadcast_subscribers:
            await self._session.messages.unhear(self._on_heard, self._thread.timeout_s)

    def broadcast_send(
        self, body: Any, sender: Any = None, subject: Any = None, correlation_id: Any = None
    ) -> bool:
        """Send a broadcast to all current subscribers. That there are none is no error.

        Raises:
            DeliveryFailed: the broker did not take it.
            TimeoutError: it did not answer in time.
        """
        self._ensure_open()
        message = {
            "body": body,
            "sender": sender,
            "subject": subject,
            "correlation_id": correlation_id,
        }
        about = f"{self._exchange}/{'' if subject is None else subject}"
        by = "" if sender is None else str(sender)
        self._thread.wait_for(self._broadcast_send(about, by, self._coding.encode(message)))
        return True

    async def _broadcast_send(self, subject: str, sender: str, body: bytes) -> None:
        # Who listens goes by what is inside the body, so that a name may well be cut here. Saying
        # it twice after a lost connection does less harm than not saying it.
        try:
            await self._session.messages.broadcast(
                subject[:NAME_CHARS_MAX],
                sender[:NAME_CHARS_MAX],
                body,
                timeout_s=self._thread.timeout_s,
                can_repeat=True,
            )
        except Rejected as error:
            raise kiwipy.DeliveryFailed(str(error)) from error

    def _on_heard(self, heard: Heard) -> None:
        if not heard.subject.startswith(f"{self._exchange}/"):
            return
        message = self._coding.decode(heard.body)
        words = (message["body"], message["sender"], message["subject"], message["correlation_id"])
        for subscriber in list(self._broadcast_subscribers.values()):
            try:
                result = subscriber(self, *words)
                if is_pending(result):
                    self._run(self._follow(result))
            except Exception:
                log.exception("a broadcast subscriber raised an exception")

    async def _follow(self, result: Any) -> None:
        try:
            async with aclosing(levels_of(result)) as steps:
                await anext(steps)
        except Exception:
            log.exception("a broadcast subscriber raised an exception")

    def _run(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)


def connect(
    connection_params: str | Mapping[str, Any] | None = None, **settings: Any
) -> JackalopeCommunicator:
    """Connect a communicator; see `JackalopeCommunicator` for what may be set."""
    return JackalopeCommunicator(connection_params, **settings)


def _app_of(params: str | Mapping[str, Any] | None) -> Jackalope:
    name = f"kiwipy-{socket.gethostname()}-{os.getpid()}"
    if isinstance(params, Mapping):
        return Jackalope(**{"name": name, **params})
    return Jackalope(params or DEFAULT_ADDRESS, name=name)

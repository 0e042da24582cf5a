"""A helper session: the time that a worker helps the task of another, seen from the helper.

Owns the helper's end of the connection. The connection and its heartbeats live in a thread of their
own; the items are computed where a task of that function would be: on the loop, in a thread or in a
process. For the executor, a session is an attempt with the number 0, which no task ever has.

A session is over when the owner ends it, when the connection ends, or when this worker is asked to
stop; items in hand are then computed by other peers.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from hmac import compare_digest
from queue import Empty, SimpleQueue
from typing import Any, cast

import msgspec

from jackalope.core.effects import Assignment, HelpAsked
from jackalope.core.task import NO_OPTIONS
from jackalope.errors import JackalopeError
from jackalope.tasks.context import running
from jackalope.tasks.definition import TaskDefinition
from jackalope.tasks.dependencies import Dependency
from jackalope.tasks.serialization import Stream
from jackalope.transport.connection import new_event_loop
from jackalope.wire.fanout import (
    FANOUT_VERSION,
    NONCE_BYTES,
    Beat,
    Begin,
    Begun,
    Challenge,
    End,
    Greeting,
    Items,
    Results,
    Welcome,
    helper_codec,
    proof_of_helper,
    proof_of_owner,
)
from jackalope.wire.frames import FrameError, FrameReader
from jackalope.wire.messages import AnyMessage
from jackalope.worker.fanout.computation import Computation, Part, Stopwatch, likeness_of

#: How long the owner may take to be reached and to greet.
CONNECT_S = 5.0

#: Silence of the owner for so many beats ends the session.
SILENT_BEATS_MAX = 10

_CLOSE_S = 1.0

#: How often a thread that waits for items checks whether it must stop.
_LOOK_S = 0.25

Work = tuple[Computation, int, int, bytes]


class CannotHelp(JackalopeError):
    """The worker cannot help this owner; the message has the reason."""


class Order(msgspec.Struct, frozen=True, array_like=True):
    """Where to help, and how to prove that one was asked to."""

    worker: str
    where: str
    token: str
    seal: str = ""


def help_assignment(ask: HelpAsked, worker: str) -> Assignment:
    """Put an ask for help into the form of an attempt."""
    order = Order(worker, ask.where, ask.token, ask.seal)
    payload = msgspec.msgpack.encode(order)
    return Assignment(
        task=ask.task,
        fence=ask.fence,
        queue=ask.queue,
        name=ask.function,
        key="",
        payload=payload,
        options=NO_OPTIONS,
        attempt=0,
        timeout_us=0,
    )


class HelpDefinition(TaskDefinition):
    """A task whose call is a helper session, and runs where the function would."""

    def __init__(self, definition: TaskDefinition, functions: Mapping[str, TaskDefinition]) -> None:
        super().__init__(
            definition.function,
            name=definition.name,
            queue=definition.queue,
            isolation=definition.isolation,
            memory_bytes_max=definition.memory_bytes_max,
        )
        self._functions = functions

    @property
    def dependencies(self) -> Mapping[str, Dependency]:
        """None: they are made for each item."""
        return {}

    def call(
        self, payload: bytes | Stream, content: str = "", inputs: object = None, /, **made: Any
    ) -> Any:
        """Help, and return when that is over; a coroutine if the function is one."""
        del content, inputs, made  # An order has none of these.
        data = payload.read() if isinstance(payload, Stream) else payload
        order = msgspec.msgpack.decode(data, type=Order)
        line = Line(order, self, self._functions)
        return _help_async(line) if self.is_async else _help(line)

    def encode_result(self, _: Any, __: str = "") -> bytes:
        """Return nothing: what came of it, the owner has."""
        return b""


def _help(line: Line) -> None:
    """Compute what comes over the line."""
    work: SimpleQueue[Work | None] = SimpleQueue()
    with line.opened(work.put):
        while (item := _next(work)) is not None:
            computation, run, batch, data = item
            if run == line.run:
                watch = Stopwatch()
                line.answer(run, batch, computation.run(data), watch.us())


async def _help_async(line: Line) -> None:
    """Compute what comes over the line, on this loop."""
    loop = asyncio.get_running_loop()
    work: asyncio.Queue[Work | None] = asyncio.Queue()

    def put(item: Work | None) -> None:
        with suppress(RuntimeError):  # The loop is closed: nothing waits any more.
            loop.call_soon_threadsafe(work.put_nowait, item)

    with line.opened(put):
        while (item := await work.get()) is not None:
            computation, run, batch, data = item
            if run == line.run:
                watch = Stopwatch()
                line.answer(run, batch, await computation.run_async(data), watch.us())


def _next(work: SimpleQueue[Work | None]) -> Work | None:
    """Wait for something to compute; None when there is nothing more, or this is to stop."""
    context = running.get()
    while context is None or not context.is_cancelled:
        with suppress(Empty):
            return work.get(timeout=_LOOK_S)
    return None


class Line(asyncio.Protocol):
    """The connection to the owner, in a thread of its own."""

    def __init__(
        self, order: Order, definition: TaskDefinition, functions: Mapping[str, TaskDefinition]
    ) -> None:
        self.run = 0  # the number of what is to be done now
        self._order = order
        self._definition = definition
        self._functions = functions
        self._put: Any = None
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._live, name="jackalope-helper", daemon=True)
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._nonce = os.urandom(NONCE_BYTES)
        self._challenge = b""
        self._computation: Computation | None = None
        self._beat_s = CONNECT_S / 2
        self._heard_at = 0.0
        self._is_welcome = False
        self._useless = ""
        self._over: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()

    # From the thread that computes.

    @contextmanager
    def opened(self, put: Callable[[Work | None], None]) -> Iterator[None]:
        """Connect. `put` is called with everything to compute, and with None at the end."""
        self._put = put
        self._thread.start()
        try:
            yield
        finally:
            self._call(self._finish)
            self._thread.join(CONNECT_S)
        if self._useless:
            raise CannotHelp(self._useless)

    def answer(self, run: int, batch: int, parts: list[Part], busy_us: int) -> None:
        frames = b"".join(
            helper_codec.encode(
                Results(
                    run,
                    batch,
                    part.begin,
                    part.count,
                    part.data,
                    tuple(part.failed),
                    busy_us if part is parts[-1] else 0,
                )
            )
            for part in parts
        )
        self._call(self._write, frames)

    def _call(self, act: Any, *arguments: Any) -> None:
        with suppress(RuntimeError):  # The loop is closed: the connection is over.
            self._loop.call_soon_threadsafe(act, *arguments)

    # In the thread of the connection.

    def _live(self) -> None:
        try:
            self._loop.run_until_complete(self._converse())
        finally:
            self._loop.close()
            self._put(None)

    async def _converse(self) -> None:
        self._over = self._loop.create_future()
        host, _, port = self._order.where.rpartition(":")
        seal = self._order.seal
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(
                    lambda: self, host.strip("[]"), int(port), ssl=_context() if seal else None
                )
        except (OSError, ValueError) as error:
            why = str(error) or type(error).__name__
            self._useless = f"unreachable: {self._order.where}: {why}"
            return
        beating = self._loop.create_task(self._beat())
        try:
            await self._over
        finally:
            beating.cancel()
            await self._hang_up()

    async def _hang_up(self) -> None:
        """Send what is waiting to be sent, and close; without notice if that takes long."""
        if self._transport is None:
            return
        self._transport.close()
        await asyncio.wait([self._gone], timeout=_CLOSE_S)
        if not self._gone.done():
            self._transport.abort()
            await self._gone

    async def _beat(self) -> None:
        began = self._loop.time()
        while True:
            await asyncio.sleep(self._beat_s)
            now = self._loop.time()
            if not self._is_welcome and now - began > CONNECT_S:
                self._useless = f"unreachable: {self._order.where} did not send its greeting"
                self._finish()
            elif now - self._heard_at > SILENT_BEATS_MAX * self._beat_s:
                self._finish()
            else:
                self._write(helper_codec.encode(Beat()))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make sure that it is the owner."""
        self._transport = cast("asyncio.Transport", transport)
        self._heard_at = self._loop.time()
        if self._order.seal:
            there = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            if not compare_digest(sha256(there or b"").hexdigest(), self._order.seal):
                self._useless = f"{self._order.where} has a different certificate than the owner"
                self._finish()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            for kind, body in self._reader.feed(data):
                self._take(helper_codec.decode(kind, body))
        except FrameError as error:
            self._useless = f"{self._order.where} sent {error}"
            self._finish()

    def connection_lost(self, _: Exception | None) -> None:
        if not self._is_welcome and not self._useless:
            self._useless = f"the owner at {self._order.where} did not accept this worker"
        if not self._gone.done():
            self._gone.set_result(None)
        self._finish()

    def _take(self, message: AnyMessage) -> None:
        if type(message) is Items:
            if self._computation is not None and message.run == self.run:
                self._put((self._computation, message.run, message.batch, message.data))
        elif type(message) is Begin:
            self._begin(message)
        elif type(message) is Challenge:
            self._greet(message)
        elif type(message) is Welcome:
            proof = proof_of_owner(self._order.token, self._challenge, self._nonce)
            if compare_digest(message.proof, proof):
                self._is_welcome = True
                self._beat_s = max(0.05, message.beat_us / 1e6)
            else:
                self._useless = f"{self._order.where} cannot prove that it is the owner"
                self._finish()
        elif type(message) is End:
            self._useless = self._useless or message.why
            self._finish()

    def _greet(self, message: Challenge) -> None:
        if message.version != FANOUT_VERSION:
            self._useless = f"the owner speaks version {message.version}, not {FANOUT_VERSION}"
            self._finish()
            return
        self._challenge = message.nonce
        order = self._order
        proof = proof_of_helper(order.token, message.nonce, self._nonce, order.worker)
        greeting = Greeting(FANOUT_VERSION, order.worker, self._nonce, proof)
        self._write(helper_codec.encode(greeting))

    def _begin(self, message: Begin) -> None:
        if not self._is_welcome:
            self._finish()
            return
        self._computation = None  # Items of a run that is refused are not for the one before.
        definition = self._functions.get(message.function)
        refusal = _mismatch(definition, self._definition, message)
        if not refusal and definition is not None:
            try:
                self._computation = Computation(definition, message.fixed)
            except JackalopeError as error:
                refusal = f"{message.function}: {error}"
        self.run = message.run
        self._write(helper_codec.encode(Begun(message.run, refusal)))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _finish(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


def _mismatch(definition: TaskDefinition | None, asked: TaskDefinition, begin: Begin) -> str:
    """Return why this worker must not run the owner's function; empty if it may."""
    if definition is None:
        return f"this worker has no task {begin.function!r}"
    if (definition.isolation, definition.is_async) != (asked.isolation, asked.is_async):
        return f"{begin.function} runs elsewhere than {asked.name}"
    if likeness_of(definition) != begin.likeness:
        return f"the code or the types of {begin.function} differ from the owner's"
    return ""


def _context() -> ssl.SSLContext:
    """Return how to connect to an owner whose certificate is known by its fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

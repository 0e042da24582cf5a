"""The outbox: messages on their way to one client, sent as fast as it reads.

Owns what waits for a client, and the bounds on it. Messages are kept as bytes; those that may be
joined are sent as one, because the bytes of a message with lists, one behind the other, are the
message with the lists joined. A client that does not read is cut off: when too much waits for it,
when one message waits for too long, or when the broker has too much waiting for all of them.

A message that is being written cannot be taken back, and the library takes no status behind it. So
a call that is cut off gives up all that it holds, and ends when that one message is read, or when
its client goes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from jackalope.broker.backlog import COUNTED_BYTES_MIN
from jackalope.broker.local_session import LocalSession
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.durations import SECOND
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.grpc.calls import Call

#: Messages are joined up to this size. Clients take 4 MiB unless they are told otherwise.
JOINED_BYTES_MAX = 1024 * 1024

#: From here on a client counts as slow: what can wait for it waits elsewhere.
SLOW_BYTES = 256 * 1024

_DOES_NOT_READ = Refusal(Code.OVERLOADED, "the client does not read; connect again", SECOND)


class Outbox:
    """What waits for one client."""

    def __init__(self, call: Call, cut: Callable[[], object]) -> None:
        self._call = call
        self._cut = cut
        self._backlog = call.broker.backlog
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self._writing_since_s = 0.0  # 0 while nothing is being written
        self.fault: Refusal | None = None  # why the call ends before its time

    def put(self, message: bytes, *, joins: bool = True) -> None:
        """Send a message, behind those that wait. Never blocks."""
        if self.fault is not None:
            return
        self._waiting.append((message, joins))
        self._bytes += len(message)
        self._wake.set()
        if self._bytes > self._call.door.unsent_bytes_max:
            self.end(_DOES_NOT_READ)
        elif self._bytes >= COUNTED_BYTES_MIN:
            self._backlog.note(self, self._bytes)

    def end(self, why: Refusal) -> None:
        """End the call with a refusal."""
        if self.fault is None:
            self.fault = why
            self._waiting.clear()
            self._cut()

    def look(self, now_s: float, stuck_s: float) -> None:
        """Cut off a client that has not taken a message for too long."""
        if 0 < self._writing_since_s < now_s - stuck_s:
            self.end(_DOES_NOT_READ)

    async def close(self, writer: asyncio.Task[None]) -> None:
        """Return when nothing is being written any more."""
        self.fault = self.fault or _DOES_NOT_READ
        self._waiting.clear()
        if self._writing_since_s:
            await asyncio.wait({writer})
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)

    def is_slow(self) -> bool:
        return self._bytes >= SLOW_BYTES

    async def room(self) -> None:
        """Return when the client has read most of what waited."""
        while self.is_slow():
            self._moved.clear()
            await self._moved.wait()

    async def drain(self) -> None:
        """Return when everything is sent."""
        while self._bytes:
            self._moved.clear()
            await self._moved.wait()

    async def send_on(self) -> None:
        """Send what waits, for as long as the call lasts."""
        write, now_s = self._call.context.write, asyncio.get_running_loop().time
        while self.fault is None:
            await self._wake.wait()
            while self._waiting:
                message = self._next()
                self._writing_since_s = now_s()
                await write(message)
                self._writing_since_s = 0.0
                self._bytes -= len(message)
                if self._bytes < COUNTED_BYTES_MIN and self.fault is None:
                    self._backlog.note(self, self._bytes)
                self._moved.set()
            self._wake.clear()

    def _next(self) -> bytes:
        """Return the next message, joined with those behind it that may be."""
        waiting = self._waiting
        message, joins = waiting.popleft()
        if not joins or not waiting or not waiting[0][1]:
            return message
        parts, size = [message], len(message)
        while waiting:
            message, joins = waiting[0]
            size += len(message)
            if not joins or size > JOINED_BYTES_MAX:
                break
            parts.append(message)
            waiting.popleft()
        return b"".join(parts)

    # For the backlog.

    def unread_bytes(self) -> int:
        return self._bytes

    def abort(self) -> None:
        self.end(_DOES_NOT_READ)


@asynccontextmanager
async def sending(call: Call) -> AsyncIterator[Outbox]:
    """Open the outbox of a call. The block ends when all is sent, or with the outbox's fault."""
    serving = asyncio.current_task()
    if serving is None:
        raise BrokenInvariant("a call is served by a task")
    outbox = Outbox(call, serving.cancel)
    writer = asyncio.create_task(outbox.send_on(), name="jackalope-grpc-outbox")
    writer.add_done_callback(lambda _: outbox.end(_DOES_NOT_READ))
    call.door.outboxes.add(outbox)
    try:
        yield outbox
        await outbox.drain()
    except asyncio.CancelledError:
        if outbox.fault is None:
            raise
        serving.uncancel()
        raise Refused(outbox.fault) from None
    finally:
        call.door.outboxes.discard(outbox)
        call.broker.backlog.forget(outbox)
        await outbox.close(writer)


class Streamed(LocalSession):
    """A session of the broker that is one call, and ends with it."""

    _outbox: Outbox
    _is_done = False

    def done(self) -> None:
        """Close the session, because the call ends."""
        self._is_done = True
        self.close()

    def refuse(self, refusal: Refusal) -> None:
        super().refuse(refusal)
        if not self._is_done:
            self._outbox.end(refusal)


class Pace:
    """How much of one stream a turn takes. More waits for the next: no peer crowds out others."""

    def __init__(self, broker: Broker, per_turn: int) -> None:
        self._broker = broker
        self._per_turn = self._left = per_turn

    async def step(self, items: int = 1) -> None:
        """Count what was posted; return when there is room for more."""
        self._left -= items
        if self._left > 0:
            return
        turned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._broker.between_turns(lambda: None if turned.done() else turned.set_result(None))
        await turned
        self._left = self._per_turn

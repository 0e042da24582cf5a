"""One connection of the native door: frames in, commands out; effects in, frames out.

Owns the bytes of one peer, and the limits that keep it from harming others: a peer that sends and
does not read is no longer read from; one that stays stuck is cut off; what it sends is bounded by
the frame; what it asks at once is bounded too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from jackalope import __version__
from jackalope.broker.events import Subscription
from jackalope.broker.queries import Refused, answer
from jackalope.core.commands import Heartbeat as HeartbeatCommand
from jackalope.core.effects import (
    Assignment,
    DrainAsked,
    Effect,
    LeaseLost,
    NothingToClaim,
    Reply,
    SessionReplaced,
    SignalAsked,
    TaskEnded,
)
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef, Body
from jackalope.doors.native.requests import Gathering, commands_of, is_for_core
from jackalope.wire.frames import VERSION, FrameError, FrameReader
from jackalope.wire.messages import (
    Ack,
    Assign,
    Ended,
    Events,
    Happened,
    Heartbeat,
    Hello,
    Message,
    Nack,
    Notice,
    Query,
    Result,
    SignalAsk,
    Submit,
    Subscribe,
    Welcome,
    broker_codec,
)

if TYPE_CHECKING:
    from jackalope.doors.native.server import NativeDoor

log = structlog.get_logger(component="native")

#: How many questions of one connection are answered at once.
QUERIES_AT_ONCE_MAX = 100

#: Where writing pauses, so that the broker notices a slow reader early.
_WRITE_HIGH_BYTES = 4 * 1024 * 1024

_codec = broker_codec()
_NOTICES: dict[type, Notice] = {
    DrainAsked: Notice("drain"),
    SessionReplaced: Notice("replaced"),
    LeaseLost: Notice("lease_lost"),
}


class Connection(asyncio.Protocol):
    """The broker's end of one connection.

    Attributes:
        session: its session, once it has introduced itself.
        pulse: the secret by which another connection can keep it alive.
    """

    def __init__(self, door: NativeDoor) -> None:
        self._door = door
        self._broker = door.broker
        self._reader = FrameReader(door.terms.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self.session = 0
        self.pulse = ""
        self._namespace = ""
        self._name = ""
        self._beats_for: Connection | None = None
        self._heard_us = self._sent_us = self._opened_us = door.broker.now_us()
        self._stuck_since_us = 0
        self._gatherings: dict[int, Gathering] = {}
        self._refs = 0
        self._queries = 0
        self._waiting: list[Message] | None = None
        self._subscription: Subscription | None = None
        self._missed = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the peer in, or tell it that there is no room."""
        self._transport = transport  # type: ignore[assignment]
        if not self._door.enter(self):
            most = self._door.terms.max_connections
            self._write(Nack(0, Code.TOO_MANY, f"{most} connections are open; try again later"))
            self._close()
            return
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)  # type: ignore[attr-defined]

    def connection_lost(self, _: Exception | None) -> None:
        """Forget the peer. Its worker, if it is one, may come back within its grace."""
        self._door.leave(self)
        if self._subscription is not None:
            self._broker.events.unsubscribe(self._subscription)
        for task in self._tasks:
            task.cancel()
        if self.session:
            self._broker.close_session(self.session)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Take bytes, and act on each frame that is now whole."""
        self._heard_us = self._broker.now_us()
        try:
            for kind, body in self._reader.feed(data):
                self._on_message(_codec.decode(kind, body))
                if self._transport is None:
                    return
        except FrameError as error:
            self.end(f"protocol error: {error}", notice="error")

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read: its answers would only pile up."""
        self._stuck_since_us = self._broker.now_us()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on with a peer that reads again."""
        self._stuck_since_us = 0
        self._read_on()

    # The door's side.

    def look(self, now_us: int) -> None:
        """See whether the peer is silent, stuck or in need of a heartbeat."""
        terms = self._door.terms
        if not self.session and self._beats_for is None:
            if now_us - self._opened_us > terms.hello_us:
                self.end("no HELLO came in time", notice="error")
        elif now_us - self._heard_us > 3 * terms.heartbeat_us:
            self.end("nothing was heard for three heartbeats", notice="error")
        elif self._is_stuck(now_us):
            log.warning("slow reader cut off", session=self.session, name=self._name)
            self.abort()
        elif now_us - self._sent_us >= terms.heartbeat_us:
            self._write(Heartbeat())

    def end(self, why: str, notice: str = "goodbye") -> None:
        """Tell the peer why, and close."""
        self._write(Notice(notice, why))
        self._close()

    def touch(self) -> None:
        """Take a heartbeat that came over the pulse."""
        self._heard_us = self._broker.now_us()
        self._broker.post(HeartbeatCommand(session=self.session))

    def deliver(self, effects: list[Effect]) -> None:
        """Send what the core has to say, in as few frames as the order allows."""
        frames: list[bytes] = []
        assignments: list[Assignment] = []
        ended: list[TaskEnded] = []
        for effect in effects:
            if isinstance(effect, Reply):
                self._add_reply(frames, effect)
                continue
            message = effect.message
            if type(message) is Assignment:
                self._add_body(assignments, message, message.payload, "payload")
            elif type(message) is TaskEnded:
                self._add_body(ended, message, message.result, "result")
            elif type(message) is SignalAsked:
                frames.append(_codec.encode(SignalAsk(message.task, message.fence, message.signal)))
            else:
                frames.append(_codec.encode(_NOTICES[type(message)]))
        if assignments:
            frames.append(_codec.encode(Assign(assignments)))
        if ended:
            frames.append(_codec.encode(Ended(ended)))
        self._write_bytes(b"".join(frames))

    # What the peer says.

    def _on_message(self, message: Message) -> None:
        if self._waiting is not None:
            self._waiting.append(message)
        elif type(message) is Heartbeat:
            self._on_heartbeat(message)
        elif type(message) is Hello:
            self._on_hello(message)
        elif not self.session:
            raise FrameError("the first frame must be HELLO, and a pulse only beats")
        elif type(message) is Query:
            self._on_query(message)
        elif type(message) is Subscribe:
            self._on_subscribe(message)
        elif is_for_core(message):
            self._on_request(message)
        else:
            raise FrameError(f"{type(message).__name__} means nothing here")

    def _on_hello(self, hello: Hello) -> None:
        if self.session or self._beats_for is not None:
            raise FrameError("HELLO comes once")
        if hello.version < VERSION:
            raise FrameError(f"protocol version {hello.version}; this broker speaks {VERSION}")
        if hello.pulse:
            self._beats_for = self._door.pulses.get(hello.pulse)
            if self._beats_for is None:
                raise FrameError("nobody has this pulse")
        else:
            self.session = self._broker.open_session(self)
            self.pulse = self._door.give_pulse(self)
        self._namespace, self._name = hello.namespace, hello.name or f"session {self.session}"
        terms = self._door.terms
        server = f"jackalope {__version__}"
        self._write(
            Welcome(
                VERSION, self.session, self.pulse, terms.heartbeat_us, terms.frame_bytes_max, server
            )
        )

    def _on_heartbeat(self, beat: Heartbeat) -> None:
        if self._beats_for is not None:
            self._beats_for.touch()
        elif self.session:
            command = HeartbeatCommand(session=self.session, ref=beat.ref, stats=beat.stats)
            self._broker.post(command)

    def _on_request(self, message: Message) -> None:
        if type(message) is Submit:
            refusal = self._broker.admit(len(message.tasks))
            if refusal is not None:
                self._add_and_write(message.ref, refusal)
                return
        if _has_large_body(message):
            self._spill(message)
            return
        try:
            commands, gathering = commands_of(message, self.session, self._namespace, self._name)
        except Refused as refused:
            self._add_and_write(getattr(message, "ref", 0), refused.refusal)
            return
        if gathering is not None:
            for command in commands:
                self._refs -= 1
                command.ref = self._refs
                self._gatherings[self._refs] = gathering
        for command, items in zip(commands, _items_of(message), strict=False):
            self._broker.post(command, items)

    def _on_query(self, query: Query) -> None:
        if self._queries >= QUERIES_AT_ONCE_MAX:
            message = f"{self._queries} questions are open; wait for an answer"
            self._add_and_write(query.ref, Refusal(Code.TOO_MANY, message))
            return
        self._queries += 1
        self._run(self._answer(query))

    async def _answer(self, query: Query) -> None:
        try:
            body = await answer(self._broker, self._namespace, query.what, query.about)
        except Refused as refused:
            self._add_and_write(query.ref, refused.refusal)
        else:
            self._write(Ack(query.ref, body))
        finally:
            self._queries -= 1

    def _on_subscribe(self, message: Subscribe) -> None:
        if self._subscription is not None:
            self._broker.events.unsubscribe(self._subscription)
        self._subscription = Subscription(
            self._on_events, self._namespace, message.queue, message.task
        )
        self._broker.events.subscribe(self._subscription)
        self._write(Ack(message.ref))

    def _on_events(self, events: list[Happened]) -> None:
        """Tell a subscriber what happens; one that reads too slowly hears how much it missed."""
        if self._stuck_since_us:
            self._missed += len(events)
            return
        self._write(Events(events, self._missed))
        self._missed = 0

    # Large bodies.

    def _spill(self, message: Message) -> None:
        """Put large bodies into the blob store first. What comes after waits, to keep its order."""
        self._waiting = []
        if self._transport is not None:
            self._transport.pause_reading()
        self._run(self._spill_and_go_on(message))

    async def _spill_and_go_on(self, message: Message) -> None:
        blobs = self._broker.engine.blobs

        async def spill(body: Body) -> Body:
            if isinstance(body, bytes) and len(body) > INLINE_BYTES_MAX:
                return await self._broker.off_loop(lambda: blobs.write([body]))
            return body

        if isinstance(message, Submit):
            for spec in message.tasks:
                spec.payload = await spill(spec.payload)
        elif isinstance(message, Result):
            message.finished = [
                msgspec.structs.replace(finish, result=await spill(finish.result))
                for finish in message.finished
            ]
        waiting, self._waiting = self._waiting or [], None
        self._on_request(message)
        for later in waiting:
            self._on_message(later)
        self._read_on()

    def _read_on(self) -> None:
        """Read from the peer again, unless something still speaks against it."""
        if self._transport is not None and self._waiting is None and not self._stuck_since_us:
            self._transport.resume_reading()

    def _add_body(self, ready: list[Any], message: Any, body: Body, field: str) -> None:
        """Add a message with its body; one whose body is a blob follows when it is loaded."""
        if isinstance(body, BlobRef) and body.size < self._door.terms.frame_bytes_max // 2:
            self._run(self._load(message, body, field))
        else:
            ready.append(message)

    async def _load(self, message: Any, ref: BlobRef, field: str) -> None:
        blobs = self._broker.engine.blobs
        body = await self._broker.off_loop(lambda: b"".join(blobs.read(ref)))
        loaded = msgspec.structs.replace(message, **{field: body})
        self._write(Assign([loaded]) if isinstance(loaded, Assignment) else Ended([loaded]))

    # Writing.

    def _add_reply(self, frames: list[bytes], reply: Reply) -> None:
        ref, body = reply.ref, reply.body
        gathering = self._gatherings.pop(ref, None)
        if gathering is not None:
            gathered = gathering.take(ref, body)
            if gathered is None:
                return
            ref, body = gathering.ref, gathered
        if type(body) is Refusal:
            frames.append(_codec.encode(Nack(ref, body.code, body.message, body.retry_after_us)))
        elif type(body) is NothingToClaim:
            frames.append(_codec.encode(Nack(ref, "nothing_to_claim", "no task came in time")))
        else:
            frames.append(_codec.encode(Ack(ref, body)))

    def _add_and_write(self, ref: int, refusal: Refusal) -> None:
        self._write(Nack(ref, refusal.code, refusal.message, refusal.retry_after_us))

    def _write(self, message: Message) -> None:
        self._write_bytes(_codec.encode(message))

    def _write_bytes(self, data: bytes) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self._sent_us = self._broker.now_us()

    def _is_stuck(self, now_us: int) -> bool:
        terms = self._door.terms
        if not self._stuck_since_us or self._transport is None:
            return False
        unsent = self._transport.get_write_buffer_size()
        return now_us - self._stuck_since_us > terms.stuck_us or unsent > terms.unsent_bytes_max

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        if self._transport is not None:
            self._transport.abort()

    def _run(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _has_large_body(message: Message) -> bool:
    if isinstance(message, Submit):
        return any(
            type(spec.payload) is bytes and len(spec.payload) > INLINE_BYTES_MAX
            for spec in message.tasks
        )
    return isinstance(message, Result) and any(
        type(finish.result) is bytes and len(finish.result) > INLINE_BYTES_MAX
        for finish in message.finished
    )


def _items_of(message: Message) -> list[int]:
    if isinstance(message, Submit):
        return [len(message.tasks)]
    return [1, 1, 1]

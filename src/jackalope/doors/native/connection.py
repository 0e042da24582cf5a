"""One connection of the native door: frames in, commands out; effects in, frames out.

Owns the bytes of one peer, and the limits that keep it from harming others: a peer that sends and
does not read is no longer read from; one that stays stuck is cut off; what it sends is bounded by
the frame; what it asks at once is bounded too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import structlog

from jackalope import __version__
from jackalope.broker.access import ANYONE, THE_BROKER, Principal, acting
from jackalope.broker.backlog import COUNTED_BYTES_MIN
from jackalope.broker.blobs import STORE_AWAY_US
from jackalope.broker.queries import Refused, answer_named
from jackalope.core.api_key import Permission
from jackalope.core.commands import (
    ActOnTasks,
    AnyCommand,
    Heartbeat,
    JoinWorker,
    SubmitTasks,
    WatchTasks,
)
from jackalope.core.commands.flows import AddNodes, SubmitFlow
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Effect, Reply
from jackalope.core.limits import INLINE_BYTES_MAX, NAME_CHARS_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef
from jackalope.doors.forwarding import Way
from jackalope.doors.gathering import Gathering
from jackalope.doors.native.commands import (
    ForCore,
    bodies_of,
    commands_of,
    refuse_oversized,
    spill,
    unfit,
    weigh,
    without_body,
)
from jackalope.doors.native.messages import Listening, Messages, Messaging
from jackalope.doors.native.outgoing import Outgoing, answer, codec
from jackalope.doors.native.streams import FETCHES_AT_ONCE_MAX, Streams
from jackalope.storage import OutOfReach, StorageFault
from jackalope.wire.frames import PART_BYTES_MAX, VERSION, BodyError, FrameError, FrameReader
from jackalope.wire.messages import (
    Ack,
    AnyMessage,
    Fetch,
    Hello,
    Logs,
    Manage,
    Message,
    Moved,
    Nack,
    Notice,
    Query,
    Subscribe,
    Upload,
    Welcome,
)

if TYPE_CHECKING:
    from jackalope.doors.native.server import NativeDoor

log = structlog.get_logger(component="native")

#: How many questions of one connection are answered at once.
QUERIES_AT_ONCE_MAX = 100

#: How many requests of one connection, and tasks in them, one turn takes. More wait for the next
#: turn, and the peer is not read from meanwhile: no peer can crowd out the others.
REQUESTS_PER_TURN_MAX = 256
TASKS_PER_TURN_MAX = 5_000

#: The requests that a rate limit counts. Reports of workers are never too many.
COUNTED = frozenset(
    {SubmitTasks, SubmitFlow, AddNodes, ActOnTasks, WatchTasks, Manage, Query, Subscribe}
)

#: The largest frame of a peer that has not said who it is.
HELLO_BYTES_MAX = 64 * 1024

#: How much may come before and with HELLO.
_HEAD_BYTES_MAX = 1024 * 1024

#: How many numbers a worker may report about itself with a heartbeat.
STATS_MAX = 64

#: Where writing pauses, so that the broker notices a slow reader early.
_WRITE_HIGH_BYTES = 4 * 1024 * 1024
#: How long a closing connection may take to send what is left.
_CLOSE_S = 2.0


def _items(message: object) -> int:
    """Return how many tasks a message submits; 1 for any other message."""
    if isinstance(message, SubmitTasks):
        return len(message.tasks)
    return max(1, len(message.nodes)) if isinstance(message, SubmitFlow | AddNodes) else 1


class Malformed(Message):
    """A request of which only the reference could be decoded."""

    ref: int
    why: str


class Connection(asyncio.Protocol):
    """The broker's end of one connection."""

    def __init__(self, door: NativeDoor) -> None:
        self._door = door
        self._broker = door.broker
        self._head = b""  # what has come, until it is known whether another node is to have it
        self._reader = FrameReader(min(HELLO_BYTES_MAX, door.config.frame_bytes_max))
        self._outgoing = Outgoing(door.config.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self.session = 0  # its session, once it has introduced itself
        self.pulse = ""  # the secret by which another connection can keep it alive
        self._namespace = ""
        self._name = ""
        self._principal = ANYONE
        self._is_counted = False  # its requests are, because there is a limit on them
        self._beats_for: Connection | None = None
        self._follows = False  # the peer goes where it is sent
        self._heard_us = self._sent_us = self._opened_us = door.broker.steady_us()
        self._stuck_since_us = 0
        self._gatherings: dict[int, Gathering] = {}
        self._refs = 0
        self._queries = 0
        self._with_bodies = asyncio.Lock()
        self._waiting: deque[AnyMessage] = deque()
        self._is_holding = False
        self._is_worker = False
        self._beat_us = 0
        self._requests_left = REQUESTS_PER_TURN_MAX
        self._tasks_left = TASKS_PER_TURN_MAX
        self._listening = Listening(self._write, lambda: self._stuck_since_us > 0)
        self._messaging = Messaging(
            door.broker.message_hub, self._write, lambda: self._stuck_since_us > 0
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._part_bytes_max = min(PART_BYTES_MAX, self._outgoing.body_bytes_max)
        self._streams = Streams(door.broker, self._part_bytes_max)

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if not self._door.enter(self):
            most = self._door.config.max_connections
            self._write(Nack(0, Code.TOO_MANY, f"{most} connections are open; try again later"))
            self._close()
            return
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)  # type: ignore[attr-defined]

    def connection_lost(self, _: Exception | None) -> None:
        """Close the session. Its worker, if there is one, may resume within its grace."""
        self._door.leave(self)
        self._broker.backlog.forget(self)
        self._listening.end(self._broker.events)
        self._messaging.end()
        self._streams.end()
        for task in self._tasks:
            task.cancel()
        if self.session:
            self._broker.close_session(self.session)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._heard_us = self._broker.steady_us()
        if self._door.forwarding is not None and not self.session and self._beats_for is None:
            self._head += data
            if len(self._head) > _HEAD_BYTES_MAX:
                self.abort()
                return
        try:
            for kind, body in self._reader.feed(data):
                try:
                    self._waiting.append(codec.decode(kind, body))
                except BodyError as error:
                    if error.ref is None:
                        raise  # It may wait for an answer, and there is no way to give it one.
                    self._waiting.append(Malformed(error.ref, str(error)))
                if not self.session:
                    self._go_on()  # HELLO may allow larger frames behind it.
                    if self._is_closing():
                        return
        except FrameError as error:
            self._go_on()
            self._protocol_error(error)
        else:
            self._go_on()

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read: its replies would accumulate."""
        self._stuck_since_us = self._broker.steady_us()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._stuck_since_us = 0
        self._broker.backlog.note(self, self.unread_bytes())
        self._read_on()

    # The door's side.

    def look(self, now_us: int) -> None:
        """Check whether the peer is silent, stuck or needs a heartbeat."""
        door, heartbeat_us = self._door, self._door.config.heartbeat_us
        if not self.session and self._beats_for is None:
            if now_us - self._opened_us > door.hello_us:
                self.end("no HELLO within the time limit", notice="error")
        elif self._stuck_since_us:
            # It is not read from while it does not read, so its silence means nothing.
            if now_us - self._stuck_since_us > door.stuck_us:
                self._cut_off()
        elif now_us - self._heard_us > 3 * heartbeat_us and not self._is_holding:
            self.end("no data for three heartbeat intervals", notice="error")
        elif now_us - self._sent_us >= heartbeat_us:
            self._write(Heartbeat())

    def check_access(self) -> None:
        if self.session and not self._broker.access.is_current(
            self._principal, self._broker.now_us()
        ):
            message = "the API key expired or was revoked, or one is now required"
            self._refuse(0, Refusal(Code.UNAUTHORISED, message))
            self._close()

    def end(self, why: str, notice: str = "goodbye") -> None:
        forwarding, name = self._door.forwarding, self._door.name
        if notice == "goodbye" and self._follows and forwarding is not None:
            address = forwarding.leader.elsewhere(name)
            if address and forwarding.way(name, follows=True) is Way.POINT:
                notice, why = "moved", address
        self._write(Notice(notice, why))
        self._close()

    def touch(self) -> bool:
        """Process a heartbeat of the pulse; return whether the session still exists."""
        if self._transport is not None:
            self._heard_us = self._broker.steady_us()
            self._broker.post(Heartbeat(session=self.session), self._principal)
        return self._transport is not None

    def deliver(self, effects: list[Effect]) -> None:
        """Send the effects of the core, in as few frames as their order allows."""
        effect = effects[0] if len(effects) == 1 else None
        if type(effect) is Reply and not (self._gatherings or self._outgoing.is_loading):
            self._write(answer(effect.ref, effect.body))
            return
        blob = self._outgoing.add(effects, self._gather)
        self._write_bytes(self._outgoing.take())
        if blob is not None:
            self._run(self._load(blob))

    # Messages of the peer.

    def _go_on(self) -> None:
        """Process received frames, as far as this turn allows."""
        try:
            while self._waiting and not self._is_holding and self._transport is not None:
                if self._requests_left <= 0 or self._tasks_left <= 0:
                    self._hold()
                    self._broker.between_turns(self._next_turn)
                    return
                self._on_message(self._waiting.popleft())
        except FrameError as error:
            self._protocol_error(error)

    def _next_turn(self) -> None:
        self._requests_left, self._tasks_left = REQUESTS_PER_TURN_MAX, TASKS_PER_TURN_MAX
        self._release()

    def _hold(self) -> None:
        """Stop reading and processing until `_release`."""
        self._is_holding = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _release(self) -> None:
        self._is_holding = False
        self._go_on()
        self._read_on()

    def _read_on(self) -> None:
        """Resume reading, unless the connection is held."""
        if self._transport is not None and not self._is_holding and not self._stuck_since_us:
            self._transport.resume_reading()

    def _on_message(self, message: AnyMessage) -> None:
        self._requests_left -= 1
        if getattr(message, "ref", 0) < 0:
            raise FrameError("a ref must not be negative")
        if self._is_counted and type(message) in COUNTED and self._is_refused(message):
            return
        if type(message) is SubmitTasks and self.session:
            self._on_request(message)
        elif type(message) is Malformed:
            self._on_malformed(message)
        elif type(message) is Heartbeat:
            self._on_heartbeat(message)
        elif type(message) is Hello:
            self._on_hello(message)
        elif not self.session:
            raise FrameError(
                "the first frame must be HELLO, and a pulse connection only sends heartbeats"
            )
        elif isinstance(message, ForCore):
            self._on_request(message)
        elif isinstance(message, Messages):
            self._tasks_left -= self._messaging.take(message, self._principal, self._namespace)
        else:
            self._on_other(message)

    def _is_refused(self, message: AnyMessage) -> bool:
        """Refuse a request of a client that makes too many."""
        refusal = self._door.rates.refuse(self._principal)
        ref = getattr(message, "ref", 0)
        if refusal is not None and ref:
            self._refuse(ref, refusal)
        elif refusal is not None:
            self._write(Notice("refused", refusal.message))
        return refusal is not None

    def _on_other(self, message: AnyMessage) -> None:
        """Process what is neither for the core nor for other sessions."""
        if type(message) is Query:
            self._on_query(message)
        elif type(message) is Subscribe:
            self._on_subscribe(message)
        elif type(message) is Upload:
            self._on_upload(message)
        elif type(message) is Fetch:
            self._on_fetch(message)
        elif type(message) is Logs:
            self._on_logs(message)
        else:
            raise FrameError(f"unexpected {type(message).__name__}")

    def _on_malformed(self, message: Malformed) -> None:
        """Refuse a malformed request; other requests are not affected."""
        if not self.session:
            raise FrameError(message.why)
        if message.ref:
            self._refuse(message.ref, Refusal(Code.INVALID, message.why))
        else:
            self._write(Notice("refused", message.why))

    def _protocol_error(self, error: FrameError) -> None:
        self.end(f"protocol error: {error}", notice="error")

    def _on_hello(self, hello: Hello) -> None:
        if self.session or self._beats_for is not None:
            raise FrameError("HELLO was already received")
        if hello.version < VERSION:
            raise FrameError(f"protocol version {hello.version}; this broker speaks {VERSION}")
        if max(len(hello.name), len(hello.namespace), len(hello.agent)) > NAME_CHARS_MAX:
            raise FrameError(f"names in HELLO have at most {NAME_CHARS_MAX} characters")
        if self._is_moved(hello):
            return
        if hello.pulse:
            self._beats_for = self._door.pulses.get(hello.pulse)
            if self._beats_for is None:
                raise FrameError("unknown pulse")
        elif not self._let_in(hello):
            return
        self._outgoing.is_fetching, self._follows, self._head = hello.fetches, hello.follows, b""
        config, forwarding = self._door.config, self._door.forwarding
        self._reader.allow(config.frame_bytes_max)
        server = f"jackalope {__version__}"
        self._write(
            Welcome(
                VERSION,
                self.session,
                self.pulse,
                config.heartbeat_us,
                config.frame_bytes_max,
                server,
                max(0, self._part_bytes_max),
                () if forwarding is None else forwarding.members,
                0 if forwarding is None else forwarding.leader.epoch,
                self._broker.logs.settings.enabled,
            )
        )

    def _is_moved(self, hello: Hello) -> bool:
        """Send a peer on to the node that leads, if that is another, or hand it on."""
        forwarding, transport = self._door.forwarding, self._transport
        if forwarding is None or transport is None:
            return False
        way = forwarding.way(self._door.name, follows=hello.follows)
        if way is Way.HERE:
            return False
        if way is Way.HAND_ON:
            head, self._head = self._head, b""
            self.connection_lost(None)
            self._door.hand_on(transport, head)
            return True
        address = forwarding.leader.elsewhere(self._door.name)
        if way is Way.POINT and address and hello.follows:
            self._write(Moved(address, forwarding.leader.epoch))
        self._close()  # One that does not follow, or while none leads, tries the next address.
        return True

    def _address(self) -> str:
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    def _let_in(self, hello: Hello) -> bool:
        """Open a session for an authorized peer, and return whether it is."""
        found = self._broker.access.admit(hello.token, self._broker.now_us(), self._address())
        if isinstance(found, Principal):
            key = found.key
            if key is None or key.namespace in ("", hello.namespace):
                self._principal = found
                self._is_counted = key is not None and bool(self._door.config.rate_per_s)
                self.session = self._broker.open_session(self)
                self.pulse = self._door.give_pulse(self)
                self._namespace = hello.namespace
                self._name = found.signed(hello.name or f"session {self.session}")
                return True
            found = Refusal(Code.FORBIDDEN, f"API key {key.id} is for another namespace")
        self._refuse(0, found)
        self._close()
        return False

    def _on_heartbeat(self, beat: Heartbeat) -> None:
        if len(beat.stats) > STATS_MAX:
            self._on_malformed(Malformed(beat.ref, f"a heartbeat has at most {STATS_MAX} numbers"))
        elif self._beats_for is not None:
            # A worker relies on an answer renewing the lease.
            if self._beats_for.touch() and beat.ref:
                self._write(Ack(beat.ref, Accepted()))
        elif not self.session:
            if beat.ref:
                refusal = Refusal(Code.UNKNOWN_SESSION, "HELLO must be sent first")
                self._refuse(beat.ref, refusal)
        elif beat.ref or (self._is_worker and self._is_beat_due()):
            beat.session = self.session
            self._broker.post(beat, self._principal)

    def _is_beat_due(self) -> bool:
        """Return whether to forward a heartbeat to the core: once a second is enough."""
        if self._heard_us - self._beat_us < SECOND:
            return False
        self._beat_us = self._heard_us
        return True

    def _on_request(self, message: ForCore) -> None:
        if isinstance(message, SubmitTasks | SubmitFlow | AddNodes):
            count = _items(message)
            self._tasks_left -= count
            refusal = self._broker.admit(count)
            if refusal is not None:
                self._refuse(message.ref, refusal)
                return
        ref = message.ref
        try:
            commands, gathering = commands_of(message, self.session, self._namespace, self._name)
        except Refused as refused:
            self._refuse(ref, refused.refusal)
            return
        largest, is_uploaded = weigh(commands)
        is_large, most = largest > INLINE_BYTES_MAX, self._outgoing.body_bytes_max
        refusal = None if largest <= most else unfit(largest, most)
        if is_uploaded:
            bodies = [body for command in commands for body in bodies_of(command)]
            refusal = refusal or self._streams.unknown(bodies)
        if (refusal is not None or is_large or is_uploaded) and self._principal.key is not None:
            # Nothing is stored for a peer, nor sent to it, before it is known that it may send it.
            refusal = self._forbidden(commands) or refusal
        if refusal is None and is_uploaded:
            self._streams.claim(commands)
        if refusal is not None:
            self._refuse(ref, refusal)
        elif is_large:
            self._hold()
            self._run(self._spill(ref, commands, gathering))
        else:
            self._post(ref, commands, gathering)

    def _forbidden(self, commands: list[AnyCommand]) -> Refusal | None:
        refusals = (self._principal.admit(command) for command in commands)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _post(self, ref: int, commands: list[AnyCommand], gathering: Gathering | None) -> None:
        if gathering is not None:
            for command in commands:
                self._refs -= 1
                command.ref = self._refs
                self._gatherings[self._refs] = gathering
        for command in commands:
            refusal = self._broker.post(command, self._principal, _items(command))
            if refusal is not None:  # Then all of the request are: they need the same permission.
                for each in commands:
                    self._gatherings.pop(each.ref, None)
                self._refuse(ref, refusal)
                return
            self._is_worker = self._is_worker or type(command) is JoinWorker

    def _on_query(self, query: Query) -> None:
        if self._queries >= QUERIES_AT_ONCE_MAX:
            message = f"{self._queries} queries are open, the maximum; wait for an answer"
            self._refuse(query.ref, Refusal(Code.TOO_MANY, message))
            return
        self._queries += 1
        self._run(self._answer(query))

    async def _answer(self, query: Query) -> None:
        acting.set(self._principal)
        try:
            if query.about.get("bodies"):
                async with self._with_bodies:  # One after the other: they can be large.
                    await self._answer_now(query)
            else:
                await self._answer_now(query)
        finally:
            self._queries -= 1

    async def _answer_now(self, query: Query) -> None:
        try:
            body = await answer_named(self._broker, self._namespace, query.what, query.about)
        except Refused as refused:
            self._refuse(query.ref, refused.refusal)
        except StorageFault as fault:
            self._refuse(query.ref, Refusal(Code.STORAGE_FAILED, str(fault), SECOND))
        else:
            frame = codec.encode(Ack(query.ref, body))
            most = self._door.config.frame_bytes_max
            if len(frame) > most:
                message = f"the answer has {len(frame)} bytes, a frame at most {most}; ask for less"
                self._refuse(query.ref, Refusal(Code.TOO_LARGE, message))
            else:
                self._write_bytes(frame)

    def _on_subscribe(self, message: Subscribe) -> None:
        refusal = self._principal.refuse(Permission.READ_TASKS)
        if refusal is not None:
            self._refuse(message.ref, refusal)
            return
        self._listening.begin(self._broker.events, self._principal, self._namespace, message)
        self._write(Ack(message.ref))

    def _on_logs(self, message: Logs) -> None:
        ref, held = message.ref, (message.task, message.fence)
        told = (lambda kept: self._write(Ack(ref, kept))) if ref else None
        refusal = self._principal.refuse(Permission.WORK) or self._broker.logs.take(
            self.session, held, message.lines, message.last, told
        )
        if refusal is not None and ref:
            self._refuse(ref, refusal)

    # Large bodies.

    def _on_upload(self, message: Upload) -> None:
        if message.abort:
            self._streams.abort(message.upload)
            self._write(Ack(message.ref))
        else:
            self._hold()
            self._run(self._upload(message))

    async def _upload(self, message: Upload) -> None:
        """Write a part. Later frames wait, to keep their order."""
        try:
            body = await self._streams.add(message, self._principal)
        except Refused as refused:
            self._refuse(message.ref, refused.refusal)
        except StorageFault as fault:
            self._refuse(message.ref, Refusal(Code.STORAGE_FAILED, str(fault), SECOND))
        else:
            self._write(Ack(message.ref, body))
        self._release()

    def _on_fetch(self, message: Fetch) -> None:
        if self._streams.fetches >= FETCHES_AT_ONCE_MAX:
            text = f"{FETCHES_AT_ONCE_MAX} reads are open, the maximum; wait for one"
            self._refuse(message.ref, Refusal(Code.TOO_MANY, text))
            return
        self._streams.fetches += 1
        self._run(self._fetch(message))

    async def _fetch(self, message: Fetch) -> None:
        acting.set(self._principal)
        try:
            part = await self._streams.read(message, self.session, self._namespace)
        except Refused as refused:
            self._refuse(message.ref, refused.refusal)
        except StorageFault as fault:
            wait_us = SECOND if isinstance(fault, OutOfReach) else 0
            self._refuse(message.ref, Refusal(Code.STORAGE_FAILED, str(fault), wait_us))
        else:
            self._write(Ack(message.ref, part))
        finally:
            self._streams.fetches -= 1

    async def _spill(
        self, ref: int, commands: list[AnyCommand], gathering: Gathering | None
    ) -> None:
        """Write large bodies to the blob store first. Later frames wait, to keep their order."""
        try:
            await spill(self._broker, commands)
        except StorageFault as fault:
            refusal = Refusal(Code.STORAGE_FAILED, f"nothing was changed: {fault}", SECOND)
            self._refuse(ref, refusal)
        else:
            self._post(ref, commands, gathering)
        self._release()

    async def _load(self, blob: BlobRef) -> None:
        """Load the body that outgoing effects wait for, and continue."""
        try:
            refuse_oversized(blob, self._outgoing.body_bytes_max)
            body = await self._broker.blobs.load(blob)
        except StorageFault as fault:
            log.warning("body cannot be read", blob=blob.blob, fault=str(fault))
            self._run(self._do_without(self._outgoing.drop(), fault))
        else:
            self._outgoing.loaded(body)
        self.deliver([])

    async def _do_without(self, effect: Effect, fault: StorageFault) -> None:
        """Continue without a body that cannot be read: for good, or for a while."""
        command = without_body(self.session, effect, fault)
        if command is not None:
            self._broker.post(command, THE_BROKER)
        elif isinstance(fault, OutOfReach):
            await asyncio.sleep(STORE_AWAY_US / SECOND)
            self.deliver([effect])

    # Writing.

    def _gather(self, reply: Reply) -> Reply | None:
        """Combine the replies of a request that became several commands."""
        gathering = self._gatherings.pop(reply.ref, None)
        if gathering is None:
            return reply
        body = gathering.take(reply.body)
        return None if body is None else Reply(reply.session, gathering.ref, body)

    def _refuse(self, ref: int, refusal: Refusal) -> None:
        self._write(answer(ref, refusal))

    def _write(self, message: AnyMessage) -> None:
        self._write_bytes(codec.encode(message))

    def _write_bytes(self, data: bytes) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self._sent_us = self._broker.steady_us()
            unread = self._transport.get_write_buffer_size()
            if unread > self._door.unsent_bytes_max:
                self._cut_off()
            elif unread >= COUNTED_BYTES_MIN:
                self._broker.backlog.note(self, unread)

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _cut_off(self) -> None:
        log.warning("slow reader disconnected", session=self.session, name=self._name)
        self.abort()

    def unread_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            # A peer that does not read would keep it open for ever.
            asyncio.get_running_loop().call_later(_CLOSE_S, self.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("bug", session=self.session, exc_info=error)
            self.end("internal error; see the broker's log", notice="error")

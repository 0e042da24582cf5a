"""One connection of the AMQP door: frames in, commands out.

Owns the bytes of one peer, its handshake, its channels, and the limits that keep it from harming
others: a peer that does not read is sent nothing more; one that sends more than a turn takes is
not read from meanwhile. Nor is one that publishes while there is no room for more; it is sent
`connection.blocked`. While nothing at all can be written, all connections wait.

Messages and acknowledgements that arrive together become one command of each kind: messages first,
so that what follows from a task is there before the task is done with.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import structlog

from jackalope.broker.access import ANYONE, THE_BROKER, Principal
from jackalope.broker.backlog import COUNTED_BYTES_MIN
from jackalope.core.commands import AnyCommand, Finish, FinishAttempts, Heartbeat
from jackalope.core.commands.amqp import HoldConsumer, Publication
from jackalope.core.durations import HOUR, SECOND
from jackalope.core.effects import Answered, DirectReply, Effect, Reply
from jackalope.core.ids import TaskId
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.doors.amqp.channel import Channel
from jackalope.doors.amqp.handshake import Greeting
from jackalope.doors.amqp.pool_answers import hand_over
from jackalope.storage import StorageFault
from jackalope.wire import amqp
from jackalope.wire.amqp import AmqpError, ChannelFault, ConnectionFault
from jackalope.wire.frames import FrameError

if TYPE_CHECKING:
    from jackalope.doors.amqp.server import AmqpDoor

log = structlog.get_logger(component="amqp")

#: How many messages and acknowledgements of one connection one turn takes. More wait for the next.
ITEMS_PER_TURN_MAX = 5_000

#: Why nothing is read: one of several reasons, which the others do not touch.
_BODIES, _OVERLOAD, _SHORTAGE, _ANSWER = "bodies", "overload", "shortage", "answer"
_HOLDING_MESSAGES = (_BODIES, _OVERLOAD, _SHORTAGE)

_WRITE_HIGH_BYTES = 1024 * 1024
_OVERLOADED_S = 0.05
_CLOSE_S = 2.0
#: A consumer lives as long as its connection; the core is sent a heartbeat from time to time.
_BEAT_EVERY_US = HOUR

Done = Callable[[Answered], None]


class Connection(asyncio.Protocol):
    """The broker's end of one connection.

    Attributes:
        broker: the broker.
        session: its session, once it is open.
        vhost: the virtual host that it asked for.
        namespace: the namespace that this is.
        frame_bytes_max: the largest frame, as agreed.
        channels: those that are open, by number.
        awaiting: the numbers of channels that wait for an answer of the broker.
        user: the user that the peer claims to be.
        properties: what the peer reports about itself.
        opened_us: since when it is there.
        certificate: the certificate of the peer, verified against a trusted authority.
    """

    def __init__(self, door: AmqpDoor) -> None:
        self.door = door
        self.broker = door.broker
        self.session = 0
        self.vhost = self.namespace = self.user = ""
        self.principal: Principal = ANYONE
        self.properties: dict[str, Any] = {}
        self.channels: dict[int, Channel] = {}
        self.awaiting: set[int] = set()
        self.frame_bytes_max = door.config.frame_bytes_max
        self.opened_us = door.broker.now_us()
        self._begun_us = self._beat_us = self._looked_us = door.broker.steady_us()
        self._heard_us = self._sent_us = self._begun_us
        self.heartbeat_s = 0
        self.peer: tuple[str, int] = ("", 0)
        self.certificate: dict[str, Any] = {}
        self._greeting: Greeting | None = Greeting(self)
        self._reader = amqp.FrameReader(door.config.frame_bytes_max)
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._frames: deque[tuple[int, int, bytes]] = deque()
        self._asked: dict[int, Done] = {}
        self._behind: list[tuple[AnyCommand, Principal]] = []
        self._refs = 0
        self._publishing: dict[Channel, list[Publication]] = {}
        self._finishing: dict[int, list[Finish]] = {}
        self._items_left = ITEMS_PER_TURN_MAX
        self._holds: set[str] = set()
        self._stuck_since_us = 0
        self._is_heard = self._is_sent = self._is_blocked = self._is_closing = False
        self._unsent: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.peer = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.certificate = transport.get_extra_info("peercert") or {}
        if not self.door.enter(self):
            log.warning(
                "connection refused: too many open connections", most=len(self.door.connections)
            )
            transport.close()
            return
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)  # type: ignore[attr-defined]

    def connection_lost(self, _: Exception | None) -> None:
        self.door.leave(self)
        self.broker.backlog.forget(self)
        self._transport = None
        self.flush()
        for task in self._tasks:
            task.cancel()
        self._close_channels()
        if self.session:
            self.broker.close_session(self.session)
            self.session = 0

    def data_received(self, data: bytes) -> None:
        self._is_heard = True
        if len(self._head) < len(amqp.HEADER):
            missing = len(amqp.HEADER) - len(self._head)
            self._head, data = self._head + data[:missing], data[missing:]
            if self._greeting is None or not self._greeting.hear(self._head):
                self._send()
                return
        try:
            self._frames.extend(self._reader.feed(data))
        except FrameError as error:
            self._go_on()
            self.fail(ConnectionFault(501, str(error)))
        else:
            self._go_on()

    def pause_writing(self) -> None:
        """Suspend deliveries to a peer that does not read, and reading from it."""
        self._stuck_since_us = self.broker.steady_us()
        self._hold_consumers(is_held=True)
        self.hold("stuck")

    def resume_writing(self) -> None:
        self._stuck_since_us = 0
        self.broker.backlog.note(self, self.unread_bytes())
        self._hold_consumers(is_held=False)
        for channel in self.channels.values():
            for receiver in channel.receivers():
                receiver.refill()
        self.release("stuck")

    # The broker's side.

    def deliver(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                done = self._asked.pop(effect.ref, None)
                if done is not None:
                    done(effect.body)
            elif isinstance(effect.message, DirectReply):
                waiting = self.door.replies.get(effect.message.address)
                if waiting is not None:
                    hand_over(waiting, effect.message)
        self.flush()

    def ask(self, command: AnyCommand, done: Done, who: Principal | None = None) -> None:
        """Put a command into the inbox, after all earlier ones; pass the reply to `done`."""
        self.flush()
        command.session, command.ref = self.session, self.new_ref(done)
        if self._publishing:
            self._behind.append((command, who or self.principal))
        else:
            self._post(command, who or self.principal)

    def _post(self, command: AnyCommand, who: Principal) -> None:
        refusal = self.broker.post(command, who)
        if refusal is not None:
            self._asked.pop(command.ref)(refusal)

    def answered(self, number: int) -> None:
        """Process what arrived behind the method that a channel had to wait for."""
        self.awaiting.discard(number)
        if _ANSWER in self._holds:
            # Not at once: the broker has more effects for this connection, and they come first.
            asyncio.get_running_loop().call_soon(self.release, _ANSWER)

    def new_ref(self, done: Done) -> int:
        """Return the ref of a command whose reply is passed to `done`."""
        self._refs += 1
        self._asked[self._refs] = done
        return self._refs

    def drop_ref(self, ref: int) -> None:
        """Forget the ref of a command that the broker did not accept."""
        self._asked.pop(ref, None)

    # The door's side.

    def look(self, now_us: int, shortage: str) -> None:
        """Check for silence, stalls and due heartbeats, and whether the peer is still blocked."""
        if self._greeting is not None:
            if now_us - self._begun_us > self.door.hello_us:
                self.abort()
            return
        # The time of traffic since the last check is not recorded: decide in the peer's favour.
        self._heard_us = now_us if self._is_heard else self._heard_us
        self._sent_us = self._looked_us if self._is_sent else self._sent_us
        self._is_heard, self._is_sent, self._looked_us = False, False, now_us
        beat_us = self.heartbeat_s * SECOND
        if self._stuck_since_us and now_us - self._stuck_since_us > self.door.stuck_us:
            log.warning("peer is not reading", peer=self.peer)
            self.abort()
        elif beat_us and now_us - self._heard_us > 2 * beat_us and not self._holds:
            log.warning("peer is silent", peer=self.peer)
            self.abort()
        elif beat_us and now_us - self._sent_us >= beat_us // 2:
            self.write(amqp.HEARTBEAT_FRAME)
            self._send()
        if now_us - self._beat_us > _BEAT_EVERY_US:
            self._beat_us = now_us
            for session in self._sessions():
                self.broker.post(Heartbeat(session=session), THE_BROKER)
        if _SHORTAGE in self._holds and not shortage:
            self._tell_blocked("")
            self.release(_SHORTAGE)

    def check_access(self) -> None:
        if self.session and not self.broker.access.is_current(self.principal, self.broker.now_us()):
            self.end("the API key expired or was revoked, or one is now required")

    def end(self, why: str) -> None:
        self.fail(ConnectionFault(320, why))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Frames.

    def _go_on(self) -> None:
        """Process received frames, unless the connection is held."""
        while self._frames and not self._holds:
            kind, number, payload = self._frames[0]
            if self.awaiting and (number in self.awaiting or not number):
                self.hold(_ANSWER)
                break
            if number and self.broker.engine.fault is not None:
                # Nothing can be decided: what is refused now would only be lost.
                self._hold_for(self.broker.health.shortage())
                break
            self._frames.popleft()
            channel = self.channels.get(number)
            try:
                if channel is not None and kind in amqp.KINDS_OF_CHANNELS and not self._is_closing:
                    channel.on_frame(kind, payload)
                else:
                    self._on_frame(kind, number, payload)
            except ChannelFault as fault:
                self.flush()
                if channel is not None:
                    channel.fail(fault)
            except ConnectionFault as fault:
                self.flush()
                self.fail(fault)
            except FrameError as error:
                self.flush()
                code = 540 if isinstance(error, amqp.UnknownMethod) else 501
                ids = (error.class_id, error.method_id) if isinstance(error, amqp.BadMethod) else ()
                self.fail(ConnectionFault(code, str(error), *ids))
        self.flush()

    def _on_frame(self, kind: int, number: int, payload: bytes) -> None:
        if self._is_closing:
            self._on_closing(kind, number, payload)
        elif kind not in amqp.KINDS or (kind == amqp.HEARTBEAT and payload):
            raise ConnectionFault(501, f"type {kind} with {len(payload)} octets: unknown frame")
        elif kind == amqp.HEARTBEAT:
            if number:
                raise ConnectionFault(505, "a heartbeat has no channel")
        elif self._greeting is not None:
            if kind != amqp.METHOD or number:
                raise ConnectionFault(503, "the connection is not open yet")
            if self._greeting.take(amqp.decode_method(payload)):
                self._greeting = None
        elif not number:
            self._on_connection_method(kind, payload)
        else:
            self._on_unopened_channel(kind, number, payload)

    def _on_connection_method(self, kind: int, payload: bytes) -> None:
        if kind != amqp.METHOD:
            raise ConnectionFault(505, "content on channel 0")
        method = amqp.decode_method(payload)
        if method.name == "connection.close":
            self.flush()
            self._close_channels()
            self.write(amqp.encode_method(0, "connection.close-ok"))
            self.hang_up()
        elif method.name == "connection.update-secret":
            self.write(amqp.encode_method(0, "connection.update-secret-ok"))
        elif method.name != "connection.close-ok":
            text = "unexpected method in connection state running"
            raise ConnectionFault(504, text, method.class_id, method.method_id)

    def _on_unopened_channel(self, kind: int, number: int, payload: bytes) -> None:
        method = amqp.decode_method(payload) if kind == amqp.METHOD else None
        if method is not None and method.name == "channel.open":
            # As RabbitMQ does: how many are open counts, not their numbers.
            if len(self.channels) >= self.door.config.channel_max:
                raise ConnectionFault(
                    530,
                    f"number of channels opened ({len(self.channels)}) has reached the negotiated "
                    f"channel_max ({self.door.config.channel_max})",
                )
            self.channels[number] = Channel(self, number)
            self.write(amqp.encode_method(number, "channel.open-ok"))
        elif method is not None and method.name == "channel.close":
            self.write(amqp.encode_method(number, "channel.close-ok"))
        elif method is None or method.name != "channel.close-ok":
            ids = (0, 0) if method is None else (method.class_id, method.method_id)
            raise ConnectionFault(504, "expected 'channel.open'", *ids)

    def _on_closing(self, kind: int, number: int, payload: bytes) -> None:
        """Wait for the peer to acknowledge the close; ignore everything else."""
        if kind == amqp.METHOD and not number:
            name = amqp.decode_method(payload).name
            if name == "connection.close":
                self.write(amqp.encode_method(0, "connection.close-ok"))
            if name in ("connection.close", "connection.close-ok"):
                self.hang_up()

    # Messages and acknowledgements.

    def publish(self, channel: Channel, message: Publication) -> None:
        self._publishing.setdefault(channel, []).append(message)
        self._items_left -= 1

    def finish(self, session: int, task: TaskId, fence: int, result: bytes = b"") -> None:
        """Report that a task is done, together with others."""
        self._finishing.setdefault(session, []).append(Finish(task, fence, result))
        self._items_left -= 1

    def flush(self) -> None:
        """Send gathered commands to the broker, and pending data to the peer."""
        if self._publishing and not self._post_messages():
            self._send()
            return
        if self._finishing and not self._stuck_since_us:
            finishing, self._finishing = self._finishing, {}
            for session, attempts in finishing.items():
                finished = FinishAttempts(session=session, attempts=attempts)
                self.broker.post(finished, THE_BROKER, len(attempts))
        if self._behind:
            behind, self._behind = self._behind, []
            for command, who in behind:
                self._post(command, who)
        if self._items_left <= 0:
            self._items_left = ITEMS_PER_TURN_MAX
            self.hold("turn")
            self.broker.between_turns(lambda: self.release("turn"))
        self._send()

    def _post_messages(self) -> bool:
        """Submit messages to the broker, unless they must wait; return whether it was done."""
        if not self._holds.isdisjoint(_HOLDING_MESSAGES):
            return False
        waiting = sum(map(len, self._publishing.values()))
        if self._transport is not None and self.broker.admit(waiting) is not None:
            if shortage := self.broker.health.shortage():
                self._hold_for(shortage)
            else:
                self.hold(_OVERLOAD)
                loop = asyncio.get_running_loop()
                loop.call_later(_OVERLOADED_S, lambda: self.release(_OVERLOAD))
            return False
        large = [
            message
            for messages in self._publishing.values()
            for message in messages
            if message.persistent and len(message.body) > INLINE_BYTES_MAX and not message.blob
        ]
        if large:
            self.hold(_BODIES)
            self.run(self._store_bodies(large))
            return False
        publishing, self._publishing = self._publishing, {}
        for channel, messages in publishing.items():
            channel.publisher.post(messages)
        return True

    async def _store_bodies(self, messages: list[Publication]) -> None:
        """Write large bodies to the blob store, before the messages are submitted."""
        blobs = self.broker.blobs
        try:
            for message in messages:
                body = message.body
                message.blob = await blobs.off_loop(lambda body=body: blobs.write([body]))  # type: ignore[misc]
        except StorageFault as fault:
            self._publishing.clear()
            self._behind.clear()
            self.fail(ConnectionFault(541, f"the message could not be stored: {fault}"))
        self.release(_BODIES)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something concurrently, as long as the connection exists."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Flow.

    def hold(self, why: str) -> None:
        """Stop reading and processing until `release`."""
        self._holds.add(why)
        if self._transport is not None:
            self._transport.pause_reading()

    def release(self, why: str) -> None:
        """Continue, unless something else holds the connection."""
        self._holds.discard(why)
        if self._transport is None:
            return
        self.flush()
        self._go_on()
        if not self._holds and self._transport is not None:
            self._transport.resume_reading()

    def _hold_for(self, shortage: str) -> None:
        """Block the peer until resources are available again; `look` checks that."""
        self.hold(_SHORTAGE)
        self._tell_blocked(shortage)

    def _tell_blocked(self, why: str) -> None:
        """Send the peer `blocked` or `unblocked`."""
        if self.can("connection.blocked") and bool(why) != self._is_blocked:
            name = "connection.blocked" if why else "connection.unblocked"
            self.write(amqp.encode_method(0, name, **({"reason": why} if why else {})))
            self._send()
        self._is_blocked = bool(why)

    def _hold_consumers(self, *, is_held: bool) -> None:
        for session in self._sessions():
            self.broker.post(HoldConsumer(session=session, is_held=is_held), THE_BROKER)

    def _sessions(self) -> list[int]:
        return [
            receiver.session
            for channel in self.channels.values()
            for receiver in channel.receivers()
        ]

    # Writing.

    def unread_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def is_read(self) -> bool:
        return not self._stuck_since_us

    def can(self, capability: str) -> bool:
        """Return whether the peer announced a capability."""
        capabilities = self.properties.get("capabilities")
        return isinstance(capabilities, dict) and bool(capabilities.get(capability))

    def write(self, data: bytes) -> None:
        """Queue data for the next `flush`."""
        self._unsent.append(data)

    def _send(self) -> None:
        if self._unsent and self._transport is not None and not self._transport.is_closing():
            data = b"".join(self._unsent) if len(self._unsent) > 1 else self._unsent[0]
            self._is_sent = True
            self._transport.write(data)
            unread = self._transport.get_write_buffer_size()
            if unread >= COUNTED_BYTES_MIN:
                self.broker.backlog.note(self, unread)
        self._unsent.clear()

    def agree(self, frame_bytes_max: int, heartbeat_s: int) -> None:
        self.frame_bytes_max = self._reader.frame_bytes_max = frame_bytes_max
        self.heartbeat_s = heartbeat_s

    def fail(self, fault: AmqpError) -> None:
        """Report the error to the peer, release everything, and wait for its acknowledgement."""
        if self._is_closing or self._transport is None:
            return
        self._is_closing = True
        self._publishing.clear()
        self._behind.clear()
        self._close_channels()
        self.write(
            amqp.encode_method(
                0,
                "connection.close",
                reply_code=fault.code,
                reply_text=fault.text,
                class_id=fault.class_id,
                method_id=fault.method_id,
            )
        )
        self._send()
        asyncio.get_running_loop().call_later(_CLOSE_S, self.hang_up)

    def _close_channels(self) -> None:
        for channel in list(self.channels.values()):
            channel.close()
        self.channels.clear()

    def hang_up(self) -> None:
        """Send pending data, and close."""
        self._is_closing = True
        self._send()
        if self._transport is not None:
            self._transport.close()

"""A connection to the broker: frames out, frames in, and pending requests.

Owns one socket from HELLO to the end. It neither reconnects, which is the connector's matter, nor
repeats anything: a request that was not answered fails with `ConnectionLost`, and its caller
decides. Everything here belongs to one event loop.

Frames are not written one by one: what is sent during one iteration of the loop leaves in one
write. A caller that has gathered frames itself calls `flush`, which spares a round of the loop. One
that sends much checks `is_congested` and waits for `room`; a peer that stops reading while we go on
sending costs at most `UNSENT_BYTES_MAX` before the connection is given up.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, cast

from jackalope.core.commands import Command, Heartbeat
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment
from jackalope.core.ids import TaskId
from jackalope.core.task import BlobRef
from jackalope.errors import (
    ConfigError,
    ConnectionLost,
    JackalopeError,
    Misread,
    ProtocolError,
    Rejected,
)
from jackalope.transport.address import Address
from jackalope.wire.frames import FrameError, FrameReader
from jackalope.wire.messages import (
    Ack,
    AnyMessage,
    Assign,
    Fetch,
    Hello,
    Moved,
    Nack,
    Notice,
    Request,
    Upload,
    Welcome,
    name_of,
    peer_codec,
)

#: A peer that leaves more than this unread is given up.
UNSENT_BYTES_MAX = 64 * 1024 * 1024

#: From here on `is_congested`; `room` comes back when most of it is gone.
CONGESTED_BYTES = 1024 * 1024

#: Silence of this many heartbeats means that the other end is gone.
SILENT_HEARTBEATS_MAX = 3

CONNECT_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0

Answered = Callable[[Any, JackalopeError | None], None]

#: What encoding raises for a value that has no place in a frame.
UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)

_codec = peer_codec()
#: How a broker begins that closes a connection because of what it read.
_PROTOCOL_ERROR = "protocol error: "
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class Redirected(ConnectionLost):
    """The member of a cluster that was asked does not lead it."""

    def __init__(self, member: Address, place: str) -> None:
        super().__init__(f"{member} says that the broker is at {place}")
        self.place = place  # `host:port` of the one that does


class Connection(asyncio.Protocol):
    """One connection. Make it with `Connection.open`."""

    welcome: Welcome  # what the broker answered to HELLO

    def __init__(
        self,
        address: Address,
        heard: Callable[[AnyMessage], None],
        lost: Callable[[ConnectionLost], None],
    ) -> None:
        self.address = address  # where the broker is
        self.moved_to = ""  # `host:port` of the member that leads by now, if that was told
        self._heard = heard
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._greeting: asyncio.Future[Welcome] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._room: asyncio.Future[None] | None = None
        self._waiting: dict[int, Answered] = {}
        self._last_ref = 0
        self._uploads = 0
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._why: JackalopeError | None = None
        self._is_closing = False
        self._beat_s = 0.0
        self._beat: asyncio.TimerHandle | None = None
        self._sent_at = self._heard_at = self._loop.time()

    @classmethod
    async def open(
        cls,
        address: Address,
        hello: Hello,
        *,
        heard: Callable[[AnyMessage], None],
        lost: Callable[[ConnectionLost], None],
        timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> Connection:
        """Connect and send HELLO.

        The namespace and the token of `hello` count, not those of the address. `heard` is called
        with every message that answers no request, `lost` once if the connection ends and was not
        closed on this side. Raises `Redirected` if another member of the cluster leads.
        """
        connection = cls(address, heard, lost)
        try:
            async with asyncio.timeout(timeout_s):
                loop = asyncio.get_running_loop()
                await loop.create_connection(
                    lambda: connection, address.host, address.port, ssl=client_context(address)
                )
                connection._write(_codec.encode(hello))
                connection.welcome = await connection._greeting
        except TimeoutError:
            connection.abort("no answer to HELLO")
            raise ConnectionLost(f"{address} did not answer within {timeout_s:g} s") from None
        except ssl.SSLError as error:
            connection.abort("never connected")
            raise ProtocolError(trouble(address, error)) from error
        except OSError as error:
            connection.abort("never connected")
            if isinstance(error, ConnectionLost):
                raise
            raise ConnectionLost(f"cannot reach {address}: {_reason(error)}") from error
        except BaseException:
            connection.abort("never opened")
            raise
        connection._begin()
        return connection

    # Sending.

    def request(self, message: Request | Command) -> asyncio.Future[Any]:
        """Send a request, and return the future of the body of its ACK.

        The future of a `Claim` is of the list of its assignments.
        """
        future: asyncio.Future[Any] = self._loop.create_future()

        def answered(body: Any, error: JackalopeError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(body)
            else:
                future.set_exception(error)

        self.ask(message, answered)
        return future

    def ask(self, message: Request | Command, answered: Answered) -> None:
        """Send a request, and have its answer brought: `answered(body, error)`, one of them None.

        Called from within this call if the answer is known at once.
        """
        self._last_ref = ref = self._last_ref + 1
        message.ref = ref
        try:
            frame = _codec.encode(message)
        except UNENCODABLE as error:
            answered(None, _unencodable(message, error))
            return
        if self._is_closing:
            answered(None, self._loss())
        elif len(frame) - 4 > self.welcome.frame_bytes_max:
            answered(None, self._too_large(message, len(frame)))
        else:
            self._waiting[ref] = answered
            self._write(frame)

    def send(self, message: Request | Command) -> None:
        """Send a message without waiting for an answer, if the connection is not over."""
        try:
            frame = _codec.encode(message)
        except UNENCODABLE as error:
            raise _unencodable(message, error) from None
        if len(frame) - 4 > self.welcome.frame_bytes_max:
            raise self._too_large(message, len(frame))
        self._write(frame)

    def flush(self) -> bool:
        """Write what was sent in this round of the loop; return whether the system has all of it.

        What the system has leaves even if this process ends.
        """
        if self._transport is None or self._is_closing:
            return True
        if self._out:
            out, self._out, self._out_bytes = self._out, [], 0
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            self._sent_at = self._loop.time()
        unsent = self._transport.get_write_buffer_size()
        if unsent > UNSENT_BYTES_MAX:
            self._give_up(
                ConnectionLost(f"{self.address} has {UNSENT_BYTES_MAX} bytes of unread data")
            )
        return not unsent

    def new_upload(self) -> int:
        self._uploads += 1
        return self._uploads

    @property
    def is_congested(self) -> bool:
        """Return whether to wait for `room` before sending more."""
        return self._room is not None or self._out_bytes > CONGESTED_BYTES

    async def room(self) -> None:
        """Return when there is room for more."""
        self.flush()
        while self._room is not None:
            await asyncio.shield(self._room)
        if self._is_closing:
            raise self._loss()

    @property
    def is_open(self) -> bool:
        return not self._is_closing

    # Ending.

    async def ended(self) -> ConnectionLost:
        """Wait until the connection is over, and return why."""
        await asyncio.shield(self._ended)
        return self._loss()

    async def close(self) -> None:
        """Send what is waiting to be sent, and close. What has no answer yet fails.

        A broker that does not take what was sent is left after `CLOSE_TIMEOUT_S`.
        """
        if not self._is_closing:
            self.flush()
            self._is_closing = True
            self._why = ConnectionLost(f"the connection to {self.address} was closed here")
            self._lost = _nobody
            if self._transport is not None:
                self._transport.close()
        if self._transport is not None:
            await asyncio.wait([self._ended], timeout=CLOSE_TIMEOUT_S)
            if not self._ended.done():  # A transport of asyncio that is closed cannot be aborted.
                self._transport.abort()

    def abort(self, why: str) -> None:
        """End the connection at once, without calling `lost`."""
        self._lost = _nobody
        self._give_up(ConnectionLost(f"the connection to {self.address} was closed here: {why}"))

    # From the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=CONGESTED_BYTES)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            for kind, body in self._reader.feed(data):
                self._take(_codec.decode(kind, body))
        except FrameError as error:
            self._give_up(ProtocolError(f"{self.address} sent {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what still waits for an answer, and notify the owner."""
        self._is_closing = True
        if self._beat is not None:
            self._beat.cancel()
        if self._why is None:
            reason = _reason(error) if error is not None else "the broker closed it"
            self._why = ConnectionLost(f"the connection to {self.address} was lost: {reason}")
        loss = self._loss()
        if not self._greeting.done():
            self._greeting.set_exception(self._why)
            self._greeting.exception()  # It may be no longer awaited.
        self.resume_writing()
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            answered(None, loss)
        if not self._ended.done():
            self._ended.set_result(None)
        lost, self._lost = self._lost, _nobody
        lost(loss)

    def pause_writing(self) -> None:
        if self._room is None:
            self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # Frames.

    def _take(self, message: AnyMessage) -> None:
        if type(message) is Ack:
            answered = self._waiting.pop(message.ref, None)
            if answered is not None:
                answered(message.body, None)
        elif type(message) is Nack:
            self._refused(message)
        elif type(message) is Welcome or type(message) is Moved:
            self._greeted(message)
        elif type(message) is Assign:
            self._assigned(message)
        elif type(message) is not Heartbeat:
            if type(message) is Notice:
                self._noticed(message)
            self._heard(message)

    def _greeted(self, message: Welcome | Moved) -> None:
        if self._greeting.done():
            return
        if isinstance(message, Moved):
            self._greeting.set_exception(Redirected(self.address, message.address))
        else:
            self._greeting.set_result(message)

    def _refused(self, message: Nack) -> None:
        about = (message.quota, message.limit, message.used)
        error = Rejected(message.code, message.message, message.retry_after_us, about)
        if message.ref:
            answered = self._waiting.pop(message.ref, None)
            if answered is not None:
                answered(None, error)
        elif not self._greeting.done():
            self._greeting.set_exception(error)
        else:
            self._why = ConnectionLost(f"{self.address} ended the connection: {error}")

    def _assigned(self, message: Assign) -> None:
        """Pass assignments that answer a claim to its caller, the rest to the owner."""
        by_claim: dict[int, list[Assignment]] = {}
        for assignment in message.assignments:
            if assignment.claim in self._waiting:
                by_claim.setdefault(assignment.claim, []).append(assignment)
        if not by_claim:
            self._heard(message)
            return
        rest = [one for one in message.assignments if one.claim not in by_claim]
        for ref, assignments in by_claim.items():
            self._waiting.pop(ref)(assignments, None)
        if rest:
            self._heard(Assign(rest))

    def _noticed(self, message: Notice) -> None:
        if message.what == "moved":
            self.moved_to = message.detail
            self._why = Redirected(self.address, message.detail)
        elif message.what in ("goodbye", "error", "replaced"):
            text = f"{self.address} said {message.what}: {message.detail or 'no reason'}"
            is_refused = message.what == "error" and not self._greeting.done()
            if is_refused:
                self._why = ProtocolError(text)
            elif message.detail.startswith(_PROTOCOL_ERROR):
                self._why = Misread(text)
            else:
                self._why = ConnectionLost(text)

    def _write(self, frame: bytes) -> None:
        if self._is_closing:
            return
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes > CONGESTED_BYTES:
            self.flush()

    def _give_up(self, error: JackalopeError) -> None:
        self._why = error
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def _loss(self) -> ConnectionLost:
        """Return why the connection is over, as the error of requests that still wait."""
        if isinstance(self._why, ConnectionLost):
            return self._why
        return ConnectionLost(str(self._why or f"the connection to {self.address} was lost"))

    def _too_large(self, message: Request | Command, size: int) -> Rejected:
        return Rejected(
            "too_large",
            f"{name_of(message).lower()} of {size} bytes; {self.address} accepts frames of "
            f"{self.welcome.frame_bytes_max}: store large data elsewhere and send a reference",
        )

    # Heartbeats.

    def _begin(self) -> None:
        self._beat_s = self.welcome.heartbeat_us / SECOND
        if self._beat_s > 0 and not self._is_closing:
            self._beat_later()

    def _beat_later(self) -> None:
        # A third, because what was sent less than half a beat ago still counts: no gap exceeds
        # five sixths of a beat.
        due = self._loop.time() + self._beat_s / 3
        self._beat = self._loop.call_at(due, self._check, due)

    def _check(self, due: float) -> None:
        now = self._loop.time()
        # A check that comes late itself means that this loop was busy, not that the broker is gone:
        # what it has sent may lie unread.
        is_late = now - due > self._beat_s / 3
        if not is_late and now - self._heard_at > SILENT_HEARTBEATS_MAX * self._beat_s:
            silence = f"{now - self._heard_at:.1f} s without data"
            self._give_up(ConnectionLost(f"the connection to {self.address} was lost: {silence}"))
            return
        if now - self._sent_at >= self._beat_s / 2:
            self.send(Heartbeat())
        self._beat_later()


def _unencodable(message: Request | Command, error: Exception) -> ConfigError:
    return ConfigError(f"{name_of(message).lower()}: something in it cannot be sent: {error}")


def _nobody(_: ConnectionLost) -> None:
    pass


def _reason(error: Exception) -> str:
    """Return the system's reason why a connection failed, whatever a loop wraps around it."""
    numbered = _ERRNO.search(str(error))
    if numbered is not None:
        return os.strerror(int(numbered[1]))
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop for connections: uvloop's where it is installed, asyncio's own elsewhere."""
    try:
        import uvloop  # noqa: PLC0415  most clients bring a loop of their own
    except ImportError:  # Not on this platform.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


# TLS of a connection to the broker.


def client_context(address: Address) -> ssl.SSLContext | None:
    """Return what a connection to the address is made with; None where it is plain."""
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca_file or None)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"CA file {address.ca_file}: {reason}; name a file in PEM form") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not address.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def trouble(address: Address, error: ssl.SSLError) -> str:
    """Describe what is wrong with the other end's TLS, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {address} is not trusted: {error.verify_message}; "
            "name the file of the authority that signed it"
        )
    return f"{address}: TLS handshake failed: {error.reason or error}"


# Bodies that fit into no frame, sent and fetched in parts, so that memory stays bounded.


#: Bodies above this size go in parts, if the broker takes them so.
STREAMED_BYTES = 8 * 1024 * 1024

#: How many parts are under way at once.
_WINDOW = 4
_PART_BYTES = 256 * 1024


async def send_parts(connection: Connection, chunks: AsyncIterator[bytes]) -> BlobRef:
    """Upload a body, and return what a request of the same connection can name it by."""
    most = _part_bytes(connection)
    upload = connection.new_upload()
    under_way: deque[asyncio.Future[Any]] = deque()
    is_done = False
    try:
        async for part in _parts(chunks, most):
            under_way.append(connection.request(Upload(0, upload, part)))
            if len(under_way) >= _WINDOW:
                await under_way.popleft()
            if connection.is_congested:
                await connection.room()
        while under_way:
            await under_way.popleft()
        blob, size, digest = await connection.request(Upload(0, upload, last=True))
        is_done = True
        return BlobRef(blob, size, digest)
    finally:
        for answer in under_way:
            answer.add_done_callback(_pass_over)
        if not is_done and connection.is_open:
            with suppress(JackalopeError):
                connection.send(Upload(0, upload, abort=True))


async def fetch_parts(
    connection: Connection, task: TaskId, *, fence: int = 0, payload: bool = False, node: str = ""
) -> AsyncGenerator[bytes, None]:
    """Yield the body of a task part by part; it is known to be whole when this ends.

    `fence` proves that this worker runs the task; its payload is meant, or with the name of a node
    of its flow, what that one left for it.
    """
    length = _part_bytes(connection)
    hashed = blake2b(digest_size=16)

    def ask(offset: int) -> asyncio.Future[Any]:
        return connection.request(Fetch(0, task, fence, offset, length, payload, node))

    first = await ask(0)
    size, digest = first["size"], first["digest"]
    under_way: deque[asyncio.Future[Any]] = deque()
    asked = received = len(first["data"])
    part = first
    try:
        while True:
            while asked < size and len(under_way) < _WINDOW:
                under_way.append(ask(asked))
                asked += length
            if part["data"]:
                hashed.update(part["data"])
                yield part["data"]
            if not under_way:
                break
            part = await under_way.popleft()
            received += len(part["data"])
    finally:
        for answer in under_way:
            answer.add_done_callback(_pass_over)
    if received != size or (digest and hashed.hexdigest() != digest):
        raise ProtocolError(f"the body of task {task.hex()} did not arrive as it was stored")


def _part_bytes(connection: Connection) -> int:
    most = connection.welcome.part_bytes_max
    if most <= 0:
        raise Rejected(
            "too_large",
            "the broker does not support uploads in parts; send a reference to the data",
        )
    return min(most, _PART_BYTES)


async def _parts(chunks: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Yield the same bytes in parts of a good size."""
    waiting = bytearray()
    async for chunk in chunks:
        waiting += chunk
        while len(waiting) >= most:
            yield bytes(waiting[:most])
            del waiting[:most]
    if waiting:
        yield bytes(waiting)


def _pass_over(answer: asyncio.Future[Any]) -> None:
    """Retrieve the error of an answer that is no longer awaited, so that asyncio does not warn."""
    if not answer.cancelled():
        answer.exception()

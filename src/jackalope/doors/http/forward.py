"""Forwarding over HTTP: what comes to a node that does not lead is asked of the leader.

Owns which requests a node answers itself, and the way of the others: bodies go both ways as they
come, WebSockets are spliced. The leader learns where the client is from a header that the node
signs, and that the request was forwarded: no node forwards it again.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import parse_qs

import httptools
import structlog

from jackalope.broker.access import own_namespace
from jackalope.doors.forwarding import FIND_S, PAUSE_S, Forwarding, Handed, Way, split_address
from jackalope.doors.http.asgi import HTTP, ASGIApp, Message, Receive, Response, Scope, Send
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.listener import ABORT, PatientProtocol
from jackalope.doors.http.request import STALE_PARAMETER

log = structlog.get_logger(component="cluster")

#: The header of a forwarded request: where the client is, and the signature of a node.
MARK = b"x-jackalope-forwarded"
SEQUENCE = b"x-jackalope-sequence"

#: What a node may answer from its own copy, if the client takes that.
_STALE = re.compile(r"/api/v1/(tasks|queues|stats|limits)(/[^/]+)?/?")

#: What belongs to one connection and not to the message (RFC 9110, 7.6.1), and what the server of
#: this node does itself.
_HOP_BY_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
_OURS = {b"expect", MARK}
_THEIRS = {b"date"}

_PIECE_BYTES = 64 * 1024
_CONNECT_S = 3.0
#: How long a WebSocket may not read.
_STUCK_S = 60.0
#: Connections to the leader that are kept for the next request: how many, and how long. The other
#: end keeps them for longer.
_IDLE_MAX = 32
_IDLE_S = 1.0

#: The state of a broker, as often as it changes, for the dashboard.
PULSE = "/api/v1/pulse"

Headers = Iterable[tuple[bytes, bytes]]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def is_stale_allowed(method: str, path: str, query: bytes) -> bool:
    """Return whether a request may be answered from a copy that lags."""
    if method not in ("GET", "HEAD") or b"stale=" not in query or not _STALE.fullmatch(path):
        return False
    return parse_qs(query.decode("latin-1")).get(STALE_PARAMETER) == ["allow"]


class Lost(Exception):
    """The leader did not answer."""


class Gone(Exception):
    """The client did not wait."""


class Place(NamedTuple):
    """What forwarding needs to know of a door."""

    name: str  # as the members of a cluster have it
    has_tls: bool
    prefix: str = ""  # that a proxy leaves on paths
    own_paths: frozenset[str] = frozenset()  # which every node answers itself
    monitoring_port: int = 0  # where every node answers itself


class Forwarder:
    """Stands before an application of a node."""

    def __init__(
        self,
        app: ASGIApp,
        forwarding: Forwarding,
        place: Place,
        say: Callable[[Scope, Rejected], Response],
        sequence: Callable[[], int],
    ) -> None:
        self._app = app
        self._forwarding = forwarding
        self._place = place
        self._say = say  # in the words of the path
        self._sequence = sequence  # the last batch that this node has applied
        self._idle: list[tuple[float, str, Connection]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        mark = next((value for name, value in scope["headers"] if name == MARK), None)
        if mark is not None:
            self._vouch(scope, mark)
        way, address = Way.HERE, self._forwarding.leader.elsewhere(self._place.name)
        if address is not None and not (self._is_own(scope) or self._is_pulse(scope)):
            if scope["type"] == HTTP and self._is_stale_allowed(scope):
                send = _with_sequence(send, self._sequence())
            else:
                way = self._forwarding.way(
                    self._place.name, follows=False, was_forwarded=mark is not None
                )
        if way is Way.HERE:
            await self._app(scope, receive, send)
            return
        scope["path_template"] = "forwarded"
        why = self._forwarding.leader.standing().why  # No node ever leads again.
        if way is Way.HAND_ON and scope["type"] == HTTP and not why:
            await self._forward(scope, receive, send)
        elif way is Way.POINT and address:
            await self._point(scope, address).send(scope, receive, send)
        else:
            self._forwarding.failed += 1
            rejected = Rejected(503, why or "no node leads just now", "no_leader")
            await self._say(scope, rejected).send(scope, receive, send)

    def _vouch(self, scope: Scope, mark: bytes) -> None:
        """Take the address of the client from the node that has sent this."""
        host, _, mac = mark.partition(b" ")
        try:
            if host and self._forwarding.is_signed(host, bytes.fromhex(mac.decode("latin-1"))):
                scope["client"] = (host.decode("latin-1"), 0)
        except ValueError:
            pass

    def _path(self, scope: Scope) -> str:
        path: str = scope["path"]
        return path.removeprefix(self._place.prefix) or "/"

    def _is_own(self, scope: Scope) -> bool:
        port = self._place.monitoring_port
        is_watching = bool(port) and scope["server"] is not None and scope["server"][1] == port
        return is_watching or self._path(scope) in self._place.own_paths

    def _is_pulse(self, scope: Scope) -> bool:
        """Return whether a page of a standby wants to see how that is."""
        is_socket = scope["type"] != HTTP and self._path(scope) == PULSE
        return is_socket and self._forwarding.leader.answers_reads

    def _is_stale_allowed(self, scope: Scope) -> bool:
        if self._forwarding.leader.answers_reads and scope["method"] in ("GET", "HEAD"):
            return True
        return is_stale_allowed(scope["method"], self._path(scope), scope["query_string"])

    def _point(self, scope: Scope, address: str) -> Response:
        """Name the leader. Where a client would not send its body again nothing is redirected."""
        headers = {"X-Jackalope-Leader": address}
        if scope["type"] == HTTP and scope["method"] in ("GET", "HEAD"):
            scheme = "https" if self._place.has_tls else "http"
            headers["Location"] = f"{scheme}://{address}{_target(scope).decode('latin-1')}"
            return Response(b"", 307, headers)
        message = f"another node leads: send this to {address}"
        return self._say(scope, Rejected(421, message, "not_leader", headers))

    def close(self) -> None:
        """Keep no connection to the leader."""
        while self._idle:
            self._idle.pop()[2][1].close()

    # Requests.

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            found = await self._reach()
        except (OSError, TimeoutError) as error:
            log.debug("cannot forward", error=str(error))
            self._forwarding.failed += 1
            rejected = Rejected(503, "no node that leads can be reached just now", "no_leader")
            await self._say(scope, rejected).send(scope, receive, send)
            return
        if found is None:
            await self._app(scope, receive, send)
            return
        address, connection = found
        self._forwarding.forwarded += 1
        exchange = _Exchange(connection, scope, receive, send)
        transport = connection[1].transport
        self._forwarding.requests[transport] = (self._place.name, address)
        try:
            head = self._head(scope, _target(scope))
            can_go_on = await exchange.run(head)
        except Gone:
            can_go_on = False
        except Lost:
            can_go_on = False
            await self._give_up(exchange, scope)
        finally:
            self._forwarding.requests.pop(transport, None)
            if not exchange.is_whole:
                transport.abort()
        if can_go_on and len(self._idle) < _IDLE_MAX:
            self._idle.append((asyncio.get_running_loop().time(), address, connection))
        else:
            transport.close()

    async def _give_up(self, exchange: _Exchange, scope: Scope) -> None:
        """Say that the answer is lost, or cut it off if a part of it was sent."""
        self._forwarding.failed += 1
        if exchange.is_begun:
            abort = scope.get("extensions", {}).get(ABORT)
            if abort is not None:
                abort["now"]()
            return
        message = "the node that leads was lost before it answered; it may have done this or not"
        rejected = Rejected(502, message, "leader_lost", {"Retry-After": "1"})
        await self._say(scope, rejected).send(scope, exchange.receive, exchange.send)

    async def _reach(self) -> tuple[str, Connection] | None:
        """Connect to the leader, which may be about to change; None if this node leads by now.

        Nothing of the request was read, so it can wait as long as another node may lead soon.

        Raises:
            OSError, TimeoutError: it cannot be reached.
        """
        leader, loop = self._forwarding.leader, asyncio.get_running_loop()
        give_up_s = loop.time() + FIND_S
        while True:
            address = leader.elsewhere(self._place.name)
            if address is None:
                return None
            try:
                if address:
                    return address, await self._connect(address)
                raise ConnectionError("no node leads")
            except (OSError, TimeoutError):
                standing = leader.standing()
                can_change = standing.members > 1 and standing.has_quorum
                if not can_change or loop.time() > give_up_s:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _connect(self, address: str) -> Connection:
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            since_s, where, (reader, writer) = self._idle.pop()
            if where == address and now_s - since_s < _IDLE_S and not reader.at_eof():
                return reader, writer
            writer.close()
        host, port = split_address(address)
        async with asyncio.timeout(_CONNECT_S):
            return await asyncio.open_connection(host, port, ssl=self._tls(), limit=_PIECE_BYTES)

    def _tls(self) -> ssl.SSLContext | None:
        return self._forwarding.tls if self._place.has_tls else None

    def _head(self, scope: Scope, target: bytes, *kept: bytes) -> bytes:
        """Return the head of a request as the leader gets it."""
        has_chunks = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        dropped = _OURS | ({b"content-length"} if has_chunks else set())
        headers = [*_end_to_end(scope["headers"], dropped, kept)]
        host = scope["client"][0].encode() if scope["client"] else b""
        before = [value for name, value in headers if name == b"x-forwarded-for"]
        headers = [(name, value) for name, value in headers if name != b"x-forwarded-for"]
        headers.append((b"x-forwarded-for", b", ".join([*before, host])))
        headers.append((MARK, host + b" " + self._forwarding.sign(host).hex().encode()))
        if has_chunks:
            headers.append((b"transfer-encoding", b"chunked"))
        method = scope.get("method", "GET").encode()
        lines = [b"%s %s HTTP/1.1" % (method, target)]
        lines += [b"%s: %s" % header for header in headers]
        return b"\r\n".join([*lines, b"", b""])

    # WebSockets.

    def upgrade(self, protocol: PatientProtocol) -> bool:
        """Hand a connection on that becomes a WebSocket, unless this node serves it."""
        scope: Scope = protocol.scope  # type: ignore[assignment]
        was_forwarded = any(name == MARK for name, _ in scope["headers"])
        way = self._forwarding.way(self._place.name, follows=False, was_forwarded=was_forwarded)
        if way is not Way.HAND_ON:
            return False
        head = self._head(scope, protocol.url, b"connection", b"upgrade")
        place = self._place
        handed = Handed(place.name, head, place.has_tls, _STUCK_S, protocol.take_back)
        self._forwarding.hand_on(protocol.transport, handed, _NoAnswer())
        return True


class _NoAnswer:
    """The last words of a WebSocket that was never opened."""

    def __init__(self) -> None:
        self._is_begun = False

    def note(self, _: bytes) -> None:
        self._is_begun = True

    def words(self) -> bytes:
        if self._is_begun:
            return b""
        return b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"


class _Exchange:
    """One request over a connection to the leader, and its answer."""

    def __init__(self, connection: Connection, scope: Scope, receive: Receive, send: Send) -> None:
        self._reader, self._writer = connection
        self.receive, self.send = receive, send
        self._is_head = scope["method"] == "HEAD"
        self._has_chunks = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._has_head = False
        self.is_begun = False  # the client has a part of the answer
        self.is_whole = False  # the leader has sent all of it
        self._is_sent = False  # the leader has all of the request

    async def run(self, head: bytes) -> bool:
        """Send a request and its answer; return whether the connection can be used again.

        Raises:
            Lost: the leader was lost.
            Gone: the client was.
        """
        self._writer.write(head)
        sending = asyncio.create_task(self._send_body())
        answering = asyncio.create_task(self._answer())
        try:
            await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not answering.done() and isinstance(sending.exception(), Gone):
                raise Gone
            # Else it may have answered before it had read everything.
            await answering
        finally:
            for task in (sending, answering):
                task.cancel()
            await asyncio.gather(sending, answering, return_exceptions=True)
        is_last = any(name == b"connection" and b"close" in value for name, value in self._headers)
        return self._is_sent and not self._is_head and not is_last

    async def _send_body(self) -> None:
        more = True
        while more:
            event = await self.receive()
            if event["type"] == "http.disconnect":
                raise Gone
            body, more = event.get("body", b""), event.get("more_body", False)
            if body:
                self._writer.write(
                    b"%x\r\n%s\r\n" % (len(body), body) if self._has_chunks else body
                )
                await self._writer.drain()
        if self._has_chunks:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        self._is_sent = True
        while (await self.receive())["type"] != "http.disconnect":
            pass
        raise Gone

    async def _answer(self) -> None:
        while not self.is_whole:
            try:
                data = await self._reader.read(_PIECE_BYTES)
                if not data:
                    raise Lost
                self._parser.feed_data(data)
            except (OSError, httptools.HttpParserError) as error:
                raise Lost from error
            if self._has_head:
                await self._pass_on()

    async def _pass_on(self) -> None:
        if not self.is_begun:
            self.is_begun = True
            status = self._parser.get_status_code()
            headers = [*_end_to_end(self._headers, _THEIRS)]
            await self.send({"type": "http.response.start", "status": status, "headers": headers})
        body, self._parts = b"".join(self._parts), []
        self.is_whole = self.is_whole or self._is_head
        if body or self.is_whole:
            more = not self.is_whole
            await self.send({"type": "http.response.body", "body": body, "more_body": more})

    # The parser's side.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self.is_whole = True


def _target(scope: Scope) -> bytes:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path + b"?" + scope["query_string"] if scope["query_string"] else path


def _end_to_end(
    headers: Headers, dropped: set[bytes], kept: tuple[bytes, ...] = ()
) -> Iterable[tuple[bytes, bytes]]:
    """Yield the headers that belong to the message and not to one connection."""
    headers = list(headers)
    for name, value in headers:
        if name == b"connection" and not kept:
            dropped = dropped | {each.strip().lower() for each in value.split(b",")}
    for name, value in headers:
        if name in kept or (name not in _HOP_BY_HOP and name not in dropped):
            yield name, value


def _with_sequence(send: Send, sequence: int) -> Send:
    """Tell with an answer how far the copy is from which it comes.

    Not to a client of one namespace: the number counts what happens in all of them.
    """

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and not own_namespace():
            message["headers"] = [*message["headers"], (SEQUENCE, b"%d" % sequence)]
        await send(message)

    return sending

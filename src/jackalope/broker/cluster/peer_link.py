"""A connection between two nodes: frames over a stream, and the end that connects.

Used by `peers`, which asks every member, by a node that restores its state, by a standby and by the
command line. The door `doors/peer` is the other end, and has the same link.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple, TypeVar

from jackalope.storage.entry import HEAD_BYTES, decode
from jackalope.wire.frames import FrameError
from jackalope.wire.messages import AnyMessage, Codec, Message
from jackalope.wire.peer import (
    ANSWER_BYTES_MAX,
    ENTRIES_BYTES_MAX,
    GREETING_BYTES_MAX,
    NONCE_BYTES,
    PART_BYTES,
    PEER_VERSION,
    AskEntries,
    Challenge,
    End,
    EntriesHead,
    Greeting,
    Part,
    Refused,
    Welcome,
    guest_codec,
    proof_of_guest,
    proof_of_host,
)

M = TypeVar("M", bound=Message)

#: How long connecting and proving may take, an answer, and a peer that does not read.
HELLO_S = 5.0
ANSWER_S = 30.0
STUCK_S = 30.0

#: The most that is kept of an answer with entries: one may be larger than what was asked for.
_ENTRIES_BYTES = 64 * 1024 * 1024

_HEAD_BYTES = 5
_LENGTH_BYTES = 4


class PeerGone(Exception):
    """The other node cannot be reached, or has fallen silent."""


class PeerRefused(PeerGone):
    """The other node answers, and refuses; or its answers cannot be believed."""


class PeerLink:
    """One end of a connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, codec: Codec
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._codec = codec
        self.bytes_max = GREETING_BYTES_MAX  # of the next frame
        self.peer = ""  # the name of the other node, once it is proved
        self.cluster = ""  # and of its cluster

    async def send(self, message: Message) -> None:
        """Send a message; returns when there is room for the next one."""
        self._writer.write(self._codec.encode(message))
        try:
            async with asyncio.timeout(STUCK_S):
                await self._writer.drain()
        except TimeoutError:
            raise PeerGone(f"the peer has not read for {STUCK_S:g} s") from None
        except OSError as error:
            raise PeerGone(str(error)) from None

    async def receive(self, timeout_s: float) -> AnyMessage:
        """Return the next message.

        Raises:
            PeerRefused: what came is no message, or too large.
            PeerGone: nothing came.
        """
        try:
            async with asyncio.timeout(timeout_s):
                head = await self._reader.readexactly(_HEAD_BYTES)
                length = int.from_bytes(head[:_LENGTH_BYTES], "big")
                if not 1 <= length <= self.bytes_max:
                    raise PeerRefused(f"a frame of {length} bytes; at most {self.bytes_max}")
                body = await self._reader.readexactly(length - 1)
        except TimeoutError:
            raise PeerGone(f"no answer for {timeout_s:g} s") from None
        except asyncio.IncompleteReadError:
            raise PeerGone("the connection was closed") from None
        except OSError as error:
            raise PeerGone(str(error)) from None
        try:
            return self._codec.decode(head[_LENGTH_BYTES], body)
        except FrameError as error:
            raise PeerRefused(str(error)) from None

    async def expect(self, shape: type[M], timeout_s: float = ANSWER_S) -> M:
        """Return the next message, which must have this shape."""
        message = await self.receive(timeout_s)
        if isinstance(message, Refused):
            raise PeerRefused(message.why)
        if not isinstance(message, shape):
            raise PeerRefused(f"{type(message).__name__} in place of {shape.__name__}")
        return message

    async def ask(self, request: Message, shape: type[M]) -> M:
        """Ask for something that is answered by one message."""
        await self.send(request)
        return await self.expect(shape)

    async def send_parts(self, chunks: AsyncIterable[bytes]) -> None:
        """Send a long answer, and its digest."""
        digest, size = blake2b(), 0
        async for chunk in chunks:
            for begin in range(0, len(chunk), PART_BYTES):
                data = chunk[begin : begin + PART_BYTES]
                digest.update(data)
                size += len(data)
                await self.send(Part(data))
        await self.send(End(size, digest.digest()))

    async def entries(
        self, sequence: int, digest: bytes, bytes_max: int = ENTRIES_BYTES_MAX
    ) -> list[bytes] | None:
        """Return the entries that follow one in the other node's copy of the log.

        They are as they stand in the log, and each is sound and continues the one before it; there
        are none at the end of the copy. None if the copy does not have the entry with the digest.

        Raises:
            PeerRefused: they are damaged, or more than were asked for.
            PeerGone: no answer.
        """
        await self.send(AskEntries(sequence, digest, bytes_max))
        head = await self.expect(EntriesHead)
        raw = bytearray()
        async for part in self.parts():
            raw += part
            if len(raw) > _ENTRIES_BYTES:
                raise PeerRefused(f"more than {_ENTRIES_BYTES} bytes of entries")
        return _split(bytes(raw), digest) if head.is_known else None

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the rest of a long answer; the last part has been checked when this ends."""
        digest, size = blake2b(), 0
        while True:
            message = await self.receive(ANSWER_S)
            if isinstance(message, Part):
                digest.update(message.data)
                size += len(message.data)
                yield message.data
                continue
            if isinstance(message, Refused):
                raise PeerRefused(message.why)
            if not isinstance(message, End) or (message.size, message.digest) != (
                size,
                digest.digest(),
            ):
                raise PeerRefused("the answer was damaged on its way")
            return

    def is_stuck(self) -> bool:
        """Return whether the other end has not read all that was sent."""
        return self._writer.transport.get_write_buffer_size() > 0

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        """Close at once, whatever is still unread."""
        self._writer.transport.abort()

    async def leave(self) -> None:
        """Close at once, and return when that is done."""
        self.abort()
        with suppress(OSError):
            await self._writer.wait_closed()


def _split(raw: bytes, digest: bytes) -> list[bytes]:
    """Return entries one by one, if they continue a chain."""
    found, offset = [], 0
    while offset < len(raw):
        entry = decode(raw, offset)
        if entry is None or entry.before != digest:
            raise PeerRefused("the entries do not continue the log")
        end = offset + HEAD_BYTES + len(entry.body)
        found.append(raw[offset:end])
        offset, digest = end, entry.digest
    return found


class Credentials(NamedTuple):
    """By what a node is let in."""

    secret: str
    cluster: str = ""
    node: str = ""
    tls: ssl.SSLContext | None = None


async def connect(host: str, port: int, who: Credentials) -> PeerLink:
    """Connect to a node, and let both ends prove that they have the secret.

    Raises:
        PeerGone: it cannot be reached.
        PeerRefused: it refuses, or does not have the secret.
    """
    try:
        async with asyncio.timeout(HELLO_S):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=who.tls, server_hostname=host if who.tls else None
            )
    except TimeoutError:
        raise PeerGone(f"{host}:{port} does not answer") from None
    except (OSError, ssl.SSLError) as error:
        raise PeerGone(f"{host}:{port}: {error.strerror or error}") from None
    link = PeerLink(reader, writer, guest_codec)
    try:
        await _prove(link, who)
    except BaseException:
        await link.leave()
        raise
    return link


async def _prove(link: PeerLink, who: Credentials) -> None:
    challenge = await link.expect(Challenge, HELLO_S)
    if challenge.version != PEER_VERSION:
        raise PeerRefused(f"it speaks version {challenge.version}; this node {PEER_VERSION}")
    nonce = os.urandom(NONCE_BYTES)
    told = (who.secret, challenge.nonce, nonce)
    await link.send(
        Greeting(
            PEER_VERSION, who.cluster, who.node, nonce, proof_of_guest(*told, who.cluster, who.node)
        )
    )
    welcome = await link.expect(Welcome, HELLO_S)
    if not compare_digest(welcome.proof, proof_of_host(*told, welcome.cluster, welcome.node)):
        raise PeerRefused("it does not have the secret")
    link.peer, link.cluster = welcome.node, welcome.cluster
    link.bytes_max = ANSWER_BYTES_MAX

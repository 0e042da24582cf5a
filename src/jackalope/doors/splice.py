"""A splice: the connection of a peer, handed on to another node byte for byte.

Owns both ends and what is under way between them: what one end sends is read only as fast as the
other takes it, so a splice holds no more than two write buffers. It knows no protocol; what a peer
is told when the other node is lost comes from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

#: From here on an end is not read from, because the other does not take it.
BUFFER_BYTES = 64 * 1024

#: How long a peer may take to read the last words, and to hang up.
_CLOSE_S = 2.0


class LastWords(Protocol):
    """What a peer is told when the other node is lost."""

    def note(self, data: bytes) -> None:
        """Note what the other node has said."""

    def words(self) -> bytes:
        """Return what fits behind that; nothing if nothing does."""


class Silence:
    """No last words: the peer sees that the connection is lost."""

    def note(self, data: bytes) -> None:
        pass

    def words(self) -> bytes:
        return b""


class _End(asyncio.Protocol):
    """One end of a splice."""

    def __init__(self, splice: Splice) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End = self
        self.is_done = False  # it sends no more
        self._splice = splice
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        transport.set_write_buffer_limits(high=BUFFER_BYTES)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._splice.passed(self, data)
        self.other.write(data)

    def write(self, data: bytes) -> None:
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def pause_writing(self) -> None:
        self.other.read(is_wanted=False)
        loop = asyncio.get_running_loop()
        self._stall = loop.call_later(self._splice.stuck_s, self._splice.abort)

    def resume_writing(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self.other.read(is_wanted=True)

    def read(self, *, is_wanted: bool) -> None:
        transport = self.transport
        if transport is not None and not transport.is_closing() and not self.is_done:
            (transport.resume_reading if is_wanted else transport.pause_reading)()

    def eof_received(self) -> bool:
        """Let the other node go on to send when the peer is done; but not for ever.

        A node that sends no more is lost.
        """
        self.is_done = True
        other = self.other.transport
        if self is self._splice.far or other is None or not other.can_write_eof():
            return False
        other.write_eof()
        asyncio.get_running_loop().call_later(self._splice.stuck_s, self._splice.abort)
        return True

    def connection_lost(self, _: Exception | None) -> None:
        self.transport = None
        if self._stall is not None:
            self._stall.cancel()
        self._splice.lost(self)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Splice:
    """A connection between a peer and another node, once that is reached."""

    def __init__(
        self,
        peer: asyncio.Transport,
        stuck_s: float,
        last_words: LastWords,
        on_end: Callable[[Splice], None],
    ) -> None:
        self.stuck_s = stuck_s
        self.address = ""  # of the other node, once it is reached
        self.door = ""  # of that
        self.is_over = False
        self._last_words = last_words
        self._on_end = on_end
        self._is_ending = False
        self.near, self.far = _End(self), _End(self)
        self.near.other, self.far.other = self.far, self.near
        self.near.connection_made(peer)
        peer.pause_reading()
        peer.set_protocol(self.near)

    def join(self, address: str, head: bytes) -> None:
        """Begin to copy, now that the other node is reached; `head` goes to it first."""
        self.address = address
        self.far.write(head)
        self.near.read(is_wanted=True)

    def passed(self, end: _End, data: bytes) -> None:
        if end is self.far:
            self._last_words.note(data)

    def lost(self, end: _End) -> None:
        """Close the other end too, with the last words if it was the other node that went."""
        if end is self.far:
            self.end()
            return
        self.far.close()
        if self.far.transport is not None:
            asyncio.get_running_loop().call_later(self.stuck_s, self.far.abort)
        self._over()

    def end(self) -> None:
        """Tell the peer that the other node is lost, and let it hang up."""
        if self._is_ending or self.near.transport is None:
            return
        self._is_ending = True
        self.far.abort()
        words = self._last_words.words()
        self.near.write(words)
        unread = self.near.transport.get_write_buffer_size() > len(words)
        if not words or self.near.is_done:
            self.near.close()
        else:
            # What it still sends is read, and dropped: unread, it would take the last words away.
            self.near.read(is_wanted=True)
        patience_s = self.stuck_s if unread else _CLOSE_S
        asyncio.get_running_loop().call_later(patience_s, self.abort)

    def release(self) -> asyncio.Transport | None:
        """Give the connection of the peer back, before the other node was reached."""
        transport, self.near.transport = self.near.transport, None
        self._over()
        return transport

    def abort(self) -> None:
        self.near.abort()
        self.far.abort()

    def _over(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._on_end(self)

"""Frames of the native protocol: where one message ends and the next begins.

A frame is a length (4 bytes, big-endian, counting what follows it), a kind (1 byte) and a body
(MessagePack). `FrameReader` takes bytes as they come and gives whole frames; it never holds more
than one frame and what came with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

#: The protocol that this code speaks.
VERSION = 1

#: The largest length that a frame may announce.
FRAME_BYTES_MAX = 16 * 1024 * 1024

_HEADER = Struct(">IB")
_LENGTH = Struct(">I")


class Kind(IntEnum):
    """What a frame carries. 1 to 7 as in the published task queue protocol, ours after that."""

    SUBMIT = 1
    CLAIM = 2
    RESULT = 3
    HEARTBEAT = 4
    ACK = 5
    NACK = 6
    QUERY = 7
    HELLO = 8
    JOIN = 9
    LEAVE = 10
    ASSIGN = 11
    START = 12
    PROGRESS = 13
    SIGNAL = 14
    ACT = 15
    WATCH = 16
    ENDED = 17
    MANAGE = 18
    SUBSCRIBE = 19
    EVENTS = 20
    NOTICE = 21
    RPC = 22
    REPLY = 23
    LISTEN = 24
    BROADCAST = 25
    HELPERS = 26
    HELP = 27


class FrameError(ValueError):
    """The peer sent bytes that are no frame; nothing after them can be trusted."""


class FrameReader:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_buffer", "_bytes_max")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._bytes_max = bytes_max

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take bytes, and yield each frame that is now whole, as its kind and body.

        Raises:
            FrameError: the length is impossible.
        """
        buffer = self._buffer
        buffer += data
        begin, available = 0, len(buffer)
        try:
            while available - begin >= _HEADER.size:
                length, kind = _HEADER.unpack_from(buffer, begin)
                if not 1 <= length <= self._bytes_max:
                    raise FrameError(
                        f"a frame of {length} bytes; a frame has 1 to {self._bytes_max}"
                    )
                end = begin + _LENGTH.size + length
                if end > available:
                    return
                body = bytes(buffer[begin + _HEADER.size : end])
                begin = end
                yield kind, body
        finally:
            del buffer[:begin]

    def allow(self, bytes_max: int) -> None:
        """Take frames up to another size from now on."""
        self._bytes_max = bytes_max

    def pending(self) -> int:
        """Return how many bytes of an unfinished frame are held."""
        return len(self._buffer)


def frame(kind: IntEnum, body: bytes) -> bytes:
    """Put a body into a frame."""
    return _HEADER.pack(len(body) + 1, kind) + body

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

#: The largest part of a body that goes in several, and the largest such body.
PART_BYTES_MAX = 1024 * 1024
UPLOAD_BYTES_MAX = 16 * 1024**3

_HEADER = Struct(">IB")
_LENGTH = Struct(">I")

#: MessagePack: how long the header of a longer array is, and what follows the first byte of a
#: longer integer.
_ARRAY_HEADERS = {0xDC: 3, 0xDD: 5}
_INTEGERS = {0xCC + at: Struct(f">{code}") for at, code in enumerate("BHIQbhiq")}


class Kind(IntEnum):
    """The kinds of frames. 1 to 7 as in the published task queue protocol, our own after that."""

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
    UPLOAD = 28
    FETCH = 29
    MOVED = 30
    STEP = 31
    SUSPEND = 32
    FLOW = 33
    ADD = 34
    LOGS = 35


class FrameError(ValueError):
    """The peer sent bytes that are not a frame; the rest of the stream cannot be read."""


class BodyError(FrameError):
    """A complete frame whose body does not fit its kind; later frames can be read."""

    def __init__(self, message: str, ref: int | None) -> None:
        super().__init__(message)
        self.ref = ref  # the reference of the request; None if it cannot be read


class FrameReader:
    """Splits a byte stream into frames."""

    __slots__ = ("_buffer", "_bytes_max")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._bytes_max = bytes_max

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Add bytes, and yield each complete frame as its kind and body."""
        buffer = self._buffer
        buffer += data
        begin, available = 0, len(buffer)
        try:
            while available - begin >= _HEADER.size:
                length, kind = _HEADER.unpack_from(buffer, begin)
                if not 1 <= length <= self._bytes_max:
                    raise self._impossible(length)
                end = begin + _LENGTH.size + length
                if end > available:
                    return
                body = bytes(buffer[begin + _HEADER.size : end])
                begin = end
                yield kind, body
            if available - begin == _LENGTH.size:  # No kind follows a length of 0.
                (length,) = _LENGTH.unpack_from(buffer, begin)
                if not 1 <= length <= self._bytes_max:
                    raise self._impossible(length)
        finally:
            del buffer[:begin]

    def _impossible(self, length: int) -> FrameError:
        return FrameError(f"a frame of {length} bytes; a frame has 1 to {self._bytes_max}")

    def allow(self, bytes_max: int) -> None:
        """Change the maximum frame size."""
        self._bytes_max = bytes_max

    def pending(self) -> int:
        """Return the size of the buffered incomplete frame."""
        return len(self._buffer)


def frame(kind: IntEnum, body: bytes) -> bytes:
    return _HEADER.pack(len(body) + 1, kind) + body


def ref_in(body: bytes) -> int | None:
    """Return the reference at the beginning of a body; None if there is none.

    Reads no further than the number, so that a request whose rest is damaged or nested too deeply
    can still be answered.
    """
    if not body:
        return None
    if 0x91 <= body[0] <= 0x9F:
        at = 1
    elif body[0] in _ARRAY_HEADERS:
        at = _ARRAY_HEADERS[body[0]]
    else:
        return None
    if len(body) <= at:
        return None
    if body[at] < 0x80:
        return body[at]
    number = _INTEGERS.get(body[at])
    if number is None or len(body) < at + 1 + number.size:
        return None
    ref: int = number.unpack_from(body, at + 1)[0]
    return ref

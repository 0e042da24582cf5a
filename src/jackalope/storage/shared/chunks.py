"""Chunks: entries that are larger than a message of the engine.

Owns how an entry becomes messages and messages become entries again. Pure.

An entry that fits is one message, as it is. A larger one is several in a row, each with the digest
of the entry. If its writer is deposed between two of them, the rest never comes: the head of an
entry that another message follows is dropped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from jackalope.storage.entry import DIGEST_BYTES, HEAD_BYTES, head_of

#: What a chunk begins with; an entry begins with its format, which is less.
_TAG = 0xC0

# tag, unused, index, count, sequence and epoch of the entry, its digest.
_HEAD = struct.Struct(f"<BxHHQQ{DIGEST_BYTES}s")


class Place(NamedTuple):
    """What a message tells of the entry that it is, or is a part of."""

    sequence: int
    epoch: int


def split(entry: bytes, bytes_max: int) -> Iterator[bytes]:
    """Yield the messages of an entry."""
    if len(entry) <= bytes_max:
        yield entry
        return
    head = head_of(entry)
    size = bytes_max - _HEAD.size
    count = -(-len(entry) // size)
    for index in range(count):
        part = entry[index * size : (index + 1) * size]
        yield _HEAD.pack(_TAG, index, count, head.sequence, head.epoch, head.digest) + part


def is_chunk(message: bytes) -> bool:
    return message[:1] == bytes([_TAG])


def place_of(message: bytes) -> Place | None:
    """Return to what a message belongs; None if it is no message of a log."""
    if is_chunk(message):
        if len(message) < _HEAD.size:
            return None
        _, _, _, sequence, epoch, _ = _HEAD.unpack_from(message)
        return Place(sequence, epoch)
    if len(message) < HEAD_BYTES:
        return None
    head = head_of(message)
    return Place(head.sequence, head.epoch)


class Joiner:
    """Makes entries of the messages of a log, in their order."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._digest = b""

    def add(self, message: bytes) -> bytes | None:
        """Take the next message; return the entry that it completes, if it does."""
        if not is_chunk(message) or len(message) < _HEAD.size:
            self._parts = []
            return message
        _, index, count, _, _, digest = _HEAD.unpack_from(message)
        if index == 0:
            self._parts, self._digest = [], digest
        elif index != len(self._parts) or digest != self._digest:
            self._parts = []  # Its head is not here: the reader began in its middle.
            return None
        self._parts.append(message[_HEAD.size :])
        if len(self._parts) < count:
            return None
        entry, self._parts = b"".join(self._parts), []
        return entry

"""The messages between a broker and its writer process, and the line between them.

A write is sent in pieces, so that neither end ever holds a second copy of everything that is to be
written.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgspec

from jackalope.core.state.changes import Changes
from jackalope.core.task import TaskRow

_LENGTH = struct.Struct("<Q")


class Begin(msgspec.Struct, tag=True):
    """Write these changes; the tasks follow."""

    sequence: int
    changes: Changes


class Tasks(msgspec.Struct, tag=True):
    """More rows of the write that has begun."""

    rows: list[TaskRow]


class End(msgspec.Struct, tag=True):
    """The write that has begun is complete."""


class Forget(msgspec.Struct, tag=True):
    """Remove ended tasks that were to be kept no longer than this."""

    before_us: int
    limit: int


class Sync(msgspec.Struct, tag=True):
    """Make all that was written safe from a power failure."""


class Done(msgspec.Struct, tag=True):
    """It is done: so many tasks are gone, and these blobs have no owner any more."""

    blobs: list[str] = []
    count: int = 0


class Failed(msgspec.Struct, tag=True):
    """It could not be done."""

    fault: str
    message: str


#: What a writer process receives, and what a broker receives.
Orders = Begin | Tasks | End | Forget | Sync
Answers = Done | Failed


class Lost(Exception):
    """The other end of the line is closed."""


class Line:
    """One end of the line: sends and receives one message at a time."""

    def __init__(self, end: socket.socket, heard: Any) -> None:
        self._end = end
        self._reader = end.makefile("rb")
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(heard).decode

    def say(self, message: msgspec.Struct) -> None:
        """Send a message."""
        data = self._encode(message)
        try:
            self._end.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise Lost from error

    def hear(self) -> Any:
        """Return the next message of the other end.

        Raises:
            Lost: the other end is closed.
        """
        return self._decode(self._read(*_LENGTH.unpack(self._read(_LENGTH.size))))

    def close(self) -> None:
        self._reader.close()
        self._end.close()

    def _read(self, size: int) -> bytes:
        try:
            data = self._reader.read(size)
        except OSError as error:
            raise Lost from error
        if len(data) < size:
            raise Lost
        return data

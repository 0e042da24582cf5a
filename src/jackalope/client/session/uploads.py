"""Uploads: payloads that go to the broker in parts, before the task that names them.

Owns what is known of one: where its bytes come from, and over which connection they went. An upload
is used up by the request that names it, and ends with its connection; one whose bytes can be read
again is then made again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import IO, Any

from jackalope.core.refusals import Code
from jackalope.core.task import BlobRef, TaskSpec
from jackalope.errors import ConfigError, Rejected
from jackalope.tasks.serialization import Stream, chunks_of, is_repeatable
from jackalope.transport.connection import STREAMED_BYTES, Connection

#: An upload that is slower than this takes longer than is waited for.
_SLOW_BYTES_PER_S = 1024 * 1024


class Uploaded(Stream):
    """Something that was uploaded, or will be. Made by `app.upload`; the payload of one task.

    Attributes:
        size: how many bytes were uploaded; 0 before that.
    """

    def __init__(self, source: object) -> None:
        super().__init__(b"")
        self._source = source
        self._begin: int | None = None  # where a file is rewound to
        self._is_read = False
        self._connection: Connection | None = None
        self._ref: BlobRef | None = None

    def open(self) -> IO[bytes]:
        """Refuse: the bytes are the broker's."""
        raise ConfigError("what was uploaded is read by the task that gets it")

    def read(self) -> bytes:
        """Refuse as `open` does."""
        return self.open().read()

    def __repr__(self) -> str:
        return f"<Uploaded {self.size} bytes>"

    def is_there(self, connection: Connection) -> bool:
        """Tell whether a request of a connection can name it."""
        return self._ref is not None and self._connection is connection

    def take(self) -> BlobRef:
        """Return what a request can name it by, once."""
        ref, self._ref = self._ref, None
        if ref is None:
            raise self._lost()
        return ref

    def put(self, connection: Connection, ref: BlobRef) -> None:
        """Note that it was uploaded."""
        self._connection, self._ref, self.size = connection, ref, ref.size

    def chunks(self) -> AsyncIterator[bytes]:
        """Read the bytes, again if need be."""
        source: Any = self._source
        if not self._is_read:
            self._is_read = True
            if hasattr(source, "seekable") and source.seekable():
                self._begin = source.tell()
        elif self._begin is not None:
            source.seek(self._begin)
        elif not is_repeatable(source):
            raise self._lost()
        return chunks_of(source)

    def _lost(self) -> Rejected:
        message = (
            "an upload ends with its connection and is the payload of one task, and what an"
            " iterator yields cannot be read again"
        )
        return Rejected(Code.UNKNOWN_BLOB, f"{message}; upload it again")


def is_large(spec: TaskSpec) -> bool:
    """Tell whether the payload of a task goes before it."""
    payload = spec.payload
    if type(payload) is bytes:
        return len(payload) > STREAMED_BYTES
    return isinstance(payload, Uploaded)


def is_lost(error: Rejected, spec: TaskSpec) -> bool:
    """Tell whether a task was refused because its upload is gone, as after a lost connection."""
    return error.code == Code.UNKNOWN_BLOB and is_large(spec)


def time_for(spec: TaskSpec, timeout_s: float | None) -> float | None:
    """Return how long a submit may take: longer, if a large payload goes before it."""
    if timeout_s is None or not is_large(spec):
        return timeout_s
    payload: object = spec.payload
    size = len(payload) if isinstance(payload, bytes) else getattr(payload, "size", 0)
    return timeout_s + (size or 0) / _SLOW_BYTES_PER_S

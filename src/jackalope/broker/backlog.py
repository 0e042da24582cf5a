"""The backlog: bytes that were sent to peers and not yet read, over all connections.

Owns the bound on its sum, over all doors that keep connections of their own. Each connection has a
bound as well, but many slow readers would add up. Beyond the sum the slowest reader, which is the
one with the most unread, is disconnected; its memory goes back to the system.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
from typing import Protocol

import structlog

log = structlog.get_logger(component="broker")

#: A connection with less unread than this is not counted.
COUNTED_BYTES_MIN = 64 * 1024

#: Freed memory is given back to the system when there is this much of it, and not more often.
_TRIM_BYTES = 32 * 1024 * 1024
_TRIM_EVERY_S = 5.0


class Reader(Protocol):
    """A connection whose peer may not read."""

    def unread_bytes(self) -> int:
        """Return how many bytes the peer has not read."""

    def abort(self) -> None:
        """Close at once, whatever is unsent."""


class Backlog:
    """The unread bytes of all readers."""

    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max
        self._sizes: dict[Reader, int] = {}
        self._sum = 0
        self._freed = 0
        self._trimming: asyncio.TimerHandle | None = None

    @property
    def unread_bytes(self) -> int:
        return self._sum

    def note(self, reader: Reader, size: int) -> None:
        """Update the unread bytes of a reader; disconnect the slowest if the sum is too large."""
        before = self._sizes.get(reader, 0)
        if size < COUNTED_BYTES_MIN:
            if before:
                self.forget(reader)
            return
        self._sizes[reader] = size
        self._sum += size - before
        if self._sum > self._max:
            self._cut_off()

    def forget(self, reader: Reader) -> None:
        size = self._sizes.pop(reader, 0)
        self._sum -= size
        self._freed += size
        if self._freed >= _TRIM_BYTES and self._trimming is None:
            loop = asyncio.get_running_loop()
            self._trimming = loop.call_later(_TRIM_EVERY_S, self._trim)

    def _cut_off(self) -> None:
        for reader in list(self._sizes):  # Readers do not report what they have read.
            size = reader.unread_bytes()
            self._sum += size - self._sizes[reader]
            self._sizes[reader] = size
        while self._sum > self._max and self._sizes:
            slowest = max(self._sizes, key=self._sizes.__getitem__)
            log.warning(
                "slow reader disconnected: unread output limit reached",
                unread_bytes=self._sizes[slowest],
                sum_bytes=self._sum,
                bytes_max=self._max,
            )
            self.forget(slowest)
            slowest.abort()

    def _trim(self) -> None:
        """Return memory to the system that C's allocator would keep."""
        self._trimming, self._freed = None, 0
        if sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:
                # It can take a while, and lets the interpreter go on meanwhile.
                threading.Thread(target=trim, args=(0,), name="jackalope-trim", daemon=True).start()

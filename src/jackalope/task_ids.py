"""Fresh task ids: UUIDs of version 7, made fast. For clients, workers and doors alike.

Layout: 48 bits of milliseconds, the version, 12 bits of counter, the variant, 62 bits of chance.
What an id means, and how it is written, is in `core.ids`, which draws nothing by chance.

A client makes many by its own clock. The ids of one thread only grow. When a millisecond's counter
is used up, or the clock steps back, the next ids borrow from the following milliseconds. Chance
comes from the system in pools, because one call to the system for each id would cost more than all
the rest. A door makes them by the broker's clock, for peers that name none.
"""

from __future__ import annotations

import os
import time
from uuid import UUID

from jackalope.core.durations import MILLISECOND
from jackalope.core.ids import ID_BYTES, TaskId
from jackalope.errors import ConfigError, shown

_POOL_TAILS = 512
_VARIANT = bytes(byte & 0x3F | 0x80 for byte in range(256))
#: Version and counter of the n-th id of a millisecond.
_SERIALS = tuple((0x7000 | n).to_bytes(2, "big") for n in range(4096))


class IdMaker:
    """Makes task ids. Threads may share one: ids stay unique, their order is each thread's own."""

    def __init__(self) -> None:
        self._tails: list[bytes] = []
        self._ms = 0
        self._prefix = b""
        self._serial = 0

    def next(self) -> TaskId:
        now_ms = time.time_ns() // 1_000_000
        serial = self._serial + 1
        if now_ms > self._ms:
            self._begin(now_ms)
            serial = 0
        elif serial >= len(_SERIALS):
            self._begin(self._ms + 1)
            serial = 0
        self._serial = serial
        try:
            tail = self._tails.pop()
        except IndexError:
            tail = self._refill()
        return TaskId(self._prefix + _SERIALS[serial] + tail)

    def forget(self) -> None:
        """Drop the pool: a forked child must not draw the same chance as its parent."""
        self._tails = []

    def _begin(self, ms: int) -> None:
        self._ms = ms
        self._prefix = ms.to_bytes(6, "big")

    def _refill(self) -> bytes:
        pool = bytearray(os.urandom(8 * _POOL_TAILS))
        pool[::8] = pool[::8].translate(_VARIANT)
        chance = bytes(pool)
        tails = [chance[at : at + 8] for at in range(0, len(chance), 8)]
        tail = tails.pop()
        self._tails = tails
        return tail


_maker = IdMaker()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_maker.forget)

new_task_id = _maker.next


# By the clock of the broker.


def fresh_task_id(now_us: int) -> TaskId:
    tail = bytearray(os.urandom(10))
    tail[0] = tail[0] & 0x0F | 0x70
    tail[2] = tail[2] & 0x3F | 0x80
    return TaskId((now_us // MILLISECOND).to_bytes(6, "big") + tail)


class TaskIds:
    """Fresh ids by the thousand, each of which counts on from the one before.

    They count at their end, which an id keeps when it is made one of a volatile task. The numbers
    begin anywhere, so that those of two brokers do not meet.
    """

    def __init__(self) -> None:
        self._number = int.from_bytes(os.urandom(6), "big")
        self._salt = os.urandom(2)
        self._millisecond = -1
        self._head = b""

    def next(self, now_us: int) -> TaskId:
        """Make an id, greater than every one that was made before in the same millisecond."""
        millisecond = now_us // MILLISECOND
        if millisecond != self._millisecond:
            self._millisecond = millisecond
            self._head = millisecond.to_bytes(6, "big") + b"\x70\x00\x80" + self._salt[:1]
        self._number = (self._number + 1) & 0xFFFFFFFFFFFF
        return TaskId(self._head + self._number.to_bytes(6, "big"))


# What people write.


def to_task_id(value: object) -> TaskId:
    """Return the id that something names: bytes, hexadecimal text, a UUID, or what has an `id`."""
    value = getattr(value, "id", value)
    if isinstance(value, bytes) and len(value) == ID_BYTES:
        return TaskId(bytes(value))  # Plain, of a subclass as well.
    if isinstance(value, UUID):
        return TaskId(value.bytes)
    if isinstance(value, str):
        try:
            return TaskId(UUID(value).bytes)
        except ValueError:
            pass
    raise ConfigError(
        f"{shown(value)} is not a task id; a task id is a UUID, written as 32 hexadecimal digits"
    )

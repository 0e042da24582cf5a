"""Fresh task ids for doors whose peers name none: UUIDs of version 7."""

from __future__ import annotations

from os import urandom

from jackalope.core.durations import MILLISECOND
from jackalope.core.ids import TaskId


def fresh_task_id(now_us: int) -> TaskId:
    """Make an id: 48 bits of milliseconds, the version, the variant, and chance."""
    tail = bytearray(urandom(10))
    tail[0] = tail[0] & 0x0F | 0x70
    tail[2] = tail[2] & 0x3F | 0x80
    return TaskId((now_us // MILLISECOND).to_bytes(6, "big") + tail)


class TaskIds:
    """Fresh ids by the thousand: as above, but each counts on from the one before.

    The numbers begin anywhere, so that those of two brokers do not meet.
    """

    def __init__(self) -> None:
        self._number = int.from_bytes(urandom(6), "big")
        self._salt = urandom(2)
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

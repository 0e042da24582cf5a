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

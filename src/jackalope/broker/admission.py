"""Admission: whether new tasks are taken in just now.

Owns the limits beyond which they are refused, before they cost anything: what waits for a turn,
what waits to be written, and how much of the disk must stay free. The last of the disk is for what
is there already: to begin, to end and to be acknowledged also takes room.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.refusals import Code, Refusal

log = structlog.get_logger(component="broker")

#: Beyond this many items in the inbox a submit is refused, with the time to try again.
INBOX_ITEMS_MAX = 200_000

#: Beyond this many tasks that history lacks a submit is refused too.
UNWRITTEN_TASKS_MAX = 1_000_000

_RETRY_US = 500 * MILLISECOND
_LOOK_EVERY_US = SECOND


class Admission:
    """Refuses tasks for which there is no room.

    Args:
        room_bytes: tells how much more the disk takes; None if there is no disk.
        free_bytes_min: how much of that must stay free.
    """

    def __init__(self, room_bytes: Callable[[], int | None], free_bytes_min: int) -> None:
        self._room_bytes = room_bytes
        self._free_bytes_min = free_bytes_min
        self._looked_us = 0
        self._lack = ""

    def lack(self, now_us: int) -> str:
        """Return what the disk lacks, as seen within the last second; nothing if all is well."""
        if self._free_bytes_min and now_us - self._looked_us >= _LOOK_EVERY_US:
            self._looked_us = now_us
            room, least = self._room_bytes(), self._free_bytes_min
            is_low = room is not None and room < least
            if is_low and not self._lack:
                log.warning("disk nearly full, new tasks are refused", room=room, least=least)
            elif self._lack and not is_low:
                log.info("disk has room again, new tasks are accepted", room=room)
            self._lack = f"the disk has room for {room} bytes, less than {least}" if is_low else ""
        return self._lack

    def refuse(self, now_us: int, items: int, unwritten: int) -> Refusal | None:
        """Refuse tasks for which there is no room just now.

        Args:
            now_us: the time.
            items: how many items the inbox would have.
            unwritten: how many tasks history lacks.
        """
        if lack := self.lack(now_us):
            message = f"{lack}: make room, or let workers finish what is there; then submit again"
            return Refusal(Code.OVERLOADED, message, _RETRY_US)
        if items <= INBOX_ITEMS_MAX and unwritten <= UNWRITTEN_TASKS_MAX:
            return None
        return Refusal(
            Code.OVERLOADED,
            f"the broker has {items} items to work on and {unwritten} tasks to write; "
            "submit again a little later",
            _RETRY_US,
        )

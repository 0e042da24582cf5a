"""Levels: at which level the leader makes records, so that every member can read them.

The level in use follows from the log: it is that of the last batch. A new version of Jackalope
reads more levels than it is told to write; the level is raised when all members read the new one,
by a person or, a while later, by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from jackalope.broker.cluster.peers import Peers
from jackalope.core.records import LEVEL


class Levels:
    """What the members read."""

    def __init__(self, peers: Callable[[], Peers | None], after_us: int = 0) -> None:
        self._peers = peers
        self._after_us = after_us  # how long all must read a level before it is used; 0 for never
        self._since_us = 0
        self._could = 0

    def first(self) -> int:
        """Return the level of a log that has none yet: what all members read that have answered."""
        peers = self._peers()
        told = (
            [each.status.level_max for each in peers.known.values() if each.status] if peers else []
        )
        return min([LEVEL, *told])

    def lacking(self, level: int) -> list[str]:
        """Name the members that are not known to read a level, each with the reason."""
        found = [f"this node reads up to {LEVEL}"] if level > LEVEL else []
        peers = self._peers()
        for name, each in (peers.known if peers else {}).items():
            if each.status is None or not each.is_reachable:
                found.append(f"{name} does not answer: {each.trouble}")
            elif each.status.level_max < level:
                found.append(
                    f"{name} (Jackalope {each.status.version}) reads up to {each.status.level_max}"
                )
        return found

    def due(self, level: int, now_us: int) -> int:
        """Return the level to which the log is to be raised by now; 0 if it stays."""
        could = LEVEL if self._after_us and level < LEVEL and not self.lacking(LEVEL) else 0
        if could != self._could:
            self._could, self._since_us = could, now_us
        return could if could and now_us - self._since_us >= self._after_us else 0


def unreadable(level: int) -> str:
    """Return why a log of a level cannot be read; nothing if it can."""
    return f"the log is at level {level}, and it reads up to {LEVEL}" if level > LEVEL else ""

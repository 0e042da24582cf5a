"""The port of an engine: what a shared log must offer, as little as can be.

A log is messages at positions 1, 2, 3… without gaps. All calls block, and may be made from any
thread; one suite (`tests/storage/shared/test_engines.py`) holds every engine to the docstrings.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from jackalope.storage.faults import Corrupt


class Lacking(Corrupt):
    """The copy that was asked has not what it must have."""


class Put(StrEnum):
    """What became of a message that was put."""

    STORED = "stored"  # it stands at its position, on enough disks
    TAKEN = "taken"  # the position is not the next one, or may not be
    FULL = "full"  # there is no room; the message is not stored
    UNKNOWN = "unknown"  # no answer: it may be stored now, later, or never


class Replica(msgspec.Struct, frozen=True):
    """One copy of the log, as its engine sees it."""

    name: str
    is_current: bool
    lag: int = 0  # how many messages it lacks


class LogState(msgspec.Struct, frozen=True):
    """The log as an operator wants to see it."""

    engine: str  # its name and version
    start: int
    end: int
    size: int  # in bytes
    leader: str = ""  # the copy that decides; empty while there is none
    replicas: tuple[Replica, ...] = ()


class LogEngine(Protocol):
    """A log of messages that several nodes read and one at a time extends.

    Reading raises `OutOfReach` while the engine does not answer, and may raise `Lacking`.
    """

    message_bytes_max: int  # the largest message

    def put(self, position: int, message: bytes, timeout_s: float) -> Put:
        """Store a message at a position, if that is the next one. Safe to repeat.

        At most one message ever stands at a position, so a message whose fate is unknown is put
        again as it was.
        """
        ...

    def get(self, position: int) -> bytes | None:
        """Return the message at a position, once it is stored for good; None if there is none."""
        ...

    def read(self, after: int, count_max: int) -> list[tuple[int, bytes]]:
        """Return the next messages with their positions, in order; none at the end.

        A hole in them shows by their positions.
        """
        ...

    def wait(self, after: int, timeout_s: float) -> bool:
        """Return whether there may be a message after a position, as soon as there is."""
        ...

    def start(self) -> int:
        """Return the position of the first message that is still there; the next one if none is."""
        ...

    def end(self) -> int:
        """Return the position of the last message; 0 if there was none."""
        ...

    def cut(self, through: int) -> None:
        """Remove the messages up to and including a position that is not the last one."""
        ...

    def state(self) -> LogState:
        """Return how the log is, for people."""
        ...

    def close(self) -> None:
        """Let go of everything; safe to repeat. Calls under way end."""
        ...


@runtime_checkable
class Copied(Protocol):
    """An engine whose copies can be asked one by one, because one of them may be damaged."""

    def read_copy(
        self, but: Collection[str], after: int, count_max: int
    ) -> tuple[str, list[tuple[int, bytes]]] | None:
        """Return the next messages as another copy has them, and its name; None if there is none.

        Args:
            but: the names of the copies that were asked already.
            after: the position behind which to begin.
            count_max: how many messages to return at most.
        """
        ...

    def shun(self, copy: str) -> None:
        """Let another copy decide, if this one does."""
        ...

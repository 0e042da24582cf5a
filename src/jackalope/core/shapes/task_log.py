"""Task logs: one line that a task has printed or logged, and pages of them.

Owns the shapes, how a line is named, and how levels compare. Where lines are kept is the broker's.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from jackalope.core.ids import TaskId


class LogLevel(StrEnum):
    """Log levels: each includes those before it."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"
    DEBUG = "debug"
    TRACE = "trace"

    @property
    def rank(self) -> int:
        """How much it lets through: 0 for errors alone."""
        return _RANKS[self]


_RANKS = {level: rank for rank, level in enumerate(LogLevel)}
LEVELS_BY_RANK = tuple(LogLevel)


class LogStream(StrEnum):
    """Where a line came from."""

    STDOUT = "stdout"
    STDERR = "stderr"
    LOG = "log"


STREAMS = tuple(LogStream)


class LogLine(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One line of an attempt."""

    # counts the lines of the attempt from 1, those that were dropped included; 0 for the next one
    number: int
    at_us: int
    text: str
    level: LogLevel = LogLevel.INFO
    stream: LogStream = LogStream.STDOUT
    logger: str = ""  # the name of the logger, if one wrote it


class LogsKept(msgspec.Struct, frozen=True):
    """What became of lines that were sent."""

    kept: int
    dropped: int  # too many, too soon or too late


class LogLineView(msgspec.Struct, frozen=True):
    """A line as it is read."""

    id: str  # names the line within its task; later lines have later ids
    attempt: int
    number: int
    at_us: int
    level: LogLevel
    stream: LogStream
    text: str
    logger: str = ""


class AttemptLogView(msgspec.Struct, frozen=True):
    """What is kept of an attempt."""

    attempt: int
    fence: int
    lines: int  # how many are kept
    dropped: int  # how many are not, because there were too many
    size: int  # in bytes
    last_us: int  # when the last one was written


class LogPage(msgspec.Struct, frozen=True):
    """Lines of a task in their order, and what is kept of each attempt."""

    task: TaskId
    lines: list[LogLineView]
    attempts: list[AttemptLogView]
    has_more: bool = False  # there are more in the direction that was read
    ended: bool = False  # the task has ended: no more will come
    missing: str = ""  # why lines may be missing here; empty if none are known to be


def line_id(fence: int, number: int) -> str:
    """Return the id of a line."""
    return f"{fence}-{number}"


def position_of(text: str) -> tuple[int, int] | None:
    """Return the fence and number in the id of a line; None if it is none."""
    fence, dash, number = text.partition("-")
    if not (dash and fence.isascii() and fence.isdigit() and number.isascii() and number.isdigit()):
        return None
    found = int(fence[:19]), int(number[:19])
    return found if max(found) < 2**63 else None

"""The lines of one attempt on their way to the broker: split, numbered, bounded.

Takes text from any thread and never waits: there is no lock that a thread could be stopped with. A
line gets its number when it comes in, so that what is dropped later shows as a gap. The oldest are
dropped when too much waits.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

from jackalope.core.shapes.task_log import LogLevel, LogLine, LogStream
from jackalope.tasks.serialization import encodable
from jackalope.worker.logs.limits import LINE_CHARS_MAX, WAITING_CHARS_MAX, WAITING_LINES_MAX

#: What a line of text says about its level: JSON, structlog's console, the standard library.
_LEVEL = re.compile(
    r'"level": ?"(?P<json>[A-Za-z]+)"'
    r"|\[(?:\x1b\[[0-9;]*m)*(?P<console>[a-z]+) *(?:\x1b\[[0-9;]*m)*\]"
    r"|^(?P<plain>[A-Z]+):"
)
_LEVEL_CHARS = 200

#: How many of the newest lines are never dropped.
_NEWEST = 1

LEVELS = {
    "trace": LogLevel.TRACE,
    "debug": LogLevel.DEBUG,
    "info": LogLevel.INFO,
    "warn": LogLevel.WARN,
    "warning": LogLevel.WARN,
    "error": LogLevel.ERROR,
    "exception": LogLevel.ERROR,
    "critical": LogLevel.ERROR,
    "fatal": LogLevel.ERROR,
}
_OF_STREAM = {LogStream.STDOUT: LogLevel.INFO, LogStream.STDERR: LogLevel.WARN}


class Sink(Protocol):
    """Where the output of an attempt goes. Called from any thread; must not wait for the broker."""

    def write(self, stream: LogStream, text: str) -> None:
        """Take text that was written to a stream; a line may come in pieces."""

    def log(self, level: LogLevel, logger: str, text: str, at_us: int) -> None:
        """Take what was logged, which may have several lines."""


class AttemptLines:
    """What an attempt has printed and logged, and was not sent yet."""

    __slots__ = ("_begun", "_chars", "_is_told", "_lines", "_numbers", "_tell", "last", "sent")

    def __init__(self, tell: Callable[[], None]) -> None:
        """Take what to call when there is something to send; from any thread."""
        self._tell = tell
        self._is_told = False
        self._numbers = count(1)
        self._lines: deque[LogLine] = deque(maxlen=WAITING_LINES_MAX)
        self._chars = 0  # about how many wait
        # lines whose end was not written yet; None for one of which nothing more is taken
        self._begun: dict[LogStream, str | None] = {}
        self.last = 0  # the number of the last line
        self.sent = 0  # the number of the last one that was taken, or dropped

    def write(self, stream: LogStream, text: str) -> None:
        begun = self._begun.pop(stream, "")
        if begun is None:  # The rest of a line that was too long is left out.
            _, ended, text = text.partition("\n")
            if not ended:
                self._begun[stream] = None
            if not text:
                return
            begun = ""
        if "\n" not in text:
            self._begun[stream] = self._bounded(stream, begun + text)
            return
        *lines, rest = (begun + text).split("\n")
        if rest:
            self._begun[stream] = self._bounded(stream, rest)
        now_us = time.time_ns() // 1000
        for line in lines:
            self._add(stream, _overwritten(line), now_us)

    def log(self, level: LogLevel, logger: str, text: str, at_us: int) -> None:
        for line in text.split("\n"):
            self._put(at_us, line, level, LogStream.LOG, logger)

    def finish(self) -> None:
        """Take lines that have no end as they are."""
        for stream in list(self._begun):
            if text := _overwritten(self._begun.pop(stream, "") or ""):
                self._add(stream, text, time.time_ns() // 1000)

    def take(self, lines_max: int, bytes_max: int) -> list[LogLine]:
        """Return the oldest lines and forget them. From one thread only.

        Bytes count, as in the rate that the broker allows: where that was exceeded for long, it
        would drop the last lines and not the oldest.
        """
        self._is_told = False
        taken: list[LogLine] = []
        chars = size = 0
        while len(taken) < lines_max and size < bytes_max:
            try:
                line = self._lines.popleft()
            except IndexError:
                self._chars = 0
                break
            taken.append(line)
            chars += len(line.text)
            size += len(line.text) if line.text.isascii() else len(line.text.encode())
        left = self._chars - chars
        self._chars = max(0, left)
        taken.sort(key=_number)
        if taken:
            self.sent = taken[-1].number
        return taken

    @property
    def is_waiting(self) -> bool:
        """Whether there are lines to take."""
        return bool(self._lines)

    def _bounded(self, stream: LogStream, begun: str) -> str | None:
        """Return what to keep of a line that has no end yet; None if that is too much."""
        if len(begun) <= LINE_CHARS_MAX:
            return begun
        begun = _overwritten(begun, is_open=True)
        if len(begun) <= LINE_CHARS_MAX:
            return begun
        self._add(stream, begun, time.time_ns() // 1000)
        return None

    def _add(self, stream: LogStream, text: str, at_us: int) -> None:
        self._put(at_us, text, level_of(stream, text), stream)

    def _put(
        self, at_us: int, text: str, level: LogLevel, stream: LogStream, logger: str = ""
    ) -> None:
        text, lines = _shortened(text), self._lines
        self.last = number = next(self._numbers)
        lines.append(LogLine(number, at_us, text, level, stream, logger))
        # No call between reading and writing the sum: there the thread could be switched, and what
        # another one has subtracted would be lost.
        size = len(text)
        self._chars += size
        while self._chars > WAITING_CHARS_MAX:
            if len(lines) < _NEWEST + 1:
                self._chars = size  # It was wrong after all: the newest line stays.
                break
            try:
                oldest = len(lines.popleft().text)
            except IndexError:
                oldest = 0
            self._chars -= oldest
        if not self._is_told:
            self._is_told = True
            self._tell()


def level_of(stream: LogStream, text: str) -> LogLevel:
    """Return the level that a printed line names, or that of its stream."""
    found = _LEVEL.search(text, 0, _LEVEL_CHARS)
    word = found and (found["json"] or found["console"] or found["plain"])
    return (word and LEVELS.get(word.lower())) or _OF_STREAM[stream]


def _overwritten(line: str, *, is_open: bool = False) -> str:
    """Return what a terminal shows of a line that was written over, as progress bars do."""
    if "\r" not in line:
        return line
    if not is_open:
        line = line.rstrip("\r")
    return line[line.rfind("\r") + 1 :]


def _shortened(text: str) -> str:
    if len(text) > LINE_CHARS_MAX:
        text = f"{text[:LINE_CHARS_MAX]} … [{len(text) - LINE_CHARS_MAX} characters more]"
    return text if text.isascii() else encodable(text)


def _number(line: LogLine) -> int:
    return line.number

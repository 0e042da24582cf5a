"""The sender: takes the lines of attempts to the broker, behind everything that matters more.

Owns what was sent and not acknowledged, which goes again over the next connection; the broker knows
each line by its number. Belongs to the loop of the connection.

Lines never keep a result waiting. An attempt may send so many at a time, and no more go out while
the connection is congested or much is unacknowledged: they wait with the attempt, where the oldest
are dropped and counted. The last lines of an attempt are sent before its end is reported, so that
the log is complete when the result is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from jackalope.core.commands import Held
from jackalope.core.shapes.task_log import LogLine
from jackalope.errors import ConnectionLost, JackalopeError
from jackalope.wire.messages import Logs
from jackalope.worker.logs.limits import (
    BYTES_PER_SEND_MAX,
    FRAME_CHARS_MAX,
    FRAME_LINES_MAX,
    LINES_PER_SEND_MAX,
    SEND_EVERY_S,
    UNACKNOWLEDGED_AT_END_CHARS_MAX,
    UNACKNOWLEDGED_CHARS_MAX,
    WAITING_BYTES_MAX,
    WAITING_LINES_MAX,
)
from jackalope.worker.logs.lines import AttemptLines


class Line(Protocol):
    """The part of a connection that the sender needs."""

    @property
    def is_congested(self) -> bool:
        """Whether to wait before sending more."""

    def ask(self, message: Logs, answered: Callable[[Any, JackalopeError | None], None]) -> None:
        """Send a request, and have its answer brought."""


class LogSender:
    """Sends the lines of all attempts of a worker."""

    def __init__(self) -> None:
        self._line: Line | None = None
        self._is_wanted = True  # the broker keeps logs
        self._waiting: dict[AttemptLines, Held] = {}
        # what was sent and the size of each, the oldest first
        self._unacknowledged: dict[int, tuple[Logs, int]] = {}
        self._sent = 0  # how many there were, to name them by
        self._chars = 0  # of all that are unacknowledged
        self._timer: asyncio.TimerHandle | None = None

    def resume(self, line: Line, *, is_wanted: bool) -> None:
        """Send again what was not acknowledged, and then what waits."""
        self._line, self._is_wanted = line, is_wanted
        if not is_wanted:
            self._unacknowledged.clear()
            self._chars = 0
        for name in list(self._unacknowledged):
            self._ask(line, name)
        self._later()

    def suspend(self) -> None:
        """Send nothing until the worker has joined again."""
        self._line = None

    def note(self, lines: AttemptLines, held: Held) -> None:
        """Send the lines of an attempt soon."""
        self._waiting[lines] = held
        self._later()

    def finish(self, lines: AttemptLines, held: Held) -> None:
        """Send all lines of an attempt now, before what is reported next about it."""
        self._waiting.pop(lines, None)
        lines.finish()
        taken = lines.take(WAITING_LINES_MAX, WAITING_BYTES_MAX)
        if self._chars > UNACKNOWLEDGED_AT_END_CHARS_MAX:
            taken = []
        if taken or lines.sent < lines.last:
            lines.sent = lines.last
            self._send(held, taken, lines.last)

    def _later(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(SEND_EVERY_S, self._send_waiting)

    def _send_waiting(self) -> None:
        self._timer = None
        line = self._line
        if not self._is_wanted:
            for lines in self._waiting:
                lines.take(WAITING_LINES_MAX, WAITING_BYTES_MAX)
            self._waiting.clear()
        if line is None:
            return  # `resume` goes on.
        is_full = line.is_congested or self._chars > UNACKNOWLEDGED_CHARS_MAX
        for lines, held in [] if is_full else list(self._waiting.items()):
            del self._waiting[lines]
            taken = lines.take(LINES_PER_SEND_MAX, BYTES_PER_SEND_MAX)
            if taken:
                self._send(held, taken, lines.sent)
            if lines.is_waiting:
                self._waiting[lines] = held  # Behind the others.
        self._later()

    def _send(self, held: Held, lines: list[LogLine], last: int) -> None:
        """Send lines in frames that are not too large."""
        if not self._is_wanted:
            return
        begin = 0
        while True:
            size, end = 0, begin
            while end < len(lines) and end - begin < FRAME_LINES_MAX and size < FRAME_CHARS_MAX:
                size += len(lines[end].text)
                end += 1
            part = lines[begin:end]
            message = Logs(0, held.task, held.fence, part, part[-1].number if part else last)
            if end == len(lines):
                message.last = last
            self._sent += 1
            self._unacknowledged[self._sent] = (message, size)
            self._chars += size
            if self._line is not None:
                self._ask(self._line, self._sent)
            begin = end
            if begin == len(lines):
                return

    def _ask(self, line: Line, name: int) -> None:
        def answered(_: Any, error: JackalopeError | None) -> None:
            if not isinstance(error, ConnectionLost):  # Else it goes again.
                _, size = self._unacknowledged.pop(name, (None, 0))
                self._chars -= size

        line.ask(self._unacknowledged[name][0], answered)

"""Capture: finds out which attempt prints or logs, and hands its lines to that attempt's sink.

Replaces `sys.stdout` and `sys.stderr` of the process once by thin writers, and has `logging` pass
by here. The attempt is that of the context: coroutines on one loop and threads do not mix. Where no
attempt runs everything passes on as it is. What a task prints still goes to the output of the
worker, unless that is not wanted. In a program that has streams of its own they are replaced while
its worker runs.

What handlers of `logging` write to the same streams while they handle a record is not taken again:
the record was. What does not pass through Python's streams (a subprocess, C code) is caught only
where the task has a process of its own, by its parent.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, TextIO, cast

from jackalope.core.shapes.task_log import LogLevel, LogStream
from jackalope.tasks.context import running
from jackalope.worker.logs.child_pipe import PipeSink, ShownStream
from jackalope.worker.logs.lines import LEVELS, Sink


class TaskLogs(StrEnum):
    """Where the output of tasks goes."""

    BOTH = "both"
    BROKER = "broker"
    OUTPUT = "output"


#: The handlers of a record are at work: what they write was taken as the record.
_handling: ContextVar[bool] = ContextVar("jackalope_handling", default=False)


def sink_of_context() -> Sink | None:
    """Return where the output of the running attempt goes; None if none runs or keeps it."""
    context = running.get()
    return None if context is None else getattr(context, "sink", None)


class Tap:
    """Stands in for a text stream; passes everything on, and gives tasks' text to their sinks."""

    def __init__(self, stream: TextIO, name: LogStream, *, echoes: bool = True) -> None:
        self.below = stream  # the stream itself
        self._name = name
        self._echoes = echoes

    def write(self, text: str) -> int:
        sink = sink_of_context()
        if sink is None or _handling.get() or type(text) is not str:
            return self.below.write(text)
        sink.write(self._name, text)
        return self.below.write(text) if self._echoes else len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self.below.flush()

    @property
    def buffer(self) -> Any:
        """The bytes below; tasks' bytes are taken as text."""
        below = self.below.buffer
        return below if sink_of_context() is None else _BytesTap(self, below)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    def __iter__(self) -> Any:
        return iter(self.below)


class _BytesTap:
    """Stands in for the bytes of a stream while a task runs."""

    def __init__(self, tap: Tap, below: Any) -> None:
        self._tap = tap
        self._below = below

    def write(self, data: Any) -> int:
        sink = sink_of_context()
        if sink is not None and not _handling.get():
            sink.write(self._tap._name, bytes(data).decode(errors="replace"))  # noqa: SLF001
        if self._tap._echoes:  # noqa: SLF001  they are one
            self._tap.flush()
            self._below.write(data)
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


def install(where: TaskLogs) -> None:
    """Capture what tasks of this process print and log from now on. Safe to repeat."""
    if where is not TaskLogs.OUTPUT:
        _users.append(None)
        _tap(lambda stream, _: stream, echoes=where is TaskLogs.BOTH)


@contextmanager
def capturing() -> Iterator[Callable[[], None]]:
    """Capture what tasks print and log while the block lasts, in a program with its own streams.

    Yields what to call before tasks run: the program may have replaced its streams meanwhile, as
    test runners do between two tests.
    """

    def tap() -> None:
        with _lock:
            if _users:
                _tap(lambda stream, _: stream, echoes=True)

    with _lock:
        _users.append(None)
    tap()
    try:
        yield tap
    finally:
        with _lock:
            _users.pop()
            if not _users:
                _untap()


def install_in_child(pipe: PipeSink) -> None:
    """Do the same in a process for isolated tasks, whose parent shows what is to be shown."""
    _tap(lambda stream, name: cast("TextIO", ShownStream(pipe, stream, name)), echoes=False)


def _tap(below: Callable[[TextIO, LogStream], TextIO], *, echoes: bool) -> None:
    for name in (LogStream.STDOUT, LogStream.STDERR):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Tap):
            setattr(sys, name, cast("TextIO", Tap(below(stream, name), name, echoes=echoes)))
    if logging.Logger.callHandlers is not _call_handlers:
        logging.Logger.callHandlers = _call_handlers  # type: ignore[method-assign]


def _untap() -> None:
    for name in (LogStream.STDOUT, LogStream.STDERR):
        stream = getattr(sys, name)
        if isinstance(stream, Tap):
            setattr(sys, name, stream.below)
    if logging.Logger.callHandlers is _call_handlers:
        logging.Logger.callHandlers = _call_all  # type: ignore[method-assign]


_lock = threading.Lock()
_users: list[None] = []  # one for each that wants the streams of this process captured
_call_all = logging.Logger.callHandlers


def _call_handlers(self: logging.Logger, record: logging.LogRecord) -> None:
    """Take a record of a task, however the application has set up its handlers."""
    sink = sink_of_context()
    if sink is None:
        _call_all(self, record)
        return
    sink.log(_level_of(record.levelno), record.name, _text_of(record), int(record.created * 1e6))
    token = _handling.set(True)
    try:
        _call_all(self, record)
    finally:
        _handling.reset(token)


def _level_of(number: int) -> LogLevel:
    if number >= logging.ERROR:
        return LogLevel.ERROR
    if number >= logging.WARNING:
        return LogLevel.WARN
    if number >= logging.INFO:
        return LogLevel.INFO
    return LogLevel.DEBUG if number >= logging.DEBUG else LogLevel.TRACE


def _text_of(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001  arguments that do not fit: the handlers report it
        text = str(record.msg)
    parts = [text]
    if record.exc_info:
        parts.append("".join(traceback.format_exception(*record.exc_info)).rstrip())
    if record.stack_info:
        parts.append(str(record.stack_info))
    return "\n".join(parts)


# structlog: lines that do not pass through `logging`.


def take_line(line: dict[str, Any]) -> None:
    """Take a line of structlog, as its processors see it, unless `logging` has brought it."""
    if "_record" in line or (sink := sink_of_context()) is None:
        return
    about = " ".join(
        f"{name}={value!r}" if isinstance(value, str) and " " in value else f"{name}={value}"
        for name, value in line.items()
        if name not in _NOT_SHOWN
    )
    text = f"{line.get('event', '')} {about}".rstrip()
    if error := _exception_in(line.get("exc_info")):
        text += f"\n{error}"
    level = LEVELS.get(str(line.get("level", "info")), LogLevel.INFO)
    sink.log(level, str(line.get("component", "")), text, time.time_ns() // 1000)


#: What is told by the line itself.
_NOT_SHOWN = frozenset(
    {"event", "level", "exc_info", "component", "task_id", "attempt", "name", "queue"}
)


def _exception_in(given: Any) -> str:
    if isinstance(given, BaseException):
        given = (type(given), given, given.__traceback__)
    elif given and not isinstance(given, tuple):
        given = sys.exc_info()
    return "".join(traceback.format_exception(*given)).rstrip() if given and given[0] else ""

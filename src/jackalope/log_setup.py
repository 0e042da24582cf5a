"""Logs: how lines look and where they go. Their content is the matter of the code that logs.

A line has a timestamp, a level, a message, the component that logs, and the ids of what it is
about: `task_id`, `worker_id`, `queue`, `namespace`. The levels mean:

- error: the system fails, or data is lost.
- warn: an attempt is tried again, a task is slow or dead, a queue fills up.
- info: what happens to tasks, workers, queues and the broker itself.
- debug: every change of state.
- trace: every command that reaches the core, and every answer and message that leaves it.

Lines of libraries, which come through the standard library's logging, look the same.

A worker's processes for isolated tasks inherit the look, and `about` adds to every line what it is
about, such as the task that runs.

A thread writes them. Code that logs never waits for the reader: a stopped terminal, a pipe that is
not read or a full disk must not stop a broker. Lines that find no room are dropped, and counted.
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from jackalope.terminal import in_json, in_line, visible

LEVELS = ("error", "warn", "info", "debug", "trace")
FORMS = ("auto", "json", "console")

_NUMBERS = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    # Code that writes such lines checks whether they are enabled, so that others pay nothing.
    "trace": logging.DEBUG,
}
_LEVELS = {"warning": "warn", "exception": "error", "critical": "error"}
_TRACE = "_is_trace"
_FIRST = ("timestamp", "level", "message", "component")

#: How many lines may wait for the reader.
LINES_WAITING_MAX = 10_000

_CLOSE_TIMEOUT_S = 2.0

#: How long the thread that writes rests after it has. To wake it costs the code that logs more
#: than the line itself, and so is done this often at most.
_REST_S = 0.05


def set_up(
    level: str,
    form: str,
    *,
    stream: TextIO | None = None,
    about: Processor | None = None,
    is_patient: bool = True,
) -> Callable[[], None]:
    """Make every line of this process look so. Call it once, before anything logs.

    `about` adds to each line what it is about. A patient log lets a thread write, so that no caller
    waits; a process that may be killed at any moment writes each line itself. Returns what writes
    the lines that still wait, and ends the log; the end of the process does it too.
    """
    out = stream or sys.stderr
    is_terminal = out.isatty()
    chain: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _mark_trace,
    ]
    if about is not None:
        chain.append(about)
    chain.append(_have_component)
    if form == "json" or (form == "auto" and not is_terminal):
        chain += [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _rename,
        ]
        render: Processor = structlog.processors.JSONRenderer(serializer=_to_json)
    else:
        chain += [structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False), _make_visible]
        render = structlog.dev.ConsoleRenderer(
            colors=is_terminal, pad_event_to=24, exception_formatter=_write_traceback
        )
    writer = LineWriter(out) if is_patient else None
    to = cast("TextIO", writer) if writer is not None else out
    structlog.configure(
        processors=[*chain, render],
        wrapper_class=structlog.make_filtering_bound_logger(_NUMBERS[level]),
        logger_factory=structlog.WriteLoggerFactory(to),
        cache_logger_on_first_use=False,
    )
    _set_up_libraries(chain, render, _NUMBERS[level], to)
    if writer is None:
        return out.flush
    atexit.register(writer.close)
    return writer.close


def follow_host() -> None:
    """Send every line to the standard library's logging, for the program that we are a part of.

    Does nothing where the log is configured already.
    """
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.format_exc_info,
                structlog.processors.KeyValueRenderer(key_order=["event"]),
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory=structlog.stdlib.LoggerFactory(),
            cache_logger_on_first_use=False,
        )


def _set_up_libraries(chain: list[Processor], render: Processor, level: int, out: TextIO) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[_name_component, *chain],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    # Below this level libraries log their internals.
    root.setLevel(max(level, logging.INFO))
    logging.captureWarnings(capture=True)


class LineWriter:
    """Writes to a stream from a thread of its own."""

    def __init__(self, stream: TextIO, lines_max: int = LINES_WAITING_MAX) -> None:
        self.dropped = 0  # how many lines found no room
        self._stream = stream
        self._lines: Queue[str | None] = Queue(lines_max)
        self._closing = Event()
        self._thread = Thread(target=self._work, name="jackalope-log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Take a line; never wait."""
        try:
            self._lines.put_nowait(text)
        except Full:
            self.dropped += 1

    def flush(self) -> None:
        """Do nothing: the thread flushes when it has nothing to write."""

    def close(self) -> None:
        """Write what waits, as far as it is read; safe to repeat."""
        self._closing.set()
        with suppress(Full):
            self._lines.put(None, timeout=_CLOSE_TIMEOUT_S)
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _work(self) -> None:
        while (text := self._lines.get()) is not None:
            with suppress(OSError, ValueError):
                self._stream.write(text)
                if self._lines.empty():
                    self._tell_dropped()
                    self._stream.flush()
            if self._lines.empty():
                self._closing.wait(_REST_S)

    def _tell_dropped(self) -> None:
        if self.dropped:
            dropped, self.dropped = self.dropped, 0
            logging.getLogger("jackalope.log").warning("%d lines were dropped", dropped)


def _make_visible(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Let no name or message in a line control the terminal."""
    return {
        name: (visible if name == "exception" else in_line)(value)
        if isinstance(value, str)
        else value
        for name, value in line.items()
    }


def _write_traceback(out: TextIO, error: Any) -> None:
    """Write a traceback. With local variables it would show payloads and tokens."""
    text = StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write(visible(text.getvalue()))


def trace(log: Any, message: str, **about: object) -> None:
    """Write a line of level trace; whether one is wanted, the caller knows."""
    log.debug(message, **{_TRACE: True}, **about)


def _mark_trace(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    if line.pop(_TRACE, False):
        line["level"] = "trace"
    return line


def _have_component(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Mark a line that names no component as the application's own."""
    line.setdefault("component", "application")
    return line


def _rename(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Give a line the published names, the most important first."""
    line["level"] = _LEVELS.get(line["level"], line["level"])
    line["message"] = line.pop("event", "")
    return {name: line[name] for name in _FIRST if name in line} | dict(line)


def _name_component(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    record = line.get("_record")
    return {**line, "component": record.name} if record is not None else line


def _to_json(line: EventDict, **_: object) -> str:
    return in_json(msgspec.json.encode(line, enc_hook=str).decode())

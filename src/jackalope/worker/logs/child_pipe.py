"""The pipe by which a process for isolated tasks brings its lines to the worker.

Owns the records in it. Each is written at once and is short enough that the system keeps it whole,
also if a signal interrupts the task: a stream's text goes in pieces, and what was logged in several
records, which the other end puts together by the thread that wrote them. A record may be only to be
shown: it is no task's, or a handler's rendering of what was logged.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from struct import Struct
from typing import Any, TextIO

import msgspec

from jackalope.core.shapes.task_log import LogLevel, LogStream
from jackalope.tasks.serialization import encodable
from jackalope.worker.logs.lines import Sink

_HEAD = Struct(">HBQ")  # the length of what follows the head, the kind, the thread
#: What POSIX guarantees to write as a whole is 512 bytes; Linux and macOS do it for these.
_RECORD_BYTES_MAX = 4096 if os.uname().sysname == "Linux" else 512
_BODY_BYTES_MAX = _RECORD_BYTES_MAX - _HEAD.size
#: A character has at most six bytes, as the escape of a lone surrogate.
_PIECE_CHARS = _BODY_BYTES_MAX // 6
_LOGGED_CHARS_MAX = 256 * 1024

_STDOUT, _STDERR, _LOGGED = 1, 2, 3
_SHOWN_ONLY = 0x10
_MORE = 0x80

_STREAMS = {_STDOUT: LogStream.STDOUT, _STDERR: LogStream.STDERR}
_NUMBERS = {stream: number for number, stream in _STREAMS.items()}


class _Logged(msgspec.Struct, array_like=True):
    at_us: int
    level: LogLevel
    logger: str
    text: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Logged).decode


class PipeSink(Sink):
    """The end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, stream: LogStream, text: str) -> None:
        self._write(_NUMBERS[stream], text)

    def show(self, stream: LogStream, text: str) -> None:
        """Show text at the worker's output, and keep it nowhere."""
        self._write(_NUMBERS[stream] | _SHOWN_ONLY, text)

    def log(self, level: LogLevel, logger: str, text: str, at_us: int) -> None:
        logged = _Logged(at_us, level, encodable(logger), encodable(text[:_LOGGED_CHARS_MAX]))
        self._put(_LOGGED, _encode(logged))

    def _write(self, kind: int, text: str) -> None:
        for begin in range(0, len(text), _PIECE_CHARS):
            piece = text[begin : begin + _PIECE_CHARS]
            self._put(kind, piece.encode(errors="backslashreplace"))

    def _put(self, kind: int, body: bytes) -> None:
        thread = threading.get_ident()
        with suppress(OSError):  # The worker is gone, and this process soon.
            while len(body) > _BODY_BYTES_MAX:
                part, body = body[:_BODY_BYTES_MAX], body[_BODY_BYTES_MAX:]
                os.write(self._descriptor, _HEAD.pack(len(part), kind | _MORE, thread) + part)
            os.write(self._descriptor, _HEAD.pack(len(body), kind, thread) + body)


class PipeReader:
    """The worker's end: makes whole records of what is read."""

    def __init__(self) -> None:
        self._data = b""
        self._begun: dict[tuple[int, int], bytes] = {}

    def feed(
        self, data: bytes, sink: Sink | None, *, echoes: bool = True
    ) -> list[tuple[int, bytes]]:
        """Give records to a sink; return what to show, and at which descriptor.

        Without echoes, what the sink takes is not shown.
        """
        data = self._data + data
        shown: list[tuple[int, bytes]] = []
        at = 0
        while len(data) - at >= _HEAD.size:
            size, kind, thread = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + size
            if end > len(data):
                break
            body, at = data[at + _HEAD.size : end], end
            key = (thread, kind & ~_MORE)
            body = self._begun.pop(key, b"") + body
            if kind & _MORE:
                self._begun[key] = body
            else:
                is_taken = _take(kind, body, sink)
                if kind != _LOGGED and (echoes or not is_taken):
                    shown.append((kind & ~_SHOWN_ONLY, body))
        self._data = data[at:]
        return shown


def _take(kind: int, body: bytes, sink: Sink | None) -> bool:
    """Give a record to a sink, and return whether it has it."""
    if sink is None or kind & _SHOWN_ONLY:
        return False
    if kind == _LOGGED:
        logged = _decode(body)
        sink.log(logged.level, logged.logger, logged.text, logged.at_us)
    else:
        sink.write(_STREAMS[kind], body.decode(errors="replace"))
    return True


class ShownStream:
    """A stream of the process whose text the worker only shows."""

    def __init__(self, pipe: PipeSink, stream: TextIO, name: LogStream) -> None:
        self._pipe = pipe
        self._stream = stream
        self._name = name

    def write(self, text: str) -> int:
        self._pipe.show(self._name, text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

"""The writer process of history: the broker's end of it.

Owns the process. It ends with its broker, and holds the lock of the data folder as long as it
lives, so that no other broker finds a history that is still being written. If it is lost, the
broker writes itself, and starts another one for the next time.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import msgspec
import structlog
from msgspec.structs import replace

from jackalope.core.assertions import must
from jackalope.core.state.changes import Changes
from jackalope.core.task import TaskRow
from jackalope.storage.faults import StorageFault
from jackalope.storage.ports import Forgotten
from jackalope.storage.sqlite.history_writer import Writer
from jackalope.storage.sqlite.schema import inline_bytes
from jackalope.storage.sqlite.writer_protocol import (
    Answers,
    Begin,
    Done,
    End,
    Failed,
    Forget,
    Line,
    Lost,
    Sync,
    Tasks,
)

#: A piece of a write ends with the row that reaches this, or after so many rows.
PIECE_BYTES = 1024 * 1024
PIECE_ROWS = 2_000

#: How long a scribe may take to end when there is nothing more to write.
_END_S = 10.0

_KINDS: list[type[StorageFault]] = [StorageFault, *StorageFault.__subclasses__()]
_FAULTS = {kind.__name__: kind for kind in _KINDS}

log = structlog.get_logger(component="history")


class Scribed:
    """Has another process write, and writes itself where that cannot be had.

    Args:
        path: of the file.
        lock: the descriptor of the lock on the data folder.
        writer: writes here.
    """

    def __init__(self, path: Path, lock: int, writer: Writer) -> None:
        self._path = path
        self._folder_lock = lock
        self._writer = writer
        self._one_at_a_time = Lock()
        self._line: Line | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._broken: StorageFault | None = None
        self._is_closed = False
        self._start()  # It takes a moment, and is ready when it is needed.

    @property
    def pid(self) -> int | None:
        """The id of the process; None while there is none."""
        return self._process.pid if self._process is not None else None

    def write(self, sequence: int, changes: Changes) -> list[str]:
        """Write changes in one transaction, and return the blobs that became unowned."""
        with self._one_at_a_time:
            try:
                line = self._ready()
                line.say(Begin(sequence, replace(changes, tasks=[])))
                for piece in pieces_of(changes.tasks):
                    line.say(Tasks(piece))
                return self._answer(line, End()).blobs
            except Lost:
                self._give_up()
                return self._writer.write(sequence, changes)

    def forget(self, before_us: int, limit: int) -> Forgotten:
        """Remove ended tasks that were to be kept no longer than this."""
        with self._one_at_a_time:
            try:
                done = self._answer(self._ready(), Forget(before_us, limit))
            except Lost:
                self._give_up()
                return self._writer.forget(before_us, limit)
        return Forgotten(done.count, done.blobs)

    def sync(self) -> None:
        """Make all that was written safe from a power failure."""
        with self._one_at_a_time:
            try:
                self._answer(self._ready(), Sync())
            except Lost:
                self._give_up()
                self._writer.sync()

    def close(self) -> None:
        """Let the process end; safe to repeat."""
        with self._one_at_a_time:
            self._is_closed = True
            if self._line is not None:
                self._line.close()
            self._end(_END_S)

    def _answer(self, line: Line, last: msgspec.Struct) -> Done:
        """Send the last message of an operation, and return its outcome.

        Raises:
            StorageFault: as it was raised in the other process.
        """
        line.say(last)
        answer = line.hear()
        if isinstance(answer, Done):
            return answer
        fault = fault_of(answer)
        if not fault.is_settled:
            self._broken = fault
        raise fault

    def _ready(self) -> Line:
        must(not self._is_closed, "nothing is written to a history that is closed")
        if self._broken is not None:
            # Whatever the state of the process: nothing more is written until the file is opened.
            raise type(self._broken)(*self._broken.args) from self._broken
        if self._line is None:
            self._start()
        if self._line is None:
            raise Lost
        return self._line

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        arguments = (self._path, theirs.fileno(), os.getpid())
        try:
            # Without the folder that one happens to be in: files in it are not our modules.
            self._process = subprocess.Popen(  # noqa: S603  nothing in it comes from outside
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "jackalope.storage.sqlite.writer_process",
                    *map(str, arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), self._folder_lock),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            log.warning("the process that writes history cannot be started", error=str(error))
        else:
            self._line = Line(ours, Answers)
        finally:
            theirs.close()

    def _give_up(self) -> None:
        """Make sure that a process that did not answer writes nothing any more."""
        if self._line is not None:
            self._line.close()
            self._line = None
            log.warning("the process that writes history is lost; the broker writes by itself")
        self._end(0)

    def _end(self, wait_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def pieces_of(rows: list[TaskRow]) -> Iterator[list[TaskRow]]:
    """Return rows in pieces that are sent at once."""
    piece: list[TaskRow] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += inline_bytes(row)
        if size >= PIECE_BYTES or len(piece) == PIECE_ROWS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def fault_of(failed: Failed) -> StorageFault:
    """Return the fault that the other end has met."""
    must(failed.fault in _FAULTS, "a fault has a name that is known", failed.fault)
    return _FAULTS[failed.fault](failed.message)

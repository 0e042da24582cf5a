"""The process that writes history for a broker.

`python -m jackalope.storage.sqlite.writer_process` runs it; the broker starts it.

Python has one interpreter a process, and to make rows of tasks takes a quarter of what all the rest
of their lives takes; in the broker's own process, a client that waits for an answer would wait for
that as well. Reading history needs no writer process: readers of SQLite see whole writes only,
whichever process they are in.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from jackalope.core.task import TaskRow
from jackalope.parent_process import die_with_parent
from jackalope.storage.faults import StorageFault
from jackalope.storage.sqlite.history_writer import Writer
from jackalope.storage.sqlite.schema import open_history
from jackalope.storage.sqlite.writer_protocol import (
    Begin,
    Done,
    Failed,
    Forget,
    Line,
    Lost,
    Orders,
    Sync,
    Tasks,
)

#: Where there are too few cores, clients of the broker come before what is written behind.
_NICE = 5


def serve(writer: Writer, line: Line) -> NoReturn:
    """Carry out orders until the other end is closed.

    Raises:
        Lost: the other end was closed.
    """
    while True:
        said = line.hear()
        try:
            answer: Done | Failed = _do(writer, line, said)
        except StorageFault as fault:
            answer = Failed(type(fault).__name__, str(fault))
        line.say(answer)


def _do(writer: Writer, line: Line, said: Begin | Forget | Sync) -> Done:
    if isinstance(said, Begin):
        pieces = _pieces(line)
        try:
            return Done(writer.write(said.sequence, said.changes, pieces))
        finally:
            for _ in pieces:
                pass  # What still arrives for a write that has failed.
    if isinstance(said, Forget):
        forgotten = writer.forget(said.before_us, said.limit)
        return Done(forgotten.blobs, forgotten.count)
    writer.sync()
    return Done()


def _pieces(line: Line) -> Iterator[list[TaskRow]]:
    while isinstance(said := line.hear(), Tasks):
        yield said.rows


def main(arguments: list[str]) -> None:
    """Run the process: file, line, parent."""
    path, line, parent = arguments
    # It ends with its broker, which still has something to write when both are signalled.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(int(parent))
    os.nice(_NICE)
    gc.disable()  # Rows come and go, and none is ever part of a cycle.
    try:
        with closing(open_history(Path(path))) as db:
            serve(Writer(db), Line(socket.socket(fileno=int(line)), Orders))
    except Lost:
        pass
    except StorageFault as fault:
        sys.exit(str(fault))


if __name__ == "__main__":
    main(sys.argv[1:])

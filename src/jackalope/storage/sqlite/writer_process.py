"""The process that writes history for a broker, and the broker's end of it.

Python has one interpreter a process, and to make rows of tasks takes a quarter of what all the rest
of their lives takes; in the broker's own process, a client that waits for an answer would wait for
that as well. Reading history needs no writer process: readers of SQLite see whole writes only,
whichever process they are in.

Owns the process and the pipe to it. The process ends with its broker, and holds the lock of the
data folder as long as it lives, so that no other broker finds a history that is still being
written. If it is lost, the broker writes itself, and starts another one for the next time.

The broker sends an order, and receives an `Answer`. The rows of a write follow their order in
pieces, so that neither end ever holds a second copy of everything that is to be written; an empty
message ends them.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock

import msgspec
from msgspec.structs import replace

from jackalope.core.assertions import must
from jackalope.core.state.changes import Changes
from jackalope.core.task import TaskRow
from jackalope.storage.faults import StorageFault
from jackalope.storage.sqlite.history_writer import Writer, encoded_pieces
from jackalope.storage.sqlite.schema import open_history

#: How long the process may take to end when there is nothing more to write.
_END_S = 10.0

#: Where there are too few cores, clients of the broker come before what is written behind.
_NICE = 5

#: What the process runs. It ends with its broker before it loads anything: it holds the lock.
_RUN = f"""
import sys
from jackalope.parent_process import die_with_parent
die_with_parent(int(sys.argv[3]))
from {__name__} import main
main()
"""

_KINDS: list[type[StorageFault]] = [StorageFault, *StorageFault.__subclasses__()]
_FAULTS = {kind.__name__: kind for kind in _KINDS}


class Write(msgspec.Struct, tag=True):
    """Write these changes; the rows of tasks follow."""

    sequence: int
    changes: Changes


class Sync(msgspec.Struct, tag=True):
    """Make all that was written safe from a power failure."""


class Answer(msgspec.Struct):
    """The outcome of an order."""

    blobs: list[str] = []  # these have no owner any more
    fault: str = ""  # the kind of fault that it failed with, if it did
    message: str = ""  # of the fault


Order = Write | Sync

encode = msgspec.msgpack.Encoder().encode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
_decode_order = msgspec.msgpack.Decoder(Order).decode


# The broker's end.


class WriterProcess:
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
        self._pipe: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._broken: StorageFault | None = None
        self._is_closed = False
        self._start()  # It takes a moment, and is ready when it is needed.

    @property
    def pid(self) -> int | None:
        """The id of the process; None while there is none."""
        return self._process.pid if self._process is not None else None

    def write(self, sequence: int, changes: Changes) -> list[str]:
        order = Write(sequence, replace(changes, tasks=[]))
        return self._carry_out(order, changes.tasks).blobs

    def sync(self) -> None:
        self._carry_out(Sync())

    def close(self) -> None:
        """Let the process end; safe to repeat."""
        with self._one_at_a_time:
            self._is_closed = True
            if self._pipe is not None:
                self._pipe.close()
            self._end(_END_S)

    def _carry_out(self, order: Order, rows: Sequence[TaskRow] = ()) -> Answer:
        with self._one_at_a_time:
            try:
                return self._ask(order, rows)
            except (EOFError, OSError):
                self._give_up()
                return perform(self._writer, order, encoded_pieces(rows))

    def _ask(self, order: Order, rows: Sequence[TaskRow]) -> Answer:
        """Have an order carried out over there.

        Raises:
            StorageFault: as it was raised in the other process.
            EOFError: the other end is closed; so does OSError.
        """
        pipe = self._ready()
        pipe.send_bytes(encode(order))
        if isinstance(order, Write):
            for piece in encoded_pieces(rows):
                pipe.send_bytes(piece)
            pipe.send_bytes(b"")
        answer = decode_answer(pipe.recv_bytes())
        if not answer.fault:
            return answer
        fault = fault_of(answer)
        if not fault.is_settled:
            self._broken = fault
        raise fault

    def _ready(self) -> Connection:
        must(not self._is_closed, "nothing is written to a history that is closed")
        if self._broken is not None:
            # Whatever the state of the process: nothing more is written until the file is opened.
            raise type(self._broken)(*self._broken.args) from self._broken
        if self._pipe is None:
            self._start()
        if self._pipe is None:
            raise EOFError
        return self._pipe

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        arguments = map(str, (self._path, theirs.fileno(), os.getpid()))
        try:
            self._process = subprocess.Popen(  # noqa: S603  nothing in it comes from outside
                # Without the folder that one happens to be in: files in it are not our modules.
                [sys.executable, "-P", "-c", _RUN, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), self._folder_lock),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            _warn("the history writer process cannot be started", error=str(error))
        else:
            self._pipe = Connection(ours.detach())
        finally:
            theirs.close()

    def _give_up(self) -> None:
        """Make sure that a process that did not answer writes nothing any more."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
            _warn("the history writer process was lost; writing history in the broker process")
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


def fault_of(failed: Answer) -> StorageFault:
    """Return the fault that the other end has met."""
    must(failed.fault in _FAULTS, "a fault has a name that is known", failed.fault)
    return _FAULTS[failed.fault](failed.message)


def _warn(message: str, **facts: str) -> None:
    # Loaded where there is something to log: it would be half of the time that the process needs to
    # start.
    import structlog  # noqa: PLC0415

    structlog.get_logger(component="history").warning(message, **facts)


# The end of the process.


def main() -> None:
    """Run the process: file, pipe, parent."""
    path, pipe, _ = sys.argv[1:]
    # It ends with its broker, which still has something to write when both are signalled.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    gc.disable()  # Rows come and go, and none is ever part of a cycle.
    try:
        with closing(open_history(Path(path))) as db:
            serve(Writer(db), Connection(int(pipe)))
    except StorageFault as fault:
        sys.exit(str(fault))


def serve(writer: Writer, pipe: Connection) -> None:
    """Carry out orders until the other end is closed."""
    with suppress(EOFError, OSError):
        while True:
            order = _decode_order(pipe.recv_bytes())
            pieces = _received(pipe) if isinstance(order, Write) else iter(())
            try:
                answer = perform(writer, order, pieces)
            except StorageFault as fault:
                answer = Answer(fault=type(fault).__name__, message=str(fault))
            for _ in pieces:
                pass  # What still arrives for a write that has failed.
            pipe.send_bytes(encode(answer))


def perform(writer: Writer, order: Order, pieces: Iterable[bytes]) -> Answer:
    """Carry out an order in this process; the rows of a write come in pieces."""
    if isinstance(order, Write):
        return Answer(writer.write(order.sequence, order.changes, pieces))
    writer.sync()
    return Answer()


def _received(pipe: Connection) -> Iterator[bytes]:
    while piece := pipe.recv_bytes():
        yield piece

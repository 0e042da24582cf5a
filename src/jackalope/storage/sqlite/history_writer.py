"""Writing history: changes become rows, in a process of their own where the broker wants one.

Owns the statements that change the tables, the writer process and the pipe to it. Reading is in
`history`, and needs no process: readers of SQLite see whole writes only, whichever process they are
in.

Rows are written many to a statement. That is not for the sake of SQLite: Python's module releases
the GIL at each statement and gets it back when another thread yields, which takes long while that
is busy. For the same reason there is a process: to make rows of tasks takes a quarter of what all
the rest of their lives takes, and a client that waits for an answer would wait for that as well.

The process ends with its broker, and holds the lock of the data folder as long as it lives, so that
no other broker finds a history that is still being written. If it is lost, the broker writes
itself, and starts another one for the next time. The broker sends an order, and receives an
`Answer`. The rows of a write follow their order in pieces, so that neither end ever holds a second
copy of everything that is to be written; an empty message ends them.
"""

# Only names of our own are put into statements; values are always parameters.
# ruff: noqa: S608

from __future__ import annotations

import gc
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock

import msgspec
from msgspec.structs import astuple, replace

from jackalope.core.assertions import must
from jackalope.core.ids import TaskId
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.changes import Changes, Counters, Entity
from jackalope.core.task import TaskRow
from jackalope.storage.faults import StorageFault
from jackalope.storage.sqlite.database import Database, Value, chunks_of, execute_in, marks
from jackalope.storage.sqlite.schema import (
    COLUMNS,
    IS_ENDED,
    USUAL,
    Encoded,
    Head,
    blobs_of,
    decode_heads,
    encode_rows,
    is_kept,
    is_plain,
    open_history,
    to_columns,
    to_plain,
)

#: About how much a task adds to the WAL besides itself: columns and index pages.
_ROW_BYTES = 768

#: Of an ended task that was to be kept until a time at the latest, unless it is an answer.
IS_PAST = f"{IS_ENDED} AND forget_us <= ? AND id NOT IN (SELECT task FROM answers)"

PAST = f"FROM tasks INDEXED BY tasks_to_forget WHERE {IS_PAST}"

FORGET = f"DELETE FROM tasks WHERE serial IN (SELECT serial {PAST}) RETURNING id"

_encode_json = msgspec.json.Encoder().encode


class Writer:
    """Writes the tables of one file, from one thread at a time."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def write(
        self, sequence: int, changes: Changes, pieces: Iterable[bytes] | None = None
    ) -> list[str]:
        """Write changes in one transaction, and return the blobs that became unowned.

        `pieces` are its tasks, encoded, if they are not in `changes`.
        """
        released = list(changes.blobs)
        with self._db.transaction() as connection:
            removed = changes.gone + _ids_in(connection, changes.queues_gone)
            released += _remove_tasks(connection, removed)
            for piece in encoded_pieces(changes.tasks) if pieces is None else pieces:
                released += self._write_tasks(connection, decode_heads(piece))
            _write_entities(connection, changes.entities)
            _write_answers(connection, changes)
            released += self._forget(connection, changes.counters.horizon_us)
            _write_meta(connection, sequence, changes.counters)
            return unowned(connection, released)

    def sync(self) -> None:
        """Make all that was written safe from a power failure."""
        self._db.sync()

    def close(self) -> None:
        """No-op; the owner closes the file."""

    def _forget(self, connection: sqlite3.Connection, horizon_us: int) -> list[str]:
        """Remove ended tasks up to the horizon, and return the blobs that belonged to them."""
        ids = [task for (task,) in connection.execute(FORGET, (horizon_us,)).fetchall()]
        self._db.wal_bytes += _ROW_BYTES * len(ids)
        return _release_blobs(connection, ids)

    def _write_tasks(self, connection: sqlite3.Connection, rows: list[Encoded]) -> list[str]:
        """Write over what is stored of tasks, and return the blobs that they let go of."""
        plain: list[Encoded] = []
        others: list[Encoded] = []
        dropped: list[Head] = []
        for row in rows:
            head = row[0]
            if not is_kept(head):
                dropped.append(head)
            else:
                (plain if is_plain(head) else others).append(row)
        released = _remove_tasks(connection, [head.id for head in dropped])
        released += chain.from_iterable(map(blobs_of, dropped))
        released += _release_blobs(connection, [head.id for head, _ in chain(plain, others)])
        _upsert_tasks(connection, plain, is_plain=True)
        _upsert_tasks(connection, others, is_plain=False)
        owned = [(blob, head.id) for head, _ in others for blob in blobs_of(head)]
        connection.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?)", owned)
        self._db.wal_bytes += sum(_ROW_BYTES + len(encoded) for _, encoded in rows)
        return released


def _remove_tasks(connection: sqlite3.Connection, ids: Sequence[bytes]) -> list[str]:
    released = _release_blobs(connection, ids)
    execute_in(connection, "DELETE FROM tasks WHERE id IN ({})", ids)
    return released


def _upsert_tasks(connection: sqlite3.Connection, rows: list[Encoded], *, is_plain: bool) -> None:
    columns = to_plain if is_plain else to_columns
    for chunk in chunks_of(rows):
        values: list[Value] = []
        for head, row in chunk:
            values += columns(head, row)
        connection.execute(_upsert(len(chunk), is_plain), values)


@cache
def _upsert(row_count: int, is_plain: bool) -> str:
    """Return the statement that writes so many tasks; a plain one has constants in it."""
    constants = USUAL if is_plain else {}
    row = f"({', '.join(constants.get(name, '?') for name in COLUMNS)})"
    updates = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "id")
    return (
        f"INSERT INTO tasks ({', '.join(COLUMNS)}) VALUES {', '.join([row] * row_count)}"
        f" ON CONFLICT (id) DO UPDATE SET {updates}"
    )


#: A piece of a write ends with the task whose bodies reach this, or after so many tasks.
PIECE_BYTES = 1024 * 1024
PIECE_ROWS = 2_000


def encoded_pieces(rows: Iterable[TaskRow]) -> Iterator[bytes]:
    """Encode tasks that are to be written, some at a time."""
    piece: list[TaskRow] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += len(row.payload) if isinstance(row.payload, bytes) else 0
        if row.outcome is not None and isinstance(row.outcome.result, bytes):
            size += len(row.outcome.result)
        if size >= PIECE_BYTES or len(piece) == PIECE_ROWS:
            yield encode_rows(piece)
            piece, size = [], 0
    if piece:
        yield encode_rows(piece)


def _ids_in(connection: sqlite3.Connection, queues: Sequence[tuple[str, str]]) -> list[TaskId]:
    """Return the tasks of queues that are to be removed."""
    sql = "SELECT id FROM tasks WHERE namespace = ? AND queue = ?"
    return [row[0] for queue in queues for row in connection.execute(sql, queue).fetchall()]


def _write_entities(connection: sqlite3.Connection, entities: list[Entity]) -> None:
    connection.executemany(
        "DELETE FROM entities WHERE kind = ? AND namespace = ? AND name = ?",
        [(each.kind, each.namespace, each.name) for each in entities if each.row is None],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO entities VALUES (?, ?, ?, ?)",
        [astuple(each) for each in entities if each.row is not None],
    )


def _write_answers(connection: sqlite3.Connection, changes: Changes) -> None:
    gone = [(task,) for task in changes.answers_gone]
    connection.executemany("DELETE FROM answers WHERE task = ?", gone)
    connection.executemany(
        f"INSERT OR REPLACE INTO answers VALUES ({marks(len(StoredAnswer.__struct_fields__))})",
        [astuple(answer) for answer in changes.answers],
    )


def _write_meta(connection: sqlite3.Connection, sequence: int, counters: Counters) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO meta VALUES ('sequence', ?), ('counters', ?)",
        (sequence, _encode_json(counters).decode()),
    )


def _release_blobs(connection: sqlite3.Connection, tasks: Sequence[bytes]) -> list[str]:
    # Most brokers never see one, and spare themselves the look-ups.
    if not tasks or not connection.execute("SELECT EXISTS (SELECT 1 FROM blobs)").fetchone()[0]:
        return []
    released = execute_in(connection, "DELETE FROM blobs WHERE task IN ({}) RETURNING blob", tasks)
    return [blob for (blob,) in released]


def unowned(connection: sqlite3.Connection, blobs: Iterable[str]) -> list[str]:
    """Return those blobs that no stored row names."""
    candidates = dict.fromkeys(blobs)
    owned = execute_in(connection, "SELECT blob FROM blobs WHERE blob IN ({})", candidates)
    names = {blob for (blob,) in owned}
    return [blob for blob in candidates if blob not in names]


# The process: what is sent over the pipe.


#: How long the process may take to end when there is nothing more to write.
_END_S = 10.0

#: Where there are too few cores, clients of the broker come before what is written behind.
_NICE = 5

#: It ends with its broker, which still has something to write when both are signalled.
_NOT_ITS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

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

    It inherits `lock`, the descriptor of the lock on the data folder.
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

        Raises its `StorageFault` here, and `EOFError` or `OSError` if the other end is closed.
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
        # They stay blocked in the process until it has said that it ignores them.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_ITS)
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
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
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
    for number in _NOT_ITS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOT_ITS)
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

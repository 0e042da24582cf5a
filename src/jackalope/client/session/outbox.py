"""The outbox: tasks on their way to the broker.

Owns group commit on this side. What is submitted during one iteration of the loop leaves in one
SUBMIT frame, each task with its own future; a bulk submit has one future for each parcel. A parcel
stays here until the broker has answered: when the connection is lost, it is sent again over the
next one, with the same ids and in the same order, so that nothing is lost, nothing doubled, and a
task that depends on another still comes after it.

A parcel that the broker cannot read is cut in halves until the task is alone that is the reason,
and that one fails. A broker that closes the connection instead of refusing the parcel does not say
which one it was: each that was under way is then sent with nothing beside it, and the one that ends
the connection again is cut. Nothing is sent over and over.

At most `WINDOW_TASKS` or `WINDOW_BYTES` are under way at once. What comes meanwhile gathers into
the next parcel, which is where bulk gets its speed and memory its bound.

A payload that fits into no frame goes ahead in parts, as an upload. It is used up by the request
that names it, and ends with its connection; one whose bytes can be read again is then made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import chain
from typing import IO, Any, TypeVar

from jackalope.core.commands import SubmitTasks
from jackalope.core.effects import Served
from jackalope.core.ids import TaskId
from jackalope.core.refusals import Code
from jackalope.core.task import BlobRef, TaskSpec, encoded_size
from jackalope.errors import (
    ConfigError,
    ConnectionLost,
    JackalopeError,
    Misread,
    Rejected,
    refusals,
    served,
)
from jackalope.tasks.serialization import Stream, chunks_of, is_repeatable
from jackalope.transport.connection import STREAMED_BYTES, UNENCODABLE, Connection

_log = logging.getLogger("jackalope")

PARCEL_TASKS_MAX = 1_000
PARCEL_BYTES_MAX = 1024 * 1024
WINDOW_TASKS = 16_000
WINDOW_BYTES = 8 * 1024 * 1024

#: About what a task takes on the wire besides its payload.
_TASK_BYTES = 64

Refused = dict[int, Rejected]
E = TypeVar("E", bound=JackalopeError)


class Settled:
    """The answer to a bulk submit: what was refused, and how requests are served, by index."""

    __slots__ = ("refused", "served")

    def __init__(self) -> None:
        self.refused: Refused = {}
        self.served: dict[int, Served] = {}


class Bulk:
    """Who waits for the answer to a bulk submit, which may come in parts."""

    __slots__ = ("future", "parts", "settled")

    def __init__(self, future: asyncio.Future[Settled]) -> None:
        self.future = future
        self.parts = 1
        self.settled = Settled()

    def answered(self, begin: int, refused: Refused, served: dict[int, Served]) -> None:
        """Take the answer to the part that begins there."""
        self.settled.refused |= {begin + index: error for index, error in refused.items()}
        if served:
            self.settled.served |= {begin + index: how for index, how in served.items()}
        self.parts -= 1
        if not self.parts and not self.future.done():
            self.future.set_result(self.settled)


class Parcel:
    """Some tasks in one frame, and who waits for the answer."""

    __slots__ = ("begin", "bulk", "bytes", "fence", "futures", "is_suspect", "specs", "watched")

    def __init__(self, fence: int, bulk: Bulk | None = None) -> None:
        self.specs: list[TaskSpec] = []
        self.fence = fence
        self.bytes = 0
        # one for each task; none in a bulk submit
        self.futures: list[asyncio.Future[Served | None]] = []
        self.bulk = bulk  # the bulk submit that the parcel is a part of
        self.begin = 0  # where that part begins
        self.watched: list[TaskId] = []  # tasks whose end is already awaited
        # it was under way when the broker closed a connection that it could not read
        self.is_suspect = False

    def has_room(self, fence: int, size: int) -> bool:
        """Tell whether another single task fits in."""
        return (
            self.bulk is None
            and not self.is_suspect
            and self.fence == fence
            and len(self.specs) < PARCEL_TASKS_MAX
            and self.bytes + size <= PARCEL_BYTES_MAX
        )

    def is_wanted(self) -> bool:
        """Return whether the answer is awaited."""
        if self.bulk is not None:
            return not self.bulk.future.done()
        return any(not future.done() for future in self.futures)

    def drop_unwanted(self) -> None:
        """Forget tasks that are no longer awaited: their submitter was notified."""
        if not self.is_wanted():
            self.specs = []
        elif self.bulk is None and any(future.done() for future in self.futures):
            kept = [
                pair for pair in zip(self.specs, self.futures, strict=True) if not pair[1].done()
            ]
            self.specs = [spec for spec, _ in kept]
            self.futures = [future for _, future in kept]

    def halves(self) -> tuple[Parcel, Parcel]:
        """Return the same tasks in two parcels."""
        middle = len(self.specs) // 2
        first, second = Parcel(self.fence, self.bulk), Parcel(self.fence, self.bulk)
        first.specs, second.specs = self.specs[:middle], self.specs[middle:]
        first.futures, second.futures = self.futures[:middle], self.futures[middle:]
        first.begin, second.begin = self.begin, self.begin + middle
        for half in (first, second):
            half.bytes = sum(map(size_of, half.specs))
            of_half = {spec.id for spec in half.specs}
            half.is_suspect = self.is_suspect
            half.watched = [task for task in self.watched if task in of_half]
        if self.bulk is not None:
            self.bulk.parts += 1
        return first, second

    def accepted(self, refused: Refused, served: dict[int, Served]) -> None:
        """Tell everybody that waits."""
        if self.bulk is not None:
            self.bulk.answered(self.begin, refused, served)
            return
        for index, future in enumerate(self.futures):
            if future.done():
                continue
            if index in refused:
                future.set_exception(refused[index])
            else:
                future.set_result(served.get(index) if served else None)

    def failed(self, error: JackalopeError) -> None:
        """Tell everybody that waits."""
        if self.bulk is not None and isinstance(error, ConfigError):
            error = Rejected(Code.INVALID, str(error))
        if self.bulk is not None and isinstance(error, Rejected):
            self.accepted({index: copy_of(error) for index in range(len(self.specs))}, {})
            return
        for future in self.futures if self.bulk is None else [self.bulk.future]:
            if not future.done():
                future.set_exception(copy_of(error))


class Outbox:
    """Tasks that were submitted and not yet answered."""

    def __init__(self, watch: Callable[[Connection, list[TaskId]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._watch = watch
        self._connection: Connection | None = None
        self._queue: deque[Parcel] = deque()
        self._sent: dict[Parcel, None] = {}
        self._sent_tasks = 0
        self._sent_bytes = 0
        self._is_pumping = False
        self._is_testing = False

    def put(
        self, spec: TaskSpec, fence: int = 0, *, watched: bool = False
    ) -> asyncio.Future[Served | None]:
        """Submit one task; its future tells how it is served if it is a request.

        Args:
            spec: the task.
            fence: proves the right of a running parent.
            watched: ask for the task's end in the same breath, so that it cannot be missed.
        """
        size = size_of(spec)
        parcel = self._queue[-1] if self._queue else None
        if parcel is None or not parcel.has_room(fence, size):
            parcel = Parcel(fence)
            self._queue.append(parcel)
        future: asyncio.Future[Served | None] = self._loop.create_future()
        parcel.specs.append(spec)
        parcel.bytes += size
        parcel.futures.append(future)
        if watched:
            parcel.watched.append(spec.id)
        self._pump_soon()
        return future

    def put_many(self, specs: list[TaskSpec], fence: int = 0) -> asyncio.Future[Settled]:
        """Submit a parcel of tasks; its future tells what came of it."""
        future: asyncio.Future[Settled] = self._loop.create_future()
        parcel = Parcel(fence, Bulk(future))
        parcel.specs = specs
        parcel.bytes = sum(map(size_of, specs))
        self._queue.append(parcel)
        self._pump_soon()
        return future

    @property
    def is_empty(self) -> bool:
        """Return whether no answer is awaited."""
        return not any(parcel.is_wanted() for parcel in chain(self._sent, self._queue))

    def connected(self, connection: Connection) -> set[TaskId]:
        """Send again what the last connection left unanswered, and go on.

        Returns:
            The tasks whose ends are asked for from here, as they are sent.
        """
        self._queue.extendleft(reversed(self._sent))
        self._sent = {}
        self._sent_tasks = self._sent_bytes = 0
        self._connection = connection
        watched = {task for parcel in self._queue for task in parcel.watched}
        self._pump()
        return watched

    def lost(self) -> None:
        """Send nothing until there is another connection."""
        self._connection = None

    def fail(self, error: JackalopeError) -> None:
        """Give up everything: there will be no connection."""
        parcels = [*self._sent, *self._queue]
        self._queue.clear()
        self._sent = {}
        self._sent_tasks = self._sent_bytes = 0
        for parcel in parcels:
            parcel.failed(error)

    def _pump_soon(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        connection = self._connection
        if connection is None:
            return
        while self._queue and connection.is_open and self._has_room():
            if self._sent and (self._is_testing or self._queue[0].is_suspect):
                break
            parcel = self._queue.popleft()
            parcel.drop_unwanted()
            if parcel.specs:
                self._send(connection, parcel)
        connection.flush()  # What this iteration of the loop submits has gathered here.

    def _has_room(self) -> bool:
        return self._sent_tasks < WINDOW_TASKS and self._sent_bytes < WINDOW_BYTES

    def _send(self, connection: Connection, parcel: Parcel) -> None:
        count, size = len(parcel.specs), parcel.bytes
        self._sent[parcel] = None
        self._is_testing = parcel.is_suspect
        self._sent_tasks += count
        self._sent_bytes += size

        def answered(body: Any, error: JackalopeError | None) -> None:
            self._is_testing = False
            is_guilty = isinstance(error, Misread) and parcel.is_suspect
            if isinstance(error, ConnectionLost) and not is_guilty:
                parcel.is_suspect = isinstance(error, Misread)
                return  # It stays, and is sent again over the next connection.
            if self._sent.pop(parcel, self) is self:
                return  # Given up meanwhile.
            self._sent_tasks -= count
            self._sent_bytes -= size
            if error is None:
                for index, warning in body.get("warnings", ()):
                    _log.warning("task %s: %s", parcel.specs[index].id.hex(), warning)
                parcel.accepted(refusals(body), served(body))
            elif (is_guilty or _is_about_some(error)) and len(parcel.specs) > 1:
                self._queue.extendleft(reversed(parcel.halves()))
                parcel.watched = []
            elif is_guilty:
                parcel.failed(Rejected(Code.INVALID, f"the broker cannot read the task: {error}"))
            else:
                parcel.failed(error)
            if self._queue:
                self._pump()

        connection.ask(SubmitTasks(0, parcel.specs, parcel.fence), answered)
        if parcel.watched:
            self._watch(connection, parcel.watched)


def copy_of(error: E) -> E:
    """Copy an error, because an exception that is raised twice mixes its tracebacks."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy


def _is_about_some(error: JackalopeError) -> bool:
    """Return whether a part of the parcel may be accepted that was refused as a whole."""
    if isinstance(error, Rejected):
        return error.code in (Code.TOO_LARGE, Code.INVALID, Code.UNKNOWN_BLOB)
    return isinstance(error, ConfigError)


def size_of(spec: TaskSpec) -> int:
    """Return about how many bytes a task takes on the wire."""
    size = _TASK_BYTES
    if isinstance(spec.payload, bytes):
        size += len(spec.payload)
    else:
        size += PARCEL_BYTES_MAX  # Named, and sent by itself: if it is refused, nothing else is.
    if spec.options is not None:
        try:
            size += encoded_size(spec.options)
        except UNENCODABLE as error:
            raise ConfigError(f"an option of the task cannot be sent: {error}") from None
    return size


# Uploads: payloads that go to the broker in parts, before the task that names them.


#: An upload that is slower than this takes longer than is waited for.
_SLOW_BYTES_PER_S = 1024 * 1024


class Uploaded(Stream):
    """Something that was uploaded, or will be. Made by `app.upload`; the payload of one task.

    Attributes:
        size: how many bytes were uploaded; 0 before that.
    """

    def __init__(self, source: object) -> None:
        super().__init__(b"")
        self._source = source
        self._begin: int | None = None  # where a file is rewound to
        self._is_read = False
        self._connection: Connection | None = None
        self._ref: BlobRef | None = None

    def open(self) -> IO[bytes]:
        """Refuse: the bytes are the broker's."""
        raise ConfigError("what was uploaded is read by the task that gets it")

    def read(self) -> bytes:
        """Refuse as `open` does."""
        return self.open().read()

    def __repr__(self) -> str:
        return f"<Uploaded {self.size} bytes>"

    def is_there(self, connection: Connection) -> bool:
        """Tell whether a request of a connection can name it."""
        return self._ref is not None and self._connection is connection

    def take(self) -> BlobRef:
        """Return what a request can name it by, once."""
        ref, self._ref = self._ref, None
        if ref is None:
            raise self._lost()
        return ref

    def put(self, connection: Connection, ref: BlobRef) -> None:
        """Note that it was uploaded."""
        self._connection, self._ref, self.size = connection, ref, ref.size

    def chunks(self) -> AsyncIterator[bytes]:
        """Read the bytes, again if need be."""
        source: Any = self._source
        if not self._is_read:
            self._is_read = True
            if hasattr(source, "seekable") and source.seekable():
                self._begin = source.tell()
        elif self._begin is not None:
            source.seek(self._begin)
        elif not is_repeatable(source):
            raise self._lost()
        return chunks_of(source)

    def _lost(self) -> Rejected:
        message = (
            "an upload ends with its connection and is the payload of one task, and what an"
            " iterator yields cannot be read again"
        )
        return Rejected(Code.UNKNOWN_BLOB, f"{message}; upload it again")


def is_large(spec: TaskSpec) -> bool:
    """Tell whether the payload of a task goes before it."""
    payload = spec.payload
    if type(payload) is bytes:
        return len(payload) > STREAMED_BYTES
    return isinstance(payload, Uploaded)


def is_lost(error: Rejected, spec: TaskSpec) -> bool:
    """Tell whether a task was refused because its upload is gone, as after a lost connection."""
    return error.code == Code.UNKNOWN_BLOB and is_large(spec)


def time_for(spec: TaskSpec, timeout_s: float | None) -> float | None:
    """Return how long a submit may take: longer, if a large payload goes before it."""
    if timeout_s is None or not is_large(spec):
        return timeout_s
    payload: object = spec.payload
    size = len(payload) if isinstance(payload, bytes) else getattr(payload, "size", 0)
    return timeout_s + (size or 0) / _SLOW_BYTES_PER_S

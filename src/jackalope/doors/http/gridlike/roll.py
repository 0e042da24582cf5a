"""The roll: GridLike's workers, those that are connected and those that were a moment ago.

Owns who is whom. A worker sends its unique id when it registers; its jobs are counted by it. Two
connections with one id at the same time are two workers, because two on one machine may well share
its id: the second is `id#2`.

An id is no proof of which job a worker has: two workers can share it without ever being connected
at the same time, and one may still compute a job that was deleted or given to another. So a worker
has its job again only if it names the attempt (`claim`), which the broker told it together with the
payload. One that cannot takes the name that is free, with empty hands: what was leased to that name
is run again, and the result of the earlier attempt is discarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from jackalope.broker.settings import GridlikeConfig
from jackalope.core.commands import Held
from jackalope.core.durations import SECOND
from jackalope.doors.http.gridlike.words import to_time

if TYPE_CHECKING:
    from jackalope.core import Core
    from jackalope.core.book import Book
    from jackalope.core.ids import TaskId

#: Workers of one id are numbered without great gaps, so that this many free names end the search.
_GAP_MAX = 8


class Standing(StrEnum):
    """How a worker stands, in GridLike's words."""

    WAITING_FOR_REGISTRATION = "WaitingForRegistration"
    REGISTERED = "Registered"
    READY = "Ready"
    BUSY = "Busy"
    DISCONNECTED = "Disconnected"
    FAILED_REGISTRATION = "FailedRegistration"


class Entry:
    """One connection of a worker.

    Attributes:
        worker: its name in the broker; empty before it has registered.
        id: its unique id, as it says.
        name: what it calls itself, for people.
        queue: the type of its jobs.
        job: what it works on.
        names_attempts: it keeps track of its attempts, and is told about each with the payload.
        claim: the attempt that it had when it registered.
    """

    def __init__(self, queue: str, now_us: int) -> None:
        self.queue = queue
        self.worker = ""
        self.id = ""
        self.name = ""
        self.standing = Standing.WAITING_FOR_REGISTRATION
        self.job: TaskId | None = None
        self.names_attempts = False
        self.claim: Held | None = None
        self.connected_us = now_us
        self.disconnected_us = 0


class WorkerShown(msgspec.Struct, frozen=True, rename="camel"):
    """A worker in the list. The counts are of all workers with its id."""

    id: str
    name: str
    worker: str
    type: str
    state: Standing
    job_id: str | None
    connected: str
    disconnected: str
    succeeded: int
    failed: int


class Roll:
    """The workers of one door."""

    def __init__(self, settings: GridlikeConfig) -> None:
        self._settings = settings
        self._namespace = settings.namespace
        self._entries: dict[Entry, None] = {}
        self._gone: dict[Entry, float] = {}
        self._taken: dict[str, Entry] = {}

    def enter(self, entry: Entry) -> None:
        """List a connection."""
        self._entries[entry] = None

    def leave(self, entry: Entry, now_us: int) -> None:
        """List a connection that is gone, for a little while."""
        self._entries.pop(entry, None)
        if self._taken.get(entry.worker) is entry:
            del self._taken[entry.worker]
        entry.disconnected_us, entry.job = now_us, None
        if entry.standing is not Standing.FAILED_REGISTRATION:
            entry.standing = Standing.DISCONNECTED
        self._forget()
        if entry.worker:
            self._gone[entry] = monotonic()

    def entries(self) -> list[Entry]:
        """Return everybody who is listed."""
        self._forget()
        return [*self._entries, *self._gone]

    def identify(self, core: Core, entry: Entry) -> list[Held]:
        """Give a worker its name, and return the attempt that it goes on with, if any.

        Must be called between two turns of the engine.
        """
        if not self._settings.worker_tracking:
            entry.worker = uuid4().hex
            return []
        holder = self._holder_of(core, entry)
        entry.worker = holder or self._free_name(core, entry)
        self._taken[entry.worker] = entry
        return [entry.claim] if holder and entry.claim is not None else []

    def _holder_of(self, core: Core, entry: Entry) -> str:
        """Return the name that holds the claimed attempt, or nothing if no worker of this id does.

        Its old connection may still look alive; the new one then replaces it.
        """
        claim = entry.claim
        task = None if claim is None else core.book.tasks.get(claim.task)
        if claim is None or task is None or task.attempt is None:
            return ""
        of = (task.queue.namespace.name, task.queue.name, task.attempt.fence)
        name = task.attempt.worker
        is_its_own = name == entry.id or name.startswith(f"{entry.id}#")
        return name if is_its_own and of == (self._namespace, entry.queue, claim.fence) else ""

    def _free_name(self, core: Core, entry: Entry) -> str:
        """Return the first name of this id that is free.

        A name that only leases of this queue are waiting for is free to a worker that cannot claim
        them: it most likely had them, and they need not wait any longer to be run again.
        """
        namespace = core.book.namespaces.get(self._namespace)
        leases = {} if namespace is None else namespace.leases
        for _, name in _numbered(entry.id):
            worker = core.roster.workers.get((self._namespace, name))
            if name in self._taken or (worker is not None and worker.session):
                continue
            queues = {task.queue.name for task in leases.get(name, {}).values()}
            if not queues or (queues == {entry.queue} and not entry.names_attempts):
                return name
        raise AssertionError("names have no end")

    def _forget(self) -> None:
        until = monotonic() - self._settings.linger_us / SECOND
        for entry in [entry for entry, at in self._gone.items() if at <= until]:
            del self._gone[entry]


def counts_of(book: Book, namespace: str, worker_id: str) -> tuple[int, int]:
    """Return how many jobs the workers of an id have done, and how many they failed at."""
    world = book.namespaces.get(namespace)
    tallies = {} if world is None else world.tallies
    succeeded = failed = last = 0
    for number, name in _numbered(worker_id):
        tally = tallies.get(name)
        if tally is not None:
            succeeded, failed, last = succeeded + tally.succeeded, failed + tally.failed, number
        elif number - last >= _GAP_MAX:
            break
    return succeeded, failed


def show(entry: Entry, job: str | None, counts: tuple[int, int]) -> WorkerShown:
    """Show a worker."""
    return WorkerShown(
        id=entry.id,
        name=entry.name,
        worker=entry.worker,
        type=entry.queue,
        state=entry.standing,
        job_id=job,
        connected=to_time(entry.connected_us),
        disconnected=to_time(entry.disconnected_us),
        succeeded=counts[0],
        failed=counts[1],
    )


def _numbered(worker_id: str) -> Iterator[tuple[int, str]]:
    """Yield the names of the workers with one id, and their numbers, without end."""
    yield 1, worker_id
    for number in count(2):
        yield number, f"{worker_id}#{number}"

"""The roll: GridLike's workers, those that are connected and those that were a moment ago.

Owns who is whom. A worker says its unique id when it registers; that is how it is known again after
a broken connection or a restart, and by whom its jobs are counted. Two connections with one id at
the same time are two workers, because two on one machine may well share its id: the second is
`id#2`.

A worker of GridLike does not say which job it has. So the first that comes back with an id takes on
the job that a worker of this id holds, if there is exactly one, and if no two have shared the id of
late. Otherwise nobody could tell whose is whose, and a wrong result is worse than a lost one: then
none is taken on, and each goes to another worker when the grace is over.
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
from jackalope.core.task import lease_of
from jackalope.doors.http.gridlike.words import to_time

if TYPE_CHECKING:
    from jackalope.broker.engine import Engine
    from jackalope.core.book import Book
    from jackalope.core.ids import TaskId

#: How long an id counts as shared after two workers had it at once.
SHARED_S = 3600.0

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
    """

    def __init__(self, queue: str, now_us: int) -> None:
        self.queue = queue
        self.worker = ""
        self.id = ""
        self.name = ""
        self.standing = Standing.WAITING_FOR_REGISTRATION
        self.job: TaskId | None = None
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
        self._entries: dict[Entry, None] = {}
        self._gone: dict[Entry, float] = {}
        self._taken: set[str] = set()
        self._shared: dict[str, float] = {}

    def enter(self, entry: Entry) -> None:
        """List a connection."""
        self._entries[entry] = None

    def leave(self, entry: Entry, now_us: int) -> None:
        """List a connection that is gone, for a little while."""
        self._entries.pop(entry, None)
        self._taken.discard(entry.worker)
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

    def identify(self, engine: Engine, entry: Entry) -> list[Held]:
        """Give a worker its name, and return the job that it comes back with, if any.

        To be asked between two turns of the engine.
        """
        if not self._settings.worker_tracking:
            entry.worker = uuid4().hex
            return []
        name, holding = self._name_of(engine, entry.id)
        self._taken.add(name)
        entry.worker = name
        return holding

    def _name_of(self, engine: Engine, worker_id: str) -> tuple[str, list[Held]]:
        book, namespace = engine.core.book, self._settings.namespace
        world = book.namespaces.get(namespace)
        leases = {} if world is None else world.leases
        free, free_number = "", 0
        left: list[tuple[str, list[Held]]] = []
        for number, name in _numbered(worker_id):
            worker = engine.core.roster.workers.get((namespace, name))
            held = leases.get(name, {})
            if name in self._taken or (worker is not None and worker.session):
                self._shared[worker_id] = monotonic()
            elif held:
                holding = [Held(task.id, lease_of(task).fence) for task in held.values()]
                left.append((name, holding))
            elif not free:
                free, free_number = name, number
            if free and number - free_number >= _GAP_MAX:
                break
        is_certain = worker_id not in self._shared and len(left) == 1 and len(left[0][1]) == 1
        return left[0] if is_certain else (free, [])

    def _forget(self) -> None:
        until = monotonic() - self._settings.linger_us / SECOND
        for entry in [entry for entry, at in self._gone.items() if at <= until]:
            del self._gone[entry]
        until = monotonic() - SHARED_S
        for worker_id in [worker_id for worker_id, at in self._shared.items() if at <= until]:
            del self._shared[worker_id]


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

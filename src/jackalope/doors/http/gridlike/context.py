"""The context that all of GridLike's routes share.

Owns the settings, which queue a job type is, and the list of workers. Every queue of the namespace
is a job type; the queue of jobs without a type comes into being when it is first needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import StrEnum
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import msgspec
import structlog

from jackalope.broker.access import ANYONE, acting, sees
from jackalope.broker.config.schema import GridlikeConfig
from jackalope.broker.queries import (
    NOTHING,
    About,
    Question,
    Refused,
    has_task,
    policies,
    task_and_bodies,
)
from jackalope.core.api_key import Permission
from jackalope.core.commands import DeclareQueue, Held
from jackalope.core.durations import SECOND
from jackalope.core.ids import as_task_id
from jackalope.core.policy import DEFAULT_POLICY, PRESETS, Policy
from jackalope.core.refusals import Code
from jackalope.doors.http.gridlike.schemas import Problem, to_time
from jackalope.doors.http.request import Connection, door_of

if TYPE_CHECKING:
    from jackalope.broker.views.workers import Leases
    from jackalope.core.ids import TaskId
    from jackalope.core.task import Body
    from jackalope.doors.http.app import HttpDoor
    from jackalope.wire.views import TaskView

T = TypeVar("T")

log = structlog.get_logger(component="gridlike")

_PRESET = "gridlike"

#: In what the preset is not like any other queue.
_PECULIAR = tuple(
    name
    for name in Policy.__struct_fields__
    if getattr(PRESETS[_PRESET], name) != getattr(DEFAULT_POLICY, name)
)


def grid_of(connection: Connection) -> Grid:
    """Return GridLike at the door through which a request came."""
    return door_of(connection).grid


class Grid:
    """GridLike at one door."""

    def __init__(self, door: HttpDoor) -> None:
        self.door = door  # where it is served
        self.broker = door.broker
        self.settings = door.gridlike  # its part of the configuration
        self.namespace = door.gridlike.namespace  # of all jobs
        self.roll = Roll(door.gridlike)  # the workers that are connected, or were a moment ago
        self._declaring = asyncio.Lock()
        self._compared: set[str] = set()

    async def queue_of(self, job_type: str | None) -> str:
        name = job_type or self.settings.queue
        policy = await self._policy(name)
        if policy is not None and sees(name):
            self._compare(name, policy)
            return name
        if name != self.settings.queue:
            raise Problem(404, f"Unknown job type {name!r}; declare a queue of that name")
        async with self._declaring:
            if await self._policy(name) is None:
                await self._declare(name)
        return name

    async def policies_of(self, queues: set[str]) -> dict[str, Policy]:
        """Return the policies of job types; the default one for a type that is gone."""
        found = await policies(self.broker, self.namespace, queues)
        return dict.fromkeys(queues, DEFAULT_POLICY) | found

    async def ask(self, question: Question[T], about: About = NOTHING) -> T:
        """Ask the broker something about the namespace."""
        return await question(self.broker, self.namespace, about)

    async def find(
        self, key: str, needs: Permission = Permission.READ_TASKS
    ) -> tuple[TaskView, tuple[Body, Body]]:
        """Find a job by its key or its id, for a client with a permission."""
        task_id = as_task_id(key)
        for about in [About(alias=key), *([About(id=task_id)] if task_id else [])]:
            try:
                return await task_and_bodies(self.broker, self.namespace, about, (needs,))
            except Refused as error:
                if error.refusal.code is not Code.UNKNOWN_TASK:
                    raise
        raise Problem(404, f"There is no job with the key {key}")

    async def has_id(self, key: str) -> bool:
        """Return whether a key is the id of a job, which is the default key of a job."""
        task_id = as_task_id(key)
        return task_id is not None and await has_task(self.broker, self.namespace, task_id)

    def _compare(self, name: str, policy: Policy) -> None:
        """Warn once of a job type that was declared like any other queue."""
        if name in self._compared:
            return
        self._compared.add(name)
        if all(getattr(policy, each) == getattr(DEFAULT_POLICY, each) for each in _PECULIAR):
            log.warning(
                "job type without the preset gridlike: retries, priorities of failed jobs and how "
                "long results are kept are not as in GridLike; declare it with preset: gridlike",
                queue=name,
                differs=list(_PECULIAR),
            )

    async def _policy(self, name: str) -> Policy | None:
        return (await policies(self.broker, self.namespace, {name})).get(name)

    async def _declare(self, name: str) -> None:
        """Declare the queue of jobs without a type, in the name of the broker itself."""
        command = DeclareQueue(
            queue=name, preset=_PRESET, namespace=self.namespace, by="configuration"
        )
        acted = acting.set(ANYONE)
        try:
            await self.door.client_session.ask(command)
        finally:
            acting.reset(acted)


# The roll: GridLike's workers, those that are connected and those that were a moment ago.

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
    """One connection of a worker."""

    def __init__(self, queue: str, now_us: int) -> None:
        self.queue = queue  # the type of its jobs
        self.worker = ""  # its name in the broker; empty before it has registered
        self.id = ""  # its unique id, as it says
        self.name = ""  # what it calls itself, for people
        self.standing = Standing.WAITING_FOR_REGISTRATION
        self.job: TaskId | None = None  # what it works on
        # it keeps track of its attempts, and is told about each with the payload
        self.names_attempts = False
        self.claim: Held | None = None  # the attempt that it had when it registered
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
        self._taken: dict[str, Entry] = {}

    def enter(self, entry: Entry) -> None:
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
        self._forget()
        return [*self._entries, *self._gone]

    def identify(self, leases: Leases, entry: Entry) -> list[Held]:
        """Give a worker its name, and return the attempt that it goes on with, if any.

        Must be called between two turns of the engine.
        """
        if not self._settings.worker_tracking:
            entry.worker = uuid4().hex
            return []
        holder = self._holder_of(leases, entry)
        entry.worker = holder or self._free_name(leases, entry)
        self._taken[entry.worker] = entry
        return [entry.claim] if holder and entry.claim is not None else []

    def _holder_of(self, leases: Leases, entry: Entry) -> str:
        """Return the name that holds the claimed attempt, or nothing if no worker of this id does.

        Its old connection may still look alive; the new one then replaces it.
        """
        if entry.claim is None:
            return ""
        name, queue = leases.holder(entry.claim)
        is_its_own = name == entry.id or name.startswith(f"{entry.id}#")
        return name if is_its_own and queue == entry.queue else ""

    def _free_name(self, leases: Leases, entry: Entry) -> str:
        """Return the first name of this id that is free.

        A name that only leases of this queue are waiting for is free to a worker that cannot claim
        them: it most likely had them, and they need not wait any longer to be run again.
        """
        for _, name in _numbered(entry.id):
            if name in self._taken or leases.is_connected(name):
                continue
            _, queues = leases.of(name)
            if not queues or (queues == {entry.queue} and not entry.names_attempts):
                return name
        raise AssertionError("names have no end")

    def _forget(self) -> None:
        until = monotonic() - self._settings.linger_us / SECOND
        for entry in [entry for entry, at in self._gone.items() if at <= until]:
            del self._gone[entry]


def counts_of(leases: Leases, worker_id: str) -> tuple[int, int]:
    """Return how many jobs the workers of an id have done, and how many they failed at."""
    succeeded = failed = last = 0
    for number, name in _numbered(worker_id):
        tally = leases.tally(name)
        if tally is not None:
            succeeded, failed, last = succeeded + tally.succeeded, failed + tally.failed, number
        elif number - last >= _GAP_MAX:
            break
    return succeeded, failed


def show(entry: Entry, job: str | None, counts: tuple[int, int]) -> WorkerShown:
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

"""What the conformance suite asks of a door, and the shapes in which the answers are compared.

A driver translates and does nothing else: no retries, no defaults of its own. So a difference that
a behaviour finds is a difference between doors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from jackalope.core.ids import TaskId
from jackalope.task_ids import new_task_id


class Refused(Exception):
    """A request was refused, as a door puts it."""

    def __init__(self, code: str, message: str, retry_after_s: float = 0) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class NewTask:
    """A task to submit."""

    queue: str
    name: str = "work"
    payload: bytes = b""
    priority: int = 150
    id: TaskId = field(default_factory=new_task_id)
    callbacks: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Shown:
    """A task, as far as every door shows it."""

    id: TaskId
    queue: str
    name: str
    state: str
    priority: int
    attempts: int
    failures: int
    crashes: int
    interruptions: int
    reason: str = ""
    error: tuple[str, str] = ("", "")
    percent: float | None = None
    note: str = ""
    steps: tuple[str, ...] = ()
    waits_for: str = ""
    #: The URL, the ends, and the task that posts it, once there is one.
    callbacks: tuple[tuple[str, tuple[str, ...], TaskId], ...] = ()


@dataclass(frozen=True)
class ShownSchedule:
    """A schedule, as far as every door shows it; times are in microseconds."""

    name: str
    state: str
    queue: str
    task: str
    every_us: int
    cron: str
    overlap: str
    next_us: int
    fired: int
    upcoming: tuple[int, ...] = ()
    runs: tuple[tuple[TaskId, str], ...] = ()


@dataclass(frozen=True)
class Filled:
    """What a backfill did about each slot."""

    tasks: list[TaskId]
    known: int = 0
    forgotten: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class DoneStep:
    """A step that a worker is told to be done, or that need not wait."""

    name: str
    result: bytes = b""
    is_late: bool = False


@dataclass(frozen=True)
class Page:
    """A page of a list; `total` only of the first."""

    tasks: list[Shown]
    cursor: str
    total: int | None


@dataclass(frozen=True)
class Attempt:
    """What a worker is given."""

    task: TaskId
    fence: int
    name: str
    payload: bytes
    number: int
    steps: tuple[DoneStep, ...] = ()


@dataclass(frozen=True)
class Ends:
    """What follows from the ends of tasks: maps as in JSON, without what has its default."""

    callbacks: list[dict[str, Any]] = field(default_factory=list)
    triggers: list[dict[str, Any]] = field(default_factory=list)


class Worker(Protocol):
    """A worker that claims, at one door."""

    async def claim(self, wait_s: float = 5) -> Attempt | None:
        """Claim one task and begin it."""

    async def finish(self, attempt: Attempt, result: bytes = b"") -> None: ...

    async def fail(self, attempt: Attempt, kind: str, message: str) -> None: ...

    async def release(self, attempt: Attempt) -> None: ...

    async def progress(self, attempt: Attempt, percent: float, note: str) -> None: ...

    async def step(self, attempt: Attempt, index: int, name: str, result: bytes) -> None:
        """Record a step."""

    async def suspend(
        self, attempt: Attempt, index: int, name: str, after_s: float = 0, event: str = ""
    ) -> DoneStep | None:
        """Wait without the worker; returns the step if it need not wait."""

    async def signal(self) -> tuple[TaskId, str]:
        """Wait for what the broker asks of an attempt."""

    async def stopped(self, attempt: Attempt) -> None:
        """Report that an attempt has stopped for a signal."""

    async def join(self, *holding: Attempt) -> tuple[set[int], set[int]]:
        """Come back over a new connection; returns the fences that go on, and those to drop."""


class Driver(Protocol):
    """A client at one door."""

    door: ClassVar[str]

    async def submit(self, *tasks: NewTask) -> list[Refused | None]:
        """Submit tasks in one request; returns the refusal of each, if any."""

    async def task(self, task: TaskId) -> Shown: ...

    async def wait(self, task: TaskId, timeout_s: float) -> Shown:
        """Return the task when it has ended, or as it is when the time is over."""

    async def result(self, task: TaskId) -> bytes: ...

    async def tasks(self, queue: str, limit: int, cursor: str = "") -> Page: ...

    async def explain(self, task: TaskId) -> list[str]:
        """Return the kinds of causes."""

    async def kill(self, task: TaskId) -> str:
        """Return `changed`, or `requested` if a worker was asked."""

    async def purge(self, task: TaskId) -> None: ...

    async def send_event(self, task: TaskId, event: str, value: object) -> None:
        """Send an event with a free value."""

    async def declare_schedule(
        self, name: str, *, every_s: float | None = None, **settings: str
    ) -> None: ...

    async def schedule(self, name: str) -> ShownSchedule: ...

    async def schedules(self, text: str, limit: int, cursor: str = "") -> tuple[list[str], str]:
        """Return the names on a page, and the cursor of the next."""

    async def act_on_schedule(self, name: str, action: str) -> None:
        """Pause, resume or delete a schedule."""

    async def trigger(self, name: str, task: TaskId) -> TaskId: ...

    async def backfill(
        self, name: str, since_us: int, until_us: int, *, again: bool = False
    ) -> Filled:
        """Submit the tasks of slots that have passed."""

    async def declare(self, queue: str, **policy: int) -> None: ...

    async def declare_ends(self, queue: str, ends: Ends) -> None:
        """Declare what follows from the ends of the tasks of a queue."""

    async def ends(self, queue: str) -> Ends: ...

    async def worker(
        self, name: str, queue: str, lease_s: float = 30, holding: tuple[Attempt, ...] = ()
    ) -> Worker:
        """Join; what is held must go on."""

    async def close(self) -> None: ...

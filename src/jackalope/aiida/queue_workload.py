"""The workload of a queue: the tasks that subscribers of this process hold.

Owns how many are wanted, and who waits for the broker's word on an end. Knows nothing of what a
task is about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from jackalope.aiida.traits import PARENT_HEADER, TASK_NAME
from jackalope.core.effects import Assignment
from jackalope.core.limits import SLOTS_PER_WORKER_MAX
from jackalope.link.address import Address
from jackalope.tasks.definition import TaskDefinition
from jackalope.worker.attempt import Attempt
from jackalope.worker.workload import RESTING_MAX, Executor, Workload


@dataclass(frozen=True, slots=True)
class Source:
    """What a workload needs to know of an application."""

    address: Address
    functions: dict[str, TaskDefinition] = field(default_factory=dict)


class QueueWorkload(Workload):
    """Holds as many tasks as the prefetch allows, while there are subscribers.

    A parent that waits for tasks which it has sent rests: else parents could fill every worker, and
    what they wait for would never begin.

    Attributes:
        slots_wanted: how many tasks to be given without asking.
    """

    slots_wanted = 0

    def __init__(self, source: Source, executor: Executor) -> None:
        super().__init__(source, {"async": executor}, concurrency=SLOTS_PER_WORKER_MAX)
        self._definition = TaskDefinition(_nothing, name=TASK_NAME)
        self._settling: dict[Attempt, asyncio.Future[None]] = {}
        self._parents: dict[str, Attempt] = {}

    @property
    def slots(self) -> int:
        """How many attempts the worker wants to hold."""
        if not self.slots_wanted:
            return 0
        return min(self.slots_wanted + min(self._resting, RESTING_MAX), SLOTS_PER_WORKER_MAX)

    def definition_of(self, assignment: Assignment) -> TaskDefinition:  # noqa: ARG002  all alike
        """Return the same for all: a task's name matters to people alone, subscribers take any."""
        return self._definition

    def note_begun(self, attempt: Attempt) -> None:
        """Remember a parent by its alias."""
        options = attempt.assignment.options
        if options.alias and PARENT_HEADER in options.headers:
            self._parents[options.alias] = attempt

    def note_waiting(self, alias: str, *, is_waiting: bool) -> None:
        """Take the word that a parent waits, or goes on."""
        attempt = self._parents.get(alias)
        if attempt is not None and is_waiting != bool(attempt.rests):
            self._on_rested(attempt, is_waiting)

    def settlement(self, attempt: Attempt) -> asyncio.Future[None]:
        """Return what is done when the broker has taken the end of an attempt."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling[attempt] = future
        return future

    def settled(self, attempts: Iterable[Attempt]) -> None:
        """Forget attempts about which nothing more needs to be told."""
        gone = list(attempts)
        super().settled(gone)
        for attempt in gone:
            if self._parents.get(attempt.assignment.options.alias) is attempt:
                del self._parents[attempt.assignment.options.alias]
            future = self._settling.pop(attempt, None)
            if future is not None and not future.done():
                future.set_result(None)


async def _nothing() -> None:
    """Stand for the subscribers, which the executor knows."""

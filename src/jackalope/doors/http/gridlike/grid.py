"""The grid: what all of GridLike's paths share.

Owns the settings, which queue a job type is, and the roll of workers. Every queue of the namespace
is a job type; the queue of jobs without a type comes into being when it is first needed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from jackalope.broker.access import ANYONE, acting, sees
from jackalope.broker.queries import About, Refused, task_and_bodies
from jackalope.broker.queries import answer as ask_about
from jackalope.core.access import Permission
from jackalope.core.commands import DeclareQueue
from jackalope.core.policy import DEFAULT_POLICY, PRESETS, Policy
from jackalope.core.refusals import Code
from jackalope.doors.http.exchange import as_task_id
from jackalope.doors.http.gridlike.problems import Problem
from jackalope.doors.http.gridlike.roll import Roll

if TYPE_CHECKING:
    from jackalope.broker.engine import Engine
    from jackalope.core.task import Body
    from jackalope.doors.http.server import HttpDoor
    from jackalope.wire.views import TaskView

log = structlog.get_logger(component="gridlike")

_PRESET = "gridlike"

#: In what the preset is not like any other queue.
_PECULIAR = tuple(
    name
    for name in Policy.__struct_fields__
    if getattr(PRESETS[_PRESET], name) != getattr(DEFAULT_POLICY, name)
)


class Grid:
    """GridLike at one door.

    Attributes:
        door: where it is served.
        settings: its part of the configuration.
        namespace: the world of all jobs.
        roll: the workers that are connected, or were a moment ago.
    """

    def __init__(self, door: HttpDoor) -> None:
        self.door = door
        self.broker = door.broker
        self.settings = door.gridlike
        self.namespace = door.gridlike.namespace
        self.roll = Roll(door.gridlike)
        self._declaring = asyncio.Lock()
        self._compared: set[str] = set()

    async def queue_of(self, job_type: str | None) -> str:
        """Return the queue of a job type, or of jobs without one.

        Raises:
            Problem: there is no such type.
        """
        name = job_type or self.settings.queue
        policy = await self._policy(name)
        if policy is not None and sees(name):
            self._compare(name, policy)
            return name
        if name != self.settings.queue:
            raise Problem(404, f"There is no job type {name!r}; declare a queue of that name")
        async with self._declaring:
            if await self._policy(name) is None:
                await self._declare(name)
        return name

    async def policies_of(self, queues: set[str]) -> dict[str, Policy]:
        """Return the policies of job types; the default one for a type that is gone."""

        def look(engine: Engine) -> dict[str, Policy]:
            found = {name: engine.core.book.queue(self.namespace, name) for name in queues}
            return {
                name: queue.policy if queue else DEFAULT_POLICY for name, queue in found.items()
            }

        return await self.broker.read(look)

    async def ask(self, what: str, **about: Any) -> Any:
        """Ask the broker something about the namespace."""
        return await ask_about(self.broker, self.namespace, what, about)

    async def find(
        self, key: str, needs: Permission = Permission.READ_TASKS
    ) -> tuple[TaskView, tuple[Body, Body]]:
        """Find a job by its key or its id, for a client with a permission.

        Raises:
            Problem: there is none.
        """
        task_id = as_task_id(key)
        for about in [About(alias=key), *([About(id=task_id)] if task_id else [])]:
            try:
                return await task_and_bodies(self.broker, self.namespace, about, (needs,))
            except Refused as error:
                if error.refusal.code is not Code.UNKNOWN_TASK:
                    raise
        raise Problem(404, f"There is no job with the key {key}")

    async def has_id(self, key: str) -> bool:
        """Tell whether a key is the id of a job, which is the key of jobs that were given none."""
        task_id = as_task_id(key)
        if task_id is None:
            return False
        task = await self.broker.read(lambda engine: engine.find(self.namespace, task_id))
        return task is not None and sees(task.queue.name)

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
        queue = await self.broker.read(lambda engine: engine.core.book.queue(self.namespace, name))
        return None if queue is None else queue.policy

    async def _declare(self, name: str) -> None:
        """Declare the queue of jobs without a type, in the name of the broker itself."""
        command = DeclareQueue(
            queue=name, preset=_PRESET, namespace=self.namespace, by="configuration"
        )
        acted = acting.set(ANYONE)
        try:
            await self.door.desk.ask(command)
        finally:
            acting.reset(acted)

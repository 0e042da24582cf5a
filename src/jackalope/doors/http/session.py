"""The session of all clients over HTTP that are not workers.

Owns the requests that wait for the end of a task. Decides nothing. When the broker ends the session
(it was rebuilt after a full disk), all waiting requests fail, and the next one opens another.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from jackalope.broker.access import Principal, present
from jackalope.broker.local_session import LocalSession
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.commands import AnyCommand, CreateApiKey, RevokeApiKey, WatchTasks
from jackalope.core.effects import Accepted, Answered, Message, TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.refusals import Refusal

A = TypeVar("A", bound=Answered)


def of_kind(answered: Answered, kind: type[A]) -> A:
    """Return an answer that is of the kind that its command always has."""
    if not isinstance(answered, kind):
        raise BrokenInvariant(f"the answer must be {kind.__name__}, got {answered}")
    return answered


class ClientSession(LocalSession):
    """One session for all clients of a door."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._waiting: dict[TaskId, set[asyncio.Future[TaskEnded]]] = {}

    async def ask(
        self, command: AnyCommand, items: int = 1, who: Principal | None = None
    ) -> Answered:
        self.open()
        stay = present.get()
        if stay is not None and isinstance(command, CreateApiKey | RevokeApiKey):
            stay.may_finish = True  # Even if what it asks for sends it away itself.
        return await super().ask(command, items, who)

    async def ended(
        self, namespace: str, task: TaskId, wait_s: float, who: Principal | None = None
    ) -> TaskEnded | None:
        """Wait for a task to end; None if it has not by then."""
        told: asyncio.Future[TaskEnded] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task, set()).add(told)
        try:
            async with asyncio.timeout(wait_s):
                body = await self.ask(
                    WatchTasks(ref=0, tasks=(task,), namespace=namespace), who=who
                )
                if isinstance(body, Accepted) and body.refused:
                    raise Refused(body.refused[0][1])
                return await told
        except TimeoutError:
            return None
        finally:
            told.cancel()
            waiting = self._waiting.get(task)
            if waiting is not None:
                waiting.discard(told)
                if not waiting:
                    del self._waiting[task]

    def close(self, why: str = "the broker is shutting down; try again later") -> None:
        super().close(why)

    # The broker's side.

    def on_message(self, message: Message) -> None:
        if isinstance(message, TaskEnded):
            for told in self._waiting.pop(message.task, ()):
                if not told.done():
                    told.set_result(message)

    def refuse(self, refusal: Refusal) -> None:
        super().refuse(refusal)
        waiting, self._waiting = self._waiting, {}
        for told in [told for each in waiting.values() for told in each]:
            if not told.done():
                told.set_exception(Refused(refusal))

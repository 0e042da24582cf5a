"""The desk: where requests of actioners become commands, and answers find their requests.

Owns one session of the broker for all of them, and the requests that wait for the end of a task.
Decides nothing. When the broker ends the session (it was rebuilt after a full disk), all waiting
requests fail, and the next request opens another session.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TypeVar

from jackalope.broker.access import Principal, acting, present
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.commands import AnyCommand, CreateApiKey, RevokeApiKey, WatchTasks
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Answered, Effect, Reply, TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.refusals import Code, Refusal

A = TypeVar("A", bound=Answered)


def of_kind(answered: Answered, kind: type[A]) -> A:
    """Return an answer that is of the kind that its command always has."""
    if not isinstance(answered, kind):
        raise BrokenInvariant(f"the answer must be {kind.__name__}, got {answered}")
    return answered


class Desk:
    """The session of all actioners over HTTP."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._session = 0
        self._refs = count(1)
        self._asked: dict[int, asyncio.Future[Answered]] = {}
        self._waiting: dict[TaskId, set[asyncio.Future[TaskEnded]]] = {}

    async def ask(
        self, command: AnyCommand, items: int = 1, who: Principal | None = None
    ) -> Answered:
        """Hand a command to the broker, and return its answer once that is durable."""
        ref = next(self._refs)
        command.session, command.ref = self._open(), ref
        stay = present.get()
        if stay is not None and isinstance(command, CreateApiKey | RevokeApiKey):
            stay.may_finish = True  # Even if what it asks for sends it away itself.
        refusal = self.broker.post(command, who or acting.get(), items)
        if refusal is not None:
            raise Refused(refusal)
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._asked[ref] = answer
        try:
            body = await answer
        finally:
            self._asked.pop(ref, None)
        if isinstance(body, Refusal):
            raise Refused(body)
        return body

    async def ended(
        self, namespace: str, task: TaskId, wait_s: float, who: Principal | None = None
    ) -> TaskEnded | None:
        """Wait for a task to end; None if it has not by then."""
        told: asyncio.Future[TaskEnded] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task, set()).add(told)
        try:
            async with asyncio.timeout(wait_s):
                body = await self.ask(WatchTasks(tasks=(task,), namespace=namespace), who=who)
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

    def close(self) -> None:
        """Fail everything that waits because the door closes, and close the session."""
        if self._session:
            self.broker.close_session(self._session)
        self.end("the broker stops; ask again later")

    # The broker's side.

    def deliver(self, effects: list[Effect]) -> None:
        """Give answers to those who asked, and ends of tasks to those who wait."""
        for effect in effects:
            if isinstance(effect, Reply):
                answer = self._asked.get(effect.ref)
                if answer is not None and not answer.done():
                    answer.set_result(effect.body)
            elif isinstance(effect.message, TaskEnded):
                for told in self._waiting.pop(effect.message.task, ()):
                    if not told.done():
                        told.set_result(effect.message)

    def end(self, why: str) -> None:
        """Fail everything that waits: there will be no answer."""
        self._session = 0
        refusal = Refusal(Code.STORAGE_FAILED, why, SECOND)
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(refusal)
        waiting, self._waiting = self._waiting, {}
        for told in [told for each in waiting.values() for told in each]:
            if not told.done():
                told.set_exception(Refused(refusal))

    def _open(self) -> int:
        if not self._session:
            self._session = self.broker.open_session(self)
        return self._session

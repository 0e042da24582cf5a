"""The hand: takes messages off a queue for somebody who wants to look at them.

Owns a session of the broker for as long as that takes. What it holds when it is closed goes back to
its place.
"""

from __future__ import annotations

import asyncio
from itertools import count

from jackalope.broker.access import acting
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.commands import (
    AnyCommand,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Held,
    ReleaseAttempts,
    Verdict,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment, Effect, NothingToClaim, Reply
from jackalope.core.messaging import TakeTask
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef, Error
from jackalope.doors.http.management.words import problem_of

#: What can become of messages that were looked at.
MODES = ("ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false")

_REJECTED = Error("Rejected", "it was rejected over the management API")


class Hand:
    """Takes messages of one queue, or of one key of a pool, one by one."""

    def __init__(self, broker: Broker, namespace: str, queue: str, key: str | None = None) -> None:
        self._broker = broker
        self._namespace = namespace
        self._queue = queue
        self._key = key
        self._refs = count(1)
        self._told: asyncio.Queue[Assignment | Reply] = asyncio.Queue()
        self._held: list[Assignment] = []
        self._session = broker.open_session(self)

    async def take(self) -> tuple[Assignment, int] | None:
        """Take the next message, and tell how many are left; None if there is none.

        Raises:
            Problem: the broker refuses.
        """
        told = await self._ask(
            TakeTask(
                queue=self._queue,
                key=self._key,
                consumer=f"management-{self._session}",
                namespace=self._namespace,
            )
        )
        if not isinstance(told, Assignment):
            return None
        self._held.append(told)
        queue = self._broker.engine.core.book.queue(self._namespace, self._queue)
        return told, 0 if queue is None else queue.line.size

    async def body_of(self, given: Assignment) -> bytes:
        """Return the body of a message, wherever it is kept."""
        payload, blobs = given.payload, self._broker.blobs
        if not isinstance(payload, BlobRef):
            return payload
        ref = payload
        return await blobs.off_loop(lambda: b"".join(blobs.read(ref)))

    async def answer(self, mode: str) -> None:
        """Give back what was taken, or be done with it, and wait until that is so.

        Raises:
            Problem: the broker refuses.
        """
        held, self._held = self._held, []
        if not held:
            return
        command: AnyCommand
        if mode.endswith("requeue_true"):
            command = ReleaseAttempts(attempts=[Held(each.task, each.fence) for each in held])
        elif mode == "ack_requeue_false":
            command = FinishAttempts(attempts=[Finish(each.task, each.fence) for each in held])
        else:
            fails = [Fail(each.task, each.fence, _REJECTED, Verdict.REJECT) for each in held]
            command = FailAttempts(attempts=fails)
        await self._ask(command)

    def close(self) -> None:
        """Let go."""
        self._broker.close_session(self._session)

    async def _ask(self, command: AnyCommand) -> Assignment | None:
        """Ask something, and return the message if there is one."""
        ref = next(self._refs)
        command.session, command.ref = self._session, ref
        refusal = self._broker.post(command, acting.get())
        if refusal is not None:
            raise problem_of(Refused(refusal))
        while True:
            told = await self._told.get()
            if isinstance(told, Assignment):
                return told
            if told.ref != ref:
                continue
            if isinstance(told.body, Refusal):
                raise problem_of(Refused(told.body))
            if isinstance(told.body, NothingToClaim) or not isinstance(command, TakeTask):
                return None

    # The broker's side.

    def deliver(self, effects: list[Effect]) -> None:
        """Take what the broker has for this session."""
        for effect in effects:
            if isinstance(effect, Reply):
                self._told.put_nowait(effect)
            elif isinstance(effect.message, Assignment):
                self._told.put_nowait(effect.message)

    def end(self, why: str) -> None:
        """Hear that there will be no answer."""
        refusal = Refusal(Code.STORAGE_FAILED, why, SECOND)
        self._told.put_nowait(Reply(self._session, 0, refusal))

"""Sessions inside the broker's process: commands go out, replies come back to those who asked.

Owns the number of one session, the references of its commands, and who waits for which reply.
`LocalSession` only sends commands; `LocalWorker` holds attempts as well. Both belong to doors and
services that share the broker's loop. They know neither sockets nor requests.

A session is over when it is closed or when the broker ends it, because the core was rebuilt after a
full disk. Everything that waits is refused then, and so is everything that is asked later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count

from jackalope.broker.access import THE_BROKER, Principal, Stay, acting
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.assertions import must
from jackalope.core.commands import (
    Answer,
    AnswerSignal,
    AnyCommand,
    Heartbeat,
    Held,
    ReleaseAttempts,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import (
    Answered,
    Assignment,
    DrainAsked,
    Effect,
    LeaseLost,
    Message,
    Reply,
    SessionReplaced,
    SignalAsked,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.task_log import LogLine, LogsKept


class LocalSession:
    """One session of the broker."""

    def __init__(self, broker: Broker, who: Principal | None = None) -> None:
        self.broker = broker
        self.who = who  # on whose behalf it asks; None for the client of the present request
        self.session = 0  # its number; 0 unless it is open
        self._refs = count(1)
        self._asked: dict[int, asyncio.Future[Answered]] = {}
        self._over = Refusal(Code.UNKNOWN_SESSION, "this session is not open")

    def open(self) -> None:
        if not self.session:
            self.session = self.broker.open_session(self)

    async def ask(
        self, command: AnyCommand, items: int = 1, who: Principal | None = None
    ) -> Answered:
        """Send a command to the broker, and return its reply once it is durable."""
        answer = self._send(command, items, who)
        ref = command.ref
        try:
            body = await answer
        finally:
            self._asked.pop(ref, None)
        if isinstance(body, Refusal):
            raise Refused(body)
        return body

    def post(self, command: AnyCommand) -> None:
        """Send a command that follows from an admitted one. Its reply is not awaited."""
        if self.session:
            command.session = self.session
            self.broker.post(command, self.who or THE_BROKER)

    def close(self, why: str = "the session is closed") -> None:
        """Close the session, and refuse pending requests."""
        if self.session:
            self.broker.close_session(self.session)
        self.end(why)

    def refuse(self, refusal: Refusal) -> None:
        """Refuse all pending and future requests."""
        self.session, self._over = 0, refusal
        for ref in self._asked:
            self._resolve(ref, refusal)

    def _send(
        self, command: AnyCommand, items: int = 1, who: Principal | None = None
    ) -> asyncio.Future[Answered]:
        """Send a command; the caller removes its reference from `_asked` in the end."""
        if not self.session:
            raise Refused(self._over)
        command.session, command.ref = self.session, next(self._refs)
        refusal = self.broker.post(command, who or self.who or acting.get(), items)
        if refusal is not None:
            raise Refused(refusal)
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._asked[command.ref] = answer
        return answer

    def _resolve(self, ref: int, body: Answered) -> None:
        answer = self._asked.get(ref)
        if answer is not None and not answer.done():
            answer.set_result(body)

    # The broker's side.

    def deliver(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._resolve(effect.ref, effect.body)
            else:
                self.on_message(effect.message)

    def end(self, why: str) -> None:
        self.refuse(Refusal(Code.STORAGE_FAILED, why, SECOND))

    def on_message(self, message: Message) -> None:
        """Handle a message that is not a reply."""


class LocalWorker(LocalSession):
    """One session of the broker that is assigned tasks."""

    _stay: Stay | None = None

    def stay(self, who: Principal) -> None:
        """End the session when the client would no longer be accepted."""
        must(self._stay is None, "a worker comes in once")
        self._stay = self.broker.access.stay(who, self.on_sent_away)

    def heartbeat(self) -> None:
        self.post(Heartbeat())

    def release(self, attempts: Sequence[Assignment | Held]) -> None:
        if attempts:
            held = [Held(each.task, each.fence) for each in attempts]
            self.post(ReleaseAttempts(attempts=held))

    async def keep_logs(self, held: Held, lines: list[LogLine], last: int) -> LogsKept:
        """Keep lines of an attempt, and return what became of them; raises `Refused`."""
        done: asyncio.Future[LogsKept] = asyncio.get_running_loop().create_future()

        def told(kept: LogsKept) -> None:
            if not done.done():
                done.set_result(kept)

        key = (held.task, held.fence)
        refusal = self.broker.logs.take(self.session, key, lines, last, told)
        if refusal is not None:
            raise Refused(refusal)
        return await done

    def answer_signal(self, asked: SignalAsked, answer: Answer, detail: str = "") -> None:
        command = AnswerSignal(
            ref=0, task=asked.task, fence=asked.fence, answer=answer, detail=detail
        )
        self.post(command)

    def refuse(self, refusal: Refusal) -> None:
        super().refuse(refusal)
        if self._stay is not None:
            self.broker.access.leave(self._stay)

    def on_message(self, message: Message) -> None:
        if isinstance(message, Assignment):
            self.on_assignment(message)
        elif isinstance(message, SignalAsked):
            self.on_signal(message)
        elif isinstance(message, DrainAsked):
            self.on_drain()
        elif isinstance(message, SessionReplaced):
            self.on_replaced()
        elif isinstance(message, LeaseLost):
            self.on_lease_lost()

    def on_assignment(self, given: Assignment) -> None:
        """Take a task."""

    def on_signal(self, asked: SignalAsked) -> None:
        """Take a signal for a task."""

    def on_drain(self) -> None:
        """Handle that the worker is assigned nothing more."""

    def on_replaced(self) -> None:
        """Handle that the worker has joined over another session."""

    def on_lease_lost(self) -> None:
        """Handle that the lease expired and the worker holds nothing any more."""

    def on_sent_away(self) -> None:
        """Handle that the API key expired or was revoked."""

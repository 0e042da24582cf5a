"""The session of a worker: messages of its socket become commands, effects become jobs.

Owns the name, the lease and the one job of a connected worker. Knows nothing of sockets. The lease
is that of the connection: as long as it is open the worker counts as alive, however long it is
silent, because a worker of GridLike has no heartbeat.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from jackalope.broker.access import THE_BROKER, Principal, Stay
from jackalope.broker.queries import Refused
from jackalope.core.api_key import Permission
from jackalope.core.commands import (
    Answer,
    AnswerSignal,
    AnyCommand,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Heartbeat,
    Held,
    JoinWorker,
    ReleaseAttempts,
    ReportProgress,
    StartAttempts,
    Verdict,
)
from jackalope.core.effects import (
    Answered,
    Assignment,
    Effect,
    Joined,
    LeaseLost,
    Reply,
    SendToSession,
    SessionReplaced,
    SignalAsked,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import Body, Error, Signal
from jackalope.doors.http.gridlike.context import Entry

if TYPE_CHECKING:
    from jackalope.doors.http.gridlike.context import Grid

_LABEL_CHARS_MAX = 64

#: More than it takes from the end of a connection to the end of its session.
_ROUNDS_OF_NEWS = 20


class Goodbye(Exception):
    """The connection ends, and why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Job(msgspec.Struct, eq=False):
    """What the worker has: the attempt, and what it last said about it."""

    held: Held
    payload: Body = b""
    percent: float | None = None
    info: str = ""


class WorkerSession:
    """One session of the broker, for one worker."""

    def __init__(self, grid: Grid, entry: Entry, on_job: Callable[[Job], None]) -> None:
        self._grid = grid
        self._entry = entry
        self._on_job = on_job
        self._broker = grid.broker
        self._session = 0
        self._refs = count(1)
        self._asked: dict[int, asyncio.Future[Answered]] = {}
        self._ended = asyncio.Event()
        self._goodbye: Goodbye | None = None
        #: Who has come in with an API key; the broker for a worker with the configured token.
        self._principal = THE_BROKER
        self._stay: Stay | None = None
        self.job: Job | None = None  # what the worker holds the lease on
        self.is_ready = False  # whether the broker may give it one

    # Coming and going.

    def admit(self, token: str) -> str:
        """Check the token of a worker, and return what is wrong with it, if anything."""
        wanted = self._grid.settings.token
        if wanted and hmac.compare_digest(token.encode(), wanted.encode()):
            return ""
        access = self._broker.access
        principal = access.admit(token, self._broker.now_us())
        if not isinstance(principal, Principal) or (wanted and access.is_open):
            return "token: not the right one"
        refusal = principal.refuse(Permission.WORK, self._grid.namespace)
        refusal = refusal or principal.refuse_queues([self._entry.queue])
        if refusal is not None:
            return refusal.message
        self._principal = principal
        self._stay = access.stay(principal, self._send_away)
        return ""

    def _send_away(self) -> None:
        self._end(1008, "the API key of this worker is over")

    async def open(self) -> None:
        """Let the worker join, with the job that it comes back with, if any.

        Raises:
            Refused: the broker does not let it in.
        """
        entry = self._entry
        # If it was here before, the end of that connection has arrived before it came again; it may
        # still be on its way through the loop, and must not be overtaken.
        for _ in range(_ROUNDS_OF_NEWS):
            await asyncio.sleep(0)
        roll = self._grid.roll
        holding = await self._broker.read(lambda engine: roll.identify(engine.core, entry))
        self._session = self._broker.open_session(self)
        answered = await self._ask(self._joining(holding=holding))
        if isinstance(answered, Joined) and answered.resumed:
            self._take(Job(answered.resumed[0]))

    def close(self) -> None:
        """Give the session up. When the door closes, jobs wait for their workers to come back."""
        if self._session and not self._grid.door.closing.is_set():
            self._broker.close_session(self._session)
        self._session = 0
        if self._stay is not None:
            self._broker.access.leave(self._stay)
        for answer in self._asked.values():
            answer.cancel()

    async def ended(self) -> None:
        """Wait until the broker gives up the session.

        Raises:
            Goodbye: with the reason.
        """
        await self._ended.wait()
        if self._goodbye is not None:
            raise self._goodbye

    def heartbeat(self) -> None:
        """Send the broker a heartbeat of the worker."""
        self._post(Heartbeat())

    def set_ready(self, *, is_ready: bool) -> None:
        """Report to the broker whether the worker can be given a job."""
        if is_ready is not self.is_ready:
            self.is_ready = is_ready
            self._post(self._joining())

    # The job.

    def start(self, job: Job) -> None:
        """Note that the worker has the payload."""
        if job is self.job:
            self._post(StartAttempts(attempts=[job.held]))

    def progress(self, percent: float | None, info: str | None) -> None:
        """Report the progress of the job; what is left out stays as it was."""
        job = self.job
        if job is None:
            return
        job.percent = job.percent if percent is None else percent
        job.info = job.info if info is None else info
        task, fence = job.held.task, job.held.fence
        self._post(ReportProgress(task=task, fence=fence, percent=job.percent, note=job.info))

    def release(self) -> None:
        """Give the job back: the worker no longer runs it."""
        job = self._drop()
        if job is not None:
            self._post(ReleaseAttempts(attempts=[job.held]))

    async def finish(self, job: Job, result: Body) -> None:
        """End the job with its result, and wait until that is durable."""
        self._drop()
        await self._ask(FinishAttempts(attempts=[Finish(job.held.task, job.held.fence, result)]))

    async def fail(self, error: Error) -> None:
        """End the attempt with a failure; another worker may try."""
        await self._fail(error, Verdict.RETRY)

    async def give_up(self, error: Error) -> None:
        """End the job with a failure that no other try would mend."""
        await self._fail(error, Verdict.DEAD)

    async def _fail(self, error: Error, verdict: Verdict) -> None:
        job = self._drop()
        if job is not None:
            fail = Fail(job.held.task, job.held.fence, error, verdict)
            await self._ask(FailAttempts(attempts=[fail]))

    def _take(self, job: Job) -> None:
        self.job, self._entry.job = job, job.held.task

    def _drop(self) -> Job | None:
        """Drop the job; no other is given until the worker reports that it is ready."""
        self.set_ready(is_ready=False)
        job, self.job, self._entry.job = self.job, None, None
        return job

    # The broker's side.

    def deliver(self, effects: list[Effect]) -> None:
        """Take the effects of the broker."""
        for effect in effects:
            if isinstance(effect, SendToSession):
                self._on_message(effect.message)
            else:
                self._on_reply(effect)

    def end(self, why: str) -> None:
        """Let the connection end: the broker no longer knows the session."""
        self._session = 0
        self._end(1012, why)

    def _on_reply(self, reply: Reply) -> None:
        answer = self._asked.pop(reply.ref, None)
        if answer is not None and not answer.done():
            answer.set_result(reply.body)

    def _on_message(self, message: object) -> None:
        if isinstance(message, Assignment):
            job = Job(Held(message.task, message.fence), message.payload)
            self._take(job)
            self._on_job(job)
        elif isinstance(message, SignalAsked):
            self._on_signal(message)
        elif isinstance(message, SessionReplaced):
            self._end(1008, "another worker has joined with this name")
        elif isinstance(message, LeaseLost):
            self._end(1012, "the broker was away for too long; connect again")
        # A drained worker is given no more, and the protocol has no message for that.

    def _on_signal(self, asked: SignalAsked) -> None:
        """Answer for the worker, which has no word for signals: it loses the job, or keeps it."""
        answer, detail = Answer.STOPPED, "the job was taken from its worker"
        if asked.signal is Signal.PAUSE:
            answer, detail = Answer.REFUSED, "a worker of GridLike cannot pause a job"
        elif self.job is not None and self.job.held == Held(asked.task, asked.fence):
            self._drop()
        self._post(AnswerSignal(task=asked.task, fence=asked.fence, answer=answer, detail=detail))

    def _end(self, code: int, why: str) -> None:
        self._goodbye = self._goodbye or Goodbye(code, why)
        self._ended.set()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(Refusal(Code.UNKNOWN_SESSION, why))

    # Commands.

    def _joining(self, holding: list[Held] | None = None) -> JoinWorker:
        entry, settings = self._entry, self._grid.settings
        return JoinWorker(
            worker=entry.worker,
            queues=(entry.queue,),
            labels={"door": "gridlike", "id": entry.id, "name": entry.name[:_LABEL_CHARS_MAX]},
            holding=holding or [],
            namespace=settings.namespace,
            grace_us=settings.reconnect_grace_us,
            ready=self.is_ready,
        )

    def _post(self, command: AnyCommand) -> Refusal | None:
        if not self._session:
            return None
        command.session = self._session
        return self._broker.post(command, self._principal)

    async def _ask(self, command: AnyCommand) -> Answered:
        """Hand a command to the broker, and return its answer."""
        if not self._session:
            raise Refused(Refusal(Code.UNKNOWN_SESSION, "the broker has ended this session"))
        command.ref = next(self._refs)
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._asked[command.ref] = answer
        body = self._post(command) or await answer
        if isinstance(body, Refusal):
            raise Refused(body)
        return body

"""The session of a worker: messages of its socket become commands, effects become jobs.

Owns the name, the lease and the one job of a connected worker. Knows nothing of sockets. The lease
is that of the connection: as long as it is open the worker counts as alive, however long it is
silent, because a worker of GridLike has no heartbeat.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from jackalope.broker.access import THE_BROKER, Principal
from jackalope.broker.local_session import LocalWorker
from jackalope.broker.queries import read_leases
from jackalope.core.api_key import Permission
from jackalope.core.commands import (
    Answer,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Held,
    JoinWorker,
    ReportProgress,
    StartAttempts,
    Verdict,
)
from jackalope.core.effects import Assignment, Joined, SignalAsked
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


class WorkerSession(LocalWorker):
    """One session of the broker, for one worker."""

    def __init__(self, grid: Grid, entry: Entry, on_job: Callable[[Job], None]) -> None:
        # A worker with the configured token acts for the broker; with an API key, for its owner.
        super().__init__(grid.broker, THE_BROKER)
        self._grid = grid
        self._entry = entry
        self._on_job = on_job
        self._ended = asyncio.Event()
        self._goodbye: Goodbye | None = None
        self.job: Job | None = None  # what the worker holds the lease on
        self.is_ready = False  # whether the broker may give it one

    # Coming and going.

    def admit(self, token: str) -> str:
        """Check the token of a worker, and return what is wrong with it, if anything."""
        wanted = self._grid.settings.token
        if wanted and hmac.compare_digest(token.encode(), wanted.encode()):
            return ""
        access = self.broker.access
        principal = access.admit(token, self.broker.now_us())
        if not isinstance(principal, Principal) or (wanted and access.is_open):
            return "token: invalid"
        refusal = principal.refuse(Permission.WORK, self._grid.namespace)
        refusal = refusal or principal.refuse_queues([self._entry.queue])
        if refusal is not None:
            return refusal.message
        self.who = principal
        self.stay(principal)
        return ""

    async def join(self) -> None:
        """Let the worker join, with the job that it comes back with, if any."""
        entry = self._entry
        # If it was here before, the end of that connection has arrived before it came again; it may
        # still be on its way through the loop, and must not be overtaken.
        for _ in range(_ROUNDS_OF_NEWS):
            await asyncio.sleep(0)
        grid = self._grid
        holding = await read_leases(
            self.broker, grid.namespace, lambda leases: grid.roll.identify(leases, entry)
        )
        self.open()
        answered = await self.ask(self._joining(holding=holding))
        if isinstance(answered, Joined) and answered.resumed:
            self._take(Job(answered.resumed[0]))

    def close(self, why: str = "the session is closed") -> None:
        """Give the session up. When the door closes, jobs wait for their workers to come back."""
        if self._grid.door.closing.is_set():
            self.end(why)
        else:
            super().close(why)

    async def ended(self) -> None:
        """Wait until the broker gives up the session."""
        await self._ended.wait()
        if self._goodbye is not None:
            raise self._goodbye

    def set_ready(self, *, is_ready: bool) -> None:
        """Report to the broker whether the worker can be given a job."""
        if is_ready is not self.is_ready:
            self.is_ready = is_ready
            self.post(self._joining())

    # The job.

    def start(self, job: Job) -> None:
        """Note that the worker has the payload."""
        if job is self.job:
            self.post(StartAttempts(ref=0, attempts=[job.held]))

    def progress(self, percent: float | None, info: str | None) -> None:
        """Report the progress of the job; what is left out stays as it was."""
        job = self.job
        if job is None:
            return
        job.percent = job.percent if percent is None else percent
        job.info = job.info if info is None else info
        task, fence = job.held.task, job.held.fence
        self.post(ReportProgress(ref=0, task=task, fence=fence, percent=job.percent, note=job.info))

    def give_back(self) -> None:
        """Give the job back: the worker no longer runs it."""
        job = self._drop()
        if job is not None:
            self.release([job.held])

    async def finish(self, job: Job, result: Body) -> None:
        """End the job with its result, and wait until that is durable."""
        self._drop()
        await self.ask(FinishAttempts(attempts=[Finish(job.held.task, job.held.fence, result)]))

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
            await self.ask(FailAttempts(attempts=[fail]))

    def _take(self, job: Job) -> None:
        self.job, self._entry.job = job, job.held.task

    def _drop(self) -> Job | None:
        """Drop the job; no other is given until the worker reports that it is ready."""
        self.set_ready(is_ready=False)
        job, self.job, self._entry.job = self.job, None, None
        return job

    # The broker's side.

    def on_assignment(self, given: Assignment) -> None:
        job = Job(Held(given.task, given.fence), given.payload)
        self._take(job)
        self._on_job(job)

    def on_signal(self, asked: SignalAsked) -> None:
        """Answer for the worker, which has no word for signals: it loses the job, or keeps it."""
        answer, detail = Answer.STOPPED, "the job was taken from its worker"
        if asked.signal is Signal.PAUSE:
            answer, detail = Answer.REFUSED, "a worker of GridLike cannot pause a job"
        elif self.job is not None and self.job.held == Held(asked.task, asked.fence):
            self._drop()
        self.answer_signal(asked, answer, detail)

    def on_replaced(self) -> None:
        self._give_up(1008, "another worker has joined with this name")

    def on_lease_lost(self) -> None:
        self._give_up(1012, "the broker was unreachable for too long; connect again")

    def on_sent_away(self) -> None:
        self._give_up(1008, "the API key of this worker expired or was revoked")

    # A drained worker is given no more, and the protocol has no message for that.

    def _give_up(self, code: int, why: str) -> None:
        """Let the connection end with a code and a reason."""
        self._goodbye = self._goodbye or Goodbye(code, why)
        self.close(why)

    def end(self, why: str) -> None:
        self._goodbye = self._goodbye or Goodbye(1012, why)
        self._ended.set()
        self.refuse(Refusal(Code.UNKNOWN_SESSION, why))

    # Commands.

    def _joining(self, holding: list[Held] | None = None) -> JoinWorker:
        entry, settings = self._entry, self._grid.settings
        return JoinWorker(
            ref=0,
            worker=entry.worker,
            queues=(entry.queue,),
            labels={"door": "gridlike", "id": entry.id, "name": entry.name[:_LABEL_CHARS_MAX]},
            holding=holding or [],
            namespace=settings.namespace,
            grace_us=settings.reconnect_grace_us,
            ready=self.is_ready,
        )

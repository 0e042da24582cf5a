"""The fleet: workers that have nothing but HTTP.

Owns one session of the broker for each of them, and the claims that wait. Such a worker has no
connection to lose: it lives by its requests. Each of them proves it alive, an open claim goes on
proving it, and its lease ends when it is silent. Theory of operation:

1. The first request of a worker opens its session and joins. So does the first after a restart of
   the broker: what the book lists as held by the worker is then taken to be still running, because
   its fences prove every later report. A worker that starts again sends `join`: what it does not
   name is given to others.
2. A claim waits for tasks. The client may be gone by the time they come: then what is left of the
   claim is cancelled, and what was given for it is handed back at once.
3. Signals and the request to drain wait for the next request of the worker, whatever it is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from jackalope.broker.access import THE_BROKER, Principal, acting, sees
from jackalope.broker.engine import Engine
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.commands import (
    Answer,
    AnswerSignal,
    AnyCommand,
    CancelClaim,
    ClaimTasks,
    Heartbeat,
    Held,
    JoinWorker,
    LeaveWorker,
    ReleaseAttempts,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import (
    Answered,
    Assignment,
    DrainAsked,
    Effect,
    Joined,
    LeaseLost,
    Reply,
    SessionReplaced,
    SignalAsked,
)
from jackalope.core.ids import TaskId
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import Body, lease_of
from jackalope.doors.http.session import of_kind

LEASE_US_DEFAULT = 30 * SECOND

#: How often an open claim, or a body on its way, proves its worker alive, in a lease.
_BEATS_PER_LEASE = 3


@dataclass
class _Claim:
    """A claim that waits, and what has been given for it so far."""

    over: asyncio.Future[Refusal | None]
    assignments: list[Assignment] = field(default_factory=list)


class HttpWorker:
    """A worker over HTTP: the outlet of its session."""

    def __init__(self, broker: Broker, join: JoinWorker) -> None:
        self._broker = broker
        self._join = join
        self._key = acting.get().key
        self._session = broker.open_session(self)
        self._stay = broker.access.stay(acting.get(), self._send_away)
        self._refs = count(1)
        self._asked: dict[int, asyncio.Future[Answered]] = {}
        self._claims: dict[int, _Claim] = {}
        self._signals: dict[TaskId, SignalAsked] = {}
        self._touched_us = 0
        self._ended: Refusal | None = None
        self.is_draining = False  # it must finish what it has, and claim nothing more
        self.is_gone = False

    def is_of(self, principal: Principal) -> bool:
        """Return whether it came in with the key of a principal."""
        return self._key == principal.key

    # Asking.

    async def ask(self, command: AnyCommand) -> Answered:
        """Hand a command of the worker to the broker, and return its answer."""
        if self._ended is not None:
            raise Refused(self._ended)
        ref = next(self._refs)
        command.session, command.ref = self._session, ref
        refusal = self._broker.post(command, acting.get())
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

    async def join(self) -> Joined:
        """Join, for the first time or again."""
        return of_kind(await self.ask(self._join), Joined)

    async def serve(self, queues: tuple[str, ...], keys: tuple[str, ...], lease_us: int) -> None:
        """See that the worker serves these queues and keys from now on."""
        known = self._join
        if (known.queues, known.keys, known.lease_us) == (queues, keys, lease_us):
            return
        known.queues, known.keys, known.lease_us = queues, keys, lease_us
        known.holding = []  # Over the same session, joining again settles nothing.
        await self.join()

    async def claim(
        self, number: int, wait_us: int, leaving: asyncio.Future[None]
    ) -> list[Assignment]:
        """Wait for tasks; return none if the time is over first, or if the client leaves."""
        if self._ended is not None:
            raise Refused(self._ended)  # Since its last answer; there would not be another one.
        ref = next(self._refs)
        asked = ClaimTasks(session=self._session, ref=ref, count=number, wait_us=wait_us)
        refusal = self._broker.post(asked, acting.get())
        if refusal is not None:
            raise Refused(refusal)
        claim = self._claims[ref] = _Claim(asyncio.get_running_loop().create_future())
        try:
            while not (claim.over.done() or leaving.done()):
                waited: set[asyncio.Future[Any]] = {claim.over, leaving}
                done, _ = await asyncio.wait(
                    waited,
                    timeout=self._join.lease_us / SECOND / _BEATS_PER_LEASE,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    self._post(Heartbeat())
        except BaseException:
            self.hand_back(claim.assignments)
            raise
        finally:
            del self._claims[ref]
            if len(claim.assignments) < number:
                self._post(CancelClaim(claim=ref))
        if leaving.done():
            self.hand_back(claim.assignments)
            return []
        refusal = claim.over.result()
        if refusal is not None and not claim.assignments:
            raise Refused(refusal)
        return claim.assignments

    async def payload_of(self, held: Held) -> Body:
        """Return the payload of an attempt of the worker, and take the question for a heartbeat.

        Raises:
            Refused: the attempt is not, or no longer, its own.
        """
        await self.ask(Heartbeat())
        join = self._join
        return await self._broker.read(
            lambda engine: _payload_of(engine, join.namespace, join.worker, held)
        )

    def touch(self) -> None:
        """Prove the worker alive while bytes of its pass, however long that takes."""
        now_us = self._broker.steady_us()
        if now_us - self._touched_us >= self._join.lease_us // _BEATS_PER_LEASE:
            self._touched_us = now_us
            self._post(Heartbeat())

    def hand_back(self, assignments: list[Assignment]) -> None:
        """Give back what never came to the worker."""
        if assignments:
            held = [Held(given.task, given.fence) for given in assignments]
            self._post(ReleaseAttempts(attempts=held))

    def take_signals(self) -> list[SignalAsked]:
        """Return what was asked of the worker since the last time, and note that it was sent."""
        signals, self._signals = list(self._signals.values()), {}
        for asked in signals:
            delivered = AnswerSignal(task=asked.task, fence=asked.fence, answer=Answer.DELIVERED)
            self._post(delivered)
        return signals

    async def leave(self) -> None:
        """Go, and hand back what the worker still holds."""
        await self.ask(LeaveWorker())
        self.close()

    def close(self) -> None:
        """Give the session back."""
        self.is_gone = True
        self._broker.access.leave(self._stay)
        self._broker.close_session(self._session)

    def _send_away(self) -> None:
        """Let the worker go whose key is over; what it holds is given to others after its grace."""
        self.end("the API key is over")
        self.close()

    def _post(self, command: AnyCommand) -> None:
        command.session = self._session
        self._broker.post(command, THE_BROKER)

    # The broker's side.

    def deliver(self, effects: list[Effect]) -> None:
        """Give answers to those who asked, and tasks to those who claim."""
        unwanted: list[Assignment] = []
        for effect in effects:
            if isinstance(effect, Reply):
                self._on_reply(effect)
            elif isinstance(effect.message, Assignment):
                claim = self._claims.get(effect.message.claim)
                (claim.assignments if claim else unwanted).append(effect.message)
            elif isinstance(effect.message, SignalAsked):
                self._signals[effect.message.task] = effect.message
            elif isinstance(effect.message, DrainAsked):
                self.is_draining = True
            elif isinstance(effect.message, SessionReplaced | LeaseLost):
                self.end("the worker was silent for too long, or has joined again")
        self.hand_back(unwanted)
        for claim in self._claims.values():
            if claim.assignments and not claim.over.done():
                claim.over.set_result(None)

    def end(self, why: str) -> None:
        """Fail everything that waits: the session is over."""
        self.is_gone = True
        self._broker.access.leave(self._stay)
        refusal = self._ended = Refusal(Code.STALE_SESSION, f"{why}; claim again")
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(refusal)
        for claim in self._claims.values():
            if not claim.over.done():
                claim.over.set_result(refusal)

    def _on_reply(self, reply: Reply) -> None:
        answer = self._asked.get(reply.ref)
        if answer is not None and not answer.done():
            answer.set_result(reply.body)
        claim = self._claims.get(reply.ref)
        if claim is not None and not claim.over.done():
            claim.over.set_result(reply.body if isinstance(reply.body, Refusal) else None)


class Fleet:
    """All workers over HTTP, by namespace and name."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._workers: dict[tuple[str, str], HttpWorker] = {}
        self._joining: dict[tuple[str, str], asyncio.Lock] = {}

    async def join(self, join: JoinWorker) -> Joined:
        """Join a worker that starts again: what it does not name as held is given to others.

        Raises:
            Refused: it is not let in.
        """
        async with self._lock(join.namespace, join.worker):
            self._owned(join.namespace, join.worker)
            _, joined = await self._enter(join)
            return joined

    async def worker(self, namespace: str, name: str, queues: tuple[str, ...] = ()) -> HttpWorker:
        """Return a worker. An unknown one joins with what the book lists as held by it."""
        known = self._owned(namespace, name)
        if known is not None:
            return known
        async with self._lock(namespace, name):
            known = self._owned(namespace, name)
            if known is not None:
                return known
            holding, held_queues = await self._broker.read(
                lambda engine: _leases_of(engine, namespace, name)
            )
            join = JoinWorker(
                worker=name,
                queues=queues or held_queues,
                slots=0,
                holding=holding,
                namespace=namespace,
                lease_us=LEASE_US_DEFAULT,
            )
            if not join.queues:
                message = f"worker {name!r} is not known, or was silent for too long; claim first"
                raise Refused(Refusal(Code.UNKNOWN_WORKER, message))
            worker, _ = await self._enter(join)
            return worker

    def close(self) -> None:
        """Notify every waiting worker that the door closes."""
        for worker in self._workers.values():
            worker.end("the broker stops")
        self._workers.clear()

    def _owned(self, namespace: str, name: str) -> HttpWorker | None:
        worker = self._workers.get((namespace, name))
        if worker is None or worker.is_gone:
            return None
        if not worker.is_of(acting.get()):
            message = f"worker {name!r} came in with another API key; choose another name"
            raise Refused(Refusal(Code.FORBIDDEN, message))
        return worker

    async def _enter(self, join: JoinWorker) -> tuple[HttpWorker, Joined]:
        worker = HttpWorker(self._broker, join)
        try:
            joined = await worker.join()
        except BaseException:
            worker.close()
            raise
        self._workers[join.namespace, join.worker] = worker
        self._forget_gone()
        return worker, joined

    def _forget_gone(self) -> None:
        """Drop those that are gone, now and then: when they are half of all."""
        gone = [name for name, worker in self._workers.items() if worker.is_gone]
        if 2 * len(gone) > len(self._workers):
            for name in gone:
                del self._workers[name]

    def _lock(self, namespace: str, name: str) -> asyncio.Lock:
        """Return what keeps two requests of one worker from joining at once."""
        if len(self._joining) > 1_000:
            self._joining = {n: lock for n, lock in self._joining.items() if lock.locked()}
        return self._joining.setdefault((namespace, name), asyncio.Lock())


def _payload_of(engine: Engine, namespace: str, worker: str, held: Held) -> Body:
    known = engine.core.roster.workers.get((namespace, worker))
    task = None if known is None else known.held.get(held.task)
    if task is None or lease_of(task).fence != held.fence:
        message = f"fence {held.fence} is not the present lease of task {held.task.hex()}"
        raise Refused(Refusal(Code.STALE_FENCE, f"{message}; stop working on it"))
    return task.payload


def _leases_of(engine: Engine, namespace: str, worker: str) -> tuple[list[Held], tuple[str, ...]]:
    """Return what a worker holds, and the queues of that."""
    known = engine.core.roster.workers.get((namespace, worker))
    if known is not None and not any(map(sees, known.queues)):
        return [], ()  # To a key of other queues it is not there.
    if known is not None and known.session:
        message = f"worker {worker!r} works over another connection; choose another name"
        raise Refused(Refusal(Code.STALE_SESSION, message))
    ns = engine.core.book.namespaces.get(namespace)
    tasks = list(ns.leases.get(worker, {}).values()) if ns is not None else []
    holding = [Held(task.id, lease_of(task).fence) for task in tasks]
    return holding, tuple(sorted({task.queue.name for task in tasks}))

"""Workers over HTTP: a session for each.

Owns the claims of workers that wait. Decides nothing.

A worker that has nothing but HTTP has no connection to lose: it lives by its requests. Each of them
proves it alive, an open claim goes on proving it, and its lease ends when it is silent. Theory of
operation:

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
from typing import Any

from msgspec.structs import replace

from jackalope.broker.access import Principal, acting
from jackalope.broker.client_session import of_kind
from jackalope.broker.local_session import LocalWorker
from jackalope.broker.queries import Refused, leased_payload, leases_of
from jackalope.broker.service import Broker
from jackalope.core.commands import (
    Answer,
    CancelClaim,
    ClaimTasks,
    Heartbeat,
    Held,
    JoinWorker,
    LeaveWorker,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Assignment, Effect, Joined, SignalAsked
from jackalope.core.ids import TaskId
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import Body

LEASE_US_DEFAULT = 30 * SECOND

#: How often an open claim, or a body on its way, proves its worker alive, in a lease.
_BEATS_PER_LEASE = 3


class HttpWorker(LocalWorker):
    """A worker over HTTP."""

    def __init__(self, broker: Broker, join: JoinWorker) -> None:
        super().__init__(broker)
        self._join = join
        self._key = acting.get().key
        self._claims: dict[int, list[Assignment]] = {}
        self._signals: dict[TaskId, SignalAsked] = {}
        self._touched_us = 0
        self.is_draining = False  # it must finish what it has, and claim nothing more
        self.open()
        self.stay(acting.get())

    @property
    def is_gone(self) -> bool:
        return not self.session

    def is_of(self, principal: Principal) -> bool:
        """Return whether it came in with the key of a principal."""
        return self._key == principal.key

    # Asking.

    async def join(self) -> Joined:
        """Join, for the first time or again."""
        # A copy: two requests of the worker may join at once.
        return of_kind(await self.ask(replace(self._join)), Joined)

    async def serve(self, **asked: Any) -> None:
        """See that the worker joins with these fields from now on; None leaves one as it is."""
        known = self._join
        changed = {
            name: value
            for name, value in asked.items()
            if value is not None and value != getattr(known, name)
        }
        if not changed:
            return
        for name, value in changed.items():
            setattr(known, name, value)
        known.holding = []  # Over the same session, joining again settles nothing.
        await self.join()

    async def claim(
        self, number: int, wait_us: int, leaving: asyncio.Future[None]
    ) -> list[Assignment]:
        """Wait for tasks; return none if the time is over first, or if the client leaves."""
        asked = ClaimTasks(ref=0, count=number, wait_us=wait_us)
        over, ref = self._send(asked), asked.ref
        assignments = self._claims[ref] = []
        try:
            while not (over.done() or leaving.done()):
                waited: set[asyncio.Future[Any]] = {over, leaving}
                done, _ = await asyncio.wait(
                    waited,
                    timeout=self._join.lease_us / SECOND / _BEATS_PER_LEASE,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    self.heartbeat()
        except BaseException:
            self.release(assignments)
            raise
        finally:
            del self._claims[ref], self._asked[ref]
            if len(assignments) < number:
                self.post(CancelClaim(claim=ref))
        if leaving.done():
            self.release(assignments)
            return []
        body = over.result()
        if isinstance(body, Refusal) and not assignments:
            raise Refused(body)
        return assignments

    async def payload_of(self, held: Held, node: str = "") -> Body:
        """Return the payload of an attempt of the worker, and take the question for a heartbeat.

        With the name of a node of its flow: what that one left for it.
        """
        await self.ask(Heartbeat())
        return await leased_payload(self.broker, self.session, held, node)

    def touch(self) -> None:
        """Prove the worker alive while bytes of its pass, however long that takes."""
        now_us = self.broker.steady_us()
        if now_us - self._touched_us >= self._join.lease_us // _BEATS_PER_LEASE:
            self._touched_us = now_us
            self.heartbeat()

    def take_signals(self) -> list[SignalAsked]:
        """Return what was asked of the worker since the last time, and note that it was sent."""
        signals, self._signals = list(self._signals.values()), {}
        for asked in signals:
            self.answer_signal(asked, Answer.DELIVERED)
        return signals

    async def leave(self) -> None:
        """Go, and hand back what the worker still holds."""
        await self.ask(LeaveWorker())
        self.close("the worker has left")

    # The broker's side.

    def deliver(self, effects: list[Effect]) -> None:
        super().deliver(effects)
        for ref, assignments in self._claims.items():
            if assignments:
                self._resolve(ref, Accepted())

    def end(self, why: str) -> None:
        self.refuse(Refusal(Code.STALE_SESSION, f"{why}; claim again"))

    def on_assignment(self, given: Assignment) -> None:
        assignments = self._claims.get(given.claim)
        if assignments is None:
            self.release([given])  # Its client has gone meanwhile.
        else:
            assignments.append(given)

    def on_signal(self, asked: SignalAsked) -> None:
        self._signals[asked.task] = asked

    def on_drain(self) -> None:
        self.is_draining = True

    def on_replaced(self) -> None:
        self.close("the worker's lease expired, or it has joined again")

    on_lease_lost = on_replaced

    def on_sent_away(self) -> None:
        """Let the worker go; what it holds is given to others after its grace."""
        self.close("the API key is over")


class Fleet:
    """All workers over HTTP, by namespace and name."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._workers: dict[tuple[str, str], HttpWorker] = {}
        self._joining: dict[tuple[str, str], asyncio.Lock] = {}

    async def join(self, join: JoinWorker) -> Joined:
        """Join a worker that starts again: what it does not name as held is given to others."""
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
            holding, held_queues = await leases_of(self._broker, namespace, name)
            join = JoinWorker(
                ref=0,
                worker=name,
                queues=queues or held_queues,
                slots=0,
                holding=holding,
                namespace=namespace,
                lease_us=LEASE_US_DEFAULT,
            )
            if not join.queues:
                message = f"worker {name!r} is unknown, or its lease expired; claim first"
                raise Refused(Refusal(Code.UNKNOWN_WORKER, message))
            worker, _ = await self._enter(join)
            return worker

    def close(self) -> None:
        """Notify every waiting worker that the door closes."""
        for worker in self._workers.values():
            worker.end("the broker is shutting down")
        self._workers.clear()

    def _owned(self, namespace: str, name: str) -> HttpWorker | None:
        worker = self._workers.get((namespace, name))
        if worker is None or worker.is_gone:
            return None
        if not worker.is_of(acting.get()):
            message = f"worker {name!r} uses another API key; choose another name"
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

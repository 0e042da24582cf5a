"""Sessions over HTTP: one for all clients of a door, a feed for each reader, one for each worker.

Owns the requests that wait for the end of a task, the events that wait for their reader, and the
claims of workers that wait. Decides nothing. When the broker ends the session of the clients (it
was rebuilt after a full disk), all waiting requests fail, and the next one opens another.

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
from collections import deque
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from jackalope.broker import queries
from jackalope.broker.access import Principal, acting, present
from jackalope.broker.events import Subscription
from jackalope.broker.local_session import LocalSession, LocalWorker
from jackalope.broker.queries import Refused, leased_payload, leases_of
from jackalope.broker.service import Broker
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.commands import (
    Answer,
    AnyCommand,
    CancelClaim,
    ClaimTasks,
    CreateApiKey,
    Heartbeat,
    Held,
    JoinWorker,
    LeaveWorker,
    RevokeApiKey,
    WatchTasks,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import (
    Accepted,
    Answered,
    Assignment,
    Effect,
    Joined,
    Message,
    SignalAsked,
    TaskEnded,
)
from jackalope.core.ids import TaskId
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import Body
from jackalope.wire.messages import Happened

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


# Feeds: events on their way to one reader, and the buffer of them while it is busy. A reader that
# is too slow loses the latest and is sent their number; it never makes the broker wait, nor its
# memory grow.

#: How many events wait for one reader, and how many things it may listen to.
EVENTS_WAITING_MAX = 1_000
TOPICS_MAX = 100

#: A queue, a task, or all of the namespace if both are empty.
Wanted = tuple[str, TaskId]


class Feed:
    """What one reader listens to. Use it as a context: it ends with the block."""

    def __init__(self, broker: Broker, feeds: set[Feed], namespace: str) -> None:
        queries.task.admit(namespace)
        self._broker = broker
        self._feeds = feeds
        self._namespace = namespace
        self._subscriptions: dict[Wanted, Subscription] = {}
        self._waiting: deque[Happened] = deque()
        self._missed = 0
        self._wake = asyncio.Event()
        self.is_over = False

    def __enter__(self) -> Self:
        self._feeds.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._feeds.discard(self)
        for wanted in list(self._subscriptions):
            self.drop(wanted)

    def listen(self, wanted: Wanted) -> None:
        if wanted in self._subscriptions:
            return
        if len(self._subscriptions) >= TOPICS_MAX:
            message = f"a connection has at most {TOPICS_MAX} subscriptions; subscribe to a queue"
            raise Refused(Refusal(Code.TOO_MANY, message))
        queue, task = wanted
        subscription = Subscription(self._take, self._namespace, queue, task)
        self._subscriptions[wanted] = subscription
        self._broker.events.subscribe(subscription)

    def drop(self, wanted: Wanted) -> None:
        """Listen to something no more."""
        subscription = self._subscriptions.pop(wanted, None)
        if subscription is not None:
            self._broker.events.unsubscribe(subscription)

    async def next(self, wait_s: float) -> tuple[list[Happened], int]:
        """Return what happened, and how many events after that were missed; nothing after a while.

        One that is over returns at once.
        """
        if not (self._waiting or self._missed or self.is_over):
            self._wake.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
        events, missed = list(self._waiting), self._missed
        self._waiting.clear()
        self._missed = 0
        return events, missed

    def close(self) -> None:
        """Let the reader go: the door closes."""
        self.is_over = True
        self._wake.set()

    def _take(self, events: list[Happened]) -> None:
        # What comes after a gap would be sent before it: once something is missed, all is, until
        # the reader was notified.
        room = 0 if self._missed else EVENTS_WAITING_MAX - len(self._waiting)
        self._waiting.extend(events[:room])
        self._missed += max(0, len(events) - room)
        self._wake.set()


# Workers.


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

    async def serve(
        self,
        queues: tuple[str, ...],
        keys: tuple[str, ...],
        names: tuple[str, ...] | None,
        lease_us: int,
    ) -> None:
        """See that the worker serves these queues, keys and task names from now on."""
        known = self._join
        if names is None:
            names = known.names
        asked = (queues, keys, names, lease_us)
        if (known.queues, known.keys, known.names, known.lease_us) == asked:
            return
        known.queues, known.keys, known.names, known.lease_us = asked
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

    async def payload_of(self, held: Held) -> Body:
        """Return the payload of an attempt of the worker, and take the question for a heartbeat."""
        await self.ask(Heartbeat())
        return await leased_payload(self.broker, self.session, held)

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

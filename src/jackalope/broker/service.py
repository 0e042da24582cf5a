"""The broker at work: an engine driven by an event loop.

Owns the inbox, the turns, the flushes and the sessions' outlets. Doors put commands in and take
effects out; they decide nothing, and this decides nothing either.

One coroutine runs everything that touches the core. The journal is written in a thread of its own
while the next batch gathers in the inbox; history is written in another. What a reader asks for is
answered between two turns, when everything in memory is on disk, so no reader ever sees what a
crash would lose.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from jackalope.broker.access import THE_BROKER, Access, Principal
from jackalope.broker.backlog import Backlog
from jackalope.broker.blobs.manager import BlobKeeper
from jackalope.broker.config.schema import LimitsConfig
from jackalope.broker.engine import Engine, Flush, Turn
from jackalope.broker.events import Events
from jackalope.broker.message_hub import MessageHub
from jackalope.broker.telemetry.meter import Meter
from jackalope.broker.telemetry.time_series import Series
from jackalope.broker.views.totals import Shared, Totals
from jackalope.core.assertions import must
from jackalope.core.commands import (
    AnyCommand,
    CloseSession,
    Recover,
    StartAttempts,
    SubmitTasks,
    Tick,
)
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.effects import Effect
from jackalope.core.policy import DEFAULT_POLICY, Policy
from jackalope.core.refusals import Code, Refusal
from jackalope.storage import DiskFull, Storage, StorageFault

if TYPE_CHECKING:
    from jackalope.broker.telemetry.tracing import Tracer
    from jackalope.core.core import Core
    from jackalope.wire.views import TaskPage

T = TypeVar("T")

log = structlog.get_logger(component="broker")

#: How many tasks, results and other items one turn takes on; what is left makes the next turn.
ITEMS_PER_TURN_MAX = 2_000

#: How far history may be behind, in time and in tasks. A task that ends before it is written is
#: written once, not twice, and is still in memory when a client asks for its result.
_FLUSH_EVERY_US = 5 * SECOND
_FLUSH_TASKS = 50_000

#: A flush that a reader waits for begins at once, unless the last one took long: then it rests for
#: so many times as long, but no longer than this. Lists that are asked for all the time would
#: otherwise have every change written that is soon to be changed again, in many small writes.
_FLUSH_REST_TIMES = 4
_FLUSH_REST_US_MAX = 500 * MILLISECOND

#: How long the word that an attempt began may wait for company. The attempt goes on meanwhile, and
#: if it is short it ends within this time: then one write to the disk serves both.
_PATIENCE_S = 0.002

_SMALL_BODY_BYTES = 16 * 1024
_QUICK_DISK_US = 3 * MILLISECOND
_HEAL_EVERY_US = SECOND
_STUCK_DISK_US = 10 * SECOND

#: How often to look whether the data folder is still there.
_PLACE_EVERY_S = 1.0


class SessionHandler(Protocol):
    """Where the effects of a session go: the door's side of a connection."""

    def deliver(self, effects: list[Effect]) -> None:
        """Send effects to the peer. Must not block."""

    def end(self, why: str) -> None:
        """Close the connection, because the broker no longer knows the session."""


class Broker:
    """One broker over one storage."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock | None = None,
        access: Access | None = None,
        free_bytes_min: int = 0,
        *,
        default_policy: Policy = DEFAULT_POLICY,
        limits: LimitsConfig | None = None,
    ) -> None:
        self._storage = storage
        self._default_policy = default_policy
        self._limits = limits or LimitsConfig()
        self.backlog = Backlog(self._limits.unread_bytes)  # what peers do not read
        self._clock = clock or Clock()
        # large payloads and results, for the doors to read and write
        self.blobs = BlobKeeper(storage.blobs, storage.history, self.flush, self._unnamed)
        # the durable heart. Touch it only through `read`.
        self.engine = Engine(
            storage.journal,
            storage.history,
            self.blobs,
            witnessed=storage.witnessed,
            losses=storage.losses,
        )
        self.access = access or Access()  # who may come in, and what they may do
        self.access.follow(self.engine.core.book)
        self._admission = Admission(storage.room_bytes, free_bytes_min)
        self._outlets: dict[int, SessionHandler] = {}
        self._sessions = 0
        self._inbox: list[AnyCommand] = []
        self._inbox_items = 0
        self._is_urgent, self._is_idle = False, True
        self._patience: asyncio.TimerHandle | None = None
        self._reads: list[Callable[[], None]] = []
        self._wake = asyncio.Event()
        self._alarm = Alarm(self._wake.set)
        self._journal_thread = ThreadPoolExecutor(1, "jackalope-journal")
        self._history_thread = ThreadPoolExecutor(1, "jackalope-history")
        self._flushed: asyncio.Future[None] | None = None
        self._flush: Flush | None = None
        self._flush_wanted: list[asyncio.Future[None]] = []
        self._flush_awaited: list[asyncio.Future[None]] = []
        self._next_flush_us = self._rested_us = self._store_us = 0
        self._storing_since_us = self._flushing_since_us = 0
        self._settled_core: object = None
        self._is_stopping = False
        self.events = Events()  # what happened, for subscribers
        self.switchboard = MessageHub()  # hands messages from session to session
        self.meter = Meter()  # how much happened, and how long it took
        self.totals = Totals()  # how many tasks lists have. For the thread of history.
        self.lists: Shared[TaskPage] = Shared()  # the lists that clients wait for
        self.meter.machine.flushed = storage.history.applied()
        self.started_us = self._clock.now_us()  # since when it runs
        self.tracer: Tracer | None = None  # sends traces, if that is wanted
        self.series = Series(storage.series, self.meter, self.started_us)  # the same over time
        self.durability = str(storage.level)  # the level at which it promises
        self._task: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._placed: asyncio.Task[None] | None = None

    # Life.

    async def start(self) -> None:
        """Begin to work on what is in the inbox."""
        must(self._task is None, "a broker starts once")
        self._task = asyncio.create_task(self._work(), name="jackalope-broker")
        self._watching = asyncio.create_task(self.series.run(self), name="jackalope-series")
        self._placed = asyncio.create_task(self._check_place(), name="jackalope-place")
        self.blobs.start()

    async def stop(self) -> None:
        """Finish what has arrived, write everything behind, and close the storage."""
        self._is_stopping = True
        self._wake.set()
        try:
            if self._task is not None:
                await self._task
                self._task = None
        finally:
            self._alarm.cancel()
            for task in (self._watching, self._placed):
                if task is not None:
                    task.cancel()
            await self.blobs.stop()
        points = self.series.close(self.now_us(), self.engine.core)
        await self.off_loop(lambda: self.series.write(points))
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.stop)
        self._journal_thread.shutdown()
        self._history_thread.shutdown()
        self._storage.close()

    async def failed(self) -> None:
        """Return when the broker has stopped; raise what stopped it, or must stop it."""
        if self._task is None or self._placed is None:
            return
        tasks = (self._task, self._placed)
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()

    async def _check_place(self) -> None:
        """Raise when the data folder is gone."""
        while True:
            self._storage.check_place()
            await asyncio.sleep(_PLACE_EVERY_S)

    # For the doors.

    def open_session(self, outlet: SessionHandler) -> int:
        self._sessions += 1
        self._outlets[self._sessions] = outlet
        return self._sessions

    def close_session(self, session: int) -> None:
        """Note that a connection is gone."""
        if self._outlets.pop(session, None) is not None:
            self.post(CloseSession(session=session), THE_BROKER)

    def post(self, command: AnyCommand, who: Principal, items: int = 1) -> Refusal | None:
        """Put a command into the inbox; refuse it if its sender may not send it.

        Its answer comes out of the session's outlet, unless it is the refusal that is returned.
        """
        if who.key is not None:
            refusal = who.admit(command)
            if refusal is not None:
                self.meter.refuse(type(command).__name__, refusal.code)
                return refusal
        self._inbox.append(command)
        self._inbox_items += items
        if type(command) is not StartAttempts:
            self._hurry()
        elif self._patience is None and not self._is_urgent:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(_PATIENCE_S, self._hurry)
        return None

    def _hurry(self) -> None:
        """See to it that there is a turn now."""
        self._is_urgent = True
        if not self._wake.is_set():
            self._wake.set()

    def admit(self, tasks: int) -> Refusal | None:
        """Refuse tasks for which there is no room just now, before they cost anything."""
        items, unwritten = self._inbox_items + tasks, len(self.engine.core.book.dirty)
        refusal = self._admission.refuse(self._clock.now_us(), items, unwritten)
        if refusal is not None:
            self.meter.refuse(SubmitTasks.__name__, refusal.code)
        return refusal

    async def read(self, question: Callable[[Engine], T]) -> T:
        """Ask something of the engine between two turns, when all that it shows is durable.

        That is now, unless a turn is under way, or to come for something that was posted before.
        """
        if not (self.engine.is_turning or self._inbox or self._reads):
            return question(self.engine)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        context = copy_context()  # It holds the caller, whose rights apply.

        def ask() -> None:
            try:
                result = context.run(question, self.engine)
            except Exception as error:  # noqa: BLE001  it is raised at the caller
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self._reads.append(ask)
        self._wake.set()
        return await answer

    async def flush(self) -> None:
        """Return when history has everything that has happened by now."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flush_wanted.append(written)
        self._wake.set()
        await written

    def between_turns(self, action: Callable[[], None]) -> None:
        """Do something once, after the present turn, or right away if there is none."""
        self._reads.append(action)
        self._wake.set()

    async def off_loop(self, job: Callable[[], T]) -> T:
        """Do something with the storage that may take a while, in the thread of history."""
        return await asyncio.get_running_loop().run_in_executor(self._history_thread, job)

    def now_us(self) -> int:
        """Return the broker's time."""
        return self._clock.now_us()

    def steady_us(self) -> int:
        """Return a time by which silence is judged: it does not jump when a clock is set."""
        return self._clock.steady_us()

    def session_count(self) -> int:
        """Return how many sessions are open."""
        return len(self._outlets)

    def inbox_items(self) -> int:
        """Return how many items wait for a turn."""
        return self._inbox_items

    def trouble(self) -> str:
        """Return why nothing can be written just now, or nothing if all is well."""
        if self._is_stopping:
            return "the broker stops"
        if self._task is None or self._task.done():
            return "the broker does not run"
        if self.engine.fault is not None:
            return f"the storage failed: {self.engine.fault}"
        since_us = self._storing_since_us
        storing_us = self._clock.steady_us() - since_us if since_us else 0
        if storing_us > _STUCK_DISK_US:
            return f"the disk has not answered for {storing_us // SECOND} s"
        return ""

    def shortage(self) -> str:
        """Return why nothing new can be taken in for a while; nothing if all is well."""
        return self.trouble() or self._admission.lack(self._clock.now_us())

    # The work.

    async def _work(self) -> None:
        try:
            await self._turn()  # Settle what was leased before the restart, even without clients.
            while not (self._is_stopping and not self._inbox):
                await self._gather()
                await self._turn()
                self.access.look(self._clock.now_us())
                self._answer_reads()
                self._write_behind()
            await self._write_everything()
        except BaseException:
            for outlet in list(self._outlets.values()):
                outlet.end("the broker has stopped")
            raise

    async def _gather(self) -> None:
        """Wait until there is something to do: a command, a read, a deadline or a flush."""
        now_us = self._clock.now_us()
        wants_flush = self._flush_wanted and self._flush is None
        can_flush = wants_flush and now_us >= self._rested_us
        if self._is_urgent or self._reads or can_flush or self._is_stopping:
            await asyncio.sleep(0)  # Let the doors put in what has arrived meanwhile.
            self._is_idle = False
            return
        self._is_idle = True
        self._wake.clear()
        deadlines = [self.engine.core.next_deadline_us(), self.access.next_end_us]
        if wants_flush:
            deadlines.append(self._rested_us)
        elif self._flush is None:
            has_changes = self.engine.core.book.has_changes()
            deadlines.append(self._next_flush_us if has_changes else self.engine.next_forget_us)
        if self.engine.fault is not None:
            deadlines.append(now_us + _HEAL_EVERY_US)
        self._alarm.set(now_us, min((at for at in deadlines if at is not None), default=None))
        await self._wake.wait()

    async def _turn(self) -> None:
        engine, now_us = self.engine, self._clock.now_us()
        commands = self._take()
        if engine.heal() and engine.core is not self._settled_core:
            self._settled_core = engine.core
            commands.insert(0, Recover())
        deadline_us = engine.core.next_deadline_us()
        if deadline_us is not None and deadline_us <= now_us:
            commands.append(Tick())
        if not commands:
            return
        self._instruct(engine.core)  # A fault replaces the core.
        turn = engine.decide(now_us, commands)
        try:
            store_us = await self._store(turn)
        except StorageFault as fault:
            self._fail(turn, fault)
            return
        effects = engine.settle(turn)
        if self.events.is_tracing:
            self.events.trace(turn.commands, effects)
        self._release(effects)
        self.access.follow(engine.core.book)  # A client that is cut off has had its reply.
        self.meter.count_turn(turn, store_us)
        if turn.records:
            self.meter.take(turn.records, engine.core)
            if self.tracer is not None:
                self.tracer.take(turn.records, engine.core)
            self.events.take(turn.records, engine.core)

    def _instruct(self, core: Core) -> None:
        """Set what the core takes from the configuration."""
        core.default_policy = self._default_policy
        core.namespaces_by_use_max = self._limits.namespaces_by_use
        core.queues_by_use_max = self._limits.queues_by_use
        core.has_admin = self.access.has_lasting_admin()

    async def _store(self, turn: Turn) -> int:
        """Make a turn durable: a small one at once, a large one while the next one gathers.

        Waking another thread and being woken again costs more than a quick disk takes for a small
        batch. On a slow disk, for a large batch, or when one turn follows the other, the loop must
        not stand still meanwhile. Returns how long the disk took.
        """
        if not turn.body:
            self.engine.store(turn)
            return 0
        self._storing_since_us = self._clock.steady_us()
        is_small = len(turn.body) <= _SMALL_BODY_BYTES
        if self._is_idle and is_small and self._store_us < _QUICK_DISK_US:
            took_us = self._store_timed(turn)
        else:
            loop = asyncio.get_running_loop()
            took_us = await loop.run_in_executor(self._journal_thread, self._store_timed, turn)
        self._storing_since_us = 0
        self._store_us += (took_us - self._store_us) // 8
        return took_us

    def _store_timed(self, turn: Turn) -> int:
        """Store a turn, and return how long that took; handing over to a thread is not the disk."""
        begin_ns = monotonic_ns()
        self.engine.store(turn)
        return (monotonic_ns() - begin_ns) // 1_000

    def _take(self) -> list[AnyCommand]:
        """Take from the inbox what makes one turn."""
        items = 0
        for count, command in enumerate(self._inbox):
            many = getattr(command, "tasks", None) or getattr(command, "messages", None)
            items += len(many) if many else 1
            if items >= ITEMS_PER_TURN_MAX:
                taken, self._inbox = self._inbox[: count + 1], self._inbox[count + 1 :]
                self._inbox_items = max(0, self._inbox_items - items)
                return taken
        taken, self._inbox = self._inbox, []
        self._inbox_items, self._is_urgent = 0, False
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        return taken

    def _release(self, effects: list[Effect]) -> None:
        by_session: dict[int, list[Effect]] = {}
        for effect in effects:
            by_session.setdefault(effect.session, []).append(effect)
        for session, its_effects in by_session.items():
            outlet = self._outlets.get(session)
            if outlet is not None:
                outlet.deliver(its_effects)

    def _fail(self, turn: Turn, fault: StorageFault) -> None:
        """Refuse a batch that could not be stored; go on without writing, or stop for good."""
        log.error("storage failed", fault=str(fault), commands=len(turn.commands))
        self._storing_since_us = 0
        self.meter.machine.faults += 1
        refusals = self.engine.fail(turn, fault)
        self.meter.count_refusals(turn, refusals)
        self._release(refusals)
        if not isinstance(fault, DiskFull):
            raise fault
        self._end_sessions()

    def _end_sessions(self) -> None:
        """Close every session: the core was rebuilt from disk, and knows none of them."""
        outlets, self._outlets = self._outlets, {}
        for outlet in outlets.values():
            outlet.end("the disk is full; connect again")

    def _answer_reads(self) -> None:
        reads, self._reads = self._reads, []
        for read in reads:
            read()

    # Writing behind.

    def _unnamed(self, blobs: Iterable[str]) -> list[str]:
        return self.engine.unnamed(blobs)

    def _write_behind(self) -> None:
        """End a flush that is written, and begin the next when it is time."""
        if self._flush is not None and self._flushed is not None and self._flushed.done():
            flush, self._flush = self._flush, None
            fault = self._flushed.exception()
            if fault is None:
                self.engine.end_flush(flush)
                now_us = self._clock.now_us()
                took_us = now_us - self._flushing_since_us
                self._rested_us = now_us + min(_FLUSH_REST_TIMES * took_us, _FLUSH_REST_US_MAX)
                self.meter.machine.flush.count(took_us)
                self.meter.machine.flushed = flush.sequence
            elif isinstance(fault, DiskFull):
                log.error("history failed", fault=str(fault))
                self.meter.machine.faults += 1
                self.engine.fail_flush(flush, fault)
                self._end_sessions()
            else:
                raise fault
            _resolve(self._flush_awaited)
        now_us = self._clock.now_us()
        is_due = now_us >= self._next_flush_us or len(self.engine.core.book.dirty) >= _FLUSH_TASKS
        is_wanted = self._flush_wanted and now_us >= self._rested_us
        if self._flush is None and (is_wanted or is_due):
            self._next_flush_us = now_us + _FLUSH_EVERY_US
            self._flush_awaited, self._flush_wanted = self._flush_wanted, []
            self._begin_flush(now_us)

    def _begin_flush(self, now_us: int) -> None:
        flush = self.engine.begin_flush(now_us)
        if flush is None:
            _resolve(self._flush_awaited)
            return
        self._flush, self._flushing_since_us = flush, now_us
        self._flushed = asyncio.get_running_loop().run_in_executor(
            self._history_thread, self.engine.write_flush, flush
        )
        self._flushed.add_done_callback(lambda _: self._wake.set())

    async def _write_everything(self) -> None:
        while self._flush is not None or self.engine.core.book.has_changes():
            if self.engine.fault is not None:
                return
            if self._flush is None:
                self._begin_flush(self._clock.now_us())
            if self._flushed is not None:
                await asyncio.wait([self._flushed])
            self._write_behind()


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    """Let those who wait go on, unless they have given up."""
    for future in futures:
        if not future.done():
            future.set_result(None)
    futures.clear()


# The clock: what time it is, without ever going back.

_STEP_US = 1_000_000


class Clock:
    """Microseconds since the epoch."""

    __slots__ = ("_ahead_us",)

    def __init__(self) -> None:
        self._ahead_us = _wall_us() - _monotonic_us()

    def now_us(self) -> int:
        """Return the time, never less than before."""
        now_us = _monotonic_us() + self._ahead_us
        wall_us = _wall_us()
        if wall_us > now_us + _STEP_US:
            self._ahead_us += wall_us - now_us
            return wall_us
        return now_us

    def steady_us(self) -> int:
        """Return a time to measure how long something took; setting the clock does not move it."""
        return _monotonic_us()


def _wall_us() -> int:
    return time.time_ns() // 1_000


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1_000


# The alarm: ends a wait in time.


class Alarm:
    """Calls `ring` at a set time at the latest."""

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._at_us = 0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, now_us: int, at_us: int | None) -> None:
        """Ring at a time at the latest, if there is one; what is set for an earlier one stays."""
        if at_us is None:
            return
        if self._timer is not None:
            if now_us < self._at_us <= at_us:
                return
            # One whose time is over has missed a step of the clock, and rings now.
            at_us = min(at_us, self._at_us)
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._at_us = at_us
        self._timer = loop.call_later(max(0, at_us - now_us) / SECOND, self._sound)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sound(self) -> None:
        self._timer = None
        self._ring()


# Admission: whether new tasks are taken in just now.


#: Beyond this many items in the inbox a submit is refused, with the time to try again.
INBOX_ITEMS_MAX = 200_000

#: Beyond this many tasks that history lacks a submit is refused too.
UNWRITTEN_TASKS_MAX = 1_000_000

_RETRY_US = 500 * MILLISECOND
_LOOK_EVERY_US = SECOND


class Admission:
    """Refuses tasks for which there is no room.

    Args:
        room_bytes: returns how much more the disk takes; None if there is no disk.
        free_bytes_min: how much of that must stay free.
    """

    def __init__(self, room_bytes: Callable[[], int | None], free_bytes_min: int) -> None:
        self._room_bytes = room_bytes
        self._free_bytes_min = free_bytes_min
        self._looked_us = 0
        self._lack = ""

    def lack(self, now_us: int) -> str:
        """Return what the disk lacks, as seen within the last second; nothing if all is well."""
        if self._free_bytes_min and now_us - self._looked_us >= _LOOK_EVERY_US:
            self._looked_us = now_us
            room, least = self._room_bytes(), self._free_bytes_min
            is_low = room is not None and room < least
            if is_low and not self._lack:
                log.warning("disk nearly full, new tasks are refused", room=room, least=least)
            elif self._lack and not is_low:
                log.info("disk has room again, new tasks are accepted", room=room)
            self._lack = f"the disk has room for {room} bytes, less than {least}" if is_low else ""
        return self._lack

    def refuse(self, now_us: int, items: int, unwritten: int) -> Refusal | None:
        """Refuse tasks for which there is no room just now.

        Args:
            now_us: the time.
            items: how many items the inbox would have.
            unwritten: how many tasks history lacks.
        """
        if lack := self.lack(now_us):
            message = f"{lack}: make room, or let workers finish what is there; then submit again"
            return Refusal(Code.OVERLOADED, message, _RETRY_US)
        if items <= INBOX_ITEMS_MAX and unwritten <= UNWRITTEN_TASKS_MAX:
            return None
        return Refusal(
            Code.OVERLOADED,
            f"the broker has {items} items to work on and {unwritten} tasks to write; "
            "submit again a little later",
            _RETRY_US,
        )

"""The broker at work: an engine driven by an event loop.

Owns the turns and the sessions. Doors put commands in and take effects out; they decide nothing,
and this decides nothing either.

One coroutine runs everything that touches the core. The journal is written in a thread of its own
while the next batch gathers in the inbox; history is written in another. What a reader asks for is
answered between two turns, when everything in memory is on disk, so no reader ever sees what a
crash would lose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import structlog
from msgspec.structs import replace

from jackalope.broker.access import THE_BROKER, Access, Principal
from jackalope.broker.audit import AUDITED, Auditor, act_of
from jackalope.broker.backlog import Backlog
from jackalope.broker.blobs import BlobKeeper
from jackalope.broker.clock import Alarm, Clock
from jackalope.broker.cluster.standing import Standing
from jackalope.broker.config.schema import LimitsConfig
from jackalope.broker.config.task_logs import TaskLogsConfig
from jackalope.broker.engine import Engine, Turn
from jackalope.broker.events import Events
from jackalope.broker.inbox import Admission, Inbox
from jackalope.broker.logs.keeper import LogKeeper
from jackalope.broker.message_hub import MessageHub
from jackalope.broker.telemetry.meter import Meter
from jackalope.broker.telemetry.time_series import Series
from jackalope.broker.views.lists import Shared, Totals
from jackalope.broker.writers import Flusher, JournalWriter
from jackalope.core.assertions import must
from jackalope.core.audit import Act
from jackalope.core.commands import AnyCommand, CloseSession, Recover, SubmitTasks, Tick
from jackalope.core.commands.namespaces import NoteAct
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment, Effect, Reply, TaskEnded
from jackalope.core.policy import DEFAULT_POLICY, Policy
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.callback import AllowedTargets
from jackalope.storage import DiskFull, Fenced, Storage, StorageFault

if TYPE_CHECKING:
    from jackalope.broker.cluster.overview import ClusterView
    from jackalope.broker.cluster.peers import Peers
    from jackalope.core.core import Core

T = TypeVar("T")

log = structlog.get_logger(component="broker")

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


class TurnListener(Protocol):
    """Is given every turn that is durable, after its effects were sent."""

    def take(self, turn: Turn, core: Core) -> None:
        """Look at a turn. Must not block, and must not keep the core: a fault replaces it."""


class Leader(Protocol):
    """Who leads a cluster, and what may be answered from memory."""

    changed: list[Callable[[], None]]  # called when another node leads, or none is known

    @property
    def epoch(self) -> int:
        """How often the leader has changed."""

    def standing(self) -> Standing:
        """Return what this node is, and how far."""

    def elsewhere(self, door: str) -> str | None:
        """Return where a door of the leader is; nothing if none is known, None if this one is."""

    @property
    def answers_reads(self) -> bool:
        """Whether clients may read here what may be old, although another one leads."""

    def may_read(self) -> bool:
        """Return whether no other node can lead by now."""

    async def confirm(self) -> None:
        """Return when that is certain again.

        Raises:
            Fenced: another node leads.
        """


class Health:
    """Whether the broker can write, and whether it takes in what is new."""

    def __init__(
        self, engine: Engine, clock: Clock, writer: JournalWriter, admission: Admission
    ) -> None:
        self.down = "the broker is not running"  # why there are no turns; empty if there are
        self._engine = engine
        self._clock = clock
        self._writer = writer
        self.admission = admission  # of new tasks

    def trouble(self) -> str:
        """Return why nothing can be written just now, or nothing if all is well."""
        if self.down:
            return self.down
        if self._engine.fault is not None:
            return f"the storage failed: {self._engine.fault}"
        storing_us = self._writer.storing_us()
        if storing_us > _STUCK_DISK_US:
            return f"the disk has not responded for {storing_us // SECOND} s"
        return ""

    def shortage(self) -> str:
        """Return why nothing new can be taken in for a while; nothing if all is well."""
        return self.trouble() or self.admission.lack(self._clock.now_us())


class Broker:
    """One broker over one storage."""

    #: Returns the name of this node and its cluster as it sees it, where it is one of several.
    overview: Callable[[], tuple[str, ClusterView]] | None = None

    def __init__(
        self,
        storage: Storage,
        clock: Clock | None = None,
        access: Access | None = None,
        free_bytes_min: int = 0,
        *,
        default_policy: Policy = DEFAULT_POLICY,
        limits: LimitsConfig | None = None,
        callback_targets: AllowedTargets | None = None,
        task_logs: TaskLogsConfig | None = None,
        listeners: Iterable[TurnListener] = (),
    ) -> None:
        self._storage, self._default_policy = storage, default_policy
        self._limits, self._allowed = limits or LimitsConfig(), callback_targets or AllowedTargets()
        self._clock = clock or Clock()
        # returns a time by which silence is judged: it does not jump when a clock is set
        self.steady_us = self._clock.steady_us
        self._inbox = Inbox()
        self._alarm = Alarm(self._inbox.wake.ring)
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
        self.meter = Meter()  # how much happened, and how long it took
        self._writer = JournalWriter(self.engine, self._clock)
        self._flusher = Flusher(self.engine, self._clock, self.meter, self._inbox.wake)
        admission = Admission(storage.room_bytes, free_bytes_min)
        self.health = Health(self.engine, self._clock, self._writer, admission)
        self.access = access or Access()  # who may come in, and what they may do
        self.access.follow(self.engine.core.book)
        self._auditor = Auditor(self.access)
        self._handlers: dict[int, SessionHandler] = {}
        self._sessions = 0
        self._settled_core: object = None
        self._instructed_core: object = None
        self._now_us = 0  # when the present turn began
        self._deadline_us: int | None = None  # of the core, as it was after the last turn
        self._is_stopping, self._is_idle = False, True
        self._is_relieved = False  # another node is to lead
        self.leader: Leader | None = None  # set where it is one of several nodes
        self.peers: Peers | None = None  # what is known of the other members, where there are some
        self._task = self._placed = self._watching = cast("asyncio.Task[None] | None", None)
        self.backlog = Backlog(self._limits.unread_bytes)  # what peers do not read
        self.events = Events()  # what happened, for subscribers
        self._listeners: tuple[TurnListener, ...] = (*listeners, self.events)
        self.message_hub = MessageHub()  # hands messages from session to session
        self.totals = Totals()  # how many tasks lists have. For the thread that reads.
        self._reader = ThreadPoolExecutor(1, "jackalope-reader")
        self.lists: Shared[Any] = Shared()  # the lists that clients wait for
        self.started_us = self._clock.now_us()  # since when it runs
        self.series = Series(storage.series, self.meter, self.started_us)  # the same over time
        self.durability = str(storage.level)  # the level at which it promises
        self.logs = LogKeeper(storage, self.engine, task_logs, free_bytes_min, self.now_us)

    # Life.

    async def start(self, work: Callable[[], Coroutine[None, None, None]] | None = None) -> None:
        """Begin to work on what is in the inbox, or to do what a node does until it leads."""
        must(self._task is None, "a broker starts once")
        if work is None:
            self.health.down = ""
        self._task = asyncio.create_task((work or self._work)(), name="jackalope-broker")
        self._watching = asyncio.create_task(self.series.run(self), name="jackalope-series")
        self._placed = asyncio.create_task(self._check_place(), name="jackalope-place")
        self.blobs.start()
        self.logs.start(lambda: self.peers)

    async def stop(self) -> None:
        """Finish what has arrived, write everything behind, and close the storage."""
        self._is_stopping, self.health.down = True, "the broker is shutting down"
        self._inbox.wake.ring()
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
            await self.logs.stop()
        points = self.series.close(self.now_us(), self.engine.core)
        await self.off_loop(lambda: self.series.write(points))
        self._writer.close()
        self._flusher.close()
        self._reader.shutdown()
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

    def open_session(self, handler: SessionHandler) -> int:
        self._sessions += 1
        self._handlers[self._sessions] = handler
        return self._sessions

    def close_session(self, session: int) -> None:
        """Note that a connection is gone."""
        if self._handlers.pop(session, None) is not None:
            self.post(CloseSession(session=session), THE_BROKER)

    def post(self, command: AnyCommand, who: Principal, items: int = 1) -> Refusal | None:
        """Put a command into the inbox; refuse it if its sender may not send it.

        Its answer comes out of the session's handler, unless it is the refusal that is returned.
        """
        if who.key is not None:
            refusal = who.admit(command)
            if refusal is not None:
                self.meter.refuse(type(command).__name__, refusal.code)
                act = self._auditor.refused(command, who, refusal, self._clock.now_us())
                if act is not None:
                    self.note(act)
                return refusal
        if type(command) in AUDITED and who is not THE_BROKER:
            command = self._auditor.noted(command, who)
        self._inbox.put(command, items)
        return None

    def note(self, act: Act) -> None:
        """Put an act into the audit log; where another node leads, that one would have to."""
        if self.leader is None or self.leader.elsewhere("native") is None:
            self._inbox.put(NoteAct(act=act), 0)

    def note_refused(self, who: Principal, what: str, about: str) -> None:
        """Note that a client may not do what only administrators do."""
        if self._auditor.has_room(self._clock.now_us()):
            namespace = who.key.namespace if who.key is not None else ""
            act = act_of(who, what, by=who.signed(""), namespace=namespace, about=about)
            self.note(replace(act, outcome=str(Code.FORBIDDEN)))

    def admit(self, tasks: int) -> Refusal | None:
        """Refuse tasks for which there is no room just now, before they cost anything."""
        items, unwritten = self._inbox.items + tasks, len(self.engine.core.book.dirty)
        refusal = self.health.admission.refuse(self._clock.now_us(), items, unwritten)
        if refusal is not None:
            self.meter.refuse(SubmitTasks.__name__, refusal.code)
        return refusal

    async def read(self, question: Callable[[Engine], T]) -> T:
        """Ask something of the engine between two turns, when all that it shows is durable.

        That is now, unless a turn is under way, or to come for something that was posted before.
        """
        inbox = self._inbox
        if self.leader is not None and not self.leader.may_read():
            await self.leader.confirm()
        if not (self.engine.is_turning or inbox.has_commands() or inbox.has_actions()):
            return question(self.engine)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        context = copy_context()  # It holds the caller, whose rights apply.

        def ask() -> None:
            if answer.done():
                return  # The caller has given up.
            try:
                answer.set_result(context.run(question, self.engine))
            except Exception as error:  # noqa: BLE001  it is raised at the caller
                answer.set_exception(error)

        inbox.after_turn(ask)
        return await answer

    def between_turns(self, action: Callable[[], None]) -> None:
        """Do something once, after the present turn, or soon if there is none."""
        self._inbox.after_turn(action)

    async def flush(self) -> None:
        """Return when history has everything that has happened by now."""
        await self._flusher.flush()

    @property
    def storage(self) -> Storage:
        return self._storage

    def _unnamed(self, blobs: Iterable[str]) -> list[str]:
        return self.engine.unnamed(blobs)

    async def off_loop(self, job: Callable[[], T]) -> T:
        """Do something with the storage that may take a while, in a thread that writes no tasks."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, job)

    def now_us(self) -> int:
        """Return the broker's time."""
        return self._clock.now_us()

    @property
    def sequence(self) -> int:
        """The last batch that is applied."""
        return self.engine.sequence

    def session_count(self) -> int:
        """Return how many sessions are open."""
        return len(self._handlers)

    def inbox_items(self) -> int:
        """Return how many items wait for a turn."""
        return self._inbox.items

    # The work.

    async def _work(self) -> None:
        try:
            await self.lead()
        except BaseException:
            self.health.down = self.health.down or "the broker is not running"
            for handler in list(self._handlers.values()):
                handler.end("the broker has stopped")
            raise

    async def lead(self) -> None:
        """Take turns until the broker stops, or is relieved."""
        self._settled_core = None
        self._is_relieved = False
        await self._turn()  # Settle what was leased before the restart, even without clients.
        while not (self._is_relieved or (self._is_stopping and not self._inbox.has_commands())):
            await self._gather()
            await self._turn()
            if self._now_us >= self.access.next_end_us:
                self.access.look(self._now_us)
            self._inbox.end_turn()
            if not self._flusher.step(self._now_us):
                self._end_sessions()
                if self.engine.is_shared and self.engine.fault is not None:
                    raise self.engine.fault  # Another node may have room.
            if (command := self.engine.forgetting()) is not None:
                self._inbox.put(command, 0)
        if not self.engine.is_shared:
            await self.write_behind()

    async def write_behind(self) -> None:
        """Return when history has everything; not before another node leads, if one is to."""
        await self._flusher.write_everything()

    # For a node of a cluster.

    def relieve(self) -> None:
        """Let `lead` return after the present turn, because another node is to lead, or does."""
        self._is_relieved = True
        self._inbox.wake.ring()

    async def in_journal(self, job: Callable[[], T]) -> T:
        """Do something with the journal, in its thread."""
        return await self._writer.run(job)

    async def between_stores(self, job: Callable[[], T]) -> T:
        """Do something with the journal, in its thread, handed in while no turn is being stored.

        If storing a turn fails, the state is read from disk on the loop: nothing may then write.

        Raises:
            StorageFault: that has just happened.
        """
        begun: asyncio.Future[asyncio.Future[T]] = asyncio.get_running_loop().create_future()

        def begin() -> None:
            if begun.done():
                return  # The caller has given up.
            if self.engine.fault is not None:
                begun.set_exception(self.engine.fault)
            else:
                begun.set_result(self._writer.begin(job))

        self._inbox.after_turn(begin)
        return await (await begun)

    def follow(self, sequence: int, body: bytes) -> None:
        """Apply a batch that another node has decided."""
        turn = Turn([], self.engine.follow(sequence, body), [], body)
        self.access.follow(self.engine.core.book)
        self.meter.count_turn(turn, 0, self.engine.core)
        self.meter.settle()  # The next batch may remove the tasks of this one.

    def follow_behind(self) -> None:
        """Write history behind what was followed, and answer what waits for that."""
        self._inbox.end_turn()
        if not self._flusher.step(self._clock.now_us()):
            self.engine.fault = None  # It decides nothing, and the next flush has all of this one.

    def listen(self, listener: TurnListener) -> None:
        """Give every durable turn from now on to one listener more."""
        self._listeners = (*self._listeners, listener)

    async def adopt(self) -> None:
        """Throw the state away for a copy of another node's that was received."""
        await self._flusher.drop()
        await self.in_journal(self._storage.adopt)
        await self.rebuild()

    async def rebuild(self) -> None:
        """Throw the state away, and build it again from what is stored.

        In another thread: it takes seconds for many tasks, and the doors go on answering.
        """
        self.engine.rebuild(await self.in_journal(self.engine.stored))
        self.access.follow(self.engine.core.book)

    def end_sessions(self, why: str) -> None:
        """Close every session, and drop what they have sent and nothing has decided."""
        self._inbox.clear()
        handlers, self._handlers = self._handlers, {}
        for handler in handlers.values():
            handler.end(why)

    def send_away(self, why: str) -> None:
        """Close every session as if its connection were lost: what it has sent may yet be done."""
        for session, handler in list(self._handlers.items()):
            handler.end(why)
            self.close_session(session)

    async def _gather(self) -> None:
        """Wait until there is something to do: a command, a read, a deadline or a flush."""
        inbox, flusher, alarm = self._inbox, self._flusher, self._alarm
        deadline_us = self._deadline_us = self.engine.core.next_deadline_us()
        has_work = inbox.is_urgent or inbox.has_actions() or flusher.is_wanted()
        if has_work or self._is_stopping or self._is_relieved:
            await asyncio.sleep(0)  # Let the doors put in what has arrived meanwhile.
            self._is_idle = False
            return
        self._is_idle = True
        inbox.wake.clear()
        at_us = self.access.next_end_us
        for other_us in (deadline_us, flusher.next_us()):
            if other_us is not None and other_us < at_us:
                at_us = other_us
        if self.engine.fault is not None:
            at_us = min(at_us, self._now_us + _HEAL_EVERY_US)
        if not self._now_us < alarm.at_us <= at_us:  # It is rarely set again.
            alarm.set(self._clock.now_us(), at_us)
        await inbox.wake.wait()

    async def _turn(self) -> None:
        engine, meter = self.engine, self.meter
        commands = self._inbox.take()
        if await self._heal() and engine.core is not self._settled_core:
            self._settled_core = engine.core
            commands.insert(0, self._recover())
        now_us = self._now_us = self._clock.now_us()
        if self._deadline_us is not None and self._deadline_us <= now_us:
            commands.append(Tick())
        if not commands:
            return
        if engine.core is not self._instructed_core:  # A fault replaces it.
            self._instruct(engine.core)
        if meter.must_settle(commands, engine.core):
            meter.settle()
        turn = engine.decide(now_us, commands)
        try:
            if not turn.body and self.leader is not None and not self.leader.may_read():
                await self.leader.confirm()  # No entry shows that no other node leads by now.
            store_us = await self._writer.store(turn, is_idle=self._is_idle)
        except StorageFault as fault:
            self._fail(turn, fault)
            return
        self._release(engine.settle(turn))
        self.access.follow(engine.core.book)  # A client that is cut off has had its reply.
        meter.count_turn(turn, store_us, engine.core)
        for listener in self._listeners:
            listener.take(turn, engine.core)

    async def _heal(self) -> bool:
        """Return whether the storage can be written; a shared one may not answer for seconds."""
        engine = self.engine
        if engine.fault is None or not engine.is_shared:
            return engine.heal()
        return await self.in_journal(engine.heal)

    def _recover(self) -> Recover:
        """Let time go on from the last record, and settle what was under way then."""
        reached_us = self.engine.core.book.counters.latest_us
        is_set_back = not self._clock.raise_to(reached_us, is_agreed=self.engine.is_shared)
        if is_set_back:
            ahead_s = (reached_us - self._clock.now_us()) // SECOND
            log.warning("clock was ahead before the restart, and is not followed", ahead_s=ahead_s)
        return Recover(is_clock_set_back=is_set_back)

    def _instruct(self, core: Core) -> None:
        """Set what the core takes from the configuration."""
        self._instructed_core = core
        core.default_policy = self._default_policy
        core.namespaces_by_use_max = self._limits.namespaces_by_use
        core.queues_by_use_max = self._limits.queues_by_use
        core.callback_targets = self._allowed
        core.has_admin = self.access.has_lasting_admin()

    def _release(self, effects: list[Effect]) -> None:
        """Hand effects to their sessions, those first that begin with a task or its end.

        An assignment lets a worker begin, and an end lets a caller go on, while the replies are
        still being written: each write wakes a peer, which may take this core from the broker.
        """
        handlers = self._handlers
        if len(effects) == 1:
            handler = handlers.get(effects[0].session)
            if handler is not None:
                handler.deliver(effects)
            return
        by_session: dict[int, list[Effect]] = {}
        for effect in effects:
            its_effects = by_session.get(effect.session)
            if its_effects is None:
                by_session[effect.session] = [effect]
            else:
                its_effects.append(effect)
        in_order: Iterable[list[Effect]] = by_session.values()
        if len(by_session) > 1:
            in_order = sorted(in_order, key=_can_wait)
        for its_effects in in_order:
            handler = handlers.get(its_effects[0].session)
            if handler is not None:
                handler.deliver(its_effects)

    def _fail(self, turn: Turn, fault: StorageFault) -> None:
        """Refuse a batch that could not be stored; go on without writing, or stop for good."""
        log.error("storage failed", fault=str(fault), commands=len(turn.commands))
        self.meter.machine.faults += 1
        self.meter.settle()
        refusals = self.engine.fail(turn, fault)
        if isinstance(fault, Fenced) and self.engine.is_shared:
            raise fault  # The peers repeat it at the node that leads now.
        self.meter.count_refusals(turn, refusals)
        self._release(refusals)
        if not isinstance(fault, DiskFull):
            raise fault
        self._end_sessions()

    def _end_sessions(self) -> None:
        """Close every session: the core was rebuilt from disk, and knows none of them."""
        handlers, self._handlers = self._handlers, {}
        for handler in handlers.values():
            handler.end("the disk is full; connect again")


def _can_wait(effects: list[Effect]) -> bool:
    """Return whether nothing begins or goes on by these; a cancel must not overtake a reply."""
    first = effects[0]
    return isinstance(first, Reply) or not isinstance(first.message, (Assignment, TaskEnded))

"""The node: the real engine over a disk that fails, in a process that dies at any step."""

from __future__ import annotations

from collections.abc import Callable

from jackalope.broker.engine import Engine, Flush, Turn
from jackalope.core import Core
from jackalope.core.commands import AnyCommand, Command, Recover, Tick
from jackalope.core.durations import HOUR, MILLISECOND, MINUTE, SECOND
from jackalope.core.effects import Effect
from jackalope.core.invariants import check
from jackalope.core.records import decode_batch
from jackalope.storage import DiskFull, StorageFault, SyncFailed
from jackalope.storage.memory import Log, MemoryBlobs, MemoryJournal
from jackalope.storage.sqlite.history import History
from tests.simulation.checker import Checker
from tests.simulation.world import Link, Peer, World

_FLUSH_EVERY_US = 300 * MILLISECOND
_TICK_EVERY_US = SECOND
_CHECK_EVERY_TURNS = 8


class FaultyJournal(MemoryJournal):
    """A journal whose appends fail as the world wills."""

    def __init__(self, log: Log, world: World, checker: Checker) -> None:
        super().__init__(log)
        self._world = world
        self._checker = checker
        self._broken: StorageFault | None = None
        self._full_until_us = 0

    def append(self, body: bytes) -> int:
        """Store a batch, or fail with nothing written, or with nobody knowing."""
        world = self._world
        if self._broken is not None:
            raise self._broken
        if world.now_us < self._full_until_us:
            raise DiskFull("the disk is still full")
        if world.chance(world.faults.append_fails):
            kind = world.rng.choice(("full", "torn", "unsynced"))
            world.say("disk", f"fails: {kind}")
            if kind == "full":
                self._full_until_us = world.now_us + world.rng.randrange(5 * SECOND)
                raise DiskFull("the disk is full")
            self._broken = SyncFailed("fsync failed")
            if kind == "unsynced":
                # The batch is on disk although nobody was told so.
                self._store(body)
            raise self._broken
        return self._store(body)

    def _store(self, body: bytes) -> int:
        records = decode_batch(body)
        sequence = super().append(body)
        self._checker.on_durable(records)
        return sequence


class Node:
    """One broker: down, or up with an engine."""

    def __init__(
        self, world: World, checker: Checker, make_engine: Callable[..., Engine] = Engine
    ) -> None:
        self.world = world
        self.checker = checker
        self.engine: Engine | None = None
        self.links: dict[int, Link] = {}
        self.restarts = 0
        self._make_engine = make_engine
        self._log = Log()
        self._history = History(None)
        self._blobs = MemoryBlobs()
        self._inbox: list[AnyCommand] = []
        self._is_turning = False
        self._turns = 0
        self._sessions = 0
        self._life = 0
        self._ahead_us = 0
        self._settled_core: Core | None = None
        self.start()
        world.after(_TICK_EVERY_US, self._tick)
        world.after(_FLUSH_EVERY_US, self._begin_flush)

    # Its life.

    def start(self) -> None:
        """Come up with what is on disk, which must be what was promised."""
        self._life += 1
        journal = FaultyJournal(self._log, self.world, self.checker)
        engine = self._make_engine(journal, self._history, self._blobs, trim_batches=20)
        self.checker.compare(engine.core)
        self.engine = engine
        self._raise_clock(engine.core.book.counters.latest_us)
        self._inbox = []
        self._is_turning = False
        self.world.say("broker", f"is up with {len(engine.core.book.tasks)} tasks")
        self._soon()

    def crash(self, where: str) -> None:
        """Die; whoever was connected will notice."""
        self.world.say("broker", f"dies {where}")
        self.engine = None
        self._life += 1
        self.restarts += 1
        links, self.links = self.links, {}
        for link in links.values():
            link.node_knows = True
            link.cut()
        self.world.after(self.world.rng.randrange(100 * MILLISECOND, 20 * SECOND), self.start)

    def clock_us(self) -> int:
        """Return what the broker's clock shows."""
        return self.world.now_us + self.world.clock_offset_us + self._ahead_us

    def _raise_clock(self, reached_us: int) -> None:
        """Go on from a time that was reached before, at the pace of this clock."""
        self._ahead_us = 0
        self._ahead_us = max(0, reached_us - self.clock_us())

    # Its doors.

    def connect(self, peer: Peer) -> Link | None:
        """Open a connection, if the broker is up."""
        if self.engine is None:
            return None
        self._sessions += 1
        link = self.links[self._sessions] = Link(self.world, self, peer, self._sessions)
        return link

    def receive(self, link: Link, command: Command) -> None:
        """Take a command that arrived."""
        if self.engine is not None and link.session in self.links:
            self._inbox.append(command)  # type: ignore[arg-type]
            self._soon()

    # Its turns, in which it may die at any step.

    def _soon(self) -> None:
        if not self._is_turning:
            self._is_turning = True
            self._later(100, self._decide)

    def _later(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do something later, if the process still lives then."""
        life = self._life
        self.world.after(delay_us, lambda: action() if life == self._life else None)

    def _dies(self, where: str) -> bool:
        if self.engine is not None and self.world.chance(self.world.faults.crash_at_step):
            self.crash(where)
        return self.engine is None

    def _decide(self) -> None:
        engine = self.engine
        if engine is None or self._dies("before deciding"):
            return
        some = slice(self.checker.commands_max)
        commands, self._inbox = self._inbox[some], self._inbox[some.stop :] if some.stop else []
        for command in commands:
            self.world.say("core", command)
        if engine.heal() and engine.core is not self._settled_core:
            # A fault replaces the core, as a restart does: what was leased must be settled anew.
            self._settled_core = engine.core
            commands = [Recover(), *commands]
        turn = engine.decide(self.clock_us(), commands)
        if self._dies("after deciding"):
            return
        self._later(self.world.rng.randrange(300, 3 * MILLISECOND), lambda: self._store(turn))

    def _store(self, turn: Turn) -> None:
        engine = self.engine
        if engine is None or self._dies("before storing"):
            return
        try:
            engine.store(turn)
        except SyncFailed:
            # The state of the disk is unknown: a real node stops here.
            self.crash("because a write failed")
            return
        except DiskFull as fault:
            self._release(engine.fail(turn, fault))
            for link in list(self.links.values()):
                link.cut()
        else:
            if self._dies("after storing"):
                return
            self._turns += 1
            effects = engine.settle(turn)
            if self._turns % _CHECK_EVERY_TURNS == 0:
                check(engine.core)
            self.checker.on_turn(engine.core, turn)
            if not self._release(effects):
                return
        self._is_turning = False
        if self._inbox:
            self._soon()
        self._schedule_tick()

    def _release(self, effects: list[Effect]) -> bool:
        """Tell the world, and return whether the node lived through it."""
        for effect in effects:
            self.world.say("effect", effect)
            self.checker.on_effect(effect)
            link = self.links.get(effect.session)
            if link is not None:
                link.down(effect)
            if self._dies("between two effects"):
                return False
        return True

    def _schedule_tick(self) -> None:
        engine = self.engine
        deadline_us = None if engine is None else engine.core.next_deadline_us()
        if deadline_us is not None:
            self._later(deadline_us - self.clock_us(), self._tick_now)

    def _tick_now(self) -> None:
        if self.engine is not None and not self._is_turning:
            self._inbox.append(Tick())
            self._soon()

    def _tick(self) -> None:
        world = self.world
        if world.chance(world.faults.clock_jumps):
            world.clock_offset_us = world.rng.randrange(-10 * MINUTE, HOUR)
            world.say("clock", f"is off by {world.clock_offset_us / SECOND} s")
        self._tick_now()
        world.after(_TICK_EVERY_US, self._tick)

    # Writing behind.

    def _begin_flush(self) -> None:
        self.world.after(_FLUSH_EVERY_US, self._begin_flush)
        engine = self.engine
        if engine is None or self._is_turning:
            return
        flush = engine.begin_flush(self.clock_us())
        if flush is not None and not self._dies("before writing behind"):
            self._later(self.world.rng.randrange(50 * MILLISECOND), lambda: self._flush(flush))

    def _flush(self, flush: Flush) -> None:
        engine = self.engine
        if engine is None or self._dies("while writing behind"):
            return
        engine.write_flush(flush)
        if not self._dies("after writing behind"):
            self._later(self.world.rng.randrange(5 * MILLISECOND), lambda: self._end_flush(flush))

    def _end_flush(self, flush: Flush) -> None:
        engine = self.engine
        if engine is None:
            return
        if self._is_turning:
            self._later(MILLISECOND, lambda: self._end_flush(flush))
            return
        engine.end_flush(flush)
        if (command := engine.forgetting()) is not None:
            self._inbox.append(command)
            self._soon()
        self.checker.compare(engine.core)

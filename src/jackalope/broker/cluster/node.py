"""A node: does what `leadership` says, with a broker and a shared journal.

Owns the loop of a node's life and nothing else. Everything that touches the journal runs in the
journal's thread, one call at a time; everything that touches the core runs on the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from time import monotonic_ns

import msgspec
import structlog

from jackalope.broker.cluster.comparison import Comparison, Diverged
from jackalope.broker.cluster.doubt import Doubt, ask_members
from jackalope.broker.cluster.leadership import (
    Action,
    CaughtUp,
    ClaimStored,
    ClaimTaken,
    Eligibility,
    EntryStored,
    Event,
    FellBehind,
    HandedOver,
    HeardClaim,
    HeardEntry,
    HeardFence,
    HeardHandOver,
    MetNewer,
    Move,
    Replace,
    Restored,
    Role,
    StepDown,
    Stop,
    Tick,
    Timing,
    View,
    WasFenced,
    WentAstray,
    next_us,
    step,
)
from jackalope.broker.cluster.levels import Levels, unreadable
from jackalope.broker.cluster.overview import Failover
from jackalope.broker.cluster.restoring import Restorer
from jackalope.broker.cluster.standing import Standing, Status
from jackalope.broker.cluster.trimming import Trimmer
from jackalope.broker.service import Broker
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.records import LEVEL
from jackalope.storage import DiskFull, Fenced, NewerFormat, OutOfReach, StorageFault
from jackalope.storage.entry import Kind
from jackalope.storage.shared.journal import (
    MESSAGES_PER_READ,
    Astray,
    Beat,
    Behind,
    Claim,
    HandOver,
    Heard,
    Replaced,
    SharedJournal,
)
from jackalope.storage.shared.log import Copied
from jackalope.storage.standby import Fence, write_fence
from jackalope.wire.peer import LogHealth

log = structlog.get_logger(component="cluster")

#: How many changes of the leader a node remembers.
_FAILOVERS = 20

#: How long a follower waits for news at a time, and how long it may apply them without a pause.
_PATIENCE_US = 200 * MILLISECOND
_SLICE_NS = 5_000_000

#: A log that does not continue is asked so often, so long apart, before the node stands still: a
#: replica that has just become the one that decides may lag for a moment.
_DOUBTS_MAX = 20
_DOUBT_S = 0.25
#: How often a leader that is busy says who it is, for nodes that began in the middle of its epoch.
_TELL_NS = 1_000_000_000
#: What stands behind the last batch cannot be trimmed: after so many beats there is an empty one.
_BEATS_MAX = 1_000
#: A follower that lags by more has not caught up.
_LAG_US_MAX = 5 * SECOND
#: The pause before all members are asked again for their state.
_RESTORE_S = 1.0
#: How long a leader may take to leave, and how long it waits for the next one's claim at a time.
_LEAVE_S = 5.0
_SUCCESSOR_S = 0.2

#: A leader that has stored nothing for so many takeovers lets its clients go: by then another node
#: leads, if one that has the log is left.
_SILENCE_TAKEOVERS = 2
_SILENT = "the shared log does not answer; another node may lead"


class Node:
    """One of several brokers that share a journal."""

    def __init__(
        self,
        broker: Broker,
        journal: SharedJournal,
        place: int = 0,
        timing: Timing | None = None,
        before: tuple[str, ...] = (),
    ) -> None:
        self.view = View(name=journal.node, place=place, before=before)
        self.timing = timing or Timing()
        self.on_lead: Callable[[], Coroutine[None, None, None]] | None = None
        self.find: Callable[[str, str], str] = lambda name, _: name  # where a node's door is
        # Each returns why this node may not lead, and nothing if it may.
        self.refusals: list[Callable[[], str]] = [lambda: unreadable(self.level())]
        self.changed: list[Callable[[], None]] = []  # called when role or leader changes
        self.levels = Levels(lambda: broker.peers)
        self.log_health: LogHealth | None = None
        self.failovers: deque[Failover] = deque(maxlen=_FAILOVERS)  # the latest first
        self._broker = broker
        self._journal = journal
        self._to = ""
        self._by = ""  # the standby that is to lead in place of the cluster, or does
        self._is_stopping = False
        self._has_left = asyncio.Event()  # it leads no more, and its sessions have ended
        self._is_silenced = False  # it leads as far as it knows, and can store nothing
        self.doubt = Doubt(journal)
        self.comparison = Comparison(journal)
        self._restorer = Restorer(broker, journal, lambda: self._is_stopping)
        broker.listen(self.comparison)
        self._has_led = False  # since its state was built from disk
        self.trimmer = Trimmer(broker, journal)
        self.restores = 0  # how often it has taken over the state of another node
        self.members = 1  # how many nodes the cluster has
        self._takeovers = self._chain_errors = self._doubts = 0
        self._behind = 0  # messages of the log that are not applied
        self._level_us = _now_us()  # when there were none
        self._end: int | None = None  # of the log, when this node began to catch up
        broker.leader = self
        broker.blobs.is_ours = False

    def status(self) -> Status:
        view = self.view
        why, wrong = view.why or view.unfit, dict(self.doubt.wrong)
        applied, diverged = self._broker.engine.sequence, self.comparison.diverged
        return Status(view.role, view.epoch, view.leader, applied, why, wrong, diverged)

    def standing(self) -> Standing:
        view, now_us = self.view, _now_us()
        leads = view.role is Role.LEADING
        self._note_stored()
        silent_us = now_us - (self.view.sent_us if leads else view.heard_us)
        has_quorum = silent_us < 2 * self.timing.takeover_us
        lag_us = now_us - self._level_us if self._behind and not leads else 0
        has_caught_up = view.role is Role.FOLLOWING and lag_us < _LAG_US_MAX
        return Standing(
            role=str(view.role),
            epoch=view.epoch,
            leader=view.leader,
            members=self.members,
            lag_batches=0 if leads else self._behind,
            lag_s=lag_us / SECOND,
            has_quorum=has_quorum,
            is_ready=has_quorum and (leads or (has_caught_up and bool(view.leader))),
            why=view.why if view.role is Role.FENCED else "",
            takeovers=self._takeovers,
            chain_errors=self._chain_errors,
            wrong_copies=self.doubt.wrong,
            divergences=self.comparison.diverged,
        )

    def mirrored(self) -> int:
        """Return the last batch that is safe in this node's copy of the log."""
        return self._journal.mirror.durable

    def position(self) -> int:
        """Return where in the log this node is."""
        return self._journal.mark.position

    async def start(self) -> None:
        """Begin to follow."""
        self._tell()
        await self._broker.start(self.run)

    async def leave(self) -> None:
        """Hand over if this node leads, and begin to stop; return when clients were sent on."""
        self._is_stopping = True
        if self.view.role in (Role.LEADING, Role.HANDING_OVER):
            self._broker.relieve()
            with suppress(TimeoutError):  # The log does not answer: nothing is left to wait for.
                async with asyncio.timeout(_LEAVE_S):
                    await self._has_left.wait()
        if isinstance(self._journal.log, Copied):  # Its server may be about to stop as well.
            with suppress(StorageFault):
                await self._broker.off_loop(partial(self._journal.log.shun, self.view.name))

    async def stop(self) -> None:
        """Hand over if this node leads, and stop."""
        self._is_stopping = True
        self._broker.relieve()
        await self._broker.stop()

    def step_down(self, to: str = "") -> None:
        """Let another node lead: the one that is named, or any."""
        self._to = to
        if self.view.role is Role.LEADING:
            self._broker.relieve()

    # The level of the records.

    def level(self) -> int:
        """Return at which level the leader makes records; 0 if nothing says."""
        return self._broker.engine.core.book.counters.level

    async def raise_level(self, level: int) -> None:
        """Make records of a higher level from now on; returns when that stands in the log.

        Raises:
            ValueError: a member does not read them.
            StorageFault: it is not stored, or another node leads by now.
        """
        if lacking := self.levels.lacking(level):
            raise ValueError(f"not every member reads level {level}: {'; '.join(lacking)}")
        if level > self.level():
            await self._broker.between_stores(lambda: self._append_empty(level))
            log.info("the level of the log is raised", level=level)

    def _append_empty(self, level: int) -> None:
        if self.view.role is not Role.LEADING:
            raise Fenced("this node no longer leads")
        self._broker.engine.append_empty(level)

    # What may be answered from memory.

    answers_reads = False

    def may_read(self) -> bool:
        """Return whether no other node can lead by now; a follower answers what it has."""
        if self.view.role is not Role.LEADING:
            return self.view.role is not Role.HANDING_OVER  # Then another may lead, unheard of.
        self._note_stored()
        return self.view.may_read(_now_us(), self.timing)

    async def confirm(self) -> None:
        """Return when an entry that was put after this call stands in the log."""
        if self.view.role is Role.HANDING_OVER:
            await self._has_left.wait()
            raise Fenced("another node leads")
        await self._beat()

    # Where the leader is.

    def elsewhere(self, door: str) -> str | None:
        """Return where a door of the leader is; nothing if none is known, None if this one is."""
        if self.view.role is Role.LEADING:
            return "" if self._is_silenced else None
        if self.view.role is Role.FENCED:
            return self._by if door == "native" else ""
        leader = self.view.leader
        return self.find(leader, door) if leader and leader != self.view.name else ""

    @property
    def epoch(self) -> int:
        return self.view.epoch

    # The loop.

    async def run(self) -> None:
        """Follow and lead by turns, until told to stop."""

        def is_restoring() -> bool:
            return self.view.role is Role.RESTORING

        syncing = asyncio.create_task(self.trimmer.keep_synced(is_restoring), name="jackalope-sync")
        try:
            await self._live()
        finally:
            syncing.cancel()
            await asyncio.gather(syncing, return_exceptions=True)

    async def _live(self) -> None:
        self.doubt.mirrors = partial(ask_members, self._broker, asyncio.get_running_loop())
        action = Action.FOLLOW
        while action is not Action.EXIT:
            log.debug("next", action=str(action), role=str(self.view.role))
            match action:
                case Action.CLAIM:
                    action = await self._claim()
                case Action.LEAD:
                    action = await self._lead()
                case Action.HAND_OVER:
                    action = await self._hand_over()
                case Action.FENCE:
                    action = await self._put_fence()
                case Action.FOLLOW:
                    action = await self._rejoin()
                case Action.RESTORE:
                    action = await self._restore()
                case Action.STAND_STILL:
                    action = await self._stand_still()
                case _:
                    action = await self._follow()

    def _do(self, event: Event) -> Action:
        """Let leadership decide about an event, and return what to do."""
        before = self.view
        move: Move = step(self.view, event, _now_us(), self.timing)
        self.view = move.view
        if move.to:
            self._to = move.to
        if (before.role, before.leader) != (self.view.role, self.view.leader):
            self._tell()
        return move.action

    def _tell(self) -> None:
        """Log what this node is now, and let the doors know."""
        view = self.view
        for changed in self.changed:
            changed()
        log.info("role", role=str(view.role), epoch=view.epoch, leader=view.leader, why=view.why)
        if view.role is Role.LEADING:
            self._broker.health.down = ""
            return
        what = view.why if view.role is Role.FENCED else f"this node is {view.role}"
        self._broker.health.down = f"{what}; {view.leader} leads" if view.leader else what

    # Following.

    async def _rejoin(self) -> Action:
        """Build the state from disk, and find where the log goes on."""
        engine = self._broker.engine
        await self._broker.off_loop(lambda: None)  # What is being written is written.
        is_behind = engine.sequence != self._journal.mirror.last()
        if is_behind or self._has_led or engine.fault is not None:
            await self._broker.rebuild()  # Sessions and volatile tasks go with the lead.
            self._has_led = False
        while not self._is_stopping:
            try:
                await self._broker.in_journal(self._journal.find_place)
                break
            except OutOfReach as fault:
                log.warning("the log is out of reach", fault=str(fault))
                self._broker.follow_behind()  # Others may need its state meanwhile.
                await asyncio.sleep(_DOUBT_S)
        return Action.NOTHING

    async def _follow(self) -> Action:
        """Apply what is in the log, until there is something else to do."""
        while not self._is_stopping:
            try:
                if self.view.role is Role.CATCHING_UP and self._end is None:
                    self._end = await self._broker.in_journal(self._journal.log.end)
                await self._apply(await self._broker.in_journal(self._listen))
            except StorageFault as fault:
                action = await self._doubt(fault)
            else:
                self._doubts = 0
                if self._end is not None and self._journal.mark.position >= self._end:
                    self._do(CaughtUp())
                    self._end = None
                self._look_at_itself()
                action = self._do(Tick())
            self._broker.follow_behind()
            if action is not Action.NOTHING:
                return action
        return self._do(Stop())

    async def _doubt(self, fault: StorageFault) -> Action:
        """Ask again where that may help; return what to do where it does not."""
        if isinstance(fault, Behind | Diverged):
            self._restorer.is_diverged = isinstance(fault, Diverged)
            return self._do(FellBehind(str(fault)))
        if isinstance(fault, NewerFormat):
            return self._do(MetNewer(str(fault)))
        if not isinstance(fault, Astray | OutOfReach | DiskFull):
            raise fault
        log.warning("cannot follow the log; asking again", fault=str(fault))
        if isinstance(fault, Astray):
            self._chain_errors += 1
            try:
                return await self._settle(fault)
            except Astray as still:
                self._doubts += 1
                if self._doubts > _DOUBTS_MAX:
                    return self._do(WentAstray(str(still)))
            except StorageFault as other:
                return await self._doubt(other)
        await asyncio.sleep(_DOUBT_S)
        return await self._rejoin()

    async def _settle(self, fault: Astray) -> Action:
        """Go on with what another copy of the log has."""
        if self._broker.engine.sequence != self._journal.mirror.last():
            raise fault  # What was read and not applied is read again first.
        await self._apply(await self._broker.in_journal(lambda: self.doubt.settle(fault)))
        self._doubts = 0
        return Action.NOTHING

    def _refusal(self) -> str:
        """Return why this node may not lead."""
        return next((why for refusal in self.refusals if (why := refusal())), "")

    def _look_at_itself(self) -> None:
        """Note whether this node may lead."""
        why = self._refusal()
        if bool(why) == self.view.is_eligible:
            log.info("this node may not lead" if why else "this node may lead again", why=why)
        if why != self.view.unfit:
            self._do(Eligibility(not why, why))

    def _listen(self) -> list[Heard]:
        due_us = next_us(self.view, self.timing)
        patience_us = _PATIENCE_US if due_us is None else min(_PATIENCE_US, due_us - _now_us())
        heard = self._journal.follow(max(patience_us, 0) / SECOND)
        self._behind = 0
        if len(heard) < MESSAGES_PER_READ // 2:
            self._level_us = _now_us()
        else:
            with suppress(OutOfReach):  # What was heard must be applied.
                self._behind = self._journal.log.end() - self._journal.mark.position
        return heard

    async def _apply(self, heard: list[Heard]) -> None:
        began_ns = monotonic_ns()
        for entry in heard:
            self._do(self._event_of(entry))
            if entry.kind == Kind.BATCH:
                self._broker.follow(entry.sequence, entry.body)
            elif entry.kind == Kind.FENCE:
                await self._note_fence(entry.sequence)
            elif entry.kind == Kind.BEAT:
                self._compare(entry.body)
            if monotonic_ns() - began_ns > _SLICE_NS:
                await asyncio.sleep(0)
                began_ns = monotonic_ns()

    def _compare(self, body: bytes) -> None:
        check, engine = msgspec.msgpack.decode(body, type=Beat).check, self._broker.engine
        if check is not None:
            self.comparison.compare(check, engine.core, engine.sequence)

    def _event_of(self, entry: Heard) -> Event:
        if entry.kind == Kind.CLAIM:
            claim = msgspec.msgpack.decode(entry.body, type=Claim)
            if claim.cluster != self._journal.cluster:
                raise Astray(f"the log belongs to the cluster {claim.cluster}")
            if claim.level > LEVEL:
                raise NewerFormat(
                    f"{claim.writer} makes records of level {claim.level}; this version of "
                    f"Jackalope reads up to {LEVEL}"
                )
            self._broker.engine.use_level(claim.level)
            self.failovers.appendleft(Failover(entry.epoch, claim.writer, claim.at_us))
            return HeardClaim(entry.epoch, claim.writer)
        if entry.kind == Kind.HAND_OVER:
            return HeardHandOver(entry.epoch, msgspec.msgpack.decode(entry.body, type=HandOver).to)
        if entry.kind == Kind.FENCE:
            self._by = msgspec.msgpack.decode(entry.body, type=Replaced).by
            return HeardFence(self._by)
        if entry.kind == Kind.BEAT:
            writer = msgspec.msgpack.decode(entry.body, type=Beat).writer
            return HeardClaim(entry.epoch, writer) if writer else HeardEntry(entry.epoch)
        return HeardEntry(entry.epoch)

    async def _restore(self) -> Action:
        """Take over the state of another node, whichever has one that the log continues."""
        log.warning("this node restores its state from another", why=self.view.why)
        while not self._is_stopping:
            if await self._restorer.try_all():
                self._end = None
                self.restores += 1
                return self._do(Restored())
            self._broker.follow_behind()
            await asyncio.sleep(_RESTORE_S)
        return self._do(Stop())

    async def _stand_still(self) -> Action:
        """Wait for a person, or for the end."""
        log.error("this node stands still", role=str(self.view.role), why=self.view.why)
        while not self._is_stopping:
            self._broker.follow_behind()
            await asyncio.sleep(_DOUBT_S)
        return self._do(Stop())

    # Leading.

    async def _claim(self) -> Action:
        if not self._journal.may_begin and await self._broker.in_journal(self._journal.is_empty):
            return self._do(ClaimTaken())
        now_us, level = self._broker.now_us(), self.level() or self.levels.first()
        try:
            epoch = await self._broker.in_journal(lambda: self._journal.claim_here(now_us, level))
        except StorageFault as fault:
            log.info("claim lost", why=str(fault))
            return self._do(ClaimTaken())
        self._broker.engine.epoch = epoch
        self._broker.engine.use_level(level)
        self.failovers.appendleft(Failover(epoch, self.view.name, now_us))
        self._look_at_itself()
        return self._do(ClaimStored(epoch, self._journal.sent_ns // 1_000))

    async def _lead(self) -> Action:
        self._has_led, self._by = True, ""  # A fence that failed is not put in a later epoch.
        self._has_left.clear()
        self._takeovers += 1
        beating = asyncio.create_task(self._keep_beating(), name="jackalope-beats")
        begun = [
            beating,
            asyncio.create_task(self.trimmer.keep_trimming(), name="jackalope-trim"),
            asyncio.create_task(self._begin(), name="jackalope-lead"),
            asyncio.create_task(self._watch_silence(), name="jackalope-silence"),
        ]
        try:
            await self._broker.lead()
        except Fenced:
            return self._depose()
        except StorageFault as fault:
            log.exception("storage failed; another node is to lead", fault=str(fault))
        finally:
            self._broker.blobs.leave()
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)
            self._is_silenced = False
        if self._journal.is_fenced:
            return self._depose()
        if self._is_stopping:
            return self._do(Stop())
        if self._by:
            action = self._do(Replace())
            self._end_sessions()
            await self._broker.write_behind()
            return action
        if why := self._refusal():
            return self._do(Eligibility(is_eligible=False, why=why))
        return self._do(StepDown(self._to))

    async def _begin(self) -> None:
        """Declare what is configured; later delete what no task names.

        A leader that was deposed may have named it again, and its last entry may still come.
        """
        if self.on_lead is not None:
            try:
                await self.on_lead()
            except Exception:
                log.exception("what is configured was not declared")
        await asyncio.sleep(2 * self.timing.takeover_us / SECOND)
        self._broker.blobs.is_ours = True

    def _depose(self) -> Action:
        action = self._do(WasFenced())
        self._end_sessions()
        return action

    def _end_sessions(self) -> None:
        self._broker.end_sessions("another node leads; connect again")
        self._has_left.set()

    async def _hand_over(self) -> Action:
        """Let another node lead first: clients wait for it, and keep their connections so long."""
        to, self._to = self._to, ""
        event: Event = HandedOver()
        try:
            await self._broker.in_journal(lambda: self._journal.hand_over(to))
            await self._await_successor()
        except Fenced:
            event = WasFenced()
        except StorageFault as fault:
            log.warning("the next leader is not known", fault=str(fault))
        action = self._do(event)
        self._end_sessions()
        with suppress(StorageFault):  # It is recovered from the mirror.
            await self._broker.write_behind()
        return action

    async def _await_successor(self) -> None:
        """Return when another node leads, or none has claimed for a while; apply nothing."""
        until_us = _now_us() + self.timing.takeover_us
        while self.members > 1 and self.view.leader == self.view.name and _now_us() < until_us:
            for entry in await self._broker.in_journal(lambda: self._journal.follow(_SUCCESSOR_S)):
                if entry.kind == Kind.CLAIM:
                    self._do(self._event_of(entry))

    # A standby in place of the cluster.

    async def fence(self, by: str) -> int:
        """Let no node acknowledge anything any more; return the last batch.

        Args:
            by: where clients find the standby that leads from now on.

        Raises:
            ValueError: this node does not lead.
        """
        if self.view.role is Role.LEADING:
            self._by = by
            self._broker.relieve()
            while self.view.role in {Role.LEADING, Role.HANDING_OVER}:  # noqa: ASYNC110
                await asyncio.sleep(_DOUBT_S)
        if self.view.role is not Role.FENCED:
            raise ValueError("this node does not lead")
        return self._journal.mark.sequence

    async def _put_fence(self) -> Action:
        at_us, by = self._broker.now_us(), self._by
        try:
            await self._broker.in_journal(lambda: self._journal.fence(by, at_us))
        except Fenced:
            self._by = ""
            return self._do(WasFenced())
        except StorageFault as fault:
            log.warning("the fence is not stored", fault=str(fault))
            self._by = ""
            return self._do(HandedOver())
        await self._note_fence(self._journal.mark.sequence)
        return self._do(HeardFence(self._by))

    async def _note_fence(self, last: int) -> None:
        """Keep this node from being started again; the log says the same to those that are."""
        log.error("fenced: the standby was promoted", by=self._by, last=last)
        fence, folder = Fence(self._by, last, self._broker.now_us()), self._broker.storage.path
        if folder is not None:
            await self._broker.off_loop(lambda: write_fence(folder, fence))

    async def _keep_beating(self) -> None:
        """Put a beat whenever nothing else was put for a while."""
        while True:
            self._note_stored()
            due_us = next_us(self.view, self.timing) or _now_us()
            await asyncio.sleep(max(due_us - _now_us(), 0) / SECOND)
            self._note_stored()
            try:
                if self._refusal():
                    self._broker.relieve()
                elif level := self.levels.due(self.level(), _now_us()):
                    await self.raise_level(level)
                is_told = monotonic_ns() - self._journal.told_ns < _TELL_NS
                if self._do(Tick()) is Action.BEAT or not is_told:
                    await self._break_silence()
            except Fenced:
                self._broker.relieve()
                return
            except StorageFault as fault:
                log.warning("the beat is not stored", fault=str(fault))
                await asyncio.sleep(_DOUBT_S)

    async def _watch_silence(self) -> None:
        """Let clients look for another leader while this one can store nothing.

        A node that is cut off from the log is not told that another leads, and would keep its
        clients waiting until it is. It goes on where it was if none does.
        """
        while True:
            await asyncio.sleep(self.timing.beat_us / SECOND)
            self._note_stored()
            silent_us = _now_us() - self.view.sent_us
            was_silenced = self._is_silenced
            self._is_silenced = silent_us > _SILENCE_TAKEOVERS * self.timing.takeover_us
            if self._is_silenced == was_silenced:
                continue
            if was_silenced:
                log.info("the log answers again")
                self._broker.health.down = ""
                continue
            log.warning("the log does not answer; clients are sent away", silent_us=silent_us)
            self._broker.health.down = _SILENT
            self._broker.send_away(_SILENT)

    async def _beat(self) -> None:
        at_us = self._broker.now_us()
        await self._broker.in_journal(lambda: self._journal.beat(at_us))
        self._note_stored()

    async def _break_silence(self) -> None:
        """Put a beat; or an empty batch now and then, so that the beats before it can be cut.

        Not while a turn is being stored: if that fails, the state is read from disk on the loop.
        """
        engine, level = self._broker.engine, self.level()
        if self._journal.beats < _BEATS_MAX or engine.is_turning or engine.fault is not None:
            await self._beat()
            return
        await self._broker.in_journal(lambda: self._append_empty(level))
        self._note_stored()

    def _note_stored(self) -> None:
        if self.view.role is Role.LEADING:
            self._do(EntryStored(self._journal.sent_ns // 1_000))


def _now_us() -> int:
    return monotonic_ns() // 1_000

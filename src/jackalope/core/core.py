"""The core itself: `handle(now, command) -> (records, effects)`.

Owns the contract between deciding and everything else, and the list of rooms; each kind of command
is handled by the room that owns its subject. The duties of the caller:

1. Recall what `missing(command)` names from storage, before `handle`.
2. Make the records durable before any of the effects is released. If that fails, memory is ahead of
   the disk: this core must not be used any more.
3. Call with `Tick` when `next_deadline_us()` has come.

An exception in here is a bug. Before anything has changed (`is_changing` is false) it is about that
command alone, which the caller refuses. Later the state may be half changed, and the caller stops
before it writes anything of the turn.
"""

from __future__ import annotations

from itertools import islice

from jackalope.core import (
    admin,
    amqp,
    cache,
    callbacks,
    contracts,
    flows,
    limiting,
    pacing,
    pools,
    schedules,
    steps,
    tasks,
    workers,
)
from jackalope.core.commands import AnyCommand, ForgetTasks, Recover, Tick
from jackalope.core.commands.base import Command
from jackalope.core.context import Context, Missing, Room, Rooms
from jackalope.core.durations import MILLISECOND
from jackalope.core.effects import Accepted, Effect, Reply
from jackalope.core.limits import DEADLINES_PER_TICK_MAX, ITEMS_PER_COMMAND_MAX
from jackalope.core.records import SINCE, AnyRecord, Forgotten
from jackalope.core.refusals import Code, Refusal
from jackalope.core.state.apply import apply
from jackalope.core.values import FREE, unfit

#: A deadline missed by more than this means that the broker itself did not run.
STALL_US = 250 * MILLISECOND


def tick(ctx: Context, _: Tick) -> Accepted:
    """Process what is due. Each tick has a bound; the rest stays due."""
    for deadline in ctx.rooms.deadlines:
        due = deadline.timers(ctx).pop_due(ctx.now_us)
        deadline.act(ctx, islice(due, DEADLINES_PER_TICK_MAX))
    return Accepted()


def recover(ctx: Context, command: Recover) -> Accepted:
    """Let every room settle what was under way when the broker stopped."""
    counters = ctx.book.counters
    if not command.is_clock_set_back:
        ctx.now_us = max(ctx.now_us, counters.latest_us)
    elif counters.horizon_us > ctx.now_us:
        # What ends from now on is not to be forgotten before its time.
        ctx.record(Forgotten(ctx.now_us, ctx.now_us))
    for recovered in ctx.rooms.recovered:
        recovered(ctx)
    return Accepted()


def forget(ctx: Context, command: ForgetTasks) -> Accepted:
    """Let ended tasks go whose time is over. Storage has them, and removes them after that."""
    through_us = min(command.through_us, ctx.now_us)
    if through_us > ctx.book.counters.horizon_us and ctx.level >= SINCE[Forgotten]:
        ctx.record(Forgotten(ctx.now_us, through_us))
    return Accepted()


#: The rooms. What is added to the core is a room of its own, and a line here.
ROOMS = Rooms(
    Room(handlers={Tick: tick, Recover: recover, ForgetTasks: forget}),
    tasks.ROOM,
    cache.ROOM,
    pacing.ROOM,
    contracts.ROOM,
    limiting.ROOM,
    workers.ROOM,
    steps.ROOM,
    flows.ROOM,
    pools.ROOM,
    schedules.ROOM,
    callbacks.ROOM,
    amqp.ROOM,
    admin.ROOM,
)


class Core(Context):
    """The deterministic state machine of the broker."""

    def __init__(self, rooms: Rooms = ROOMS) -> None:
        super().__init__(rooms)
        self.is_changing = False  # whether the command at hand may have changed something
        self._timers = [deadline.timers(self) for deadline in rooms.deadlines]

    def handle(self, now_us: int, command: AnyCommand) -> tuple[list[AnyRecord], list[Effect]]:
        """Decide one command, and return its records and effects."""
        refusal = unfit(command) if type(command) in FREE else None
        if command.counted and len(getattr(command, command.counted)) > ITEMS_PER_COMMAND_MAX:
            refusal = _too_many(command)
        self.is_changing = True
        if now_us > self.now_us:
            if now_us - self.now_us > STALL_US:
                self._forgive_stall(now_us)
            self.now_us = self.book.gate_changes.now_us = now_us
        answer = refusal or self.decide(command)
        if answer is not None and command.ref:
            self.effects.append(Reply(command.session, command.ref, answer))
        agenda = self.agenda
        while agenda.workers or agenda.lanes or agenda.ended or agenda.rest:
            for settle in self.rooms.settle:
                settle(self)
            if agenda.rest:
                for settle in self.rooms.settle_rest:
                    settle(self)
        records, effects = self.records, self.effects
        self.records, self.effects = [], []
        if records:
            self.book.counters.latest_us = self.now_us
        self.is_changing = False
        return records, effects

    def apply(self, *records: AnyRecord) -> None:
        """Apply records that were decided before: on restart, or by another node."""
        apply(self.book, records)

    def next_deadline_us(self) -> int | None:
        """Return when the next `Tick` is due, or None."""
        deadline_us = None
        for timers in self._timers:
            if not timers.heap:
                continue  # As nearly all are, and this is asked for in every turn.
            at_us = timers.next_us()
            if at_us is not None and (deadline_us is None or at_us < deadline_us):
                deadline_us = at_us
        return deadline_us

    def missing(self, command: AnyCommand) -> Missing | None:
        """Return what the command needs from storage, or None in the common case."""
        look = self.rooms.missing.get(type(command))
        return None if look is None else look(self, command) or None

    def _forgive_stall(self, now_us: int) -> None:
        deadline_us = self.next_deadline_us()
        if self.now_us and deadline_us is not None and now_us - deadline_us > STALL_US:
            for stalled in self.rooms.stalled:
                stalled(self, now_us - self.now_us)


def _too_many(command: Command) -> Refusal:
    count = len(getattr(command, command.counted))
    message = f"{count} items in one command; send at most {ITEMS_PER_COMMAND_MAX}"
    return Refusal(Code.TOO_MANY, message)

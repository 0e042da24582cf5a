"""Leadership: the states of a node, and which event moves it from one to another.

Pure: no clock, no socket, no thread, no log.
`step(view, event, now_us)` returns the next state and what is to be done; the node does it and
reports the outcome as the next event.

Nothing here makes two leaders impossible: that a claim must stand at the very end of the log does.
What is decided here is when to try, and when to stop. So a mistake in here costs time, not tasks,
with one exception: reads, which a leader answers from memory. It may do so only for `read_lease_us`
after it *sent* the last entry that was stored, and no other node claims before `takeover_us` have
passed since it *received* that entry; `Timing` holds the margin between both. Times are of the
node's own steady clock: no clock is compared with another's.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from jackalope.core.durations import MILLISECOND


class Role(StrEnum):
    """What a node is for its cluster."""

    RESTORING = "restoring"  # copies the state of another node
    CATCHING_UP = "catching up"  # applies what it missed
    FOLLOWING = "following"  # applies what the leader decides
    CLAIMING = "claiming"  # wants to lead
    LEADING = "leading"
    HANDING_OVER = "handing over"  # leads no more, and tells so
    OUTDATED = "outdated"  # the log has what only a later version can read
    QUARANTINED = "quarantined"  # its state or the log is damaged
    FENCED = "fenced"  # a standby was promoted in place of the cluster
    STOPPED = "stopped"


class Timing(msgspec.Struct, frozen=True):
    """When to do what, in microseconds."""

    beat_us: int = 300 * MILLISECOND  # a leader with nothing to say says that
    read_lease_us: int = 900 * MILLISECOND  # a leader that was silent for longer does not answer
    takeover_us: int = 1_200 * MILLISECOND  # a leader that was silent for longer is given up
    place_us: int = 150 * MILLISECOND  # each node waits a little longer than the one before
    courtesy_us: int = 300 * MILLISECOND  # for the node that the last leader has named

    def problems(self) -> list[str]:
        """Return why these times do not hold together."""
        found = []
        if self.beat_us * 2 > self.read_lease_us:
            found.append("the read lease must be at least twice the beat")
        if self.read_lease_us * 11 > self.takeover_us * 10:
            found.append("the takeover must be at least a tenth longer than the read lease")
        return found


class View(msgspec.Struct, frozen=True):
    """A node's state."""

    name: str
    place: int = 0  # among the members
    before: tuple[str, ...] = ()  # the members of lower places, as far as they are known
    role: Role = Role.CATCHING_UP
    epoch: int = 0  # the greatest one heard of
    leader: str = ""  # of that epoch; empty if it has handed over
    heard_us: int = 0  # when the last sign of a leader came
    sent_us: int = 0  # when the last own entry that is stored was sent
    claim_us: int = 0  # when to claim
    is_eligible: bool = True  # whether it may claim at all
    unfit: str = ""  # why it may not
    is_stopping: bool = False
    why: str = ""  # it is restoring, outdated, quarantined or fenced

    def may_read(self, now_us: int, timing: Timing) -> bool:
        """Return whether this node may answer from memory what all nodes would agree on."""
        return self.role is Role.LEADING and now_us - self.sent_us < timing.read_lease_us


# What a node reports.


class CaughtUp(NamedTuple):
    """It has applied everything that stood in the log when it began."""


class HeardEntry(NamedTuple):
    """A batch or a beat of a leader was applied."""

    epoch: int


class HeardClaim(NamedTuple):
    """A node has become the leader."""

    epoch: int
    writer: str


class HeardHandOver(NamedTuple):
    """The leader has stepped down."""

    epoch: int
    to: str


class HeardFence(NamedTuple):
    """A standby leads in place of the cluster: nothing follows in the log."""

    by: str  # where it is


class Tick(NamedTuple):
    """Time has passed."""


class ClaimStored(NamedTuple):
    """The claim stands in the log."""

    epoch: int
    sent_us: int


class ClaimTaken(NamedTuple):
    """Something else stands where the claim was to stand."""


class EntryStored(NamedTuple):
    """An own batch or beat stands in the log."""

    sent_us: int


class WasFenced(NamedTuple):
    """Another node's claim stands where an own entry was to stand."""


class StepDown(NamedTuple):
    """Something wants another node to lead: a person, or a disk that fails."""

    to: str = ""


class Replace(NamedTuple):
    """A standby is to lead in place of the cluster."""


class Stop(NamedTuple):
    """The node is to stop."""


class HandedOver(NamedTuple):
    """The hand-over stands in the log, or never will."""


class FellBehind(NamedTuple):
    """The log no longer has what comes next."""

    why: str


class Restored(NamedTuple):
    """The state of another node was installed."""


class WentAstray(NamedTuple):
    """The log does not continue what this node has applied, whichever copy is asked."""

    why: str


class MetNewer(NamedTuple):
    """The log has records of a level that this version does not know."""

    why: str


class Eligibility(NamedTuple):
    """Whether the node may claim has changed: its clock is right or wrong, its disk full or not."""

    is_eligible: bool
    why: str = ""  # it may not


class Action(StrEnum):
    """What a node is to do."""

    NOTHING = "nothing"
    CLAIM = "claim"  # put a claim at the end of the log
    LEAD = "lead"  # let the broker decide
    BEAT = "beat"  # put a beat
    HAND_OVER = "hand over"  # put a hand-over, wait for the next leader, end the sessions
    FENCE = "fence"  # put what ends the log for good
    FOLLOW = "follow"  # end the sessions, rebuild the state from disk, follow
    RESTORE = "restore"  # copy the state of another node
    STAND_STILL = "stand still"  # apply nothing, answer nothing
    EXIT = "exit"


class Move(NamedTuple):
    """The next state, and what to do."""

    view: View
    action: Action = Action.NOTHING
    to: str = ""  # whom to hand over to


def _with(view: View, **changes: Any) -> View:
    return msgspec.structs.replace(view, **changes)


class Moment(NamedTuple):
    """When something happens, and by which times it is judged."""

    now_us: int
    timing: Timing


def _turn_us(view: View, timing: Timing) -> int:
    """Return how long to let others claim first; the leader that is lost is not one of them."""
    return (view.place - (view.leader in view.before)) * timing.place_us


def _patience_us(view: View, timing: Timing) -> int:
    return timing.takeover_us + _turn_us(view, timing)


def next_us(view: View, timing: Timing) -> int | None:
    """Return when `Tick` must come; None if time changes nothing."""
    if view.role is Role.FOLLOWING and view.is_eligible:
        return view.claim_us
    return view.sent_us + timing.beat_us if view.role is Role.LEADING else None


def step(view: View, event: Event, now_us: int, timing: Timing) -> Move:
    """Return what a node becomes by an event, and what it does."""
    move = _TABLE.get((view.role, type(event)), _stay)
    return move(view, event, Moment(now_us, timing))


def _stay(view: View, _event: Event, _at: Moment) -> Move:
    return Move(view)


def _following(view: View, at: Moment, **changes: Any) -> View:
    """Return the state of a node that has just heard something of a leader."""
    heard = _with(view, heard_us=at.now_us, **changes)
    return _with(heard, claim_us=at.now_us + _patience_us(heard, at.timing))


def _caught_up(view: View, _event: CaughtUp, at: Moment) -> Move:
    return Move(_following(view, at, role=Role.FOLLOWING))


def _hear_entry(view: View, event: HeardEntry, at: Moment) -> Move:
    return Move(_following(view, at, epoch=max(view.epoch, event.epoch)))


def _hear_claim(view: View, event: HeardClaim, at: Moment) -> Move:
    return Move(_following(view, at, epoch=event.epoch, leader=event.writer))


def _hear_hand_over(view: View, event: HeardHandOver, at: Moment) -> Move:
    """Claim soon: at once if this node is named, else after the one that is, and in turn."""
    courtesy_us = at.timing.courtesy_us if event.to and event.to != view.name else 0
    turn_us = 0 if event.to == view.name else _turn_us(view, at.timing)
    heard = _with(view, epoch=event.epoch, leader="", heard_us=at.now_us)
    return Move(_with(heard, claim_us=at.now_us + courtesy_us + turn_us))


def _look(view: View, _event: Tick, at: Moment) -> Move:
    """Claim if the leader has been silent for too long."""
    if view.is_eligible and at.now_us >= view.claim_us:
        return Move(_with(view, role=Role.CLAIMING), Action.CLAIM)
    return Move(view)


def _lead(view: View, event: ClaimStored, _at: Moment) -> Move:
    leading = _with(
        view, role=Role.LEADING, epoch=event.epoch, leader=view.name, sent_us=event.sent_us
    )
    if view.is_stopping or not view.is_eligible:
        return Move(_with(leading, role=Role.HANDING_OVER), Action.HAND_OVER)
    return Move(leading, Action.LEAD)


def _lose(view: View, _event: ClaimTaken, at: Moment) -> Move:
    """Read what stands there; until then, no node counts as silent."""
    if view.is_stopping:
        return Move(_with(view, role=Role.STOPPED), Action.EXIT)
    return Move(_following(view, at, role=Role.FOLLOWING))


def _stored(view: View, event: EntryStored, _at: Moment) -> Move:
    return Move(_with(view, sent_us=max(view.sent_us, event.sent_us)))


def _beat(view: View, _event: Tick, at: Moment) -> Move:
    is_due = at.now_us - view.sent_us >= at.timing.beat_us
    return Move(view, Action.BEAT if is_due else Action.NOTHING)


def _depose(view: View, _event: WasFenced, at: Moment) -> Move:
    if view.is_stopping:
        return Move(_with(view, role=Role.STOPPED, leader=""), Action.EXIT)
    deposed = _with(view, role=Role.CATCHING_UP, leader="", heard_us=at.now_us)
    return Move(deposed, Action.FOLLOW)


def _step_down(view: View, event: StepDown, _at: Moment) -> Move:
    return Move(_with(view, role=Role.HANDING_OVER), Action.HAND_OVER, event.to)


def _replace(view: View, _event: Replace, _at: Moment) -> Move:
    return Move(_with(view, role=Role.HANDING_OVER), Action.FENCE)


def _hear_fence(view: View, event: HeardFence, _at: Moment) -> Move:
    """Never claim again."""
    why = f"the standby at {event.by} was promoted in place of this cluster"
    fenced = _with(view, role=Role.FENCED, leader="", why=why)
    return Move(fenced, Action.EXIT if view.is_stopping else Action.FOLLOW)


def _stop_leading(view: View, _event: Stop, _at: Moment) -> Move:
    handing = _with(view, role=Role.HANDING_OVER, is_stopping=True)
    return Move(handing, Action.HAND_OVER)


def _stop_soon(view: View, _event: Stop, _at: Moment) -> Move:
    """Stop once it is known whether this node leads."""
    return Move(_with(view, is_stopping=True))


def _stop(view: View, _event: Stop, _at: Moment) -> Move:
    return Move(_with(view, role=Role.STOPPED, is_stopping=True), Action.EXIT)


def _handed_over(view: View, _event: HandedOver, at: Moment) -> Move:
    """Follow the node that leads by now, or leave time for another to claim."""
    leader = "" if view.leader == view.name else view.leader
    if view.is_stopping:
        return Move(_with(view, role=Role.STOPPED, leader=leader), Action.EXIT)
    freed = _following(view, at, role=Role.CATCHING_UP, leader=leader)
    return Move(freed, Action.FOLLOW)


def _fall_behind(view: View, event: FellBehind, _at: Moment) -> Move:
    return Move(_with(view, role=Role.RESTORING, why=event.why), Action.RESTORE)


def _restored(view: View, _event: Restored, _at: Moment) -> Move:
    return Move(_with(view, role=Role.CATCHING_UP, why=""), Action.FOLLOW)


def _quarantine(view: View, event: WentAstray, _at: Moment) -> Move:
    away = _with(view, role=Role.QUARANTINED, leader="", why=event.why)
    return Move(away, Action.STAND_STILL)


def _outdate(view: View, event: MetNewer, _at: Moment) -> Move:
    return Move(_with(view, role=Role.OUTDATED, why=event.why), Action.STAND_STILL)


def _judge(view: View, event: Eligibility, at: Moment) -> Move:
    """Claim no earlier than a node that has just begun to listen."""
    changed = _with(view, is_eligible=event.is_eligible, unfit=event.why)
    if event.is_eligible and not view.is_eligible:
        changed = _with(
            changed, claim_us=max(view.claim_us, at.now_us + _patience_us(view, at.timing))
        )
    return Move(changed)


def _unfit(view: View, event: Eligibility, at: Moment) -> Move:
    """Let another lead."""
    changed = _judge(view, event, at).view
    if event.is_eligible:
        return Move(changed)
    return Move(_with(changed, role=Role.HANDING_OVER), Action.HAND_OVER)


Event = (
    CaughtUp
    | HeardEntry
    | HeardClaim
    | HeardHandOver
    | HeardFence
    | Tick
    | ClaimStored
    | ClaimTaken
    | EntryStored
    | WasFenced
    | StepDown
    | Replace
    | Stop
    | HandedOver
    | FellBehind
    | Restored
    | WentAstray
    | MetNewer
    | Eligibility
)

_Step = Callable[[View, Any, Moment], Move]

#: What is not in it changes nothing.
_TABLE: dict[tuple[Role, type], _Step] = {
    (Role.CATCHING_UP, CaughtUp): _caught_up,
    (Role.CATCHING_UP, HeardEntry): _hear_entry,
    (Role.CATCHING_UP, HeardClaim): _hear_claim,
    (Role.CATCHING_UP, HeardHandOver): _hear_hand_over,
    (Role.CATCHING_UP, HeardFence): _hear_fence,
    (Role.CATCHING_UP, FellBehind): _fall_behind,
    (Role.CATCHING_UP, WentAstray): _quarantine,
    (Role.CATCHING_UP, MetNewer): _outdate,
    (Role.FOLLOWING, HeardEntry): _hear_entry,
    (Role.FOLLOWING, HeardClaim): _hear_claim,
    (Role.FOLLOWING, HeardHandOver): _hear_hand_over,
    (Role.FOLLOWING, HeardFence): _hear_fence,
    (Role.FOLLOWING, Tick): _look,
    (Role.FOLLOWING, FellBehind): _fall_behind,
    (Role.FOLLOWING, WentAstray): _quarantine,
    (Role.FOLLOWING, MetNewer): _outdate,
    (Role.CLAIMING, ClaimStored): _lead,
    (Role.CLAIMING, ClaimTaken): _lose,
    (Role.CLAIMING, Stop): _stop_soon,
    (Role.LEADING, EntryStored): _stored,
    (Role.LEADING, Tick): _beat,
    (Role.LEADING, WasFenced): _depose,
    (Role.LEADING, StepDown): _step_down,
    (Role.LEADING, Replace): _replace,
    (Role.LEADING, Stop): _stop_leading,
    (Role.LEADING, Eligibility): _unfit,
    (Role.HANDING_OVER, HeardClaim): _hear_claim,
    (Role.HANDING_OVER, HandedOver): _handed_over,
    (Role.HANDING_OVER, HeardFence): _hear_fence,
    (Role.HANDING_OVER, WasFenced): _depose,
    (Role.HANDING_OVER, Stop): _stop_soon,
    (Role.RESTORING, Restored): _restored,
    (Role.RESTORING, WentAstray): _quarantine,
    **{
        (role, Stop): _stop
        for role in (
            Role.CATCHING_UP,
            Role.FOLLOWING,
            Role.RESTORING,
            Role.OUTDATED,
            Role.QUARANTINED,
            Role.FENCED,
        )
    },
    **{
        (role, Eligibility): _judge
        for role in (
            Role.CATCHING_UP,
            Role.FOLLOWING,
            Role.CLAIMING,
            Role.RESTORING,
            Role.HANDING_OVER,
        )
    },
}

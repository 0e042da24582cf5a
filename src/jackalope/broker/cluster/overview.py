"""The overview of a cluster: every member, and what is wrong with the whole.

Pure: what members told, or why they did not, comes from who has asked them: a node for the HTTP
door, or the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from jackalope.broker.cluster.skew import WARN_US
from jackalope.core.durations import SECOND
from jackalope.wire.peer import LogHealth, NodeStatus

_FINE = ("leading", "following")

#: A standby that has been behind for longer is a problem.
_LAG_US_MAX = 10 * SECOND

#: What the two ends are called where a standby is shown.
PRIMARY = "primary"
STANDBY = "standby"


class Seen(msgspec.Struct, frozen=True):
    """What is known of a member by asking it."""

    status: NodeStatus | None = None  # what it told last
    offset_us: int = 0  # of its clock, against that of who asked
    heard_us: int | None = None  # how long ago that was; None if never
    trouble: str = ""  # why it does not answer


class Failover(msgspec.Struct, frozen=True):
    """A node has become the leader."""

    epoch: int
    node: str
    at_us: int


class MemberView(msgspec.Struct, frozen=True):
    """A member of the cluster."""

    node: str
    role: str  # `unreachable` if it does not answer
    epoch: int
    applied: int  # the last batch that it has applied
    lag: int  # how many batches it is behind the leader
    clock_offset_s: float  # how far its clock is from the median of the members
    version: str
    level_max: int  # of the records that it reads
    heard_s: float | None  # how long ago it answered; null if never
    why: str  # it does not follow, may not lead, or does not answer
    differs: str = ""  # where its state was found to differ from the leader's


class Condition(StrEnum):
    """How a cluster is."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"  # it works, and something is to be done
    NO_LEADER = "no leader"


class ClusterView(msgspec.Struct, frozen=True):
    """A cluster."""

    cluster: str
    condition: Condition
    problems: list[str]
    leader: str  # empty if there is none
    epoch: int  # counts the leaders
    level: int  # of the records in the log; 0 if that is not known
    members: list[MemberView]
    log: LogHealth | None = None
    failovers: list[Failover] = []  # those that this node has heard of, the latest first


def overview(
    cluster: str, seen: Mapping[str, Seen], failovers: list[Failover] | None = None
) -> ClusterView:
    """Put together what the members told."""
    told = {name: each.status for name, each in seen.items() if each.status and not each.trouble}
    leading = [each for each in told.values() if each.role == "leading"]
    leader = max(leading, key=lambda each: each.epoch, default=None)
    clocks = sorted(seen[name].offset_us for name in told)
    median_us = clocks[(len(clocks) - 1) // 2] if clocks else 0
    applied = max((each.applied for each in told.values()), default=0)
    members = [_member(name, each, applied, median_us) for name, each in seen.items()]
    log = next((each.log for each in ([leader] if leader else told.values()) if each.log), None)
    problems = _problems(members) + _log_problems(log) + _wrong_copies(told.values())
    level = leader.level if leader is not None else 0
    if level and (could := min(each.level_max for each in told.values())) > level:
        problems += _not_raised(level, could) if len(told) == len(seen) else []
    condition = Condition.DEGRADED if problems else Condition.HEALTHY
    if leader is None:
        condition = Condition.NO_LEADER
        problems.insert(0, "no node leads: nothing is acknowledged")
    epoch = max((each.epoch for each in told.values()), default=0)
    name = leader.node if leader is not None else ""
    return ClusterView(
        cluster, condition, problems, name, epoch, level, members, log, failovers or []
    )


def standby_overview(status: NodeStatus) -> ClusterView:
    """Put together what a standby knows of the broker that it follows, and of itself."""
    told = status.standby
    if told is None:  # It was promoted.
        here = _member(STANDBY, Seen(status, heard_us=0), status.applied, 0)
        return ClusterView("", Condition.HEALTHY, [], STANDBY, status.epoch, status.level, [here])
    heard_s = max(0, status.at_us - told.heard_us) / SECOND if told.heard_us else None
    lag_s = round(told.lag_us / SECOND, 1)
    role = "leading" if told.is_connected else "unreachable"
    members = [
        MemberView(PRIMARY, role, 0, told.last, 0, 0, "", 0, heard_s, told.trouble),
        MemberView(
            STANDBY, STANDBY, status.epoch, status.applied, told.lag, 0, status.version,
            status.level_max, 0, "",
        ),
    ]  # fmt: skip
    problems = []
    if told.trouble:
        problems.append(f"the primary is not followed, for {lag_s:g} s: {told.trouble}")
    elif told.lag_us > _LAG_US_MAX:
        problems.append(f"the standby is {told.lag} batches and {lag_s:g} s behind")
    if told.lacking:
        problems.append(f"{told.lacking} large payloads and results are not copied yet")
    condition = Condition.DEGRADED if problems else Condition.HEALTHY
    leader = PRIMARY if told.is_connected else ""
    return ClusterView(
        told.primary or told.address, condition, problems, leader, status.epoch, status.level,
        members,
    )  # fmt: skip


def _not_raised(level: int, could: int) -> list[str]:
    return [
        f"all members read level {could}, and the log is at {level}: `cluster upgrade` raises it"
    ]


def _member(name: str, seen: Seen, applied: int, median_us: int) -> MemberView:
    status = seen.status
    heard_s = None if seen.heard_us is None else seen.heard_us / SECOND
    if status is None:
        return MemberView(name, "unreachable", 0, 0, 0, 0, "", 0, heard_s, seen.trouble)
    is_here = not seen.trouble
    return MemberView(
        name,
        status.role if is_here else "unreachable",
        status.epoch,
        status.applied,
        max(0, applied - status.applied),
        round((seen.offset_us - median_us) / SECOND, 3) if is_here else 0,
        status.version,
        status.level_max,
        heard_s,
        seen.trouble or status.why,
        status.diverged if is_here else "",
    )


def _problems(members: list[MemberView]) -> list[str]:
    found = []
    for each in members:
        if each.role == "unreachable":
            found.append(f"{each.node} does not answer: {each.why}")
        elif each.role not in _FINE or each.why:
            found.append(f"{each.node} is {each.role}" + (f": {each.why}" if each.why else ""))
        elif each.differs:
            found.append(
                f"the state of {each.node} differed from the leader's {each.differs}, and was "
                "replaced by that of another: `cluster verify` compares it again"
            )
        elif abs(each.clock_offset_s) > WARN_US / SECOND:
            found.append(f"the clock of {each.node} is wrong by {each.clock_offset_s:g} s")
    versions = sorted({each.version for each in members if each.version})
    if len(versions) > 1:
        found.append(f"the members have versions {', '.join(versions)}: finish the upgrade")
    return found


def _wrong_copies(told: Iterable[NodeStatus]) -> list[str]:
    found: dict[str, list[str]] = {}
    for each in told:
        for copy in each.wrong:
            found.setdefault(copy, []).append(each.node)
    return [
        f"{', '.join(nodes)} found the copy of the log at {copy} damaged: repair it as the runbook "
        "says, and let `cluster verify` look at it"
        for copy, nodes in sorted(found.items())
    ]


def _log_problems(log: LogHealth | None) -> list[str]:
    if log is None:
        return []
    return [
        f"the copy of the log at {each.node} is {each.lag} entries behind"
        for each in log.copies
        if not each.is_current
    ]

"""Verification: what the members found on their disks, held against each other.

Pure: who differs, from which batch on, and what to do. The members are asked by the command line,
or their folders are read by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from jackalope.wire.peer import CopyFound, NodeStatus

EQUAL, DIFFERS, UNKNOWN = "equal", "differs", "not compared"

_MEND_MIRROR = (
    "stop it, remove `shards/0/mirror` in its data folder and start it again: it reads the rest "
    "from the log"
)
_MEND_NODE = "keep its data folder, and start it with an empty one: it copies the state of another"
_MEND_COPY = "stop that node, remove `nats` in its data folder and start it again"


class Looked(msgspec.Struct, frozen=True):
    """What one member found."""

    status: NodeStatus | None = None  # None if it does not answer
    trouble: str = ""  # why not
    first: int = 1  # the batches in its mirror
    last: int = 0
    digest: bytes = b""  # of the chain at the batch that all were asked for
    problem: str = ""  # of the mirror
    compared: int = 0  # slices of its state that were equal to the leader's in this round
    diverged: int = 0  # and those that were not
    differs: str = ""  # where


class MemberVerdict(msgspec.Struct, frozen=True):
    """What was found about a member."""

    node: str
    role: str
    applied: int
    mirror: str  # its batches
    chain: str
    state: str
    log_copy: str
    flushed: int = 0  # through which its history is written
    durable: int = 0  # and is safe from a power failure


class Verdict(msgspec.Struct, frozen=True):
    """What was found about a cluster."""

    cluster: str
    at: int  # the batch at which chains were compared; 0 if they were not
    slices: int  # of the state; 0 if it was not compared
    members: list[MemberVerdict]
    differences: list[str]  # which member differs, from where on, and what to do
    unknown: list[str]  # what was not compared, and why


def verdict(
    cluster: str,
    at: int,
    slices: int,
    looked: Mapping[str, Looked],
    *,
    copies: Iterable[CopyFound],
    splits: Mapping[str, int],
) -> Verdict:
    """Judge what members found.

    Args:
        cluster: its name.
        at: the batch for which each was asked for the digest of its chain; 0 for none.
        slices: how many slices of its state the leader has told; 0 if none leads.
        looked: what each member found.
        copies: what each copy of the log has.
        splits: for members whose chain differs, the first batch at which it does.
    """
    found = {each.node: each for each in copies}
    right = _most(each.digest for each in looked.values())
    members, differences, unknown = [], [], []
    for name, each in looked.items():
        copy = found.get(name)
        was_read = copy is not None and not copy.trouble
        log_copy = (copy.problem or f"{copy.messages} messages") if copy and was_read else UNKNOWN
        if each.status is None:
            unknown.append(f"{name} does not answer: {each.trouble}")
            row = MemberVerdict(name, "unreachable", 0, "", UNKNOWN, UNKNOWN, log_copy)
        else:
            chain, state = _chain(each, right), _state(each, slices)
            told, missed = _sentences(name, each, chain, state, splits.get(name, 0))
            differences += told
            unknown += missed
            row = MemberVerdict(
                name,
                each.status.role,
                each.status.applied,
                f"{each.first}-{each.last}" if each.last >= each.first else "empty",
                "damaged" if each.problem else chain,
                state,
                log_copy,
                each.status.flushed,
                each.status.durable,
            )
        members.append(row)
    for copy in found.values():
        if copy.problem:
            differences.append(f"the copy of the log at {copy.node}: {copy.problem}; {_MEND_COPY}")
        elif copy.trouble:
            unknown.append(f"the copy of the log at {copy.node} was not read: {copy.trouble}")
    if not slices:
        unknown.append("no node leads, so states were not compared")
    return Verdict(cluster, at, slices, members, differences, unknown)


def _most(digests: Iterable[bytes]) -> bytes:
    """Return the digest that most have; none if there are two such."""
    told = Counter(each for each in digests if each).most_common(2)
    is_tied = len(told) == 2 and told[0][1] == told[1][1]
    return told[0][0] if told and not is_tied else b""


def _chain(each: Looked, right: bytes) -> str:
    if not each.digest:
        return UNKNOWN
    return EQUAL if each.digest == right else DIFFERS


def _state(each: Looked, slices: int) -> str:
    if each.diverged:
        return DIFFERS
    leads = each.status is not None and each.status.role == "leading"
    return EQUAL if slices and (leads or each.compared >= slices) else UNKNOWN


def _sentences(
    name: str, each: Looked, chain: str, state: str, split: int
) -> tuple[list[str], list[str]]:
    """Return what differs at a member, and what is not known of it."""
    told, missed = [], []
    if each.problem:
        told.append(f"the mirror of {name} is damaged: {_short(each.problem)}; {_MEND_MIRROR}")
    elif chain == DIFFERS:
        where = f"from batch {split} on" if split else "at the batch that all have"
        told.append(f"{name} has another log than the others {where}: {_MEND_NODE}")
    elif chain == UNKNOWN:
        missed.append(f"{name} does not have the batch at which the others were compared")
    if state == DIFFERS:
        told.append(
            f"the state of {name} differed from the leader's {each.differs}; it takes over the "
            f"state of another node by itself. If that happens again, its machine is broken, or "
            "this is a bug to report"
        )
    elif state == UNKNOWN and each.status is not None and each.status.leader:
        role, why = each.status.role, each.status.why or "it has compared a part only"
        missed.append(f"the state of {name} was not compared: it is {role}: {why}")
    if each.status is not None and each.status.role == "quarantined":
        told.append(f"{name} is quarantined: {each.status.why}; {_MEND_NODE}")
    return told, missed


def _short(problem: str) -> str:
    """Return what is wrong, without the advice for a broker that is alone."""
    return problem.partition(". Keep a copy")[0]

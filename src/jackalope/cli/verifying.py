"""What the members of a cluster are asked so that their copies can be compared, and in which order.

The leader first tells the digest of its whole state in the log, and each follower compares its own
as it reads that. Then every node reads its mirror, and is asked for the digest of the chain at one
batch; one node reads all copies of the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress

from jackalope.broker.cluster.peer_link import PeerGone
from jackalope.cli.member_calls import Members
from jackalope.cli.verdict import EQUAL, Looked, Verdict, verdict
from jackalope.wire.peer import (
    AskClear,
    AskCompare,
    AskStatus,
    AskVerify,
    Compared,
    CopyFound,
    Done,
    NodeStatus,
    Verified,
)

#: How long a node may take to tell all of its state, or to read its disk and the log; how long the
#: others may take to have read it.
_COMPARE_S = 600.0
_READ_S = 600.0
_FOLLOW_S = 60.0

_QUICK = AskVerify(0, is_whole=False)


async def verify(members: Members) -> Verdict:
    """Compare all members that answer, and let those that are well doubt nothing any more."""
    before = await _ask_all(members, members.all, _QUICK, Verified)
    told, troubles = await _go_round(members)
    seen = await _ask_all(members, members.all, AskStatus(), NodeStatus)
    here = {name: each for name, each in seen.items() if isinstance(each, NodeStatus)}
    at = min((each.applied for each in here.values()), default=0)
    reader = next((n for n, each in here.items() if each.role == "leading"), next(iter(here), ""))
    found = await asyncio.gather(
        *(_look(members, name, AskVerify(at, has_copies=name == reader)) for name in here)
    )
    verified = dict(zip(here, found, strict=True))
    looked, copies = {}, tuple[CopyFound, ...]()
    for name, status in seen.items():
        answer, earlier = verified.get(name), before[name]
        if not isinstance(status, NodeStatus) or not isinstance(answer, Verified):
            trouble = status if isinstance(status, str) else answer
            looked[name] = Looked(trouble=str(trouble))
            continue
        copies = copies or answer.copies
        looked[name] = _looked(status, answer, earlier if isinstance(earlier, Verified) else None)
    splits = await _splits(members, looked, at)
    slices = told.slices if told is not None else 0
    made = verdict(members.cluster, at, slices, looked, copies=copies, splits=splits)
    made.unknown.extend(troubles)
    await _clear(members, made, copies)
    return made


def _looked(status: NodeStatus, answer: Verified, earlier: Verified | None) -> Looked:
    # One that was started again in between has counted from 0.
    is_same = earlier is not None and earlier.compared <= answer.compared
    was = earlier if is_same and earlier is not None else Verified(1, 0, b"")
    return Looked(
        status,
        "",
        answer.first,
        answer.last,
        answer.digest,
        answer.problem,
        answer.compared - was.compared,
        max(0, answer.diverged - was.diverged),
        answer.differs,
    )


async def _look(members: Members, name: str, request: AskVerify) -> Verified | str:
    try:
        return await members.ask(name, request, Verified, _READ_S)
    except PeerGone as gone:
        return str(gone)


async def _ask_all(
    members: Members, names: Mapping[str, object], request: AskVerify | AskStatus, shape: type
) -> dict[str, object]:
    """Ask members at once; return the answer of each, or why there is none."""

    async def ask(name: str) -> object:
        try:
            return await members.ask(name, request, shape)
        except PeerGone as gone:
            return str(gone)

    answers = await asyncio.gather(*map(ask, names))
    return dict(zip(names, answers, strict=True))


async def _go_round(members: Members) -> tuple[Compared | None, list[str]]:
    """Let the leader tell its state, and wait until the others have read that."""
    view = await members.overview()
    if not view.leader:
        return None, []
    try:
        told = await members.ask(view.leader, AskCompare(), Compared, _COMPARE_S)
    except PeerGone as gone:
        return None, [f"{view.leader} did not tell its state: {gone}"]
    end, late = time.monotonic() + _FOLLOW_S, list[str]()
    while time.monotonic() < end:
        seen = await _ask_all(members, members.all, AskStatus(), NodeStatus)
        late = [
            name
            for name, each in seen.items()
            if isinstance(each, NodeStatus)
            and each.role in {"following", "catching up"}
            and each.log_end < told.position
        ]
        if not late:
            return told, []
        await asyncio.sleep(0.1)
    return told, [f"{name} lags, and has not read all of the log" for name in late]


async def _splits(members: Members, looked: Mapping[str, Looked], at: int) -> dict[str, int]:
    """Find the first batch from which the chains of two members differ."""
    known = {name: each for name, each in looked.items() if each.digest}
    splits = {}
    for name, each in known.items():
        for other, against in known.items():
            if against.digest != each.digest:
                low = max(each.first, against.first) - 1
                splits[name] = await _split(members, (name, other), low, at)
                break
    return splits


async def _split(members: Members, pair: tuple[str, str], low: int, high: int) -> int:
    """Return the first batch whose digests differ; they do at `high`."""
    while low + 1 < high:
        middle = (low + high) // 2
        request = AskVerify(middle, is_whole=False)
        answers = [await _look(members, name, request) for name in pair]
        digests = {each.digest for each in answers if isinstance(each, Verified)}
        if len(digests) == 1 and b"" not in digests:
            low = middle
        else:
            high = middle
    return high


async def _clear(members: Members, made: Verdict, copies: tuple[CopyFound, ...]) -> None:
    """Tell members what was found sound, so that their status shows it no more."""
    sound = tuple(each.node for each in copies if not each.problem)
    if sound and len(sound) == len(copies):
        sound += ("the log",)
    for each in made.members:
        if each.role != "unreachable":
            with suppress(PeerGone):
                await members.ask(each.node, AskClear(sound, each.state == EQUAL), Done)

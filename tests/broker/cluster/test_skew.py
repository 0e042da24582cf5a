"""Whose clock is wrong, and that such a node does not decide."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jackalope.broker.cluster.leadership import Role
from jackalope.broker.cluster.skew import skew_of
from jackalope.core.durations import HOUR, SECOND
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from tests.broker.cluster.machines import in_loop, running, until
from tests.core.driving import spec

MAX_US = 10 * SECOND


@pytest.mark.parametrize(
    ("offsets_us", "ahead_us"),
    [
        ([], 0),
        ([-HOUR, -HOUR], HOUR),
        ([HOUR, HOUR], -HOUR),
        ([0, HOUR], 0),  # another one's is wrong
        ([0, -HOUR], 0),
        ([-HOUR, HOUR], 0),  # all three differ: one of them leads
        ([-HOUR], HOUR),  # of two, the one that is behind leads
        ([HOUR], 0),
        ([-HOUR, -HOUR, 0, 0], 0),
        ([-HOUR, -HOUR, -HOUR, 0], HOUR),
    ],
)
def test_the_median_is_right(offsets_us: list[int], ahead_us: int) -> None:
    skew = skew_of(offsets_us)
    assert skew.ahead_us == ahead_us
    assert bool(skew.refusal(MAX_US)) == bool(ahead_us)
    assert skew.worst_us == max(map(abs, offsets_us), default=0)


def test_one_of_any_members_may_lead() -> None:
    clocks = [0, 7 * SECOND, 40 * SECOND, -HOUR, HOUR]
    for count in (1, 2, 3, 5):
        fit = [
            each
            for n, each in enumerate(clocks[:count])
            if not skew_of(
                [other - each for m, other in enumerate(clocks[:count]) if m != n]
            ).refusal(MAX_US)
        ]
        assert fit


def test_the_refusal_says_which_way() -> None:
    assert "3600 s ahead of" in skew_of([-HOUR, -HOUR]).refusal(MAX_US)
    assert "3600 s behind" in skew_of([HOUR, HOUR]).refusal(MAX_US)
    assert skew_of([MAX_US, MAX_US]).refusal(MAX_US) == ""


def saying(why: dict[str, str], name: str) -> Callable[[], str]:
    return lambda: why.get(name, "")


@in_loop
async def test_a_leader_that_may_not_lead_hands_over_until_it_may(tmp_path: Path) -> None:
    why: dict[str, str] = {}
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        for machine in cluster.machines:
            machine.node.refusals.append(saying(why, machine.name))
        first = await cluster.led()
        await cluster.submit(spec(1))
        why[first.name] = "its clock is wrong"
        await until(lambda: cluster.leader() not in (None, first))
        assert first.node.status().why == "its clock is wrong"
        second = await cluster.led()
        await second.lose()
        third = await cluster.led()
        assert third is not first
        await cluster.submit(spec(2))
        await third.lose()  # Nobody else is left, and it still does not lead.
        await until(lambda: first.node.view.role is Role.FOLLOWING)
        why.clear()
        assert await cluster.led() is first
        await cluster.submit(spec(3))

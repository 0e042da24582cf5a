"""Declarations that belong together: all of them are carried out, or none."""

import pytest

from jackalope.core.commands import (
    Command,
    DeclareAll,
    DeclarePool,
    DeclareQueue,
    FollowPools,
    LimitTag,
)
from jackalope.core.commands.limits import DeclareLimits
from jackalope.core.effects import Accepted
from jackalope.core.records import FLOW_CONTROL_LEVEL
from jackalope.core.refusals import Code
from tests.core.driving import Driver

GOOD: list[Command] = [
    DeclareQueue(queue="a", changes={"retries": 3}),
    DeclareQueue(queue="b", changes={"result_becomes": "a"}),
    DeclarePool(queue="a", changes={"workers_max": 2}),
    LimitTag(tag="gpu", limit=1),
    DeclareLimits(limits={"per-user": {"keys": ["user"], "rate": 5}}),
]
BAD: dict[str, tuple[Command, Code]] = {
    "form a cycle": (DeclareQueue(queue="a", changes={"result_becomes": "b"}), Code.POLICY_CYCLE),
    "a setting": (DeclareQueue(queue="c", changes={"nonsense": 1}), Code.INVALID),
    "a name": (DeclareQueue(queue="x" * 300), Code.INVALID),
    "a pool": (DeclarePool(queue="a", changes={"workers_max": 0}), Code.INVALID),
    "a limit by key": (DeclareLimits(limits={"per-user": {"rate": -5}}), Code.INVALID),
    "a limit": (LimitTag(tag="", limit=1), Code.INVALID),
}


def test_all_are_carried_out() -> None:
    driver = Driver()
    assert driver.send(DeclareAll(declarations=GOOD)) == Accepted(5)
    world = driver.core.book.namespaces["default"]
    assert (set(world.queues), world.gates.tags) == ({"a", "b"}, {"gpu": 1})
    assert world.queues["a"].policy.retries == 3
    assert world.gates.limits["per-user"].settings.rate == 5
    assert len(driver.journal) == 1


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("place", range(len(GOOD) + 1))
def test_one_that_is_refused_leaves_nothing_behind(name: str, place: int) -> None:
    bad, code = BAD[name]
    driver = Driver()
    driver.send(DeclareQueue(queue="b", changes={"result_becomes": "a"}))
    before = driver.snapshot()
    answer = driver.send(DeclareAll(declarations=[*GOOD[:place], bad, *GOOD[place:]]))
    assert isinstance(answer, Accepted)
    assert answer.count == 0
    assert code in {refusal.code for _, refusal in answer.refused}
    assert driver.records == []
    assert driver.snapshot() == before


def test_what_the_log_cannot_hold_yet_is_refused() -> None:
    driver = Driver()
    driver.core.level = FLOW_CONTROL_LEVEL - 1
    answer = driver.send(DeclareAll(declarations=GOOD))
    assert isinstance(answer, Accepted)
    assert [place for place, _ in answer.refused] == [len(GOOD) - 1]
    assert driver.records == []


def test_what_is_there_already_counts() -> None:
    driver = Driver()
    driver.send(DeclareQueue(queue="a", changes={"result_becomes": "b"}))
    circle = DeclareAll(declarations=[DeclareQueue(queue="b", changes={"result_becomes": "a"})])
    answer = driver.send(circle)
    assert isinstance(answer, Accepted)
    assert [(place, refusal.code) for place, refusal in answer.refused] == [(0, Code.POLICY_CYCLE)]


def test_a_pool_may_name_a_launcher_that_is_there() -> None:
    driver = Driver()
    pool = DeclarePool(queue="a", changes={"launcher": "local"})
    answer = driver.send(DeclareAll(declarations=[pool]))
    assert isinstance(answer, Accepted)
    assert [refusal.code for _, refusal in answer.refused] == [Code.WRONG_STATE]
    driver.send(FollowPools(launchers=("local",), session=5))
    assert driver.send(DeclareAll(declarations=[pool])) == Accepted(1)

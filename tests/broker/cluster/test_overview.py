"""The overview of a cluster: what is told of members that answer, and of those that do not."""

from typing import Any

import pytest

from jackalope.broker.cluster.overview import Condition, Seen, overview
from jackalope.core.durations import HOUR, SECOND
from jackalope.wire.peer import LogCopy, LogHealth, NodeStatus


def told(node: str, role: str = "following", **more: Any) -> NodeStatus:
    fields: dict[str, Any] = {
        "version": "1.0",
        "level_min": 1,
        "level_max": 2,
        "epoch": 4,
        "leader": "a",
        "applied": 100,
        "mirrored": 100,
        "flushed": 90,
        "durable": 80,
        "log_start": 0,
        "log_end": 120,
        "at_us": 0,
        "level": 2,
    }
    return NodeStatus(node=node, cluster="c", role=role, **(fields | more))


def seen(**changes: Seen) -> dict[str, Seen]:
    all_well = {
        "a": Seen(told("a", "leading"), 0, 0),
        "b": Seen(told("b", applied=97), 20_000, 0),
        "c": Seen(told("c"), -20_000, 0),
    }
    return all_well | changes


def test_a_healthy_cluster() -> None:
    view = overview("c", seen())
    assert (view.condition, view.problems) == (Condition.HEALTHY, [])
    assert (view.leader, view.epoch, view.level) == ("a", 4, 2)
    assert [each.lag for each in view.members] == [0, 3, 0]
    assert [each.clock_offset_s for each in view.members] == [0.0, 0.02, -0.02]


LOG = LogHealth("nats-server 2.15.1", 1, "a", (LogCopy("a", True), LogCopy("b", False, 7)))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"b": Seen(trouble="connection refused")}, "b does not answer: connection refused"),
        ({"b": Seen(told("b", "quarantined", why="x"), 0, 0)}, "b is quarantined: x"),
        ({"b": Seen(told("b", why="its clock"), 0, 0)}, "b is following: its clock"),
        ({"b": Seen(told("b"), 3 * SECOND, 0)}, "the clock of b is wrong by 3 s"),
        ({"b": Seen(told("b", version="0.9"), 0, 0)}, "versions 0.9, 1.0: finish the upgrade"),
        ({"a": Seen(told("a", "leading", log=LOG), 0, 0)}, "log at b is 7 entries behind"),
        ({"b": Seen(told("b", wrong=("a",)), 0, 0)}, "b found the copy of the log at a damaged"),
        (
            {"b": Seen(told("b", diverged="after batch 9"), 0, 0)},
            "the state of b differed from the leader's after batch 9",
        ),
        ({"a": Seen(told("a", "leading", level=1), 0, 0)}, "read level 2, and the log is at 1"),
    ],
)
def test_what_is_to_be_done(changes: dict[str, Seen], problem: str) -> None:
    view = overview("c", seen(**changes))
    assert view.condition is Condition.DEGRADED
    assert len(view.problems) == 1
    assert problem in view.problems[0]


def test_no_leader() -> None:
    view = overview("c", seen(a=Seen(told("a", "leading"), HOUR, 60 * SECOND, "gone")))
    assert (view.condition, view.leader) == (Condition.NO_LEADER, "")
    assert view.problems == ["no node leads: nothing is acknowledged", "a does not answer: gone"]
    assert view.members[0].heard_s == 60
    nobody = overview("c", {"a": Seen(trouble="refused")})
    assert (nobody.condition, nobody.epoch) == (Condition.NO_LEADER, 0)


def test_of_two_that_think_they_lead_the_later_one_does() -> None:
    view = overview("c", seen(b=Seen(told("b", "leading", epoch=5), 0, 0)))
    assert (view.leader, view.epoch) == ("b", 5)

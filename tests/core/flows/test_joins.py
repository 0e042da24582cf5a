"""Joins: when a node goes on, and what it gets."""

from __future__ import annotations

import pytest

from jackalope.core.effects import Accepted
from jackalope.core.explain import Why, explain
from jackalope.core.lifecycle import Reason, State
from jackalope.core.refusals import Code
from jackalope.core.shapes.flow import GroupSettings
from jackalope.core.task import BlobRef, OnDependency
from tests.core.driving import refusal_in, snapshot_of
from tests.core.flows.graphs import FlowDriver, node


@pytest.fixture
def driver() -> FlowDriver:
    return FlowDriver()


def test_results_go_from_node_to_node(driver: FlowDriver) -> None:
    assert driver.flow(1, node("c", "ab"), node("a"), node("b", "a")) == Accepted(3)
    driver.end(1, "a", b"A")
    assert driver.given() == {"b": [("a", b"A")]}
    driver.end(1, "b", b"B")
    assert driver.given() == {"c": [("a", b"A"), ("b", b"B")]}
    driver.end(1, "c", b"C")
    assert driver.state(1) is State.SUCCEEDED
    outcome = driver.task(1).outcome
    assert outcome is not None
    assert outcome.result == b"C"


def test_inputs_are_in_the_order_of_the_graph_and_not_of_time(driver: FlowDriver) -> None:
    members = [node(f"m{number}", group="g") for number in range(3)]
    driver.flow(1, *members, node("x"), node("join", "x", groups="g"), groups=(_group("g"),))
    for name in ("m2", "x", "m0", "m1"):
        driver.end(1, name, name.encode())
    names = [name for name, _ in driver.given()["join"]]
    assert names == ["x", "m0", "m1", "m2"]


@pytest.mark.parametrize("need", [1, 2])
def test_the_first_n_are_enough(driver: FlowDriver, need: int) -> None:
    members = [node(f"m{number}", group="g") for number in range(3)]
    driver.flow(1, *members, node("join", groups="g", need=need), groups=(_group("g"),))
    for number in range(need):
        assert "join" not in driver.given()
        driver.end(1, f"m{number}")
    assert len(driver.given()["join"]) == need
    driver.break_(1, "m2")  # It is not needed, so the flow does not fail.
    if need == 1:
        driver.end(1, "m1")
    driver.end(1, "join")
    assert driver.state(1) is State.SUCCEEDED


def test_a_need_out_of_reach_ends_the_join_after_the_rest(driver: FlowDriver) -> None:
    members = [node(f"m{number}", group="g") for number in range(3)]
    driver.flow(1, *members, node("join", groups="g", need=2), groups=(_group("g"),))
    driver.break_(1, "m0")
    assert driver.core.book.tasks[driver.node(1, "join").id].state is State.WAITING
    driver.break_(1, "m1")
    causes = explain(driver.core, driver.node(1, "join")).causes
    assert any("cannot run" in cause.text for cause in causes)
    driver.end(1, "m2")
    join = driver.node(1, "join")
    assert join.outcome is not None
    assert join.outcome.reason is Reason.DEPENDENCY
    assert driver.state(1) is State.DEAD


def test_a_join_that_collects_has_errors_as_well(driver: FlowDriver) -> None:
    run = OnDependency.RUN
    join = node("join", "ab", on_dependency=run)
    driver.flow(1, node("a"), node("b"), join)
    driver.break_(1, "a")
    driver.end(1, "b", b"B")
    (given,) = driver.assignments(1)
    assert [each.state for each in given.inputs] == [State.DEAD, State.SUCCEEDED]
    assert given.inputs[0].error is not None
    assert given.inputs[0].error.type == "ValueError"
    driver.end(1, "join", b"all the same")
    assert driver.state(1) is State.SUCCEEDED


def test_a_group_is_bounded_in_width(driver: FlowDriver) -> None:
    members = [node(f"m{number}", group="g") for number in range(4)]
    driver.flow(1, *members, groups=(_group("g", width=2),))
    assert list(driver.given()) == ["m0", "m1"]
    causes = explain(driver.core, driver.node(1, "m3")).causes
    assert [cause.why for cause in causes] == [Why.GROUP_FULL]
    driver.end(1, "m1")
    assert list(driver.given()) == ["m2"]
    driver.break_(1, "m0")
    assert list(driver.given()) == ["m3"]


def test_a_group_is_open_until_it_is_closed(driver: FlowDriver) -> None:
    driver.flow(1, node("join", groups="g"), groups=(_group("g", is_open=True),))
    assert driver.add(1, node("a", group="g")) == Accepted(1)
    driver.end(1, "a", b"A")
    assert driver.state(1) is State.WAITING
    driver.add(1, node("b", "a", group="g"), close=("g",))
    assert driver.given() == {"b": [("a", b"A")]}
    driver.end(1, "b", b"B")
    assert driver.given() == {"join": [("a", b"A"), ("b", b"B")]}
    refusal = refusal_in(driver.add(1, node("c", group="g")))
    assert refusal is not None
    assert "closed" in refusal.message


def test_nodes_are_added_once(driver: FlowDriver) -> None:
    driver.flow(1, groups=(_group("g", is_open=True),))
    driver.add(1, node("a", group="g"))
    assert driver.add(1, node("a", group="g")) == Accepted(1)
    assert driver.records == []
    refusal = refusal_in(driver.add(1, node("a", group="g", payload=b"other")))
    assert refusal is not None
    assert "exists with different content" in refusal.message


def test_an_empty_group_that_is_closed_lets_its_join_run(driver: FlowDriver) -> None:
    driver.flow(1, node("join", groups="g"), groups=(_group("g", is_open=True),))
    driver.add(1, close=("g",))
    assert driver.given() == {"join": []}


def test_a_flow_is_submitted_once(driver: FlowDriver) -> None:
    assert driver.flow(1, node("a")) == Accepted(1)
    assert driver.flow(1, node("a")) == Accepted(1)
    assert driver.records == []
    refusal = refusal_in(driver.flow(1, node("a"), node("b")))
    assert refusal is not None
    assert refusal.code is Code.ID_CONFLICT


def test_blobs_of_inputs_are_named_until_they_are_taken(driver: FlowDriver) -> None:
    driver.flow(1, node("a"), node("b", "a", queue="elsewhere"))
    driver.end(1, "a", BlobRef("blob", 100_000))
    (row,) = [row for row in driver.core.book.take_changes().tasks if row.name == "b"]
    assert row.flow is not None
    driver.join("w2", 2, ("elsewhere",))
    (given,) = driver.assignments(2)
    assert given.inputs[0].result == BlobRef("blob", 100_000)


def test_replaying_gives_the_same_state(driver: FlowDriver) -> None:
    members = [node(f"m{number}", group="g") for number in range(4)]
    groups = (_group("g", width=2, is_open=True),)
    driver.flow(1, *members, node("join", groups="g", need=3), groups=groups)
    driver.end(1, "m0", b"0")
    driver.break_(1, "m1")
    driver.add(1, node("more", "m0", group="g"))
    assert snapshot_of(driver.replayed()) == driver.snapshot()


PROBLEMS = {
    "a cycle: a -> b -> a": [node("a", "b"), node("b", "a")],
    "a cycle: a -> a": [node("a", "a")],
    "a cycle: a -> group g -> a": [node("a", group="g", groups="g")],
    "node 'a': after: there is no node 'x'": [node("a", "x")],
    "node 'a': group: there is no group 'x'": [node("a", group="x")],
    "node 'a': groups: there is no group 'x'": [node("a", groups="x")],
    "node 'a': groups: group 'g' has no node": [node("a", groups="g")],
    "node 'a': there are 2": [node("a"), node("a")],
    "node 'b': need: 2 of 1": [node("a"), node("b", "a", need=2)],
    "node 'a': need: 1 of nothing": [node("a", need=1)],
    "node 'a': queue: must not be empty": [node("a", queue="")],
    "node 'a': same: a node is always run": [node("a", identity=b"i" * 32)],
    "nodes: a flow has at least one node": [],
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_is_wrong_is_refused(driver: FlowDriver, problem: str) -> None:
    refusal = refusal_in(driver.flow(1, *PROBLEMS[problem], groups=(_group("g"),)))
    assert refusal is not None
    assert problem in refusal.message
    assert driver.records == []


def test_everything_that_is_wrong_is_listed(driver: FlowDriver) -> None:
    nodes = [node("a", "b"), node("b", "a"), node("c", "x"), node("d", queue="")]
    refusal = refusal_in(driver.flow(1, *nodes, output="y"))
    assert refusal is not None
    for part in ("cycle", "no node 'x'", "'d': queue", "no node 'y'"):
        assert part in refusal.message


def test_a_cycle_through_an_open_group_is_refused(driver: FlowDriver) -> None:
    driver.flow(1, node("join", groups="g"), groups=(_group("g", is_open=True),))
    refusal = refusal_in(driver.add(1, node("a", ["join"], group="g")))
    assert refusal is not None
    assert "a cycle" in refusal.message


def test_an_older_level_refuses_flows(driver: FlowDriver) -> None:
    driver.core.level = 3
    refusal = refusal_in(driver.flow(1, node("a")))
    assert refusal is not None
    assert "level 4" in refusal.message


def _group(name: str, width: int = 0, *, is_open: bool = False) -> GroupSettings:
    return GroupSettings(name, width, is_open)

"""What people do with flows and their nodes, and what failures do."""

from __future__ import annotations

import pytest

from jackalope.core.commands import Action, ActOnTasks, RetryTerms, Verdict
from jackalope.core.durations import HOUR
from jackalope.core.effects import Acted
from jackalope.core.explain import explain
from jackalope.core.lifecycle import Reason, State
from jackalope.core.shapes.flow import GroupSettings, OnFailure
from tests.core.driving import NOW_US, refusal_in, snapshot_of, task_id
from tests.core.flows.graphs import UNDO, FlowDriver, node

FAIL_FAST = OnFailure.FAIL_FAST


@pytest.fixture
def driver() -> FlowDriver:
    return FlowDriver()


def _why(driver: FlowDriver, number: int = 1) -> tuple[Reason | None, str]:
    outcome = driver.task(number).outcome
    assert outcome is not None
    return outcome.reason, outcome.error.message if outcome.error else ""


# Failures.


def test_what_does_not_depend_on_a_failure_goes_on(driver: FlowDriver) -> None:
    driver.flow(1, node("a"), node("b"), node("after a", "a"), node("after b", "b"))
    driver.break_(1, "a")
    driver.end(1, "b")
    assert list(driver.given()) == ["after b"]
    driver.end(1, "after b")
    assert driver.state(1) is State.DEAD
    assert _why(driver) == (Reason.FAILED, "node 'a' is dead, failed: ValueError: no")


def test_fail_fast_kills_what_is_unfinished(driver: FlowDriver) -> None:
    nodes = [node("a"), node("b"), node("c", queue="elsewhere"), node("d", "bc")]
    driver.flow(1, *nodes, on_failure=FAIL_FAST)
    driver.break_(1, "a")
    assert driver.states(1)["c"] is State.KILLED
    assert driver.states(1)["d"] is State.WAITING  # Until it has what `b` leaves.
    driver.stopped(driver.node(1, "b"))
    assert driver.states(1)["d"] is State.KILLED
    assert driver.state(1) is State.DEAD


def test_compensations_run_in_reverse_one_after_another(driver: FlowDriver) -> None:
    driver.flow(1, node("a", undo=UNDO), node("b", "a", undo=UNDO), node("c", "b"))
    driver.end(1, "a", b"A")
    driver.end(1, "b", b"B")
    driver.break_(1, "c")
    assert driver.given() == {"undo": [("b", b"B")]}
    driver.done(driver.undo(1, "b"))
    assert driver.given() == {"undo": [("a", b"A")]}
    assert "compensates" in explain(driver.core, driver.task(1)).causes[0].text
    driver.done(driver.undo(1, "a"))
    assert driver.state(1) is State.DEAD
    refusal = refusal_in(driver.act(Action.RETRY, 1))
    assert refusal is not None
    assert "compensated" in refusal.message
    assert snapshot_of(driver.replayed()) == driver.snapshot()


def test_a_dead_compensation_does_not_stop_the_others(driver: FlowDriver) -> None:
    driver.declare("q", retries=0)
    driver.flow(1, node("a", undo=UNDO), node("b", "a", undo=UNDO))
    driver.end(1, "a", b"A")
    driver.act_on(Action.KILL, 1, "b")
    driver.stopped(driver.node(1, "b"))
    driver.flow(2, node("a", undo=UNDO), node("b", "a", undo=UNDO), node("c", "b"))
    driver.end(2, "a")
    driver.end(2, "b")
    driver.act(Action.KILL, 2)
    driver.stopped(driver.node(2, "c"))
    driver.send(ActOnTasks(ref=0, action=Action.KILL, tasks=(driver.undo(2, "b").id,)))
    driver.stopped(driver.undo(2, "b"))
    assert driver.state(2) is State.WAITING
    driver.done(driver.undo(2, "a"))
    assert driver.state(2) is State.KILLED
    history = driver.task(2).history or []
    assert "1 of 2 compensations" in history[-1].detail


# Actions.


def test_a_kill_waits_for_what_runs(driver: FlowDriver) -> None:
    driver.flow(1, node("a"), node("b", "a"), node("c", queue="elsewhere"))
    assert driver.act(Action.KILL, 1) == Acted(0, 1)
    assert driver.state(1) is State.WAITING
    assert "being stopped by ada" in explain(driver.core, driver.task(1)).causes[0].text
    driver.stopped(driver.node(1, "a"))
    assert set(driver.states(1).values()) == {State.KILLED}
    assert driver.state(1) is State.KILLED


def test_a_flow_that_is_killed_leased_nodes_may_finish(driver: FlowDriver) -> None:
    driver.flow(1, node("a"), node("b", "a"))
    driver.act(Action.KILL, 1)
    driver.end(1, "a", b"A")
    assert driver.states(1) == {"a": State.SUCCEEDED, "b": State.KILLED}
    assert driver.state(1) is State.KILLED
    driver.act(Action.RETRY, 1)
    assert driver.given() == {"b": [("a", b"A")]}


def test_the_deadline_of_a_flow(driver: FlowDriver) -> None:
    driver.flow(1, node("a"), node("b", "a"), flow={"expires_at_us": NOW_US + HOUR})
    driver.tick(HOUR)
    driver.stopped(driver.node(1, "a"))
    assert driver.state(1) is State.DEAD
    assert _why(driver) == (Reason.EXPIRED, "its deadline has passed")


def test_a_pause_lets_what_runs_finish_and_starts_nothing(driver: FlowDriver) -> None:
    driver.flow(1, node("a"), node("b", "a"), node("c", queue="elsewhere"))
    driver.act_on(Action.PAUSE, 1, "c")
    driver.flow(2, node("a"), node("b", "a"), node("c", queue="elsewhere"))
    for number in (1, 2):
        driver.act(Action.PAUSE, number)
        driver.end(number, "a", b"A")
        assert driver.given() == {}
        assert driver.states(number)["c"] is State.PAUSED
        assert "paused by ada" in explain(driver.core, driver.node(number, "b")).causes[0].text
        driver.act(Action.PLAY, number)
        assert driver.given() == {"b": [("a", b"A")]}
    # The one that was paused by itself stays so.
    assert (driver.states(1)["c"], driver.states(2)["c"]) == (State.PAUSED, State.READY)


def test_a_node_that_fails_in_a_paused_flow_waits_for_the_play(driver: FlowDriver) -> None:
    driver.flow(1, node("a"))
    driver.act(Action.PAUSE, 1)
    driver.break_(1, "a", Verdict.RETRY)
    assert driver.states(1) == {"a": State.PAUSED}
    refusal = refusal_in(driver.act_on(Action.PLAY, 1, "a"))
    assert refusal is not None
    assert "its flow" in refusal.message
    driver.act(Action.PLAY, 1)
    assert driver.states(1) == {"a": State.SCHEDULED}


def test_a_flow_is_not_held(driver: FlowDriver) -> None:
    driver.flow(1, node("a"))
    refusal = refusal_in(driver.act(Action.HOLD, 1))
    assert refusal is not None
    assert "pause it" in refusal.message


def test_a_retry_of_a_flow_goes_on_where_it_failed(driver: FlowDriver) -> None:
    members = [node(f"m{number}", group="g") for number in range(3)]
    driver.flow(1, *members, node("join", groups="g"), groups=(GroupSettings("g"),))
    driver.break_(1, "m1")
    driver.end(1, "m0", b"0")
    driver.end(1, "m2", b"2")
    assert driver.state(1) is State.DEAD
    driver.act(Action.RETRY, 1)
    assert list(driver.given()) == ["m1"]
    driver.end(1, "m1", b"1")
    assert driver.given() == {"join": [("m0", b"0"), ("m1", b"1"), ("m2", b"2")]}
    driver.end(1, "join")
    assert driver.state(1) is State.SUCCEEDED
    assert snapshot_of(driver.replayed()) == driver.snapshot()


def test_a_retry_of_a_node_revives_what_died_of_it(driver: FlowDriver) -> None:
    driver.flow(1, node("a"), node("b", "a"), node("c", "b"), node("other"))
    driver.break_(1, "a")
    driver.break_(1, "other")
    assert driver.state(1) is State.DEAD
    driver.act_on(Action.RETRY, 1, "a")
    assert driver.state(1) is State.WAITING
    for name in "abc":
        driver.end(1, name)
    assert driver.state(1) is State.DEAD  # Because of the other one.
    driver.act_on(Action.RETRY, 1, "other")
    driver.end(1, "other")
    assert driver.state(1) is State.SUCCEEDED


def test_a_retry_while_the_flow_runs_is_waited_for(driver: FlowDriver) -> None:
    driver.flow(1, node("a"), node("b"), node("c", "ab"))
    driver.break_(1, "a")
    driver.act_on(Action.RETRY, 1, "a")
    driver.end(1, "b", b"B")
    driver.end(1, "a", b"A")
    assert driver.given() == {"c": [("a", b"A"), ("b", b"B")]}


def test_terms_are_for_the_node_that_is_named(driver: FlowDriver) -> None:
    driver.flow(1, node("a"), node("b", "a"))
    driver.break_(1, "a")
    tasks = (driver.node(1, "a").id,)
    terms = RetryTerms(priority=7)
    driver.send(ActOnTasks(ref=0, action=Action.RETRY, tasks=tasks, terms=terms))
    assert driver.node(1, "a").priority == 7
    assert driver.node(1, "b").priority != 7


def test_a_killed_parent_stops_its_flow(driver: FlowDriver) -> None:
    driver.submit(9)
    driver.flow(1, node("a"), flow={"parent": task_id(9)})
    driver.act(Action.KILL, 9)
    driver.stopped(driver.node(1, "a"))
    assert driver.state(1) is State.KILLED

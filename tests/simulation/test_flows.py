"""Flows among faults: joins fire once, with the right inputs, and every flow ends."""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.flows import actions, progress
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.records import TaskRevived
from jackalope.core.shapes.flow import NodeState
from jackalope.core.state import book, flows
from jackalope.core.task import Task, TaskRow, from_row, to_row
from jackalope.storage.faults import Corrupt
from tests.simulation.checker import Violation
from tests.simulation.flow_bugs import join_too_early, lose_joins, mix_inputs
from tests.simulation.run import Report, simulate

_SEEDS = 20
_GROUP = 5

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("begin", range(0, _SEEDS, _GROUP))
def test_seeds_with_flows(begin: int) -> None:
    reports: list[Report] = []
    for seed in range(begin, begin + _GROUP):
        try:
            reports.append(simulate(seed, with_flows=True))
        except Exception as error:
            error.add_note(f"simulate({seed}, with_flows=True)")
            raise
    kinds = {kind for report in reports for kind in report.counts}
    assert {"FlowFailed", "FlowStopped", "GroupsClosed", "NodeReleased", "Inputs"} <= kinds
    assert {"Flow dead", "Flow killed", "Flow succeeded", "FlowRevived"} <= kinds
    assert sum(report.restarts for report in reports) > 2


def _caught() -> str:
    for seed in range(_SEEDS):
        try:
            simulate(seed, with_flows=True)
        except (Violation, BrokenInvariant, Corrupt) as error:
            return str(error)
    return ""


def test_a_join_is_lost(monkeypatch: Patch) -> None:
    lose_joins(monkeypatch)
    assert _caught()


def test_a_join_goes_on_too_early(monkeypatch: Patch) -> None:
    join_too_early(monkeypatch)
    assert "a join goes on when" in _caught()


def test_a_join_goes_on_twice(monkeypatch: Patch) -> None:
    """A node that is done is let go once more when another one ends."""
    original = progress._node_ended

    def again(ctx: Any, flow: Task, task: Task, dependents: Any) -> None:
        original(ctx, flow, task, dependents)
        if task.state is State.SUCCEEDED and task.flow and flow.state not in ENDED:
            row = to_row(task)
            row.state, row.outcome = State.READY, None
            row.flow = NodeState(index=flows.node_state(task).index, is_released=True)
            ctx.record(TaskRevived(ctx.now_us, row, "twice"))

    monkeypatch.setattr(progress, "_node_ended", again)
    assert _caught()


def test_a_restart_loses_inputs(monkeypatch: Patch) -> None:
    def lossy(row: TaskRow, queue: Any) -> Task:
        task = from_row(row, queue)
        if isinstance(task.flow, NodeState) and task.state is State.WAITING and task.flow.inputs:
            task.flow.inputs.pop()
        return task

    monkeypatch.setattr(book, "from_row", lossy)
    assert _caught()


def test_an_input_is_of_another_node(monkeypatch: Patch) -> None:
    mix_inputs(monkeypatch)
    assert "an input is what the node left" in _caught()


def test_a_flow_forgets_to_end(monkeypatch: Patch) -> None:
    original = progress.complete

    def forgetful(ctx: Any, flow: Task) -> None:
        if flow.id[-1] % 4:
            original(ctx, flow)

    monkeypatch.setattr(progress, "complete", forgetful)
    assert _caught()


def test_a_group_is_too_wide(monkeypatch: Patch) -> None:
    """Caught by what counts those under way."""
    monkeypatch.setattr(progress, "has_room", lambda flow, task: True)
    assert "a group is as wide as it may be" in _caught()


def test_a_node_is_done_again_after_its_flow_went_on(monkeypatch: Patch) -> None:
    """A retry takes nodes along that succeeded."""
    original = actions._chosen

    def greedy(ctx: Any, flow: Task, task: Task) -> set[TaskId]:
        done = [
            each.id
            for each in ctx.book.tasks.values()
            if each.options.parent == flow.id and each.state is State.SUCCEEDED
        ]
        return {*original(ctx, flow, task), *done[:1]}

    monkeypatch.setattr(actions, "_chosen", greedy)
    assert _caught()


@pytest.mark.parametrize("seed", [42, 50, 77])
def test_seeds_that_found_bugs(seed: int) -> None:
    simulate(seed, with_flows=True)

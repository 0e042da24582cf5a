"""Fair shares among faults: each has its turns; each planted bug is caught."""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.state import fair_shares, ready_queue
from jackalope.core.state.fair_shares import FairShare, FairShares, Turn
from jackalope.core.state.ready_queue import Lane, order
from jackalope.core.task import Task
from jackalope.storage.faults import Corrupt
from tests.simulation.checker import Violation
from tests.simulation.run import Report, simulate

_SEEDS = 8
_GROUP = 4

_MORE = "no share has more than its turns"

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("begin", range(0, _SEEDS, _GROUP))
def test_seeds_with_shares(begin: int) -> None:
    reports: list[Report] = []
    for seed in range(begin, begin + _GROUP):
        try:
            reports.append(simulate(seed, with_shares=True))
        except Exception as error:
            error.add_note(f"simulate({seed}, with_shares=True)")
            raise
    assert sum(report.counts["Turn"] for report in reports) > 200
    assert sum(report.counts.get("Contended", 0) for report in reports) > 200
    assert sum(report.restarts for report in reports) > 2


def _caught() -> str:
    for seed in range(_SEEDS):
        try:
            simulate(seed, with_shares=True)
        except (Violation, BrokenInvariant, Corrupt) as error:
            return str(error)
    return ""


def test_a_share_starves(monkeypatch: Patch) -> None:
    """Having had a turn costs nothing: the first goes on for as long as it has tasks."""
    monkeypatch.setattr(FairShares, "serve", lambda *_: None)
    assert _MORE in _caught()


def test_a_share_is_forgotten_with_its_last_task(monkeypatch: Patch) -> None:
    """So one that submits a task at a time always comes first."""
    leave = FairShares.leave

    def forgetful(fair: FairShares, share: FairShare, count: int) -> None:
        share.at = fair.now if share.size == count else share.at
        leave(fair, share, count)

    monkeypatch.setattr(FairShares, "leave", forgetful)
    assert _MORE in _caught()


def test_weights_are_taken_for_their_reverse(monkeypatch: Patch) -> None:
    def reversed_(turn: Turn, weight: int = 1) -> None:
        turn.at = turn.place = 0
        turn.step = fair_shares.QUANTUM * weight

    monkeypatch.setattr(Turn, "__init__", reversed_)
    assert _MORE in _caught()


def test_priority_counts_across_shares(monkeypatch: Patch) -> None:
    def urgent(lane: Lane, task: Task) -> int:
        return order(task, lane.queue.policy.ageing_us)

    monkeypatch.setattr(Lane, "place", urgent)
    assert _MORE in _caught()


def test_lanes_that_moved_back_keep_their_places(monkeypatch: Patch) -> None:
    """The heap of heads believes what it noted before the share had its turn."""

    def stale(row: ready_queue.Row, is_shut: Any, tasks: Any) -> Any:
        for lane, noted in row.lanes.items():
            task = None if lane.closed_by else lane.head(tasks)
            if noted is not None and task is not None:
                return noted, task
        return best(row, is_shut, tasks)

    best = ready_queue.Row.best
    monkeypatch.setattr(ready_queue.Row, "best", stale)
    assert _MORE in _caught()

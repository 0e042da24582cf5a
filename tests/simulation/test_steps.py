"""Steps among faults: each has one result and is not done again; each planted bug is caught."""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.effects import Assignment
from jackalope.core.ids import TaskId
from jackalope.core.records import StepRecorded
from jackalope.core.refusals import Refusal
from jackalope.core.state import apply, book
from jackalope.core.state.book import Book
from jackalope.core.state.roster import Worker
from jackalope.core.steps import handlers
from jackalope.core.task import Task, TaskRow, from_row
from jackalope.core.tasks import assign
from jackalope.core.tasks.attempts import lease
from jackalope.storage.faults import Corrupt
from tests.simulation.checker import Violation
from tests.simulation.run import Report, simulate

_SEEDS = 20
_GROUP = 5

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("begin", range(0, _SEEDS, _GROUP))
def test_seeds_with_steps(begin: int) -> None:
    reports: list[Report] = []
    for seed in range(begin, begin + _GROUP):
        try:
            reports.append(simulate(seed, with_steps=True))
        except Exception as error:
            error.add_note(f"simulate({seed}, with_steps=True)")
            raise
    kinds = {kind for report in reports for kind in report.counts}
    assert {"StepRecorded", "WaitBegan", "EventSent", "StepDone"} <= kinds
    assert sum(report.restarts for report in reports) > 2


def _caught() -> str:
    for seed in range(_SEEDS):
        try:
            simulate(seed, with_steps=True)
        except (Violation, BrokenInvariant, Corrupt) as error:
            return str(error)
    return ""


def test_steps_do_not_come_with_the_assignment(monkeypatch: Patch) -> None:
    def without(*fields: Any) -> Assignment:
        return Assignment(*fields[:11])

    monkeypatch.setattr(assign, "Assignment", without)
    assert "a step that is recorded is not done again" in _caught()


def test_a_restart_loses_steps(monkeypatch: Patch) -> None:
    def lossy(row: TaskRow, queue: Any) -> Task:
        task = from_row(row, queue)
        task.steps = None
        return task

    monkeypatch.setattr(book, "from_row", lossy)
    assert _caught()


def test_a_lost_worker_records_a_step(monkeypatch: Patch) -> None:
    """The fence is not looked at."""

    def careless(worker: Worker, task_id: TaskId, fence: int) -> Task | Refusal:
        task = worker.held.get(task_id)
        return task if task is not None else handlers_lease(worker, task_id, fence)

    handlers_lease = lease
    monkeypatch.setattr(handlers, "lease", careless)
    assert "only the holder records" in _caught()


def test_a_step_is_recorded_twice(monkeypatch: Patch) -> None:
    """A step that is done is forgotten now and then."""
    original = apply.APPLIERS[StepRecorded]

    def forgetful(whole: Book, records: Any) -> None:
        original(whole, records)
        for record in records:
            steps = whole.tasks[record.task].steps
            if steps is not None and record.at_us % 7 == 0:
                steps.done.pop()

    monkeypatch.setitem(apply.APPLIERS, StepRecorded, forgetful)
    assert _caught()

"""Callbacks and triggers among faults: each end is told of once, and each planted bug is caught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.callbacks import ends
from jackalope.core.context import Context, Ending
from jackalope.core.core import ROOMS
from jackalope.core.shapes import callback
from jackalope.core.state.queue import Queue
from jackalope.core.task import Task
from jackalope.storage.faults import Corrupt
from tests.simulation.checker import Violation
from tests.simulation.run import Report, simulate

_SEEDS = 12
_GROUP = 4

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("begin", range(0, _SEEDS, _GROUP))
def test_seeds_with_callbacks(begin: int) -> None:
    reports: list[Report] = []
    for seed in range(begin, begin + _GROUP):
        try:
            reports.append(simulate(seed, with_callbacks=True))
        except Exception as error:
            error.add_note(f"simulate({seed}, with_callbacks=True)")
            raise
    kinds = {kind for report in reports for kind in report.counts}
    assert {f"jackalope.task.{end}" for end in ("succeeded", "dead", "killed")} <= kinds
    assert "jackalope.batch.ended" in kinds
    assert sum(report.restarts for report in reports) > 2


def _caught() -> str:
    for seed in range(_SEEDS):
        try:
            simulate(seed, with_callbacks=True)
        except (Violation, BrokenInvariant, Corrupt) as error:
            return str(error)
    return ""


def _plant(monkeypatch: Patch, hook: Any) -> None:
    """Let another function be called when tasks end."""
    original = ROOMS.tasks_ended
    planted = [hook if each is ends.tasks_ended else each for each in original]
    assert planted != original
    monkeypatch.setattr(ROOMS, "tasks_ended", planted)


def test_an_end_whose_callback_is_submitted_later(monkeypatch: Patch) -> None:
    """In the batch after: a crash between them loses it."""
    late: list[Ending] = []

    def later(ctx: Context, endings: Sequence[Ending]) -> None:
        due, late[:] = list(late), list(endings)
        ends.tasks_ended(ctx, due)

    _plant(monkeypatch, later)
    assert "one batch" in _caught()


def test_a_callback_that_is_forgotten_now_and_then(monkeypatch: Patch) -> None:
    def forgetful(ctx: Context, endings: Sequence[Ending]) -> None:
        ends.tasks_ended(ctx, [each for each in endings if each[0].id[-1] % 8])

    _plant(monkeypatch, forgetful)
    assert "one batch" in _caught()


def test_a_callback_that_is_doubled(monkeypatch: Patch) -> None:
    """Its id does not follow from the end."""

    def twice(ctx: Context, endings: Sequence[Ending]) -> None:
        ends.tasks_ended(ctx, endings)
        with pytest.MonkeyPatch.context() as other:
            other.setattr(
                ends,
                "callback_id",
                lambda task, at_us, _: callback.callback_id(task, at_us, "other"),
            )
            ends.tasks_ended(ctx, endings)

    _plant(monkeypatch, twice)
    assert "follows from an end" in _caught()


def test_a_batch_that_is_told_of_too_early(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Queue, "has_ended", lambda *_: True)
    assert "has ended" in _caught()


def test_a_batch_that_is_not_counted_right(monkeypatch: Patch) -> None:
    original = Queue.count_in

    def lax(self: Queue, tasks: Any, by: int = 1) -> None:
        found: list[Task] = list(tasks)
        original(self, [task for task in found if by > 0 or task.id[-1] % 8], by)

    monkeypatch.setattr(Queue, "count_in", lax)
    assert _caught()

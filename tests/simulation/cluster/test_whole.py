"""Clusters with schedules, steps, paces, flows and limits: what holds with one broker holds."""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core.records import ScheduleFired, StepRecorded, TaskReplaced
from jackalope.core.shapes.limit import full_bucket
from jackalope.core.state import apply
from jackalope.core.state.book import Book
from jackalope.core.state.gates import Gate, Gates
from tests.simulation.cluster.run import Report, simulate
from tests.simulation.flow_bugs import join_too_early, lose_joins, mix_inputs

_SEEDS = 24
_GROUP = 6

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("begin", range(0, _SEEDS, _GROUP))
def test_seeds(begin: int) -> None:
    reports: list[Report] = []
    for seed in range(begin, begin + _GROUP):
        try:
            reports.append(simulate(seed, is_whole=True))
        except Exception as error:
            error.add_note(f"simulate({seed}, is_whole=True)")
            raise
    kinds = {kind for report in reports for kind in report.counts}
    assert {"ScheduleDeclared", "ScheduleFired", "SlotsMissed"} <= kinds
    assert {"StepRecorded", "WaitBegan", "EventSent", "StepDone"} <= kinds
    assert {"TaskReplaced", "ThrottlesEnded", "PacedRun"} <= kinds
    assert {"NodeReleased", "Inputs", "Flow succeeded"} <= kinds
    assert {"LimitSet", "Limited", "BucketsFilled", "Waits"} <= kinds
    assert sum(report.counts["Claims"] for report in reports) > _GROUP, "nobody else ever led"


def _caught() -> str:
    for seed in range(_SEEDS):
        try:
            simulate(seed, is_whole=True)
        except Exception as error:  # noqa: BLE001  whatever it is, it shows
            return f"{type(error).__name__}: {error}"
    return ""


def test_a_slot_fires_twice(monkeypatch: Patch) -> None:
    """The schedule does not move on when it has fired."""
    original = apply.APPLIERS[ScheduleFired]

    def stuck(book: Book, records: Any) -> None:
        for record in records:
            schedule = book.namespaces[record.namespace].schedules[record.name]
            before_us = schedule.next_us
            original(book, [record])
            if record.at_us % 2 == 0:
                schedule.next_us = before_us

    monkeypatch.setitem(apply.APPLIERS, ScheduleFired, stuck)
    caught = _caught()
    told = ("a slot fires once", "a slot and its task are one batch", "no slot is lost")
    assert any(each in caught for each in told)


def test_a_step_is_recorded_twice(monkeypatch: Patch) -> None:
    """A step that is done is forgotten now and then."""
    original = apply.APPLIERS[StepRecorded]

    def forgetful(book: Book, records: Any) -> None:
        original(book, records)
        for record in records:
            steps = book.tasks[record.task].steps
            if steps is not None and record.at_us % 7 == 0:
                steps.done.pop()

    monkeypatch.setitem(apply.APPLIERS, StepRecorded, forgetful)
    caught = _caught()
    assert "a step has one result" in caught or "is not done again" in caught


def test_a_new_leader_forgets_what_is_throttled(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Book, "keep_throttle", lambda *_: None)
    assert "one is accepted in a span" in _caught()


def test_the_latest_arguments_are_lost(monkeypatch: Patch) -> None:
    original = apply.APPLIERS[TaskReplaced]

    def stubborn(book: Book, records: Any) -> None:
        for record in records:
            task = book.tasks[record.task]
            before = task.payload
            original(book, [record])
            task.payload = before

    monkeypatch.setitem(apply.APPLIERS, TaskReplaced, stubborn)
    assert "the latest arguments are run" in _caught()


def test_a_join_is_lost(monkeypatch: Patch) -> None:
    lose_joins(monkeypatch)
    assert _caught()


def test_a_join_goes_on_too_early(monkeypatch: Patch) -> None:
    join_too_early(monkeypatch)
    assert "a join goes on when" in _caught()


def test_an_input_is_of_another_node(monkeypatch: Patch) -> None:
    mix_inputs(monkeypatch)
    assert "an input is what the node left" in _caught()


def test_a_new_leader_forgets_tokens(monkeypatch: Patch) -> None:
    """Who follows finds the buckets full."""

    def full(gates: Gates, gate: Gate, cost: int, at_us: int) -> None:
        take(gates, gate, cost, at_us)
        if gate.bucket is not None and at_us % 8 == 0:
            gate.bucket = full_bucket(gate.settings, at_us)

    take = Gates._take
    monkeypatch.setattr(Gates, "_take", full)
    assert "a start has its tokens" in _caught()

"""Paced submits among faults: the latest runs, once and in time; each planted bug is caught."""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.context import Context
from jackalope.core.effects import Served
from jackalope.core.ids import NO_TASK
from jackalope.core.pacing import submits
from jackalope.core.records import TaskReplaced
from jackalope.core.shapes.pace import Pace, Pacing
from jackalope.core.shapes.request import How
from jackalope.core.state import apply, book
from jackalope.core.state.book import Book
from jackalope.core.state.queue import Queue
from jackalope.core.task import Task, TaskRow, TaskSpec, from_row
from jackalope.storage.faults import Corrupt
from tests.simulation.checker import Violation
from tests.simulation.run import Report, simulate

_SEEDS = 12
_GROUP = 4

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("begin", range(0, _SEEDS, _GROUP))
def test_seeds_with_paces(begin: int) -> None:
    reports: list[Report] = []
    for seed in range(begin, begin + _GROUP):
        try:
            reports.append(simulate(seed, with_paces=True))
        except Exception as error:
            error.add_note(f"simulate({seed}, with_paces=True)")
            raise
    kinds = {kind for report in reports for kind in report.counts}
    assert {"TaskReplaced", "ThrottlesEnded", "PacedRun", "Dropped"} <= kinds
    assert sum(report.restarts for report in reports) > 2


def _caught() -> str:
    for seed in range(_SEEDS):
        try:
            simulate(seed, with_paces=True)
        except (Violation, BrokenInvariant, Corrupt) as error:
            return str(error)
    return ""


def test_two_are_accepted_within_a_span(monkeypatch: Patch) -> None:
    """What is throttled is forgotten with a restart."""
    monkeypatch.setattr(Book, "keep_throttle", lambda *_: None)
    assert "one is accepted in a span" in _caught()


def test_throttles_end_early(monkeypatch: Patch) -> None:
    keep = Book.keep_throttle

    def hasty(whole: Book, name: str, entry: Any) -> None:
        keep(whole, name, entry)
        whole.throttled.set((entry.namespace, name), entry.until_us - 1_000_000)

    monkeypatch.setattr(Book, "keep_throttle", hasty)
    assert "one is accepted in a span" in _caught()


def test_the_latest_arguments_are_lost(monkeypatch: Patch) -> None:
    """The task keeps the payload that it had."""
    original = apply.APPLIERS[TaskReplaced]

    def stubborn(whole: Book, records: Any) -> None:
        for record in records:
            task = whole.tasks[record.task]
            before = task.payload
            original(whole, [record])
            task.payload = before

    monkeypatch.setitem(apply.APPLIERS, TaskReplaced, stubborn)
    assert "the latest arguments are run" in _caught()


def test_a_submit_is_told_to_replace_and_is_not_recorded(monkeypatch: Patch) -> None:
    monkeypatch.setattr(submits, "_replace", lambda *_: None)
    assert "what is told to replace is durable" in _caught()


def test_a_repeated_submit_brings_back_older_arguments(monkeypatch: Patch) -> None:
    """The ids of those that were merged are not kept over a restart."""

    def lossy(row: TaskRow, queue: Any) -> Task:
        task = from_row(row, queue)
        task.merged = ()
        return task

    monkeypatch.setattr(book, "from_row", lossy)
    assert _caught()


def test_a_debounce_never_fires(monkeypatch: Patch) -> None:
    """Its timer is not set again when it is replaced."""
    replace = Book.replace

    def silent(whole: Book, task: Task, *args: Any) -> None:
        replace(whole, task, *args)
        whole.due.cancel(task.id)

    monkeypatch.setattr(Book, "replace", silent)
    caught = _caught()
    assert "scheduled means a timer" in caught or "everything ends once faults stop" in caught


def test_a_debounce_fires_early(monkeypatch: Patch) -> None:
    """What comes later does not move it."""
    replace = submits._replace

    def rigid(ctx: Context, task: Task, spec: TaskSpec, pace: Pace, by: str) -> None:
        before_us = task.due_us - task.created_us
        if pace.how is Pacing.DEBOUNCE and before_us > 0:
            pace = Pace(pace.how, pace.key, pace.span_us, before_us)
        replace(ctx, task, spec, pace, by)

    monkeypatch.setattr(submits, "_replace", rigid)
    assert "a debounced task waits until it is quiet" in _caught()


def test_two_tasks_of_a_kind(monkeypatch: Patch) -> None:
    """The task that waits is not found."""
    ask = submits.ask

    def blind(ctx: Context, command: Any, spec: TaskSpec, queue: Queue, pace: Pace) -> Any:
        kind = pace.kind(spec.name)
        found = queue.standing.pop(kind, NO_TASK) if ctx.now_us % 3 == 0 else NO_TASK
        served = ask(ctx, command, spec, queue, pace)
        if found and kind not in queue.standing:
            queue.standing[kind] = found
        return served

    monkeypatch.setattr(submits, "ask", blind)
    caught = _caught()
    assert "of a kind one task is open" in caught or "a kind has one task" in caught


def test_what_has_begun_is_replaced(monkeypatch: Patch) -> None:
    monkeypatch.setattr(submits, "is_open", lambda task: not task.outcome)
    caught = _caught()
    assert "only an open task is replaced" in caught


def test_a_drop_names_no_task(monkeypatch: Patch) -> None:
    """A submit is dropped although none was accepted."""

    def careless(ctx: Context, command: Any, spec: TaskSpec, queue: Queue, pace: Pace) -> Any:
        return Served(How.REPLACED, spec.id)

    monkeypatch.setattr(submits, "_throttle", careless)
    assert "what is told to replace is durable" in _caught()

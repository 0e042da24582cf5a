"""Each planted bug is caught: the checkers can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from jackalope.broker.engine import Engine, Flush, Turn
from jackalope.core import core as broker
from jackalope.core import lifecycle, tasks
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.cache import single_flight
from jackalope.core.commands import EndHelp, JoinWorker, Recover
from jackalope.core.context import Done
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Answered
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import Event, State
from jackalope.core.refusals import Refusal
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.book import Book
from jackalope.core.state.gates import Gates
from jackalope.core.state.roster import Worker
from jackalope.core.state.timers import Timers
from jackalope.core.task import Task
from jackalope.core.tasks import actions, assign, attempts, submit
from jackalope.core.workers import sessions
from jackalope.storage.faults import Corrupt
from tests.simulation.checker import Violation
from tests.simulation.node import Node
from tests.simulation.run import simulate

_SEEDS = 40

Patch = pytest.MonkeyPatch


def test_fence_not_checked(monkeypatch: Patch) -> None:
    """Any worker may report on a task that another holds."""
    original = attempts.lease

    def careless(worker: Worker, task_id: TaskId, fence: int) -> Task | Refusal:
        for held in worker.namespace.leases.values():
            if task_id in held:
                return held[task_id]
        return original(worker, task_id, fence)

    monkeypatch.setattr(attempts, "lease", careless)
    assert "only the holder" in _caught()


def test_effects_before_the_journal() -> None:
    """The world hears of a batch before it is on disk."""

    class Hasty(Engine):
        _late: Turn | None = None

        def store(self, turn: Turn) -> None:
            turn.is_stored = True
            self._late = turn

        def decide(self, now_us: int, commands: Any) -> Turn:
            if self._late is not None:
                super().store(self._late)
            return super().decide(now_us, commands)

    assert "durable" in _caught(make_engine=Hasty)


def test_acknowledged_batch_lost() -> None:
    """The last batch is gone after a restart."""

    def forgetful(journal: Any, *args: Any, **options: Any) -> Engine:
        if journal.last() > journal.trimmed():
            journal._log.bodies.pop()
        return Engine(journal, *args, **options)

    assert "replay equals memory" in _caught(make_engine=forgetful)


def test_tags_not_held(monkeypatch: Patch) -> None:
    """Leases take no slot of their tags."""
    monkeypatch.setattr(Gates, "hold", lambda *_: {})
    monkeypatch.setattr(Gates, "free", lambda *_: None)
    assert "leases hold slots" in _caught()


def test_slots_ignored(monkeypatch: Patch) -> None:
    """Workers are given more than they can take."""
    original = sessions._bind

    def generous(core: broker.Core, worker: Worker, command: JoinWorker) -> None:
        original(core, worker, command)
        worker.slots += 1

    monkeypatch.setattr(sessions, "_bind", generous)
    assert "slots" in _caught()


def test_names_ignored(monkeypatch: Patch) -> None:
    """Workers are given tasks that they do not know."""
    original = sessions._bind

    def careless(core: broker.Core, worker: Worker, command: JoinWorker) -> None:
        original(core, worker, command)
        worker.names = None

    monkeypatch.setattr(sessions, "_bind", careless)
    assert "knows its tasks" in _caught()


def test_timers_early(monkeypatch: Patch) -> None:
    """Things are due five seconds too soon."""
    original: Callable[[Timers[bytes], int], Iterator[bytes]] = Timers.pop_due
    early = lambda self, now_us: original(self, now_us + 5 * SECOND)  # noqa: E731
    monkeypatch.setattr(Timers, "pop_due", early)
    assert "starts early" in _caught()


def test_success_not_final(monkeypatch: Patch) -> None:
    """A task that succeeded can be retried."""
    legal = {**lifecycle.TRANSITIONS[State.SUCCEEDED], Event.RETRY: frozenset({State.READY})}
    monkeypatch.setitem(lifecycle.TRANSITIONS, State.SUCCEEDED, legal)
    assert "only these live again" in _caught()


def test_restart_forgets_leases(monkeypatch: Patch) -> None:
    """What was leased when the broker died is never settled."""
    monkeypatch.setitem(broker.ROOMS.handlers, Recover, lambda core, command: Accepted())
    caught = _caught()
    assert "everything ends" in caught or "fences that are told grow" in caught


def test_lost_worker_not_settled(monkeypatch: Patch) -> None:
    """A worker that fell silent is never given up."""
    monkeypatch.setattr(sessions, "lose", lambda core, task, cause: None)
    assert _caught()


def test_repeated_submit_not_recognised(monkeypatch: Patch) -> None:
    """A task that ended and left memory can be submitted once more."""
    monkeypatch.setattr(Book, "may_have_ended", lambda self, task_id: False)
    assert "accepted once" in _caught()


def test_kill_overrules_the_worker(monkeypatch: Patch) -> None:
    """A running task is called killed while its worker still runs it."""

    def brutal(core: broker.Core, task: Task, by: str, detail: str = "") -> Done:
        task.state = State.KILLED
        return Done.CHANGED

    monkeypatch.setattr(actions, "_kill_one", brutal)
    assert _caught()


def test_history_loses_limits(monkeypatch: Patch) -> None:
    """What was written behind is not read back."""
    original = Book.restore

    def lossy(self: Book, counters: Any, entities: Any, *rest: Any) -> None:
        original(self, counters, [each for each in entities if each.kind != "limit"], *rest)

    monkeypatch.setattr(Book, "restore", lossy)
    assert "replay equals memory" in _caught()


def test_requests_not_joined(monkeypatch: Patch) -> None:
    """Who asks for what is under way gets a run of his own."""
    monkeypatch.setattr(single_flight, "_serve", lambda *_: None)
    caught = _caught()
    assert "twice" in caught or "once" in caught


def test_errors_are_answers(monkeypatch: Patch) -> None:
    """A failure is returned to later requests."""
    monkeypatch.setattr(StoredAnswer, "is_good", lambda self, now_us: True)
    assert "an error is no answer" in _caught()


def test_history_loses_answers(monkeypatch: Patch) -> None:
    """Answers are gone after a restart."""
    original = Book.restore

    def lossy(self: Book, counters: Any, entities: Any, tasks: Any, _: Any) -> None:
        original(self, counters, entities, tasks)

    monkeypatch.setattr(Book, "restore", lossy)
    assert _caught()


def test_helpers_not_freed(monkeypatch: Patch) -> None:
    """The report of a worker that it has stopped helping is ignored."""
    monkeypatch.setitem(broker.ROOMS.reports, EndHelp, lambda core, command, worker: Accepted())
    assert "has its slot back" in _caught()


def test_helpers_of_two(monkeypatch: Patch) -> None:
    """A worker that joins again helps another task, and the one before still counts it."""

    def careless(core: broker.Core, worker: Worker, fence: int) -> None:
        worker.helps = fence

    monkeypatch.setattr(sessions, "resume_help", careless)
    assert "a fan-out knows its helpers" in _caught()


def test_fences_not_reserved(monkeypatch: Patch) -> None:
    """Fences of tasks without records are given out again after a restart."""
    monkeypatch.setattr(assign, "_reserve", lambda core, through: None)
    caught = _caught()
    assert "fences that are told grow" in caught or "told only when durable" in caught


def test_reserved_fences_not_skipped(monkeypatch: Patch) -> None:
    """They are reserved, and a restart begins in the middle of the block."""
    monkeypatch.setattr(tasks, "skip_reserved", lambda core: None)
    assert "fences that are told grow" in _caught()


def test_forgotten_without_a_record() -> None:
    """What was kept for long enough goes by the clock, and no record says so."""

    class Secretive(Engine):
        def write_flush(self, flush: Flush) -> None:
            flush.changes.counters.horizon_us = flush.now_us
            super().write_flush(flush)

        def forgetting(self) -> None:
            return None

    caught = _caught(make_engine=Secretive)
    assert any(each in caught for each in ("accepted once", "the horizon", "the digest"))


def test_time_begins_with_the_clock(monkeypatch: Patch) -> None:
    """After a restart it is whatever the clock shows."""
    recover = broker.ROOMS.handlers[Recover]

    def careless(core: broker.Core, _: Recover) -> Answered | None:
        return recover(core, Recover(is_clock_set_back=True))

    monkeypatch.setitem(broker.ROOMS.handlers, Recover, careless)
    monkeypatch.setattr(Node, "_raise_clock", lambda self, reached_us: None)
    assert "time does not go back" in _caught()


def test_tasks_wait_for_messages(monkeypatch: Patch) -> None:
    """A task may wait for one that is not durable, and that a restart takes along."""

    def patient(self: Book, task: Task, waiting_for: set[TaskId]) -> None:
        for dependency in waiting_for:
            self.dependents.setdefault(dependency, {})[task.id] = None

    monkeypatch.setattr(submit, "is_volatile", lambda task_id: False)
    monkeypatch.setattr(Book, "_enter_waiting", patient)
    caught = _caught()
    assert "everything ends" in caught or "what is waited for lives" in caught


def _caught(make_engine: Callable[..., Engine] = Engine) -> str:
    """Run worlds until one shows the bug, and return what was said."""
    run = partial(simulate, make_engine=make_engine)
    for seed in range(_SEEDS):
        try:
            run(seed)
        except (Violation, BrokenInvariant, Corrupt) as error:
            return str(error)
    return ""

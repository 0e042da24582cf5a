"""Workers whose tasks have steps, and what must hold of those."""

from __future__ import annotations

from typing import Any

from jackalope.core.commands import RecordStep, SendEvent, Suspend
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.effects import Assignment, Reply, StepDone, Suspended
from jackalope.core.ids import TaskId
from jackalope.core.records import StepRecorded, TaskSubmitted
from jackalope.core.refusals import Refusal
from tests.simulation.checker import Checker, demand
from tests.simulation.worker import Run, SimWorker

_STEPS = 4
_WAIT = 1  # the step at which a task sleeps, or waits for an event
_EVENT = "go"


class StepChecker(Checker):
    """Knows which steps are recorded, and sees what workers do."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: dict[TaskId, set[int]] = {}
        self._checks[StepRecorded] = self._on_step

    def _on_submitted(self, record: TaskSubmitted) -> None:
        super()._on_submitted(record)
        self.recorded.pop(record.spec.id, None)  # One of the same id may have been forgotten.

    def _on_step(self, record: StepRecorded) -> None:
        recorded = self.recorded.setdefault(record.task, set())
        demand(record.index not in recorded, "a step has one result", record)
        recorded.add(record.index)
        if not record.event and not record.is_late:
            fence = self.holders.get(record.task, (0, ""))[0]
            demand(record.result == b"%d" % fence, "only the holder records", record, fence)

    def on_done(self, task_id: TaskId, fence: int, index: int) -> None:
        """Take that a worker does a step now."""
        if self.holders.get(task_id, (0, ""))[0] != fence:
            return  # Its lease is gone, which it does not know yet.
        is_recorded = index in self.recorded.get(task_id, ())
        demand(not is_recorded, "a step that is recorded is not done again", task_id, index)
        self.counts["StepDone"] += 1


class StepWorker(SimWorker):
    """A worker that runs every other task step by step."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._done: dict[int, set[int]] = {}  # the steps that it knows to be done, by fence

    def _live(self) -> None:
        super()._live()
        book = self.node.checker.shadow.book
        waiting = [task for task in book.tasks.values() if task.steps and task.steps.pending]
        if waiting and self.world.rng.random() < 0.5:
            task = self.world.rng.choice(waiting)
            self._send(SendEvent(task=task.id, event=_EVENT, namespace=task.queue.namespace.name))

    def _on_assignment(self, message: Assignment) -> None:
        if message.task[-1] % 2:
            self._done.setdefault(message.fence, {step.index for step in message.steps})
        super()._on_assignment(message)

    def _complete(self, run: Run) -> None:
        done = self._done.get(run.held.fence)
        is_here = self.runs.get(run.held.task) is run and not run.is_over
        if done is None or not is_here or self.world.now_us < self.frozen_until_us:
            super()._complete(run)
            return
        left = [index for index in range(_STEPS) if index not in done]
        if not left:
            super()._complete(run)
        elif left[0] == _WAIT:
            self._wait(run)
        else:
            self._do(run, left[0])

    def _do(self, run: Run, index: int) -> None:
        task, fence = run.held.task, run.held.fence
        checker = self.node.checker
        if isinstance(checker, StepChecker):
            checker.on_done(task, fence, index)
        self._report(RecordStep(0, task, fence, index, f"step {index}", b"%d" % fence))

    def _wait(self, run: Run) -> None:
        event = _EVENT if run.held.task[-1] % 4 == 1 else ""
        after_us = self.world.rng.randrange(MILLISECOND, 20 * SECOND)
        task, fence = run.held.task, run.held.fence
        self._report(Suspend(0, task, fence, _WAIT, f"step {_WAIT}", after_us, event))

    def _on_reply(self, reply: Reply) -> None:
        asked = self.outbox.get(reply.ref)
        super()._on_reply(reply)
        if not isinstance(asked, RecordStep | Suspend) or reply.ref in self.outbox:
            return
        run = self.runs.get(asked.task)
        if run is None or run.held.fence != asked.fence:
            return
        if isinstance(reply.body, Refusal | Suspended):
            self._drop(run.held)
            return
        if isinstance(asked, RecordStep) or isinstance(reply.body, StepDone):
            self._done[asked.fence].add(asked.index)
        life = self.life
        wait_us = self.world.rng.randrange(MILLISECOND, SECOND)
        self.world.after(wait_us, lambda: self._complete(run) if life == self.life else None)

"""The checker: watches every durable record and every effect, and knows what must hold.

It keeps a shadow: a core that has applied every durable record from the first one on and was never
restarted, trimmed or written behind. What the real node recovers must equal it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from jackalope.broker.engine import Turn
from jackalope.core import Core
from jackalope.core.effects import Assignment, Effect, HelpAsked, SendToSession, TaskEnded
from jackalope.core.ids import TaskId, is_volatile
from jackalope.core.lifecycle import ENDED, Event, State
from jackalope.core.records import (
    AnswerStored,
    AnswerUsed,
    AnyRecord,
    AttemptAssigned,
    AttemptEnded,
    AttemptFinished,
    AttemptStarted,
    RequestJoined,
    TaskMoved,
    TaskPurged,
    TaskRevived,
    TaskSubmitted,
)
from jackalope.core.state.changes import Changes
from jackalope.core.state.digest import digest_of
from jackalope.core.task import Body, Options, Task, size_of

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Violation(AssertionError):
    """Something happened that must never happen."""


class Checker:
    """Knows what is durable, who holds what, and what was promised."""

    commands_max: int | None = None  # how many commands a turn may have, if that matters

    def __init__(self) -> None:
        self.shadow = Core()
        self.accepted: set[TaskId] = set()
        self.purged: set[TaskId] = set()
        self.ended: dict[TaskId, State] = {}
        self.holders: dict[TaskId, tuple[int, str]] = {}
        self.slots: dict[str, int] = {}
        self.names: dict[str, tuple[str, ...] | None] = {}
        self.counts: Counter[str] = Counter()
        self.results: dict[TaskId, Body] = {}
        self._last_fence = 0
        self._told_fence = 0
        self._latest_us = 0
        self._ends: set[tuple[TaskId, State]] = set()
        self._checks: dict[type, Callable[[Any], None]] = {
            AttemptAssigned: self._on_assigned,
            AttemptStarted: self._on_started,
            AttemptFinished: self._on_finished,
            AttemptEnded: self._on_attempt_ended,
            TaskSubmitted: self._on_submitted,
            TaskMoved: self._on_moved,
            TaskRevived: self._on_revived,
            TaskPurged: self._on_purged,
            AnswerStored: self._on_answer_stored,
            AnswerUsed: self._on_answer_used,
            RequestJoined: self._on_joined,
        }

    # What is durable.

    def on_durable(self, records: list[AnyRecord]) -> None:
        """Take a batch that is now on disk."""
        for record in records:
            self.counts[type(record).__name__] += 1
            demand(record.at_us >= self._latest_us, "time does not go back", record)
            self._latest_us = record.at_us
            check = self._checks.get(type(record))
            if check is not None:
                check(record)
            self.shadow.apply(record)

    def _on_submitted(self, record: TaskSubmitted) -> None:
        self._check_alone(record.spec.options)
        before = self.shadow.book.tasks.get(record.spec.id)
        demand(before is None or self._is_forgotten(before), "accepted once", record)
        self.ended.pop(record.spec.id, None)
        queue = self.shadow.book.queue(record.namespace, record.spec.queue)
        if queue is not None and not (record.spec.options and record.spec.options.parent):
            limit = queue.policy.depth_limit
            demand(not limit or queue.depth < limit, "the depth limit holds", queue.depth, record)
        if record.state is State.READY and record.spec.options is not None:
            run_at_us = record.spec.options.run_at_us
            demand(run_at_us <= record.at_us, "no task starts early", record)

    def _is_forgotten(self, task: Task) -> bool:
        """Return whether the records say that an ended task was kept for long enough."""
        book, outcome = self.shadow.book, task.outcome
        is_over = outcome is not None and outcome.forget_us <= book.counters.horizon_us
        return task.state in ENDED and is_over and task.id not in book.answers.by_task

    def _on_assigned(self, record: AttemptAssigned) -> None:
        task = self.shadow.book.tasks[record.task]
        world = task.queue.namespace
        demand(record.task not in self.holders, "one holder at a time", record, self.holders)
        demand(record.fence > self._last_fence, "fences grow", record, self._last_fence)
        demand(task.state is State.READY, "only ready tasks start", task)
        for tag in set(task.options.tags):
            held = sum(tag in self.shadow.book.tasks[other].options.tags for other in self.holders)
            demand(held < world.gates.tags.get(tag, 2**30), "the tag limit holds", tag, record)
        load = sum(worker == record.worker for _, worker in self.holders.values())
        demand(load < self.slots[record.worker], "the slots of a worker hold", record, load)
        known = self.names[record.worker.split(".")[0]]
        demand(known is None or task.name in known, "a worker knows its tasks", record, task.name)
        self._last_fence = record.fence
        self.holders[record.task] = (record.fence, record.worker)

    def _on_started(self, record: AttemptStarted) -> None:
        demand(record.task in self.holders, "only leased tasks start", record)

    def _on_finished(self, record: AttemptFinished) -> None:
        holder = self.holders.pop(record.task, None)
        demand(holder is not None, "only leased tasks finish", record)
        # Workers put their fence into the result, so a stale one shows.
        if holder is not None and isinstance(record.result, bytes):
            expected = f"{holder[0]}:{holder[1]}".encode()
            demand(record.result == expected, "only the holder finishes", record, holder)
        self.results[record.task] = record.result
        self._end(record.task, State.SUCCEEDED)

    def _on_attempt_ended(self, record: AttemptEnded) -> None:
        holder = self.holders.pop(record.task, None)
        demand(holder is not None, "only leased tasks end their attempt", record)
        if record.error is not None and holder is not None and record.error.type == "Simulated":
            expected = f"{holder[0]}:{holder[1]}"
            demand(record.error.message == expected, "only the holder fails", record, holder)
        if record.to is State.SCHEDULED:
            demand(record.due_us > record.at_us, "a retry waits", record)
        if record.to in ENDED:
            self._end(record.task, record.to)

    def _on_moved(self, record: TaskMoved) -> None:
        demand(record.task in self.shadow.book.tasks, "only what was accepted moves", record)
        task = self.shadow.book.tasks[record.task]
        is_sent_for = record.event is Event.UNBLOCK and task.state is State.SCHEDULED
        if record.to is State.READY and record.event is not Event.RETRY and not is_sent_for:
            demand(task.due_us <= record.at_us, "no task starts early", task, record)
        if record.to in ENDED:
            self._end(record.task, record.to)

    def _on_revived(self, record: TaskRevived) -> None:
        self._check_alone(record.row.options)
        state = self.ended.pop(record.row.id, None)
        demand(state in (State.DEAD, State.KILLED), "only these live again", record, state)

    def _on_purged(self, record: TaskPurged) -> None:
        demand(record.task in self.ended, "only the ended are purged", record)
        del self.ended[record.task]
        self.purged.add(record.task)

    def _check_alone(self, options: Options | None) -> None:
        """Demand that no other task of an identity, which names its queue, is under way."""
        if options is None or not options.identity:
            return
        for task_id in set(self.shadow.book.tasks) - set(self.ended) - self.purged:
            other = self.shadow.book.tasks[task_id]
            demand(other.options.identity != options.identity, "no request runs twice", other)

    def _on_answer_stored(self, record: AnswerStored) -> None:
        answer = record.answer
        demand(self.ended.get(answer.task) is answer.state, "answers tell the end", answer)
        if answer.state is State.SUCCEEDED:
            demand(size_of(self.results[answer.task]) == answer.size, "whole answers", answer)

    def _on_answer_used(self, record: AnswerUsed) -> None:
        demand(self.ended.get(record.task) is State.SUCCEEDED, "an error is no answer", record)

    def _on_joined(self, record: RequestJoined) -> None:
        demand(record.task not in self.ended, "only what is under way is joined", record)

    def _end(self, task_id: TaskId, state: State) -> None:
        demand(task_id not in self.ended, "the end is final", task_id, state, self.ended)
        self.ended[task_id] = state
        self._ends.add((task_id, state))

    # What the world hears.

    def on_effect(self, effect: Effect) -> None:
        """Take an effect that leaves the broker: nothing in it may be unknown to the disk."""
        if isinstance(effect, SendToSession):
            message = effect.message
            if isinstance(message, Assignment):
                is_reserved = message.fence <= self.shadow.book.counters.reserved
                is_durable = message.fence <= self._last_fence or is_reserved
                self.counts["Volatile"] += is_volatile(message.task)
                demand(is_durable, "told only when durable", message)
                demand(message.fence > self._told_fence, "fences that are told grow", message)
                self._told_fence = message.fence
            if isinstance(message, HelpAsked):
                self.counts["HelpAsked"] += 1
            if isinstance(message, TaskEnded):
                is_true = (message.task, message.state) in self._ends
                demand(is_true, "an end that is told is durable", message)
                if message.state is State.SUCCEEDED:
                    is_true = message.result == self.results[message.task]
                    demand(is_true, "an answer is what its run returned", message)

    def on_accepted(self, ids: list[TaskId]) -> None:
        """Take ids that a client was told are accepted."""
        for task_id in ids:
            is_kept = task_id in self.shadow.book.tasks or task_id in self.purged
            demand(is_kept, "what is accepted is durable", task_id)
            self.accepted.add(task_id)

    # What a node has.

    def on_turn(self, core: Core, turn: Turn) -> None:
        """Take a node that has ended a turn: the shadow is where it is."""

    def at_end(self, core: Core) -> None:
        """Take a node after everything has ended."""

    def compare(self, core: Core) -> None:
        """Check that a node, all of whose batches are durable, is where the shadow is."""
        mine, its = _unfinished(self.shadow.book.snapshot()), _unfinished(core.book.snapshot())
        for name in ("tasks", "entities", "answers"):
            expected, actual = getattr(mine, name), getattr(its, name)
            if _encode(expected) != _encode(actual):
                differing = [
                    pair for pair in zip(expected, actual, strict=False) if pair[0] != pair[1]
                ]
                raise Violation(
                    f"replay equals memory: {name}: {len(expected)} durable, "
                    f"{len(actual)} in memory; first difference: {differing[:1]}"
                )
        counters = (mine.counters, its.counters)
        # No record has the fences of volatile tasks, but they are reserved.
        fences = [max(each.fence, each.reserved) for each in counters]
        demand(fences[0] == fences[1], "replay equals memory: the fence", *counters)
        for index in range(2):
            digests = [digest_of(book, index, 2) for book in (self.shadow.book, core.book)]
            demand(digests[0] == digests[1], "replay equals memory: the digest", index)
        horizons = [each.horizon_us for each in counters]
        demand(horizons[0] == horizons[1], "replay equals memory: the horizon", *counters)
        ranks = [each.rank for each in counters]
        demand(ranks[0] == ranks[1], "replay equals memory: the last place in line", *counters)

    def unfinished_of(self, queue: str, namespace: str = "default") -> list[Task]:
        """Return the tasks of a queue that have not come to an end."""
        found = self.shadow.book.queue(namespace, queue)
        there = self.shadow.book.tasks.values()
        return [task for task in there if task.queue is found and task.state not in ENDED]

    def unfinished(self) -> list[TaskId]:
        """Return what was accepted, or came of that, and has not come to an end."""
        accepted = [
            task_id
            for task_id in self.accepted
            if task_id not in self.ended and task_id not in self.purged
        ]
        there = self.shadow.book.tasks.values()
        return accepted + [
            task.id for task in there if task.state not in ENDED and task.id not in self.accepted
        ]


def _unfinished(snapshot: Changes) -> Changes:
    """Leave out ended tasks, which leave memory at their own pace."""
    snapshot.tasks = [row for row in snapshot.tasks if row.state not in ENDED]
    return snapshot


def demand(condition: object, what: str, *details: object) -> None:
    if not condition:
        raise Violation(f"{what}: {details}")

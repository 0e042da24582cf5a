"""Paced submits in a simulated world: a client that makes bursts of them, and what must hold.

Of each kind one task is open at a time, it runs with the latest arguments that were accepted and
not before its time, and of a throttled kind none is accepted before the span is over.
"""

from __future__ import annotations

import random
from typing import Any

from jackalope.core.commands import SubmitTasks
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.effects import (
    Accepted,
    AcceptedRequests,
    Assignment,
    Effect,
    Reply,
    SendToSession,
)
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, Event
from jackalope.core.records import TaskMoved, TaskReplaced, TaskSubmitted
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.pace import Pace, Pacing
from jackalope.core.shapes.request import How
from jackalope.core.task import Body, Options, TaskSpec, is_open
from tests.simulation.checker import Checker, demand
from tests.simulation.node import Node
from tests.simulation.world import Link, World

_KEYS = ("ada", "bob")
_PACES = (
    Pace(Pacing.DEBOUNCE, "", 2 * SECOND, 5 * SECOND),
    Pace(Pacing.DEBOUNCE, "", SECOND),
    Pace(Pacing.THROTTLE, "", 8 * SECOND),
    Pace(Pacing.THROTTLE, "", 8 * SECOND, drops=True),
    Pace(Pacing.REPLACE),
)


class SimPacer:
    """A client that submits more often than it should."""

    def __init__(self, world: World, node: Node, seed: int) -> None:
        self.name = "pacer"
        self.world = world
        self.node = node
        self.link: Link | None = None
        self.outbox: dict[int, SubmitTasks] = {}
        self.is_tidying = False
        self._rng = random.Random(seed)
        self._refs = self._number = 0
        self._sent: list[TaskSpec] = []
        world.after(SECOND, self._live)

    def _live(self) -> None:
        world, rng = self.world, self._rng
        world.after(rng.randrange(50 * MILLISECOND, 2 * SECOND), self._live)
        if self.link is None:
            self.link = self.node.connect(self)
        for command in list(self.outbox.values()):
            self._send(command)
        if self.is_tidying:
            return
        specs = [self._spec() for _ in range(rng.randrange(1, 5))]
        self._sent += specs
        if rng.random() < 0.2:
            specs += rng.sample(self._sent, min(3, len(self._sent)))  # As if not answered.
        self._refs += 1
        self.outbox[self._refs] = SubmitTasks(ref=self._refs, tasks=specs, by=self.name)
        self._send(self.outbox[self._refs])

    def _spec(self) -> TaskSpec:
        rng = self._rng
        self._number += 1
        pace = rng.choice(_PACES)
        pace = Pace(pace.how, rng.choice(_KEYS), pace.span_us, pace.at_most_us, pace.drops)
        options = Options(pace=pace, tags=("red",) if rng.random() < 0.1 else ())
        queue = rng.choice(("plain", "shared", "aged"))
        payload = b"%d" % self._number
        priority = rng.choice((50, 150, 200))
        return TaskSpec(self.world.new_id(), queue, "", "", priority, payload, options)

    def _send(self, command: SubmitTasks) -> None:
        if self.link is not None:
            command.session = self.link.session
            self.link.up(command)

    def hear(self, link: Link, effect: Effect) -> None:
        if link is not self.link or not isinstance(effect, Reply):
            return
        if isinstance(effect.body, Refusal) and effect.body.code is Code.STORAGE_FAILED:
            return
        command = self.outbox.pop(effect.ref, None)
        checker = self.node.checker
        if command is None or not isinstance(effect.body, Accepted):
            return
        refused = {index for index, _ in effect.body.refused}
        served = dict(effect.body.served) if isinstance(effect.body, AcceptedRequests) else {}
        for index, spec in enumerate(command.tasks):
            if index not in refused and isinstance(checker, PaceChecker):
                how = served[index].how if index in served else None
                checker.on_answer(spec, how, served[index].task if index in served else spec.id)

    def cut_off(self, link: Link) -> None:
        if link is self.link:
            self.link = None


class PaceChecker(Checker):
    """A checker that follows the kinds of tasks as well."""

    def __init__(self) -> None:
        super().__init__()
        self._latest: dict[TaskId, tuple[Body, int]] = {}  # what is to run, and since when
        self._merged: set[tuple[TaskId, TaskId]] = set()
        self._accepted_us: dict[tuple[str, str, str], int] = {}
        self._checks[TaskReplaced] = self._on_replaced

    def _on_submitted(self, record: TaskSubmitted) -> None:
        super()._on_submitted(record)
        pace = (record.spec.options or Options()).pace
        if pace is None:
            return
        spec = record.spec
        self._latest[spec.id] = (spec.payload, record.at_us)
        if pace.how is Pacing.THROTTLE:
            kind = (spec.queue, spec.name, pace.key)
            before_us = self._accepted_us.get(kind, 0)
            is_over = record.at_us >= before_us + pace.span_us
            demand(is_over, "one is accepted in a span", record, before_us)
            self._accepted_us[kind] = record.at_us
            return
        kinds = [
            task.id
            for task in self.shadow.book.tasks.values()
            if task.options.pace is not None
            and task.queue.name == spec.queue
            and task.options.pace.kind(task.name) == pace.kind(spec.name)
            and is_open(task)
        ]
        demand(not kinds, "of a kind one task is open", record, kinds)

    def _on_replaced(self, record: TaskReplaced) -> None:
        task = self.shadow.book.tasks[record.task]
        demand(task.state not in ENDED and not task.attempts, "what has begun stays", record)
        once = (record.task, record.spec.id)
        demand(once not in self._merged, "a submit counts once for a task", record)
        self._merged.add(once)
        self._latest[record.task] = (record.spec.payload, record.at_us)

    def _on_moved(self, record: TaskMoved) -> None:
        super()._on_moved(record)
        task = self.shadow.book.tasks[record.task]
        pace = task.options.pace
        if pace is None or pace.how is not Pacing.DEBOUNCE or record.event is not Event.DUE:
            return
        due_us = self._latest[task.id][1] + pace.span_us
        if pace.at_most_us:
            due_us = min(due_us, task.created_us + pace.at_most_us)
        is_late = record.at_us >= due_us or bool(task.attempts)
        demand(is_late, "a debounced task waits until it is quiet", record, due_us)

    def on_effect(self, effect: Effect) -> None:
        super().on_effect(effect)
        message: Any = effect.message if isinstance(effect, SendToSession) else None
        if isinstance(message, Assignment) and message.task in self._latest:
            latest = self._latest[message.task][0]
            demand(message.payload == latest, "the latest arguments are run", message, latest)
            self.counts["PacedRun"] += 1

    def on_answer(self, spec: TaskSpec, how: How | None, task: TaskId) -> None:
        """Take that a client was told how its submit was served."""
        if how is How.REPLACED:
            demand(
                (task, spec.id) in self._merged, "what is told to replace is durable", spec, task
            )
            demand(task in self._latest, "and names a task", spec, task)
        elif how is How.DROPPED:
            self.counts["Dropped"] += 1
        else:
            demand(task in self._latest, "what is accepted is durable", spec, task)

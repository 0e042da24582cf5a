"""Resources in a simulated world: large and small tasks, workers that have little, what must hold.

No worker is ever given more than it has, the first task in order never waits while a worker could
take it, and a large task starts although small ones come without an end.
"""

from __future__ import annotations

from typing import ClassVar

from jackalope.broker.engine import Turn
from jackalope.core import Core
from jackalope.core.commands import DeclareQueue, SubmitTasks
from jackalope.core.durations import SECOND
from jackalope.core.lifecycle import State
from jackalope.core.records import AttemptAssigned
from jackalope.core.shapes.needs import ONE, Needs
from jackalope.core.task import Options, Task, TaskSpec
from tests.simulation.checker import Checker, Violation, demand
from tests.simulation.node import Node
from tests.simulation.requester import Requester
from tests.simulation.worker import SimWorker
from tests.simulation.world import World

_QUEUE = "heavy"
_POLICY: dict[str, object] = {
    "depth_limit": 0,
    "prefer_other_worker": False,
    "retry_base_us": SECOND,
    "retries": 1,
}
_SMALL, _LARGE = {"cpu": 1}, {"cpu": 4}
_NEEDS = (_SMALL, _SMALL, _SMALL, {"cpu": 2}, {"cpu": 1, "gpu": 1}, _LARGE)
_WAITING_MAX = 30
#: The next large task starts sooner, once faults stop: tasks take three seconds at most.
_PATIENCE_US = 60 * SECOND


class NeedWorker(SimWorker):
    """A worker with four processors."""

    usual_us = longest_us = 3 * SECOND
    resources: ClassVar[dict[str, int]] = {"cpu": 4 * ONE}


class GpuWorker(NeedWorker):
    """A worker that has something rare as well."""

    resources: ClassVar[dict[str, int]] = {"cpu": 4 * ONE, "gpu": ONE}


_WORKERS: dict[str, type[NeedWorker]] = {"plain": NeedWorker, "rare": GpuWorker}


class SimNeeds(Requester):
    """A client whose tasks need more or less of a worker."""

    name = "needs"

    def __init__(self, world: World, node: Node, seed: int) -> None:
        super().__init__(world, node, seed)
        self._calm_us = self._large = 0  # when the number of large ones changed last
        self.ask(DeclareQueue(queue=_QUEUE, changes=dict(_POLICY)))
        for name, make in _WORKERS.items():
            make(world, node, name, queues=(_QUEUE,), keys=(), slots=6)

    def tidy(self) -> None:
        super().tidy()
        self._calm_us = self.world.now_us
        self._submit(_LARGE, _LARGE)

    def act(self) -> None:
        waiting = self.node.checker.unfinished_of(_QUEUE)
        if not self.is_tidying:
            if len(waiting) + 3 * len(self.outbox) < _WAITING_MAX:
                self._submit(*(self.rng.choice(_NEEDS) for _ in range(3)))
        elif large := [task for task in waiting if _needs(task) == _needs_of(_LARGE)]:
            self._submit(*[_SMALL] * 4)
            if len(large) != self._large:
                self._large, self._calm_us = len(large), self.world.now_us
            if self.world.now_us > self._calm_us + _PATIENCE_US:
                raise Violation(f"a large task starts among small ones: {large}")

    def _submit(self, *wanted: dict[str, int]) -> None:
        specs = []
        for needs in wanted:
            options = Options(needs=Needs(tuple(sorted(_needs_of(needs).items()))))
            priority = 100 if self.is_tidying else self.rng.choice((100, 150))
            task_id = self.world.new_id()
            specs.append(TaskSpec(task_id, _QUEUE, "", "", priority, b"", options))
        self.ask(SubmitTasks(ref=0, tasks=specs))


def _needs_of(wanted: dict[str, int]) -> dict[str, int]:
    return {name: amount * ONE for name, amount in wanted.items()}


def _needs(task: Task) -> dict[str, int]:
    return {} if task.options.needs is None else dict(task.options.needs.resources)


class NeedChecker(Checker):
    """A checker that adds up what the tasks of each worker take."""

    def _left(self, worker: str) -> dict[str, int]:
        """Return what a worker has left, by the leases that it has."""
        left = dict(_WORKERS[worker.split(".", maxsplit=1)[0]].resources)
        for task_id, (_, holder) in self.holders.items():
            if holder == worker:
                for name, amount in _needs(self.shadow.book.tasks[task_id]).items():
                    left[name] = left.get(name, 0) - amount
        return left

    def _on_assigned(self, record: AttemptAssigned) -> None:
        super()._on_assigned(record)
        needs = _needs(self.shadow.book.tasks[record.task])
        if needs:
            left = self._left(record.worker)
            is_right = all(left.get(name, -1) >= 0 for name in needs)
            demand(is_right, "a worker is given no more than it has", record, left)
            self.counts[f"Needs {sum(needs.values()) // ONE}"] += 1

    def on_turn(self, core: Core, turn: Turn) -> None:
        super().on_turn(core, turn)
        queue = core.book.queue("default", _QUEUE)
        if queue is None or queue.paused_by:
            return
        ready = [task for task in core.book.tasks.values() if task.queue is queue]
        ready = [task for task in ready if task.state is State.READY]
        if not ready:
            return
        first = min(ready, key=lambda task: (-task.priority, task.rank))
        for worker in core.roster.workers.values():
            if worker.has_room() and _QUEUE in worker.queues:
                left = self._left(worker.id)
                fits = all(left.get(name, 0) >= most for name, most in _needs(first).items())
                demand(not fits, "the first does not wait for a worker that is there", first, left)
        self.counts["Waits"] += 1

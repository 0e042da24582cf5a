"""Fair shares in a simulated world: tenants of very different sizes, and what must hold.

While a share waits, another of the same weight has at most one turn more, and in general turns
divided by weights differ by `1 / weight + 1 / other weight` at most: whatever fails, is retried,
killed or played in between. A restart lets all start equal. No share has credit for having been
idle: however many new ones come, one that waits is served again after a number of turns that
follows from the weights of those that wait. Where they do come, only that is looked at.
"""

from __future__ import annotations

from collections import Counter

from jackalope.core.commands import DeclareQueue, SubmitTasks
from jackalope.core.durations import SECOND
from jackalope.core.records import AnyRecord, AttemptAssigned, QueueDeclared
from jackalope.core.state.queue import share_of
from jackalope.core.task import Options, TaskSpec
from tests.simulation.checker import Checker, demand
from tests.simulation.node import Node
from tests.simulation.requester import Requester
from tests.simulation.worker import SimWorker
from tests.simulation.world import World

_QUEUE = "fair"
_WEIGHTS = {"whale": 1, "shark": 2, "crab": 1, "": 1, "shrimp": 1}
#: So many turns for each unit of weight that waits, others have at most between two of a share.
_TURNS_MAX = 2
#: How often a new one comes, where they do.
_NEW = 0.4
_POLICY: dict[str, object] = {
    "fair_by": "tenant",
    "fair_weights": {"shark": 2},
    "depth_limit": 0,
    "prefer_other_worker": False,
    "retry_base_us": SECOND,
    "retries": 1,
}


class TenantWorker(SimWorker):
    """A worker of the tenants' queue alone: busy, so that tasks wait."""

    usual_us = 3 * SECOND
    longest_us = 5 * SECOND


class SimTenants(Requester):
    """Tenants: one submits in heaps, the others a task now and then."""

    name = "tenants"

    def __init__(self, world: World, node: Node, seed: int) -> None:
        super().__init__(world, node, seed)
        self._is_crowded = seed % 4 == 3
        self.ask(DeclareQueue(queue=_QUEUE, changes=dict(_POLICY)))
        self.workers = [
            TenantWorker(world, node, f"tenants{n}", queues=(_QUEUE,), keys=(), slots=n + 1)
            for n in range(2)
        ]

    def tidy(self) -> None:
        super().tidy()
        for worker in self.workers:
            worker.usual_us = worker.longest_us = SECOND // 4

    def act(self) -> None:
        if not self.is_tidying:
            # One comes back as soon as it has nothing, with a task; two come rarely, with heaps.
            tenant = self.rng.choice(list(_WEIGHTS)) if self._waits("shrimp") else "shrimp"
            tasks = [self._spec(tenant) for _ in range(8 if tenant in {"whale", "shark"} else 1)]
            # In some worlds ever new ones come with a task each, nearly as fast as tasks are run.
            new = int(self._is_crowded and self.rng.random() < _NEW)
            tasks += [self._spec(f"new{self._refs}-{n}") for n in range(new)]
            self.ask(SubmitTasks(ref=0, tasks=tasks, by=tenant))

    def _waits(self, tenant: str) -> bool:
        queue = self.node.checker.shadow.book.queue("default", _QUEUE)
        fair = None if queue is None else queue.line.fair
        return fair is not None and any(share.value == tenant for share in fair.waiting())

    def _spec(self, tenant: str) -> TaskSpec:
        options = Options(keys={"tenant": tenant}) if tenant else Options()
        priority = self.rng.choice((50, 150, 200))
        return TaskSpec(self.world.new_id(), _QUEUE, "", "", priority, b"", options)


class ShareChecker(Checker):
    """A checker that counts the turns of all shares while each waits."""

    def __init__(self) -> None:
        super().__init__()
        self.node: Node | None = None
        self._restarts = 0
        # the turns of all since each share waits without a pause
        self._turns: dict[str, Counter[str]] = {}
        # the turns of others since each share was served last, and the most weight that waited
        self._is_crowded = False
        self._passed: dict[str, int] = {}
        self._most: dict[str, int] = {}

    def on_durable(self, records: list[AnyRecord]) -> None:
        restarts = 0 if self.node is None else self.node.restarts
        if restarts != self._restarts:
            self._turns.clear()
            self._passed.clear()
            self._restarts = restarts
        for record in records:
            super().on_durable([record])
            if isinstance(record, QueueDeclared):
                self._turns.clear()
                self._passed.clear()
            self._follow()

    def _follow(self) -> None:
        """Count anew for those that wait from now on, and no longer for the others."""
        queue = self.shadow.book.queue("default", _QUEUE)
        fair = None if queue is None else queue.line.fair
        waiting = () if fair is None else fair.waiting()
        self._turns = {share.value: self._turns.get(share.value, Counter()) for share in waiting}
        weight = sum(_WEIGHTS.get(value, 1) for value in self._turns)
        self._passed = {value: self._passed.get(value, 0) for value in self._turns}
        self._most = {value: max(weight, self._most.get(value, 0)) for value in self._turns}

    def _on_assigned(self, record: AttemptAssigned) -> None:
        super()._on_assigned(record)
        task = self.shadow.book.tasks[record.task]
        if task.queue.name != _QUEUE:
            return
        self.counts["Turn"] += 1
        served = share_of(task)
        for value, turns in self._turns.items():
            turns[served] += 1
            self._passed[value] = 0 if value == served else self._passed[value] + 1
            self._most[value] = 0 if value == served else self._most[value]
            self._is_crowded |= value.startswith("new")
            few = self._passed[value] <= _TURNS_MAX * self._most[value] + _TURNS_MAX
            demand(few, "no share waits while ever new ones come", value, self._passed)
        best = min(
            (each for each in self.shadow.book.tasks.values() if each.lane is task.lane),
            key=lambda each: (-each.priority, each.rank),
        )
        demand(best is task, "within a share the most urgent goes first", record, best)
        # A clock that moves on by itself, because of new ones, passes over turns of those there.
        for value, turns in () if self._is_crowded else self._turns.items():
            own, other = _WEIGHTS.get(value, 1), _WEIGHTS.get(served, 1)
            ahead = turns[served] / other - turns[value] / own
            allowed = 1 / own if own == other else 1 / own + 1 / other
            demand(ahead <= allowed + 1e-9, "no share has more than its turns", value, turns)
            self.counts["Contended"] += value != served

"""Quotas and contracts in a simulated world: tenants that want more than they may have.

A quota is never exceeded, and nothing is refused that fits; a call that fits no version which a
worker has declared is refused, and every other one is accepted. A turn has one command, so that the
state which an answer was given in is known.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import ceil

import msgspec

from jackalope.broker.engine import Turn
from jackalope.core import Core
from jackalope.core.commands import DeclareQueue, SubmitTasks
from jackalope.core.commands.contracts import DeclareContracts
from jackalope.core.commands.namespaces import DeclareNamespace
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Joined, Reply
from jackalope.core.lifecycle import ENDED, LEASED, State
from jackalope.core.records import (
    AttemptAssigned,
    ContractDeclared,
    NamespaceDeclared,
    TaskSubmitted,
)
from jackalope.core.refusals import Code, QuotaRefusal
from jackalope.core.shapes.namespace import NamespaceSettings, Quota
from jackalope.core.task import Task, TaskSpec, size_of
from tests.simulation.checker import Checker, demand
from tests.simulation.node import Node
from tests.simulation.requester import Requester
from tests.simulation.worker import SimWorker
from tests.simulation.world import World

_QUEUE = "jobs"
_TASK = "resize"
_POLICY: dict[str, object] = {
    "depth_limit": 0,
    "prefer_other_worker": False,
    "retry_base_us": SECOND,
    "retries": 1,
}
#: What each version takes: all of these, and no more.
_TAKES = {"1": {"width"}, "2": {"width", "height"}}
_CALLS: tuple[dict[str, object], ...] = (
    {"width": 3},
    {"width": 3},
    {"width": 3, "height": 4},
    {"width": "wide"},
    {"height": 4},
)


def _fits(payload: bytes, versions: set[str]) -> bool:
    _, named = msgspec.msgpack.decode(payload)
    named.pop("note", None)
    is_whole = all(isinstance(value, int) for value in named.values())
    return is_whole and any(set(named) == _TAKES[version] for version in versions)


class TenantOne(SimWorker):
    """A worker of a namespace, which has the first version of its task."""

    usual_us = longest_us = 3 * SECOND
    namespace = "one"
    version = "1"

    def _on_reply(self, reply: Reply) -> None:
        super()._on_reply(reply)
        if isinstance(reply.body, Joined):
            number = {"type": "integer"}
            parameters = [
                {"name": name, "schema": number, "required": True}
                for name in sorted(_TAKES[self.version])
            ] + [{"name": "note"}]
            contract: dict[str, object] = {"version": self.version, "parameters": parameters}
            declare = DeclareContracts(queues=(_QUEUE,), contracts={_TASK: contract})
            declare.namespace = self.namespace
            self._send(declare)


class TenantOneNew(TenantOne):
    """A worker with the second version."""

    version = "2"


class TenantTwo(TenantOne):
    """A worker of another namespace."""

    namespace = "two"


class SimQuotas(Requester):
    """A client that submits in several namespaces, and changes their quotas."""

    name = "quotas"

    def __init__(self, world: World, node: Node, seed: int) -> None:
        super().__init__(world, node, seed)
        for namespace in ("one", "two"):
            self._change(namespace)
            self.ask(DeclareQueue(queue=_QUEUE, namespace=namespace, changes=dict(_POLICY)))
        for make in (TenantOne, TenantOneNew, TenantTwo):
            make(world, node, make.__name__.lower(), queues=(_QUEUE,), keys=(), slots=3)

    def act(self) -> None:
        if self.is_tidying or len(self.outbox) > 20:
            return
        namespace = self.rng.choice(("one", "two"))
        if self.rng.random() < 0.15:
            self._change(namespace)
        else:
            tasks = [self._spec() for _ in range(self.rng.randrange(1, 7))]
            self.ask(SubmitTasks(ref=0, tasks=tasks, namespace=namespace))

    def tidy(self) -> None:
        super().tidy()
        for namespace in ("one", "two"):
            self.ask(DeclareNamespace(name=namespace, changes={"concurrent_attempts": 2}))

    def _change(self, namespace: str) -> None:
        rng = self.rng
        changes: dict[str, object] = {
            "tasks_queued": rng.choice((0, 3, 8)),
            "bytes_stored": rng.choice((0, 100, 400)),
            "submits_per_second": rng.choice((0, 1, 3)),
            "submits_burst": rng.choice((0, 6, 30)),
            "concurrent_attempts": rng.choice((0, 1, 3)),
        }
        self.ask(DeclareNamespace(name=namespace, changes=changes))

    def _spec(self) -> TaskSpec:
        call = {**self.rng.choice(_CALLS)}
        if self.rng.random() < 0.3:
            call["note"] = "x" * self.rng.choice((5, 60, 120))
        payload = msgspec.msgpack.encode([[], call])
        return TaskSpec(self.world.new_id(), _QUEUE, _TASK, payload=payload)


class QuotaChecker(Checker):
    """A checker that adds up what each namespace has."""

    commands_max = 1

    def __init__(self) -> None:
        super().__init__()
        self.settings: dict[str, NamespaceSettings] = {}
        self.versions: dict[str, set[str]] = {}
        self._lacking: dict[str, tuple[Fraction, int]] = {}  # of the tokens of submits, and when
        self._checks |= {NamespaceDeclared: self._on_namespace, ContractDeclared: self._on_contract}

    def _tasks(self, namespace: str) -> list[Task]:
        """Return the tasks of a namespace that have not ended."""
        there = self.shadow.book.tasks.values()
        return [t for t in there if t.queue.namespace.name == namespace and t.state not in ENDED]

    def _waiting(self, namespace: str) -> int:
        return sum(task.state not in LEASED for task in self._tasks(namespace))

    def _stored(self, namespace: str) -> int:
        return sum(size_of(task.payload) for task in self._tasks(namespace))

    def _submits(self, namespace: str, at_us: int) -> int:
        """Return how many submits the rate allows."""
        settings = self.settings[namespace]
        return settings.burst() - ceil(self._lacks(namespace, at_us))

    def _lacks(self, namespace: str, at_us: int) -> Fraction:
        lacking, since_us = self._lacking.get(namespace, (Fraction(0), at_us))
        gained = Fraction(self.settings[namespace].submits_per_second * (at_us - since_us), SECOND)
        return max(Fraction(0), lacking - gained)

    # What is durable.

    def _on_namespace(self, record: NamespaceDeclared) -> None:
        old, new = self.settings.get(record.namespace), record.settings
        if old is not None and old.submits_per_second != new.submits_per_second:
            self._lacking.pop(record.namespace, None)
        self.settings[record.namespace] = new

    def _on_contract(self, record: ContractDeclared) -> None:
        self.versions[record.namespace] = {each.version for each in record.versions}

    def _on_submitted(self, record: TaskSubmitted) -> None:
        super()._on_submitted(record)
        name, settings = record.namespace, self.settings.get(record.namespace)
        if settings is None:
            return
        waiting, quota = self._waiting(name), settings.tasks_queued
        demand(not quota or waiting < quota, "no more wait than may", name, waiting, quota)
        size, stored = size_of(record.spec.payload), self._stored(name)
        quota = settings.bytes_stored
        demand(not quota or stored + size <= quota, "no more bytes than may be", name, stored)
        if settings.submits_per_second:
            demand(self._submits(name, record.at_us) >= 1, "no more submits than may be", record)
            self._lacking[name] = (self._lacks(name, record.at_us) + 1, record.at_us)
        payload, versions = record.spec.payload, self.versions.get(name)
        if versions and isinstance(payload, bytes):
            demand(_fits(payload, versions), "a call fits a version", record, versions)

    def _on_assigned(self, record: AttemptAssigned) -> None:
        tasks = self.shadow.book.tasks
        name = tasks[record.task].queue.namespace.name
        leased = sum(tasks[held].queue.namespace.name == name for held in self.holders)
        super()._on_assigned(record)
        settings = self.settings.get(name)
        if settings is not None and (quota := settings.concurrent_attempts):
            demand(leased < quota, "no more attempts than may be", name, leased, quota)

    # What is answered.

    def on_turn(self, core: Core, turn: Turn) -> None:
        super().on_turn(core, turn)
        for command in turn.commands:
            if isinstance(command, SubmitTasks) and command.namespace in self.settings:
                for effect in turn.effects:
                    if isinstance(effect, Reply) and isinstance(effect.body, Accepted):
                        self._on_answer(command, effect.body, core.now_us)
        self._check_progress(core)

    def _on_answer(self, command: SubmitTasks, answer: Accepted, now_us: int) -> None:
        """Demand that what was refused does not fit, now that the others are in."""
        name = command.namespace
        settings, versions = self.settings[name], self.versions.get(name, set())
        for index, refusal in answer.refused:
            payload = command.tasks[index].payload
            if refusal.code is Code.INVALID and isinstance(payload, bytes):
                demand(not _fits(payload, versions), "what fits is accepted", payload, versions)
                self.counts["Misfit"] += 1
            if not isinstance(refusal, QuotaRefusal):
                continue
            self.counts[f"Refused {refusal.quota}"] += 1
            stored = self._stored(name) + size_of(payload)
            is_over = {
                Quota.TASKS_QUEUED: self._waiting(name) >= settings.tasks_queued,
                Quota.BYTES_STORED: stored > settings.bytes_stored,
                Quota.SUBMITS_PER_SECOND: bool(settings.submits_per_second)
                and self._submits(name, now_us) < 1,
            }
            demand(is_over[Quota(refusal.quota)], "nothing is refused that fits", index, refusal)

    def _check_progress(self, core: Core) -> None:
        """Demand that tasks of a namespace wait for a worker, or for its attempts."""
        ready: Counter[str] = Counter()
        leased: Counter[str] = Counter()
        for task in core.book.tasks.values():
            ready[task.queue.namespace.name] += task.state is State.READY
            leased[task.queue.namespace.name] += task.state in LEASED
        for worker in core.roster.workers.values():
            name = worker.namespace.name
            settings = self.settings.get(name)
            if settings is not None and ready[name] and worker.has_room():
                quota = settings.concurrent_attempts
                is_full = quota and leased[name] >= quota
                demand(is_full, "what may start does start", name, leased[name], quota)
                self.counts["Full"] += 1

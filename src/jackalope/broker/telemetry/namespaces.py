"""Numbers of namespaces: what happened in each, and which of them metrics name.

Owns the counters of each namespace, which are exact however many queues there are; the meter's own
are by queue, and bounded by that. There are never more than there may be namespaces. Metrics name
some of them, and add up the rest under a name that no namespace can have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from jackalope.broker.views.namespaces import quota_use
from jackalope.core import Core
from jackalope.core.commands.base import Command
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import Event, State
from jackalope.core.records import (
    AttemptEnded,
    AttemptFinished,
    NamespaceDeleted,
    TaskMoved,
    TaskSubmitted,
)
from jackalope.core.refusals import QuotaRefusal
from jackalope.core.task import Task

#: The name of all that are not named: no namespace has an empty name.
THE_REST = ""


class NamespaceCounts(msgspec.Struct):
    """What happened in a namespace since the broker started."""

    submitted: int = 0  # tasks that were accepted
    failures: int = 0  # attempts that failed
    # tasks that ended, by how
    ended: Counter[str] = msgspec.field(default_factory=Counter)
    # refusals by the quota that was used up
    refused: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, other: NamespaceCounts) -> None:
        self.submitted += other.submitted
        self.failures += other.failures
        self.ended.update(other.ended)
        self.refused.update(other.refused)


class NamespaceMeter:
    """Counts what happens in each namespace."""

    def __init__(self) -> None:
        self.counts: dict[str, NamespaceCounts] = {}

    def count(self, by_kind: Mapping[type, list[Any]], tasks: Mapping[TaskId, Task]) -> None:
        """Count durable records, sorted by kind."""
        for record in by_kind.get(TaskSubmitted, ()):
            self._of(record.namespace).submitted += 1
        for record in by_kind.get(AttemptFinished, ()):
            if (task := tasks.get(record.task)) is not None:
                self._of(task.queue.namespace.name).ended[State.SUCCEEDED] += 1
        for kind in (AttemptEnded, TaskMoved):
            for record in by_kind.get(kind, ()):
                if (task := tasks.get(record.task)) is not None:
                    self._count_end(self._of(task.queue.namespace.name), record)
        for record in by_kind.get(NamespaceDeleted, ()):
            self.counts.pop(record.namespace, None)

    def refuse(self, command: Command, refusal: QuotaRefusal) -> None:
        """Count a refusal because of a quota, for the namespace that the command is about."""
        key = getattr(command, "key", None)
        namespace = getattr(command, "namespace", "") or getattr(key, "namespace", "")
        if namespace:
            self._of(namespace).refused[refusal.quota] += 1

    def _of(self, namespace: str) -> NamespaceCounts:
        counts = self.counts.get(namespace)
        if counts is None:
            counts = self.counts[namespace] = NamespaceCounts()
        return counts

    def _count_end(self, counts: NamespaceCounts, record: AttemptEnded | TaskMoved) -> None:
        counts.failures += record.event is Event.FAIL
        if record.to in (State.DEAD, State.KILLED):
            counts.ended[record.to] += 1


class NamespaceCensus(msgspec.Struct):
    """A namespace, or several that are counted as one, in numbers."""

    counts: NamespaceCounts = msgspec.field(default_factory=NamespaceCounts)
    # unfinished tasks by state
    tasks: Counter[str] = msgspec.field(default_factory=Counter)
    used: Counter[str] = msgspec.field(default_factory=Counter)  # of each quota
    limits: Counter[str] = msgspec.field(default_factory=Counter)  # those quotas that are set

    def add(self, other: NamespaceCensus) -> None:
        self.counts.add(other.counts)
        for name in ("tasks", "used", "limits"):
            getattr(self, name).update(getattr(other, name))


def count_namespaces(
    core: Core, meter: NamespaceMeter, own: str = ""
) -> dict[str, NamespaceCensus]:
    """Count what each namespace has, or the one that a client is limited to."""
    found: dict[str, NamespaceCensus] = {}
    use = quota_use(core)
    for name, namespace in core.book.namespaces.items():
        if own in ("", name):
            census = found[name] = NamespaceCensus()
            census.counts.add(meter.counts.get(name, NamespaceCounts()))
            for queue in namespace.queues.values():
                census.tasks.update({state: n for state, n in queue.counts.items() if n})
            census.used.update({str(quota): count for quota, count in use(namespace).items()})
            limits = namespace.settings.quotas().items()
            census.limits.update({str(quota): limit for quota, limit in limits})
    return found


def named(core: Core, found: dict[str, NamespaceCensus], names_max: int) -> frozenset[str]:
    """Choose the namespaces that metrics name: those that were created, then the busiest."""

    def rank(name: str) -> tuple[bool, int, str]:
        census = found[name]
        busy = census.counts.submitted + census.tasks.total()
        return not core.book.namespaces[name].is_declared, -busy, name

    return frozenset(sorted(found, key=rank)[:names_max])


def folded(found: dict[str, NamespaceCensus], names: Iterable[str]) -> dict[str, NamespaceCensus]:
    """Add up those that are not named."""
    kept: dict[str, NamespaceCensus] = {}
    for name, census in found.items():
        kept.setdefault(name if name in names else THE_REST, NamespaceCensus()).add(census)
    return kept

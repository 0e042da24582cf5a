"""Views of workers: who is there, who has left, who holds which tasks; and of the pools of workers.

Owns the conversion of the roster, of leases and of pools to what is shown. Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from jackalope.core import Core
from jackalope.core.commands import Held
from jackalope.core.durations import SECOND
from jackalope.core.shapes.needs import amounts_shown
from jackalope.core.shapes.pool import Phase, PoolSettings
from jackalope.core.state.changes import Tally
from jackalope.core.state.groups import Group, Launch, Pool
from jackalope.core.state.queue import NO_TALLY, Namespace
from jackalope.core.state.roster import Departure, Fanout, Worker
from jackalope.core.task import lease_of
from jackalope.wire.views import (
    GroupView,
    LaunchFailureView,
    LaunchView,
    PoolView,
    WorkerView,
    view_as,
)

if TYPE_CHECKING:
    from jackalope.broker.service import Broker


def worker_state(worker: Worker) -> str:
    """Return `active`, `idle`, `draining` or `away`."""
    if not worker.session:
        return "away"
    if worker.is_draining:
        return "draining"
    return "active" if worker.held or worker.helps > 0 else "idle"


def gone_view(left: Departure, tally: Tally) -> WorkerView:
    return WorkerView(
        left.worker,
        "gone",
        gone_us=left.at_us,
        why_gone=left.why,
        succeeded=tally.succeeded,
        failed=tally.failed,
    )


def worker_view(worker: Worker, helped: Fanout | None) -> WorkerView:
    """Return the view of a worker that is connected or awaited."""
    tally = worker.namespace.tallies.get(worker.id, NO_TALLY)
    return WorkerView(
        worker=worker.id,
        state=worker_state(worker),
        queues=worker.queues,
        keys=worker.keys,
        slots=worker.slots,
        load=len(worker.held),
        labels=worker.labels,
        stats=worker.stats,
        joined_us=worker.joined_us,
        heard_us=worker.heard_us,
        succeeded=tally.succeeded,
        failed=tally.failed,
        helps="" if helped is None else helped.task.id.hex(),
        resources=amounts_shown(worker.resources),
        used=amounts_shown(worker.used),
    )


class Leases:
    """The leases of a namespace by worker, for use between two turns."""

    def __init__(self, core: Core, namespace: str) -> None:
        self._core = core
        self._namespace = core.book.namespaces.get(namespace) or Namespace(namespace)

    def is_connected(self, worker: str) -> bool:
        known = self._core.roster.workers.get((self._namespace.name, worker))
        return known is not None and known.session != 0

    def of(self, worker: str) -> tuple[list[Held], set[str]]:
        """Return what a worker holds, and the queues of that."""
        tasks = self._namespace.leases.get(worker, {}).values()
        held = [Held(task.id, lease_of(task).fence) for task in tasks]
        return held, {task.queue.name for task in tasks}

    def holder(self, held: Held) -> tuple[str, str]:
        """Return the worker that holds a task by this fence, and its queue; empty for none."""
        task = self._core.book.tasks.get(held.task)
        if task is None or task.attempt is None or task.queue.namespace is not self._namespace:
            return "", ""
        is_same = task.attempt.fence == held.fence
        return (task.attempt.worker, task.queue.name) if is_same else ("", "")

    def tally(self, worker: str) -> Tally | None:
        return self._namespace.tallies.get(worker)


# Pools: their groups and what was started for them.


def pool_views(core: Core, namespace: str, sees: Callable[[str], bool]) -> list[PoolView]:
    """Show the pools of a namespace that the caller may see, by the names of their queues."""
    return [
        _pool_view(core, pool, settings)
        for pool, settings in _pools(core)
        if pool.name[0] == namespace and sees(pool.name[1])
    ]


def _pools(core: Core) -> Iterator[tuple[Pool, PoolSettings]]:
    for _, pool in sorted(core.pools.by_name.items()):
        if pool.settings is not None:
            yield pool, pool.settings


def _pool_view(core: Core, pool: Pool, settings: PoolSettings) -> PoolView:
    return PoolView(
        queue=pool.name[1],
        settings=settings,
        up=len(pool.up),
        waiting=len(pool.line),
        launched=pool.launched,
        failed=pool.failed,
        groups=tuple(_group_view(core, group) for _, group in sorted(pool.groups.items())),
        failures=tuple(LaunchFailureView(*failure) for failure in pool.failures),
    )


def _group_view(core: Core, group: Group) -> GroupView:
    return view_as(
        GroupView,
        group,
        ready=group.pool.ready(group.key),
        leased=group.leased(),
        workers=tuple(group.workers),
        launches=tuple(_launch_view(launch) for launch in group.launches.values()),
        is_pinned=group.pool.is_pinned(group.key),
        rate=round(group.rate(core.now_us) * SECOND, 3),
        trouble=core.pools.trouble(group, core.now_us) if group.wanted else "",
    )


def _launch_view(launch: Launch) -> LaunchView:
    return view_as(LaunchView, launch, launch=launch.id, state=launch_state(launch))


def launch_state(launch: Launch) -> str:
    """Return how far a launch has come, as reported by its launcher and its workers."""
    if launch.phase is Phase.ENDED:
        return "ended"
    if launch.phase is Phase.STOPPING or launch.is_stopping:
        return "stopping"
    if launch.is_retired:
        return "draining"
    if launch.is_ready() or launch.is_loaded:
        return "ready"
    return "loading" if launch.has_joined else "starting"


class PoolCensus(msgspec.Struct):
    """How many there are of a pool."""

    groups: Counter[str]  # by state
    launches: Counter[str]  # what was started and is still there, by how far it has come
    launched: int  # how many launches were ordered
    failed: int  # how many of them failed


def count_pools(broker: Broker) -> dict[tuple[str, str], PoolCensus]:
    """Count the groups of all pools and what was started for them."""
    return {
        pool.name: PoolCensus(
            Counter(str(group.state) for group in pool.groups.values()),
            Counter(
                launch_state(launch)
                for group in pool.groups.values()
                for launch in group.launches.values()
            ),
            pool.launched,
            pool.failed,
        )
        for pool, _ in _pools(broker.engine.core)
    }

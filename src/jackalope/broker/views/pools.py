"""Views of pools: pools, groups and what was started for them.

Owns the conversion of the core's state to views. Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from jackalope.core import Core
from jackalope.core.durations import SECOND
from jackalope.core.shapes.pool import Phase, PoolSettings
from jackalope.core.state.groups import Group, Launch, Pool
from jackalope.wire.views import GroupView, LaunchView, PoolView, view_as

if TYPE_CHECKING:
    from jackalope.broker.service import Broker


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

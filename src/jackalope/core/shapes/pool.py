"""Pools: the settings by which a queue has workers started for it, and the words for their states.

Owns the fields, their defaults and what is wrong with a value. A pool belongs to one queue and goes
by its name. How a field takes effect is the matter of `core.pools`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from jackalope.core.durations import MINUTE, SECOND
from jackalope.core.limits import (
    COUNT_MAX,
    GROUPS_PER_POOL_MAX,
    NAME_CHARS_MAX,
    WORKERS_PER_GROUP_MAX,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.settings import Bounds, Duration, change

#: The launcher that is always there: workers are started by hand.
NO_LAUNCHER = "none"


class PoolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a pool. Every default is defined here and nowhere else."""

    # which launcher of the broker's configuration starts them; `none` starts none
    launcher: Annotated[str, Bounds(1, NAME_CHARS_MAX)] = NO_LAUNCHER
    # workers of another version are replaced, each when its substitute is ready
    version: Annotated[str, Bounds(0, NAME_CHARS_MAX)] = ""
    # how many workers a group has at least while it is up
    workers_min: Annotated[int, Bounds(0, WORKERS_PER_GROUP_MAX)] = 1
    workers_max: Annotated[int, Bounds(1, WORKERS_PER_GROUP_MAX)] = 1  # how many it has at most
    # a group has a worker for each so many of its unfinished tasks
    tasks_per_worker: Annotated[int, Bounds(1, COUNT_MAX)] = 10
    # how many workers more than that, to be ready for what comes next
    spares: Annotated[int, Bounds(0, WORKERS_PER_GROUP_MAX)] = 0
    # how many groups are up at once; further ones wait for a place
    groups_max: Annotated[int, Bounds(1, GROUPS_PER_POOL_MAX)] = 100
    # a group without tasks for so long is unbound: it will be stopped
    unbind_delay_us: Duration = 10 * MINUTE
    stop_delay_us: Duration = 10 * MINUTE  # a group that stays so for so long is stopped
    # a group that needs fewer workers for so long has fewer
    shrink_delay_us: Duration = 30 * SECOND
    # while the workers there are will clear what waits within this time, at their recent speed, no
    # more are started; 0 looks at the number alone
    clear_within_us: Duration = SECOND
    # how long a worker may take from its start until it joins; 0 for any time
    start_timeout_us: Duration = 5 * MINUTE
    # how long a stopped worker may take to end before it is ended by force
    stop_grace_us: Duration = 30 * SECOND


DEFAULT_POOL = PoolSettings()


def change_pool(settings: PoolSettings, changes: dict[str, object]) -> PoolSettings | Refusal:
    """Return the settings with some fields changed, or a refusal that lists every problem."""
    changed = change(settings, changes, "a pool")
    if isinstance(changed, list):
        return Refusal(Code.INVALID, "pool not changed. " + "; ".join(changed))
    if changed.workers_min > changed.workers_max:
        least, most = changed.workers_min, changed.workers_max
        message = f"pool not changed. workers_min would be {least}, and workers_max {most}"
        return Refusal(Code.WRONG_STATE, message + "; change both")
    return changed


#: The labels by which a worker says what it was started for.
POOL_LABEL = "pool"


LAUNCH_LABEL = "launch"


class GroupState(StrEnum):
    """The states of a group.

    `inactive`: it is stopped, or about to be. `waiting`: it has tasks, and its pool has no place
    for it. `active`: it is up. `unbound`: it is up, has had nothing to do for long, and stops
    soon; the next task makes it active again.
    """

    INACTIVE = "inactive"
    WAITING = "waiting"
    ACTIVE = "active"
    UNBOUND = "unbound"


UP = frozenset({GroupState.ACTIVE, GroupState.UNBOUND})

#: The states that can follow each state of a group. Why is told in `pools.lifecycle`.
FOLLOWING = {
    GroupState.INACTIVE: frozenset({GroupState.WAITING, GroupState.ACTIVE}),
    GroupState.WAITING: frozenset({GroupState.INACTIVE, GroupState.ACTIVE}),
    GroupState.ACTIVE: frozenset({GroupState.INACTIVE, GroupState.WAITING, GroupState.UNBOUND}),
    GroupState.UNBOUND: frozenset({GroupState.INACTIVE, GroupState.WAITING, GroupState.ACTIVE}),
}


class Phase(StrEnum):
    """The state of a launched worker or group, as its launcher sees it."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"

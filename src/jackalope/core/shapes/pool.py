"""Pools: the settings by which a queue has workers started for it, and the words for their states.

Owns the fields, their defaults and what is wrong with a value. A pool belongs to one queue and goes
by its name. How a field takes effect is the matter of `core.pools`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from jackalope.core.durations import MINUTE, SECOND
from jackalope.core.limits import (
    COUNT_MAX,
    GROUPS_PER_POOL_MAX,
    NAME_CHARS_MAX,
    TIME_US_MAX,
    WORKERS_PER_GROUP_MAX,
)
from jackalope.core.refusals import Code, Refusal

#: The launcher that is always there: workers are started by hand.
NO_LAUNCHER = "none"


class PoolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a queue has workers started. Every default is written here and nowhere else."""

    # which launcher of the broker's configuration starts them; `none` starts none
    launcher: str = NO_LAUNCHER
    version: str = ""  # workers of another version are replaced, each when its substitute is ready
    workers_min: int = 1  # how many workers a group has at least while it is up
    workers_max: int = 1  # how many it has at most
    tasks_per_worker: int = 10  # a group has a worker for each so many of its unfinished tasks
    spares: int = 0  # how many workers more than that, to be ready for what comes next
    groups_max: int = 100  # how many groups are up at once; further ones wait for a place
    # a group without tasks for so long is unbound: it will be stopped
    unbind_delay_us: int = 10 * MINUTE
    stop_delay_us: int = 10 * MINUTE  # a group that stays so for so long is stopped
    shrink_delay_us: int = 30 * SECOND  # a group that needs fewer workers for so long has fewer
    # while the workers there are will clear what waits within this time, at the speed of late, no
    # more are started; 0 looks at the number alone
    clear_within_us: int = SECOND
    # how long a worker may take from its start until it joins; 0 for any time
    start_timeout_us: int = 5 * MINUTE
    # how long a stopped worker may take to end before it is ended by force
    stop_grace_us: int = 30 * SECOND


DEFAULT_POOL = PoolSettings()


#: What a number may be, at least and at most.
BOUNDS = {
    "workers_min": (0, WORKERS_PER_GROUP_MAX),
    "workers_max": (1, WORKERS_PER_GROUP_MAX),
    "tasks_per_worker": (1, COUNT_MAX),
    "spares": (0, WORKERS_PER_GROUP_MAX),
    "groups_max": (1, GROUPS_PER_POOL_MAX),
    **{name: (0, TIME_US_MAX) for name in PoolSettings.__struct_fields__ if name.endswith("_us")},
}


def change_pool(settings: PoolSettings, changes: dict[str, object]) -> PoolSettings | Refusal:
    """Return the settings with some fields changed, or a refusal that lists every problem."""
    problems = [
        f"{name}: unknown; a pool has {', '.join(PoolSettings.__struct_fields__)}"
        for name in changes
        if name not in PoolSettings.__struct_fields__
    ]
    changed = settings
    for name, value in changes.items():
        if name in PoolSettings.__struct_fields__:
            try:
                fields = {**msgspec.to_builtins(changed), name: value}
                changed = msgspec.convert(fields, PoolSettings)
            except msgspec.ValidationError as error:
                problems.append(f"{name}: {error}")
    problems += pool_problems(changed)
    if problems:
        return Refusal(Code.INVALID, "pool not changed. " + "; ".join(problems))
    if changed.workers_min > changed.workers_max:
        least, most = changed.workers_min, changed.workers_max
        message = f"pool not changed. workers_min would be {least}, and workers_max {most}"
        return Refusal(Code.WRONG_STATE, message + "; change both")
    return changed


def pool_problems(settings: PoolSettings) -> list[str]:
    """List what is wrong with the values of a pool, one sentence each."""
    problems = [
        f"{name}: must be {least} to {most}, got {value}"
        for name, (least, most) in BOUNDS.items()
        if not least <= (value := getattr(settings, name)) <= most
    ]
    problems += [
        f"{name}: must have {least} to {NAME_CHARS_MAX} characters, got {size}"
        for name, least, size in (
            ("launcher", 1, len(settings.launcher)),
            ("version", 0, len(settings.version)),
        )
        if not least <= size <= NAME_CHARS_MAX
    ]
    return problems


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
    """How far something that was started has come, as its launcher sees it."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"

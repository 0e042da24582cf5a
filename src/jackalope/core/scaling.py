"""Scaling: how many workers a group should have, which of them go, and what is missing.

Owns the numbers. Knows nothing of states of groups but whether they are up, and starts nothing: it
says that there are orders, and `launches` has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackalope.core.assign import drain
from jackalope.core.durations import MILLISECOND, MINUTE, SECOND, format_duration
from jackalope.core.effects import OrdersDue, SendToSession
from jackalope.core.group import UP, Group, Launch
from jackalope.core.limits import NOTE_CHARS_MAX
from jackalope.core.pool import NO_LAUNCHER, PoolSettings

if TYPE_CHECKING:
    from jackalope.core.broker import Core

#: How long to wait after a failed launch: twice as long each time.
_RETRY_BASE_US = 500 * MILLISECOND
_RETRY_CAP_US = MINUTE

#: How many workers a group may have beyond those it needs while they are replaced.
_SURGE = 1


def resize(core: Core, group: Group, settings: PoolSettings | None, ready: int) -> None:
    """Decide how many workers a group should have, and retire those that are too many."""
    if settings is None or group.state not in UP:
        group.wanted, group.shrinks_us = 0, 0
    else:
        _aim(core, group, settings, _needed(core, group, settings, ready))
    staying = [launch for launch in group.launches.values() if not launch.is_retired]
    fit = [launch for launch in staying if settings is not None and launch.fits(settings)]
    old = [launch for launch in staying if launch not in fit]
    substitutes = sum(launch.is_ready() for launch in fit)
    _retire(core, old, len(old) - max(0, group.wanted - substitutes))
    _retire(core, fit, len(fit) - group.wanted)
    if settings is not None and missing(core, group):
        call_launcher(core, settings.launcher)
    for launch in group.launches.values():
        if can_stop(launch) and not launch.is_stopping:
            call_launcher(core, launch.launcher)


def _needed(core: Core, group: Group, settings: PoolSettings, ready: int) -> int:
    load = ready + group.leased()
    by_load = -(-load // settings.tasks_per_worker)
    there = sum(launch.is_ready() for launch in group.launches.values() if not launch.is_retired)
    if by_load > there and is_fast_enough(core, group, settings, ready):
        by_load = there
    needed = min(max(by_load, settings.workers_min) + settings.spares, settings.workers_max)
    if not there and load:
        needed = max(needed, 1)
    return min(needed, 1) if settings.launcher in core.pools.scaling else needed


def is_fast_enough(core: Core, group: Group, settings: PoolSettings, ready: int) -> bool:
    """Tell whether the workers there are will soon have cleared what waits."""
    return bool(ready) and group.rate(core.now_us) * settings.clear_within_us >= ready


def _aim(core: Core, group: Group, settings: PoolSettings, needed: int) -> None:
    """Want more workers at once, but fewer only when that has been so for a while."""
    if needed >= group.wanted:
        group.wanted, group.shrinks_us = needed, 0
    elif not group.shrinks_us:
        group.shrinks_us = core.now_us
    if group.shrinks_us and core.now_us - group.shrinks_us >= settings.shrink_delay_us:
        group.wanted, group.shrinks_us = needed, 0


def _retire(core: Core, launches: list[Launch], count: int) -> None:
    """Let some of these go: those that can be missed best, each when it has ended what it holds."""

    def usefulness(launch: Launch) -> tuple[bool, int, int]:
        load = sum(len(worker.held) for worker in launch.workers.values())
        return (launch.is_ready(), load, -launch.ordered_us)

    for launch in sorted(launches, key=usefulness)[: max(count, 0)]:
        retire(core, launch)


def retire(core: Core, launch: Launch) -> None:
    """Give the workers of a launch no more tasks."""
    launch.is_retired = True
    for worker in launch.workers.values():
        if not worker.is_draining:
            drain(core, worker)


def can_stop(launch: Launch) -> bool:
    """Tell whether a launch can be stopped: it gets no tasks, and holds none."""
    return launch.is_retired and launch.is_idle()


def missing(core: Core, group: Group) -> int:
    """Return how many workers are to be started for a group now."""
    settings = group.pool.settings
    if settings is None or settings.launcher == NO_LAUNCHER or core.now_us < group.next_try_us:
        return 0
    staying = [launch for launch in group.launches.values() if not launch.is_retired]
    fit = sum(launch.fits(settings) for launch in staying)
    count = min(group.wanted - fit, group.wanted + _SURGE - len(staying))
    # After a failure one launch shows whether it works again.
    return max(0, min(count, 1) if group.failures else count)


# Launches that fail.


def fail(core: Core, group: Group, why: str) -> None:
    """Note that a launch failed, and start nothing for a while."""
    group.failures += 1
    group.pool.failed += 1
    group.error = why[:NOTE_CHARS_MAX]
    wait_us = min(_RETRY_BASE_US << min(group.failures - 1, 20), _RETRY_CAP_US)
    group.next_try_us = core.now_us + wait_us
    core.pools.touch(group)


def give_up_late_starts(core: Core, group: Group) -> None:
    """Give up what was started and has not joined in time."""
    settings = group.pool.settings
    if settings is None or not settings.start_timeout_us:
        return
    for launch in group.launches.values():
        late_us = launch.ordered_us + settings.start_timeout_us
        if not launch.is_retired and not launch.has_joined and late_us <= core.now_us:
            within = format_duration(settings.start_timeout_us)
            detail = f": {launch.detail}" if launch.detail else ""
            retire(core, launch)
            fail(core, group, f"worker {launch.id} has not joined within {within}{detail}")


def trouble(core: Core, group: Group) -> str:
    """Return why workers of a group cannot be started, or nothing if they can or none are to be."""
    settings, pools = group.pool.settings, core.pools
    if settings is None or settings.launcher == NO_LAUNCHER:
        return ""
    launcher = settings.launcher
    if launcher not in pools.launchers:
        return f"launcher {launcher!r} is not at work; is it configured?"
    if launcher in pools.troubles:
        return f"launcher {launcher!r}: {pools.troubles[launcher]}"
    if not group.error:
        return ""
    wait_us = max(group.next_try_us - core.now_us, 0)
    wait = format_duration(-(-wait_us // SECOND) * SECOND)
    return f"{group.error}; next try in {wait}" if wait_us else f"{group.error}; trying again"


def call_launcher(core: Core, launcher: str) -> None:
    """Tell whoever carries out orders that there are some; once, until it comes for them."""
    pools = core.pools
    if pools.session and launcher in pools.launchers and launcher not in pools.called:
        pools.called.add(launcher)
        core.effects.append(SendToSession(pools.session, OrdersDue(launcher)))

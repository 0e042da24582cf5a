"""Launches: what was started for groups, and what is to be started and stopped next.

Owns the exchange with the session that carries out orders. A launcher reports everything that it
ever started and that still exists; the reply is what it must start and stop now. So no state is
kept that could be wrong: after a restart of the broker the first report contains what runs, and
what runs for a key without a group creates one.
"""

from __future__ import annotations

from jackalope.core.commands import FollowPools, ReportLaunches, Seen
from jackalope.core.context import Context
from jackalope.core.effects import Accepted, Orders, StartOrder, StopOrder
from jackalope.core.limits import NOTE_CHARS_MAX, STARTS_PER_REPORT_MAX
from jackalope.core.pools.lifecycle import (
    adopt,
    call_launcher,
    can_stop,
    fail,
    missing,
    retire,
    settle,
    touch,
    turn,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.pool import DEFAULT_POOL, UP, GroupState, Phase
from jackalope.core.state.groups import Group, Launch
from jackalope.core.workers.sessions import give_up_resume

_OVER = frozenset({Phase.STOPPING, Phase.ENDED})


def follow_pools(ctx: Context, command: FollowPools) -> None:
    """Let a session carry out orders from now on; the latest one does."""
    pools = ctx.pools
    pools.session, pools.launchers = command.session, command.launchers
    pools.scaling = command.scaling
    pools.called.clear()
    ctx.reply(command, Accepted())
    for launcher in command.launchers:
        call_launcher(ctx, launcher)


def report_launches(ctx: Context, command: ReportLaunches) -> Orders | Refusal:
    """Process a launcher's report, and reply with its orders."""
    pools = ctx.pools
    if command.session != pools.session:
        message = "another session follows the pools; only that one may report"
        return Refusal(Code.STALE_SESSION, message)
    if command.trouble:
        pools.called.discard(command.launcher)
        pools.troubles[command.launcher] = command.trouble[:NOTE_CHARS_MAX]
        return Orders()
    pools.troubles.pop(command.launcher, None)
    pools.called.add(command.launcher)  # It has reported: no notice is due before the reply.
    for seen in command.seen:
        _see(ctx, command.launcher, seen)
    _miss(ctx, command)
    while settle in ctx.agenda.rest:
        settle(ctx)
    start, stop = _starts(ctx, command), _stops(ctx, command.launcher)
    pools.called.discard(command.launcher)
    return Orders(start, stop)


def _see(ctx: Context, launcher: str, seen: Seen) -> None:
    launch = ctx.pools.launches.get((seen.namespace, seen.launch)) or _find(ctx, launcher, seen)
    group = launch.group
    launch.is_listed = True
    launch.external_id, launch.detail = seen.external_id, seen.detail[:NOTE_CHARS_MAX]
    if seen.phase is launch.phase:
        return
    launch.phase = seen.phase
    touch(ctx, group)
    if seen.phase is Phase.ENDED:
        _bury(ctx, launch, f"ended: {launch.detail}" if launch.detail else "ended")
    if seen.phase in _OVER and not launch.is_retired:
        retire(ctx, launch)
        if seen.phase is Phase.ENDED:
            fail(ctx, group, f"worker {launch.id} ended: {seen.detail or 'for an unknown reason'}")


def _bury(ctx: Context, launch: Launch, why: str) -> None:
    """Stop waiting for disconnected workers of a launch that has ended."""
    for worker in list(launch.workers.values()):
        give_up_resume(ctx, (worker.namespace.name, worker.id), why)


def _find(ctx: Context, launcher: str, seen: Seen) -> Launch:
    """Adopt something that was started before this broker."""
    pool = ctx.pools.pool(seen.namespace, seen.queue)
    group = pool.group(seen.key)
    launch = _add(ctx, group, launcher, seen.launch, seen.version)
    is_there = seen.phase not in _OVER
    if is_there and pool.settings is not None and group.state not in UP:
        group.active_us = ctx.now_us
        turn(ctx, group, GroupState.ACTIVE)
    if group.state in UP:
        pool.line.pop(seen.key, None)
    pool.up[seen.key] = None
    # What came of it may have joined again before its launcher reports it.
    worker = ctx.roster.workers.get((seen.namespace, seen.launch))
    for each in [*group.workers.values(), *([] if worker is None else [worker])]:
        adopt(ctx, each)
    touch(ctx, group)
    return launch


def _add(ctx: Context, group: Group, launcher: str, launch_id: str, version: str) -> Launch:
    launch = Launch(launch_id, group, launcher, version)
    launch.ordered_us = ctx.now_us
    group.launches[launch_id] = launch
    ctx.pools.launches[group.pool.name[0], launch_id] = launch
    return launch


def _miss(ctx: Context, command: ReportLaunches) -> None:
    """Process launches that are gone or never appeared."""
    there = {(seen.namespace, seen.launch) for seen in command.seen}
    for name, launch in list(ctx.pools.launches.items()):
        if launch.launcher != command.launcher or name in there:
            continue
        why = command.failed.get(launch.id, "")
        # What was ordered and is not seen yet may take its launcher a while to show.
        if not why and not launch.is_listed and not launch.is_retired:
            continue
        _remove(ctx, launch)
        if not launch.is_retired:
            fail(ctx, launch.group, why or f"worker {launch.id} is gone; for an unknown reason")


def _remove(ctx: Context, launch: Launch) -> None:
    group = launch.group
    del ctx.pools.launches[group.pool.name[0], launch.id]
    del group.launches[launch.id]
    ctx.pools.forget_launch(launch)
    for worker in launch.nameless.values():
        adopt(ctx, worker)  # It was another's after all.
    touch(ctx, group)


def _starts(ctx: Context, command: ReportLaunches) -> tuple[StartOrder, ...]:
    """Order the missing workers, as far as there are ids. Groups that need more call again."""
    ids = iter(command.ids[:STARTS_PER_REPORT_MAX])
    orders: list[StartOrder] = []
    for pool in ctx.pools.by_name.values():
        settings = pool.settings
        if settings is None or settings.launcher != command.launcher:
            continue
        for group in [pool.groups[key] for key in pool.up]:
            for _ in range(missing(ctx, group)):
                fresh = next(ids, "")
                if not fresh:
                    return tuple(orders)
                _add(ctx, group, command.launcher, fresh, settings.version)
                pool.launched += 1
                touch(ctx, group)
                orders.append(
                    StartOrder(
                        launch=fresh,
                        namespace=pool.name[0],
                        queue=pool.name[1],
                        key=group.key,
                        generation=group.generation,
                        version=settings.version,
                        workers_min=settings.workers_min,
                        workers_max=settings.workers_max,
                    )
                )
    return tuple(orders)


def _stops(ctx: Context, launcher: str) -> tuple[StopOrder, ...]:
    """Order to stop what gets no tasks and holds none. Repeated until it is gone."""
    orders = []
    for launch in ctx.pools.launches.values():
        if launch.launcher == launcher and can_stop(launch):
            launch.is_stopping = True
            orders.append(StopOrder(launch.id, _grace_us(launch)))
    return tuple(orders)


def _grace_us(launch: Launch) -> int:
    settings = launch.group.pool.settings or DEFAULT_POOL
    return settings.stop_grace_us

"""Pools: when a key has workers.

Owns the lives of groups. How many workers one has is the matter of `scaling`, and what is started
and stopped for it that of `launches`.

Theory of operation
===================

A group comes up when a task of its key is ready and no worker takes it, or on an explicit command::

    inactive --> active                  a task came
    inactive --> waiting --> active      a task came, and there was no place for one more group
    active --> unbound                   nothing to do for the unbind delay
    unbound --> active                   a task came
    unbound --> inactive                 still nothing for the stop delay
    active, unbound --> inactive         nothing to do, and another group waits for the place
    active, unbound --> waiting          another has waited for a turn, and this one has had one
    waiting --> inactive                 its tasks are gone, or it is stopped

Each change of state has a generation, a number that only grows.

Places are given out in the order in which groups began to wait. A group that always has something
to do would keep its place for ever; so when another has waited for a turn, the one that has had its
place for longest makes room: its workers end what they hold, and it waits in line again. One that
has held a task for longer than a turn is not asked: it is not known when that ends, and until then
neither would get anything done.

A group is never stopped under a task. The hazard, as those know it who watch a queue from outside:

1. A group has had nothing to do for long, and it is decided to stop it.
2. A task arrives, and is given to one of its workers.
3. The worker is stopped, and the task with it.

Here the decision is one step of the core, which knows every task: a group stops only if none of its
tasks is ready or leased, and in that same step its workers begin to drain, also those that have yet
to join. What comes later finds no worker there, brings the group up again with a new generation,
and waits for new workers. A worker that is to go is stopped when it drains and holds nothing, which
can only stay so.

Nothing is looked for: whatever a command touches (a lane that may have got a task, a worker that
may have ended one) touches its group, and groups that were touched are judged when the command is
done. What time alone changes has a timer.
"""

from __future__ import annotations

from itertools import islice

from jackalope.core.assertions import must
from jackalope.core.commands import ActOnGroup, DeclarePool, DeletePool, GroupAction
from jackalope.core.context import Context
from jackalope.core.durations import MILLISECOND, MINUTE, SECOND, format_duration
from jackalope.core.effects import Accepted, OrdersDue, PoolSet
from jackalope.core.limits import NAME_CHARS_MAX, NOTE_CHARS_MAX, PINNED_GROUPS_PER_POOL_MAX
from jackalope.core.namespaces import not_kept, open_queue, unbind_one
from jackalope.core.policy import PRESETS
from jackalope.core.records import GroupPinned, PoolDeclared, PoolDeleted
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.exchange import exchanges_of, own_queues
from jackalope.core.shapes.pool import (
    DEFAULT_POOL,
    FOLLOWING,
    LAUNCH_LABEL,
    NO_LAUNCHER,
    POOL_LABEL,
    UP,
    GroupState,
    PoolSettings,
    change_pool,
)
from jackalope.core.state.groups import Group, GroupName, Launch, Pool, Pools
from jackalope.core.state.roster import Worker
from jackalope.core.tasks.assign import drain

#: How long a group waits for a place before one that has had it for so long makes room.
TURN_US = 30 * SECOND


# Commands.


def declare_pool(ctx: Context, command: DeclarePool) -> PoolSet | Refusal:
    """Create the pool of a queue, or change its settings."""
    known = ctx.book.queue(command.namespace, command.queue)
    if known is not None and known.is_volatile():
        return not_kept(known)
    before = DEFAULT_POOL if known is None or known.pool is None else known.pool
    settings = change_pool(before, command.changes)
    if isinstance(settings, PoolSettings):
        refusal = _unknown_launcher(ctx, settings) if settings != before else None
        settings = refusal or _taken_name(ctx, command) or settings
    if isinstance(settings, Refusal):
        return settings
    name, by = (command.namespace, command.queue), command.by
    queue = open_queue(ctx, *name, by, PRESETS["pool"])
    if isinstance(queue, Refusal):
        return queue
    if queue.pool != settings:
        ctx.record(PoolDeclared(ctx.now_us, *name, settings, by))
    _watch(ctx, ctx.pools.pool(*name))
    return PoolSet(settings)


def delete_pool(ctx: Context, command: DeletePool) -> Accepted | Refusal:
    """Delete a pool, and retire its workers."""
    pool = _known(ctx, command)
    if isinstance(pool, Refusal):
        return pool
    _unbind_all(ctx, pool)
    ctx.record(PoolDeleted(ctx.now_us, *pool.name, command.by))
    pool.queue = None
    for group in pool.groups.values():
        touch(ctx, group)
    if not pool.groups:
        del ctx.pools.by_name[pool.name]
    return Accepted()


def act_on_group(ctx: Context, command: ActOnGroup) -> Accepted | Refusal:
    """Start, stop, pin or unpin the group of a key."""
    pool = _known(ctx, command)
    if isinstance(pool, Refusal):
        return pool
    refusal = _unfit(pool, command)
    if refusal is not None:
        return refusal
    key, action = command.key, command.action
    if action in (GroupAction.PIN, GroupAction.UNPIN):
        is_pinned = action is GroupAction.PIN
        if pool.is_pinned(key) != is_pinned:
            ctx.record(GroupPinned(ctx.now_us, *pool.name, key, is_pinned, command.by))
        ctx.agenda.add(settle, (pool, key))
    elif action is GroupAction.START:
        group = pool.group(key)
        group.active_us = ctx.now_us
        pool.up[key] = None
        pool.line.pop(key, None)
        turn(ctx, group, GroupState.ACTIVE)
    elif key in pool.groups:
        _stop(ctx, pool.groups[key])
    return Accepted()


def recall_pools(ctx: Context) -> None:
    """Activate the pools of a rebuilt book."""
    for namespace in ctx.book.namespaces.values():
        for queue in namespace.queues.values():
            if queue.pool is not None:
                _watch(ctx, ctx.pools.pool(namespace.name, queue.name))


def _watch(ctx: Context, pool: Pool) -> None:
    """Touch everything of a pool that was created or changed."""
    queue = pool.queue = ctx.book.queue(*pool.name)
    keys = [*pool.groups]
    if queue is not None:
        keys += [lane.key for lane in queue.line.lanes.values() if lane.size]
        keys += queue.pins
    for key in keys:
        ctx.agenda.add(settle, (pool, key))


def _known(ctx: Context, command: DeletePool | ActOnGroup) -> Pool | Refusal:
    pool = ctx.pools.by_name.get((command.namespace, command.queue))
    if pool is None or pool.settings is None:
        message = f"queue {command.queue!r} of namespace {command.namespace!r} has no pool"
        return Refusal(Code.UNKNOWN_POOL, message + "; declare it first")
    return pool


def _unbind_all(ctx: Context, pool: Pool) -> None:
    """Remove the bindings of others from and to the exchanges of a pool."""
    namespace = ctx.book.namespaces[pool.name[0]]
    for exchange in exchanges_of(pool.name[1]):
        for binding in namespace.topology.from_source(exchange):
            unbind_one(ctx, namespace, binding)
        for binding in namespace.topology.to_target(exchange, is_exchange=True):
            unbind_one(ctx, namespace, binding)


def _taken_name(ctx: Context, command: DeclarePool) -> Refusal | None:
    """Refuse a pool whose exchange or queue names are already in use."""
    namespace = ctx.book.namespaces.get(command.namespace)
    if namespace is None:
        return None
    wanted = (*exchanges_of(command.queue), *own_queues(command.queue))
    for name in wanted:
        is_there = name in namespace.topology.exchanges or name in namespace.queues
        if is_there and namespace.topology.reserved.get(name) != command.queue:
            message = f"the pool would have {name!r}, and there is one; delete it first"
            return Refusal(Code.WRONG_STATE, message)
    return None


def _unknown_launcher(ctx: Context, settings: PoolSettings) -> Refusal | None:
    known = (NO_LAUNCHER, *ctx.pools.launchers)
    if settings.launcher in known:
        return None
    message = f"launcher {settings.launcher!r} is not configured; use {', '.join(known)}"
    return Refusal(Code.WRONG_STATE, message)


def _unfit(pool: Pool, command: ActOnGroup) -> Refusal | None:
    key, queue = command.key, pool.queue
    if len(key) > NAME_CHARS_MAX:
        message = f"key: must have at most {NAME_CHARS_MAX} characters, got {len(key)}"
        return Refusal(Code.INVALID, message)
    if queue is None or pool.settings is None:
        return None
    if command.action is GroupAction.PIN and key not in queue.pins:
        if len(queue.pins) >= PINNED_GROUPS_PER_POOL_MAX:
            message = (
                f"{PINNED_GROUPS_PER_POOL_MAX} groups are pinned, the maximum; unpin one first"
            )
            return Refusal(Code.TOO_MANY, message)
    elif command.action is GroupAction.START and key not in pool.up:
        if len(pool.up) >= pool.settings.groups_max:
            message = f"{len(pool.up)} groups are up, the maximum; stop one first"
            return Refusal(Code.TOO_MANY, message)
    elif command.action is GroupAction.STOP:
        group = pool.groups.get(key)
        tasks = pool.ready(key) + (group.leased() if group else 0)
        if tasks or pool.is_pinned(key):
            why = f"has {tasks} tasks; pause the queue or end them" if tasks else "is pinned"
            return Refusal(Code.WRONG_STATE, f"the group of key {key!r} {why}")
    return None


# Workers.


def adopt(ctx: Context, worker: Worker) -> None:
    """Find the group of a worker that has just joined."""
    pools, home = ctx.pools, worker.namespace.name
    if not pools.by_name:
        return
    launch = pools.launches.get((home, worker.labels.get(LAUNCH_LABEL, worker.id)))
    group = launch.group if launch is not None else _group_by_label(ctx, worker)
    owner = 0 if worker.consumer is None else worker.consumer.owner
    if launch is None and owner in pools.speakers:
        spoke, is_named = pools.speakers[owner]
        launch = spoke if is_named and spoke.group is group else None
    if worker.group is not None and worker.group is not group:
        abandon(ctx, worker)
    if group is None:
        return
    worker.group = group
    group.workers[worker.id] = worker
    group.count_done(worker, ctx.now_us)
    if launch is not None:
        launch.workers[worker.id] = worker
        launch.has_joined = True
        # Before anything can be given to it. It is notified with the reply to its join.
        worker.is_draining = worker.is_draining or launch.is_retired
    elif worker.consumer is not None and not any(
        worker.id in launch.nameless for launch in group.launches.values()
    ):
        launch = unclaimed(group, owner, pools)
        if launch is not None:
            launch.nameless[worker.id] = worker
            launch.has_joined = True
    touch(ctx, group)


def unclaimed(group: Group, session: int, pools: Pools) -> Launch | None:
    """Return the launch that a nameless worker most likely belongs to.

    That is the one its session was matched with before, or the first without a known worker.
    """
    spoke = pools.speakers.get(session)
    if spoke is not None and spoke[0].group is group:
        return spoke[0]
    free = [
        launch
        for launch in group.launches.values()
        if not (launch.is_retired or launch.workers or launch.nameless)
    ]
    return min(free, key=lambda launch: launch.has_joined, default=None)


def _group_by_label(ctx: Context, worker: Worker) -> Group | None:
    """Return the group of a worker that was started by hand, if its label names one."""
    queue = worker.labels.get(POOL_LABEL, "")
    pool = ctx.pools.by_name.get((worker.namespace.name, queue))
    if pool is None or queue not in worker.queues or len(worker.keys) != 1:
        return None
    return pool.group(worker.keys[0])


def abandon(ctx: Context, worker: Worker) -> None:
    """Remove a departed worker from its group."""
    group, worker.group = worker.group, None
    if group is None:
        return
    group.forget_worker(worker)
    for launch in group.launches.values():
        was_its = launch.workers.pop(worker.id, None) or launch.nameless.pop(worker.id, None)
        if was_its is not None and not launch.workers and not launch.nameless:
            # It may still run, unable to join again: that too is given no more than a start's time.
            launch.has_joined = launch.is_loaded = False
            launch.ordered_us = ctx.now_us
            call_launcher(ctx, launch.launcher)
    touch(ctx, group)


def replace_stalled(ctx: Context, worker: Worker) -> None:
    """Allow another launch for a launched worker that has not answered in time."""
    group = worker.group
    for launch in () if group is None else group.launches.values():
        is_one = launch.launcher not in ctx.pools.scaling and len(launch.workers) == 1
        if is_one and worker.id in launch.workers and not launch.is_retired:
            retire(ctx, launch)


def stir(ctx: Context, group: Group) -> None:
    """Record activity of a group that no task shows."""
    if group.state in UP:
        group.active_us = ctx.now_us
        group.pool.idle.pop(group.key, None)
        turn(ctx, group, GroupState.ACTIVE)


# Judging.


def notice(ctx: Context) -> None:
    """Touch the groups that the current command affects, before tasks are assigned."""
    if not ctx.pools.by_name:
        return
    for lane in ctx.agenda.lanes:
        queue = lane.queue
        if queue.pool is not None:
            pool = ctx.pools.by_name.get((queue.namespace.name, queue.name))
            if pool is not None:
                ctx.agenda.add(settle, (pool, lane.key))
    for worker in ctx.agenda.workers:
        group = worker.group
        if group is not None:
            touch(ctx, group)
            if group.count_done(worker, ctx.now_us):
                group.failures, group.error = 0, ""


def look_at_due(ctx: Context, name: GroupName) -> None:
    namespace, queue, key = name
    pool = ctx.pools.by_name.get((namespace, queue))
    if pool is not None:
        ctx.agenda.add(settle, (pool, key))


def touch(ctx: Context, group: Group) -> None:
    """Evaluate a group at the end of the current command."""
    ctx.agenda.add(settle, (group.pool, group.key))


def settle(ctx: Context) -> None:
    """Judge every group that was touched, now that what could be given out is."""
    touched = dict.fromkeys(ctx.agenda.take(settle))
    for pool, key in touched:
        if key in pool.groups or pool.ready(key) or pool.is_pinned(key):
            _judge(ctx, pool.group(key))
    for pool in dict.fromkeys(pool for pool, _ in touched):
        _make_room(ctx, pool)
        if pool.queue is None and not pool.groups:
            ctx.pools.by_name.pop(pool.name, None)


def _judge(ctx: Context, group: Group) -> None:
    pool, settings, key = group.pool, group.pool.settings, group.key
    ready = pool.ready(key)
    if settings is not None and (ready or group.leased() or pool.is_pinned(key)):
        group.active_us = ctx.now_us
        pool.idle.pop(key, None)
        _activate(ctx, group, settings)
    elif group.state is GroupState.WAITING:
        pool.line.pop(key, None)
        turn(ctx, group, GroupState.INACTIVE)
    elif group.state in UP:
        _cool(ctx, group, settings)
    give_up_late_starts(ctx, group)
    resize(ctx, group, settings, ready)
    if group.state not in UP and not group.launches:
        pool.up.pop(key, None)
    if group.is_gone():
        del pool.groups[key]
        ctx.pools.timers.cancel(group.name())
    else:
        _set_timer(ctx, group)


def _activate(ctx: Context, group: Group, settings: PoolSettings) -> None:
    """Bring up a group that has work, if there is a place and it is its turn."""
    pool, key = group.pool, group.key
    if group.state is GroupState.ACTIVE:
        return
    has_place = len(pool.up) < settings.groups_max and next(iter(pool.line), key) == key
    if has_place or (key in pool.up and group.state is not GroupState.WAITING):
        pool.up[key] = None
        pool.line.pop(key, None)
        turn(ctx, group, GroupState.ACTIVE)
    elif group.state is not GroupState.WAITING:
        pool.line[key] = None
        turn(ctx, group, GroupState.WAITING)


def _cool(ctx: Context, group: Group, settings: PoolSettings | None) -> None:
    """Bring down a group without work, step by step."""
    if settings is None:
        _stop(ctx, group)
        return
    group.pool.idle.setdefault(group.key)
    idle_us = ctx.now_us - group.active_us
    if idle_us >= settings.unbind_delay_us + settings.stop_delay_us:
        _stop(ctx, group)
    elif idle_us >= settings.unbind_delay_us and group.state is GroupState.ACTIVE:
        turn(ctx, group, GroupState.UNBOUND)


def _make_room(ctx: Context, pool: Pool) -> None:
    """Release the places of groups without work for those that wait."""
    settings = pool.settings
    if settings is None or not pool.line:
        return
    leaving = sum(pool.groups[key].state not in UP for key in pool.up)
    wanting = len(pool.line) - leaving - (settings.groups_max - len(pool.up))
    for key in list(pool.idle)[: max(wanting, 0)]:
        _stop(ctx, pool.groups[key])
    _take_turns(ctx, pool, leaving + settings.groups_max - len(pool.up))
    if len(pool.up) < settings.groups_max:
        ctx.agenda.add(settle, (pool, next(iter(pool.line))))


def _take_turns(ctx: Context, pool: Pool, coming: int) -> None:
    """Release the places of groups that have had a turn for those that have waited for one.

    `coming` is how many places are free, or will be as soon as their workers are gone.
    """
    late = sum(_is_turn_over(ctx, pool.groups[key]) for key in islice(pool.line, len(pool.up)))
    for key in list(pool.up) if late > coming else ():
        group = pool.groups[key]
        if late > coming and _can_yield(ctx, group):
            coming += 1
            pool.line[key] = None
            turn(ctx, group, GroupState.WAITING)


def _can_yield(ctx: Context, group: Group) -> bool:
    """Return whether a group has had its turn, and will finish what it holds before long."""
    if group.state not in UP or group.pool.is_pinned(group.key) or not _is_turn_over(ctx, group):
        return False
    attempts = [task.attempt for worker in group.workers.values() for task in worker.held.values()]
    return all(each is None or ctx.now_us - each.assigned_us < TURN_US for each in attempts)


def _is_turn_over(ctx: Context, group: Group) -> bool:
    return ctx.now_us - group.since_us >= TURN_US


def _stop(ctx: Context, group: Group) -> None:
    group.pool.idle.pop(group.key, None)
    turn(ctx, group, GroupState.INACTIVE)


def turn(ctx: Context, group: Group, state: GroupState) -> None:
    """Change the state of a group, and evaluate it again."""
    if group.state is not state:
        must(state in FOLLOWING[group.state], "a legal change of a group", group.state, state)
        group.state, group.since_us = state, ctx.now_us
        group.generation = ctx.pools.next_generation(ctx.now_us)
    touch(ctx, group)


def _set_timer(ctx: Context, group: Group) -> None:
    """Set the deadline at which time alone changes a group."""
    settings, now_us = group.pool.settings, ctx.now_us
    times = []
    if settings is not None:
        if group.state in UP and group.key not in group.pool.idle:
            times.append(now_us + settings.unbind_delay_us)
        elif group.key in group.pool.idle:
            is_unbound = group.state is GroupState.UNBOUND
            stop_us = settings.stop_delay_us if is_unbound else 0
            times.append(group.active_us + settings.unbind_delay_us + stop_us)
        if group.shrinks_us:
            times.append(group.shrinks_us + settings.shrink_delay_us)
        ready = group.pool.ready(group.key)
        if settings.clear_within_us and is_fast_enough(ctx, group, settings, ready):
            times.append(now_us + settings.clear_within_us)
        times += [
            launch.ordered_us + settings.start_timeout_us
            for launch in group.launches.values()
            if settings.start_timeout_us and not launch.is_retired and not launch.has_joined
        ]
    if group.state is GroupState.WAITING:
        times.append(max(group.since_us + TURN_US, now_us + SECOND))
    if group.wanted and now_us < group.next_try_us:
        times.append(group.next_try_us)
    if times:
        ctx.pools.timers.set(group.name(), min(times))
    else:
        ctx.pools.timers.cancel(group.name())


# Scaling: how many workers a group should have, which of them go, and what is missing.

#: How long to wait after a failed launch: twice as long each time.
_RETRY_BASE_US = 500 * MILLISECOND
_RETRY_CAP_US = MINUTE

#: How many workers a group may have beyond those it needs while they are replaced.
_SURGE = 1


def resize(ctx: Context, group: Group, settings: PoolSettings | None, ready: int) -> None:
    """Compute how many workers a group should have, and retire the excess."""
    if settings is None or group.state not in UP:
        group.wanted, group.shrinks_us = 0, 0
    else:
        _aim(ctx, group, settings, _needed(ctx, group, settings, ready))
    staying = [launch for launch in group.launches.values() if not launch.is_retired]
    fit = [launch for launch in staying if settings is not None and launch.fits(settings)]
    old = [launch for launch in staying if launch not in fit]
    substitutes = sum(launch.is_ready() for launch in fit)
    _retire(ctx, old, len(old) - max(0, group.wanted - substitutes))
    _retire(ctx, fit, len(fit) - group.wanted)
    if settings is not None and missing(ctx, group):
        call_launcher(ctx, settings.launcher)
    for launch in group.launches.values():
        if can_stop(launch) and not launch.is_stopping:
            call_launcher(ctx, launch.launcher)


def _needed(ctx: Context, group: Group, settings: PoolSettings, ready: int) -> int:
    load = ready + group.leased()
    by_load = -(-load // settings.tasks_per_worker)
    there = sum(launch.is_ready() for launch in group.launches.values() if not launch.is_retired)
    if by_load > there and is_fast_enough(ctx, group, settings, ready):
        by_load = there
    needed = min(max(by_load, settings.workers_min) + settings.spares, settings.workers_max)
    if not there and load:
        needed = max(needed, 1)
    return min(needed, 1) if settings.launcher in ctx.pools.scaling else needed


def is_fast_enough(ctx: Context, group: Group, settings: PoolSettings, ready: int) -> bool:
    """Return whether the current workers will soon have cleared what waits."""
    return bool(ready) and group.rate(ctx.now_us) * settings.clear_within_us >= ready


def _aim(ctx: Context, group: Group, settings: PoolSettings, needed: int) -> None:
    """Raise the number of workers at once, but lower it only after the shrink delay."""
    if needed >= group.wanted:
        group.wanted, group.shrinks_us = needed, 0
    elif not group.shrinks_us:
        group.shrinks_us = ctx.now_us
    if group.shrinks_us and ctx.now_us - group.shrinks_us >= settings.shrink_delay_us:
        group.wanted, group.shrinks_us = needed, 0


def _retire(ctx: Context, launches: list[Launch], count: int) -> None:
    """Retire the most dispensable of these launches, each when it has finished what it holds."""

    def usefulness(launch: Launch) -> tuple[bool, int, int]:
        load = sum(len(worker.held) for worker in launch.workers.values())
        return (launch.is_ready(), load, -launch.ordered_us)

    for launch in sorted(launches, key=usefulness)[: max(count, 0)]:
        retire(ctx, launch)


def retire(ctx: Context, launch: Launch) -> None:
    """Assign no more tasks to the workers of a launch."""
    launch.is_retired = True
    for worker in launch.workers.values():
        if not worker.is_draining:
            drain(ctx, worker)


def can_stop(launch: Launch) -> bool:
    """Return whether a launch can be stopped: it gets no tasks, and holds none."""
    return launch.is_retired and launch.is_idle()


def missing(ctx: Context, group: Group) -> int:
    """Return how many workers to start for a group now."""
    settings = group.pool.settings
    if settings is None or settings.launcher == NO_LAUNCHER or ctx.now_us < group.next_try_us:
        return 0
    staying = [launch for launch in group.launches.values() if not launch.is_retired]
    fit = sum(launch.fits(settings) for launch in staying)
    count = min(group.wanted - fit, group.wanted + _SURGE - len(staying))
    # After a failure one launch shows whether it works again.
    return max(0, min(count, 1) if group.failures else count)


# Launches that fail.


def fail(ctx: Context, group: Group, why: str) -> None:
    """Record a failed launch, and back off."""
    group.failures += 1
    group.pool.failed += 1
    group.error = why[:NOTE_CHARS_MAX]
    group.pool.failures.append((ctx.now_us, group.key, group.error))
    wait_us = min(_RETRY_BASE_US << min(group.failures - 1, 20), _RETRY_CAP_US)
    group.next_try_us = ctx.now_us + wait_us
    touch(ctx, group)


def give_up_late_starts(ctx: Context, group: Group) -> None:
    """Give up launches that have not joined within the start timeout."""
    settings = group.pool.settings
    if settings is None or not settings.start_timeout_us:
        return
    for launch in group.launches.values():
        late_us = launch.ordered_us + settings.start_timeout_us
        if not launch.is_retired and not launch.has_joined and late_us <= ctx.now_us:
            within = format_duration(settings.start_timeout_us)
            detail = f": {launch.detail}" if launch.detail else ""
            retire(ctx, launch)
            fail(ctx, group, f"worker {launch.id} has not joined within {within}{detail}")


def call_launcher(ctx: Context, launcher: str) -> None:
    """Notify the session that carries out orders; once, until it fetches them."""
    pools = ctx.pools
    if pools.session and launcher in pools.launchers and launcher not in pools.called:
        pools.called.add(launcher)
        ctx.send(pools.session, OrdersDue(launcher))

"""Invariants: what is true of a core between any two commands.

`check(core)` compares every index with the tables that it indexes, and every promise with the state
that must keep it. It looks at everything, so it is for tests and for a node's self-check, not for
the hot path. A broken invariant is a bug in the core.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from jackalope.core.assertions import BrokenInvariant, must
from jackalope.core.context import Context
from jackalope.core.durations import NEVER
from jackalope.core.ids import TaskId, is_volatile
from jackalope.core.lifecycle import ENDED, LEASED, PENDING, State
from jackalope.core.placement.fit import can_take
from jackalope.core.shapes.flow import FlowState
from jackalope.core.shapes.pool import UP, GroupState
from jackalope.core.state.flows import (
    Prospect,
    flow_state,
    has_room,
    node_state,
    prospect,
    settings_of,
)
from jackalope.core.state.gates import Gate, Gates, kind_of
from jackalope.core.state.groups import Group
from jackalope.core.state.queue import Namespace, Queue, share_of
from jackalope.core.task import Task, is_open, lease_of, size_of


def check(ctx: Context) -> None:
    """Check all invariants; raises `BrokenInvariant` for the first that does not hold."""
    by_queue: dict[Queue, list[Task]] = defaultdict(list)
    for task_id, task in ctx.book.tasks.items():
        must(task.id == task_id, "a task is filed under its id", task_id, task.id)
        _check_task(ctx, task)
        by_queue[task.queue].append(task)
    fences = Counter(task.attempt.fence for task in ctx.book.tasks.values() if task.attempt)
    must(all(n == 1 for n in fences.values()), "a fence has one holder", fences)
    must(all(f <= ctx.book.counters.fence for f in fences), "fences are counted", fences)
    for namespace in ctx.book.namespaces.values():
        _check_namespace(ctx, namespace)
        for queue in namespace.queues.values():
            _check_queue(queue, by_queue.pop(queue, []))
    must(not by_queue, "every task is in a known queue", by_queue)
    _check_links(ctx)
    _check_flows(ctx)
    _check_answers(ctx)
    _check_roster(ctx)
    _check_fanouts(ctx)
    _check_nothing_idle(ctx)
    check_pools(ctx)


def _check_task(ctx: Context, task: Task) -> None:
    state, book = task.state, ctx.book
    must((task.attempt is not None) == (state in LEASED), "leased means an attempt", task)
    must((task.lane is not None) == (state is State.READY), "ready means in line", task)
    must(task.rank or state is not State.READY, "a ready task has a rank", task)
    must((task.id in book.due) == (state is State.SCHEDULED), "scheduled means a timer", task)
    is_expiring = bool(task.expires_us) and state in PENDING
    must((task.id in book.expiry) == is_expiring, "what may expire has a timer", task)
    must(not task.waiting_for or state in PENDING, "what waits has not begun", task)
    waits = task.waiting_for or task.flow is not None
    must(waits or state is not State.WAITING, "what waits waits for something", task)
    if state in ENDED:
        must(task.outcome is not None and task.outcome.ended_us, "an end has an outcome", task)
    if state is State.DEAD:
        must(task.outcome is not None and task.outcome.reason, "the dead have a reason", task)
    if task.options.alias:
        alias = task.queue.namespace.aliases.get(task.options.alias)
        must(alias == task.id, "an alias names its task", task.options.alias, alias)


def _check_queue(queue: Queue, tasks: list[Task]) -> None:
    counts = Counter(task.state for task in tasks if task.state not in ENDED)
    kept = {state: n for state, n in queue.counts.items() if n}
    must(kept == counts, "a queue counts its tasks", queue.name, kept, counts)
    depth = sum(n for state, n in counts.items() if state in PENDING)
    must(queue.depth == depth, "a queue knows its depth", queue.name, queue.depth, depth)
    ready = [task for task in tasks if task.state is State.READY]
    must(queue.line.size == len(ready), "a line counts its tasks", queue.name)
    in_lanes: Counter[int] = Counter(id(task.lane) for task in ready)
    for lane in queue.line.lanes.values():
        must(lane.size == in_lanes[id(lane)], "a lane counts its tasks", lane.name, lane.size)
        must(lane.size or lane is queue.line.plain, "only the plain lane may be empty", lane.name)
        must(set(lane) >= {t.id for t in ready if t.lane is lane}, "who is in line is listed")
    for task in ready:
        at = task.lane
        if at is None or at.queue is not queue or at.task_name not in (None, task.name):
            raise BrokenInvariant(f"not in a lane of its queue and name: {task} {at}")
    _check_shares(queue, ready)
    if queue.batches is not None:
        lasting = (it for it in tasks if it.state not in ENDED and not is_volatile(it.id))
        batches = Counter(task.batch for task in lasting)
        must(queue.batches == batches, "a queue counts its batches", queue.name, batches)
    _check_cache(queue, [task for task in tasks if task.state not in ENDED])
    _check_paces(queue, [task for task in tasks if is_open(task)])


def _check_shares(queue: Queue, ready: list[Task]) -> None:
    """Check that tasks stand in the lanes of their shares, and that these are counted."""
    fair, weights = queue.line.fair, queue.policy.fair_weights
    must((fair is not None) == bool(queue.policy.fair_by), "a key makes shares", queue.name)
    if fair is None:
        must(not any(lane.share for lane in queue.line.lanes.values()), "none without", queue.name)
        return
    for task in ready:
        share = None if task.lane is None else task.lane.share
        must(share is not None and share.value == share_of(task), "in its share", task)
    sizes = Counter(share_of(task) for task in ready)
    counted = {share.value: share.size for share in fair.waiting()}
    must(counted == sizes, "shares count their tasks", queue.name, counted, sizes)
    must(fair.count == len(sizes), "and are counted", queue.name, fair.count)
    for share in fair.waiting():
        must(share.weight == weights.get(share.value, 1), "weights are those of the policy", share)


def _check_cache(queue: Queue, unfinished: list[Task]) -> None:
    cache = queue.cache
    under_way = {it.options.identity: it.id for it in unfinished if it.options.identity}
    must(cache.flights == under_way, "requests under way are indexed", cache.flights, under_way)
    requests = [task for task in unfinished if task.options.identity]
    must(len(requests) == len(under_way), "a request is under way once", requests)
    answers = list(cache.answers.values())
    must(cache.bytes == sum(answer.size for answer in answers), "answers are weighed", queue.name)
    ranks = [answer.rank for answer in answers]
    must(ranks == sorted(set(ranks)), "answers stand in the order of their use", ranks)
    for identity, answer in cache.answers.items():
        must(answer.identity == identity, "an answer is found by its identity", answer)
        must((answer.namespace, answer.queue) == (queue.namespace.name, queue.name), "at home")


def _check_paces(queue: Queue, open_ones: list[Task]) -> None:
    kinds = [it.options.pace.kind(it.name) for it in open_ones if it.options.pace is not None]
    must(len(set(kinds)) == len(open_ones), "a kind has one task to be replaced", open_ones)
    for kind, task in zip(kinds, open_ones, strict=True):
        must(queue.standing.get(kind) == task.id, "and it is found by its kind", task)


def _check_answers(ctx: Context) -> None:
    kept = {
        answer.task: answer
        for namespace in ctx.book.namespaces.values()
        for queue in namespace.queues.values()
        for answer in queue.cache.answers.values()
    }
    answers = ctx.book.answers
    must(answers.by_task == kept, "answers are found by their tasks", answers.by_task, kept)
    for task_id, answer in kept.items():
        is_ageing = not answer.pinned_by and answer.until_us < NEVER
        must((task_id in answers.expiry) == is_ageing, "what grows old has a timer", answer)
    must(len(answers.expiry) <= len(kept), "and nothing else has", len(kept))


def _check_namespace(ctx: Context, namespace: Namespace) -> None:
    leased = [
        task
        for task in ctx.book.tasks.values()
        if task.queue.namespace is namespace and task.attempt is not None
    ]
    _check_gates(namespace, leased)
    must(namespace.leased == len(leased), "a namespace counts what is leased", namespace.leased)
    _check_use(ctx, namespace)
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for task in leased:
        for name, amount in () if task.options.needs is None else task.options.needs.resources:
            used[lease_of(task).worker][name] += amount
    must(namespace.used == used, "what is used follows from leases", namespace.used, used)
    held = {(worker, task) for worker, tasks in namespace.leases.items() for task in tasks}
    must(held == {(lease_of(t).worker, t.id) for t in leased}, "leases are indexed", held)
    for name, entry in namespace.throttles.items():
        is_timed = (namespace.name, name) in ctx.book.throttled
        must(is_timed, "what is throttled has a timer", entry)
    for alias, task_id in namespace.aliases.items():
        must(task_id in ctx.book.tasks, "an alias names a task in memory", alias)


def _check_use(ctx: Context, namespace: Namespace) -> None:
    """Check what the quotas of a namespace are compared with."""
    depth = sum(queue.depth for queue in namespace.queues.values())
    must(namespace.depth == depth, "a namespace knows its depth", namespace.depth, depth)
    if namespace.bytes_stored is not None:
        here = (task for task in ctx.book.tasks.values() if task.queue.namespace is namespace)
        stored = sum(size_of(task.payload) for task in here if task.state not in ENDED)
        must(namespace.bytes_stored == stored, "payloads are weighed", namespace.name, stored)
    settings = namespace.settings
    must(namespace.bucket.lacking >= 0, "no bucket overflows", namespace.bucket)
    must(
        namespace.bucket.lacking <= namespace.bucket_now.lacking
        or namespace.bucket.at_us < namespace.bucket_now.at_us
        or not settings.submits_per_second,
        "volatile tasks only take more",
        namespace.bucket,
    )


def _check_gates(namespace: Namespace, leased: list[Task]) -> None:
    gates = namespace.gates
    names = {task.id: [name for name, _ in gates.names(task)] for task in leased}
    held = {task_id: [gate.name for gate in slots] for task_id, slots in gates.held.items()}
    must(held == {key: each for key, each in names.items() if each}, "leases hold slots", held)
    use = Counter(name for each in names.values() for name in each)
    lanes = [lane for queue in namespace.queues.values() for lane in queue.line.lanes.values()]
    for name, gate in gates.gates.items():
        must(gate.name == name and not gate.is_idle(), "a gate is there while it is in use", name)
        must(gate.settings == gates.settings_of(name), "a gate has the limit's settings", name)
        must(gate.use == use[name], "a gate counts what is leased", name, gate.use, use[name])
        must(set(gate.lanes) == {lane for lane in lanes if gate in lane.gates}, "its lanes", name)
        is_timed = (namespace.name, gate.text()) in gates.changes.filling
        must(is_timed == (gate.bucket is not None), "a bucket that fills has a timer", name)
        _check_parked(gates, gate)
    must(use.keys() <= gates.gates.keys(), "what is in use is known", use)
    for lane in lanes:
        wanted = tuple(name for name, _ in lane.name.gates)
        must(tuple(gate.name for gate in lane.gates) == wanted, "a lane has its gates", lane.name)
        shut = [gate for gate in lane.gates if gates.is_shut(gate)]
        must(not shut or lane.closed_by is not None, "a shut gate closes its lanes", lane.name)
        must(lane.closed_by is None or lane.closed_by in lane.gates, "by its own", lane.name)


def _check_parked(gates: Gates, gate: Gate) -> None:
    """Check that an open gate keeps no lane back for which it has room."""
    visible = {lane for lanes in gate.visible.values() for lane in lanes}
    at_large = {lane for lane in gate.lanes if lane.closed_by is None}
    must(visible == at_large, "a gate knows which lanes are at large", gate.name)
    if gates.is_shut(gate):
        must(not visible, "a shut gate lets no lane go", gate.name)
        return
    room = gate.room()
    for lane in gate.lanes:
        if lane.closed_by is gate:
            seen = len(gate.visible.get(kind_of(lane), ()))
            must(room is not None and seen >= room, "an open gate lets lanes go", gate.name, seen)


def _check_links(ctx: Context) -> None:
    children: dict[TaskId, set[TaskId]] = defaultdict(set)
    dependents: dict[TaskId, set[TaskId]] = defaultdict(set)
    joiners: dict[tuple[TaskId, str], set[TaskId]] = defaultdict(set)
    runs: dict[tuple[str, str], set[TaskId]] = defaultdict(set)
    for task in ctx.book.tasks.values():
        if task.state in ENDED:
            continue
        if task.guardian:
            children[task.guardian].add(task.id)
            guardian = ctx.book.tasks.get(task.guardian)
            must(guardian and guardian.state not in ENDED, "a guardian lives", task)
        for dependency in task.waiting_for or ():
            dependents[dependency].add(task.id)
            must(dependency in ctx.book.tasks, "what is waited for lives", task.id, dependency)
            must(ctx.book.tasks[dependency].state not in ENDED, "and has not ended", dependency)
        if task.options.node is not None and not node_state(task).is_released:
            for group in task.options.node.groups:
                joiners[task.options.parent, group].add(task.id)
        if task.options.schedule:
            runs[task.queue.namespace.name, task.options.schedule].add(task.id)
    for index, truth in ((ctx.book.children, children), (ctx.book.dependents, dependents)):
        must({k: set(v) for k, v in index.items()} == truth, "links are indexed", index, truth)
    indexed = {name: set(waiting) for name, waiting in ctx.book.joiners.items()}
    must(indexed == joiners, "joins are indexed", indexed, joiners)
    found = {
        (namespace.name, schedule): set(tasks)
        for namespace in ctx.book.namespaces.values()
        for schedule, tasks in namespace.runs.items()
    }
    must(found == runs, "the tasks of a schedule are indexed", found, runs)


def _check_flows(ctx: Context) -> None:
    """Check that flows count their nodes, and that what can go on does."""
    live: dict[TaskId, list[Task]] = defaultdict(list)
    for task in ctx.book.tasks.values():
        if task.options.node is not None and task.state not in ENDED:
            live[task.options.parent].append(task)
    for task in ctx.book.tasks.values():
        if isinstance(task.flow, FlowState) and task.state not in ENDED:
            _check_flow(task, live.pop(task.id, []))
    must(not live, "a node that has not ended has a flow that has not", live)


def _check_flow(flow: Task, nodes: list[Task]) -> None:
    state = flow_state(flow)
    must(flow.state in (State.WAITING, State.PAUSED), "a flow waits or is paused", flow)
    own = [task for task in nodes if not settings_of(task).undoes]
    must(state.unfinished() == len(own), "a flow counts its nodes", flow, len(own))
    must(state.undoing == len(nodes) - len(own), "and its compensations", flow)
    must(state.undoing <= 1 and not (own and state.undoing), "these come last, in order", flow)
    fallen = sum(state.fallen.values())
    must(fallen == state.killed and len(state.fallen) - fallen == state.dead, "what fell", flow)
    is_open = any(group.is_open for group in state.groups.values()) and state.ends is None
    is_kept = flow.state is State.PAUSED and state.ends is None
    must(nodes or is_open or is_kept, "a flow without work ends", flow)
    for name, group in state.groups.items():
        members = [task for task in own if settings_of(task).group == name]
        live = group.total - group.succeeded - group.failed
        must(live == len(members), "a group counts its nodes", name, group, len(members))
        released = sum(node_state(task).is_released for task in members)
        must(released == group.released, "and those under way", name, group, released)
    for task in own:
        outlook = prospect(state, task)
        if task.state is not State.WAITING or outlook is Prospect.WAIT:
            continue
        must(outlook is Prospect.GO, "what cannot succeed has ended", task)
        is_waiting = flow.state is State.PAUSED or not has_room(flow, task)
        must(is_waiting, "what can go on does", task)


def _check_roster(ctx: Context) -> None:
    roster = ctx.roster
    for name, worker in roster.workers.items():
        must(worker.crew is not None and worker.id in worker.crew.members, "in its crew", name)
        must(worker.held is worker.namespace.leases.get(worker.id), "one list of leases", name)
        is_bound = roster.sessions.get(worker.session) is worker
        must(is_bound if worker.session else name in roster.resumes, "alive or awaited", name)
        must((name in roster.leases) == bool(worker.session), "a session has a lease", name)
        load = worker.burden() if worker.has_room() else None
        must(worker.load == load, "a worker is placed by its load", name, worker.load, load)
        lane = worker.reserved
        must(lane is None or roster.reserved.get(lane) is worker, "kept for one lane", name)
    for lane, worker in roster.reserved.items():
        must(worker.reserved is lane or not worker.crew, "a lane knows who is kept for it", lane)
    for share in roster.shares.values():
        must(all(worker.share is share for worker in share.members), "slots have their workers")
        kept = [worker.id for worker in share.members if worker.reserved is not None]
        must(len(kept) <= 1, "they are kept for one lane", kept)
    for session, worker in roster.sessions.items():
        must(worker.session == session, "a session has its worker", session)


def _check_fanouts(ctx: Context) -> None:
    for fence, fanout in ctx.fanouts.items():
        must(fanout.fence == fence, "a fan-out is filed under its fence", fence)
        helpers = {worker.id for worker in ctx.roster.workers.values() if worker.helps == fence}
        must(set(fanout.helpers) == helpers, "a fan-out knows its helpers", fence, helpers)
        attempt = fanout.task.attempt
        if fanout.missing <= 0 or attempt is None or attempt.fence != fence:
            continue
        for worker in ctx.roster.workers.values():
            is_free = worker.has_room() and worker.helps == 0 and len(worker.held) < worker.slots
            must(not (is_free and fanout.may_have(worker)), "no helper is idle", worker.id)


def _check_nothing_idle(ctx: Context) -> None:
    """Check that no startable task waits while a worker that may take it has room."""
    for worker in ctx.roster.workers.values():
        if not worker.has_room() or worker.namespace.is_at_limit():
            continue
        for name in worker.queues:
            queue = worker.namespace.queues.get(name)
            if queue is None or queue.paused_by:
                continue
            for lane in queue.line.lanes.values():
                if not lane.size or lane.closed_by or (worker.keys and lane.key not in worker.keys):
                    continue
                if worker.crew is not None and not worker.crew.takes(lane):
                    continue
                if lane.needs is not None and not can_take(
                    ctx.roster, ctx.book.tasks, worker, lane, lane.needs
                ):
                    continue
                others = ctx.roster.has_other(worker.namespace.name, name, lane, worker.id)
                is_shunned = lane.avoid == worker.id and others
                must(is_shunned, "nothing waits for an idle worker", lane.name, worker.id)


def check_pools(ctx: Context) -> None:
    pools = ctx.pools
    launches = 0
    for pool in pools.by_name.values():
        must(set(pool.line) <= set(pool.groups), "who waits for a place is known", pool.name)
        must(set(pool.idle) <= set(pool.up) <= set(pool.groups), "so is who has one", pool.name)
        for group in pool.groups.values():
            _check_group(group)
            launches += len(group.launches)
        if pool.queue is None or pool.queue.paused_by:
            continue
        for lane in pool.queue.line.lanes.values():
            if lane.size and not lane.closed_by:
                found = pool.groups.get(lane.key)
                state = GroupState.INACTIVE if found is None else found.state
                is_coming = state in (GroupState.ACTIVE, GroupState.WAITING)
                must(is_coming, "a task that waits has a group that comes up", lane.name, state)
    must(len(pools.launches) == launches, "each launch belongs to a group", launches)
    for worker in ctx.roster.workers.values():
        own = worker.group
        must(own is None or worker.id in own.workers, "a group has its workers", worker.id)


def _check_group(group: Group) -> None:
    pool, name = group.pool, group.name()
    is_up = group.state in UP
    must(not is_up or group.key in pool.up, "a group that is up has a place", name)
    is_waiting = group.state is GroupState.WAITING
    must(is_waiting == (group.key in pool.line), "a group that waits is in line", name)
    must(is_up or not group.wanted, "a group that is down wants no workers", name, group.wanted)
    is_stopped = group.state is GroupState.INACTIVE and pool.settings is not None
    must(not is_stopped or not group.leased(), "no group stops under a task", name)
    for launch in group.launches.values():
        must(is_up or launch.is_retired, "a group that is down has nothing that stays", name)
        for worker in launch.workers.values():
            must(worker.group is group, "a worker belongs to its launch's group", worker.id)
            is_safe = worker.is_draining or not launch.is_retired
            must(is_safe, "what is retired gets no task", worker.id)
    for worker in group.workers.values():
        must(worker.group is group, "workers know their group", worker.id)

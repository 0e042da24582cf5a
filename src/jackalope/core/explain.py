"""Explain: why a task is not running, or what it is doing, as a pure function of state.

Owns the reasons and their words. Asking changes nothing.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

import msgspec

from jackalope.core.context import Context
from jackalope.core.durations import format_duration
from jackalope.core.ids import TaskId, id_text
from jackalope.core.lifecycle import ENDED, Event, Reason, State
from jackalope.core.limits import AHEAD_COUNT_MAX, TIME_US_MAX
from jackalope.core.placement.fit import can_take, shortfall
from jackalope.core.policy import Policy
from jackalope.core.shapes.flow import FlowState, NodeState
from jackalope.core.shapes.limit import LimitSettings
from jackalope.core.shapes.needs import Needs, format_amount, matches
from jackalope.core.shapes.pace import Pace, Pacing
from jackalope.core.shapes.pool import NO_LAUNCHER, GroupState
from jackalope.core.shapes.request import How
from jackalope.core.shapes.schedule import schedule_of
from jackalope.core.state.flows import (
    Prospect,
    flow_state,
    has_room,
    prospect,
    settings_of,
    tolerates,
)
from jackalope.core.state.queue import Namespace
from jackalope.core.state.ready_queue import Lane
from jackalope.core.state.roster import Worker
from jackalope.core.task import (
    Attempt,
    HistoryEntry,
    Task,
    callbacks_of,
    how_made,
    is_open,
    joined,
    lease_of,
    replaced,
)

#: How many names a fact lists.
_NAMED_MAX = 100


class Why(StrEnum):
    """Kinds of causes, for programs."""

    HELD = "held"
    PAUSED = "paused"
    SCHEDULED = "scheduled"
    DEBOUNCED = "debounced"
    EVENT = "event"
    WAITING = "waiting"
    FLOW = "flow"
    GROUP_FULL = "group_full"
    QUEUE_PAUSED = "queue_paused"
    TAG_AT_LIMIT = "tag_at_limit"
    LIMIT_REACHED = "limit_reached"
    RATE_REACHED = "rate_reached"
    NO_WORKER = "no_worker"
    NAME_UNKNOWN = "name_unknown"
    MISFIT = "misfit"
    POOL_FULL = "pool_full"
    POOL_STARTING = "pool_starting"
    POOL_FAILING = "pool_failing"
    WORKERS_BUSY = "workers_busy"
    AVOIDS_WORKER = "avoids_worker"
    NEEDS_UNMET = "needs_unmet"
    RESOURCES_BUSY = "resources_busy"
    BEHIND = "behind"
    SHARE = "share"
    ASSIGNED = "assigned"
    RUNNING = "running"
    STUCK = "stuck"
    HELPED = "helped"
    WORKER_AWAITED = "worker_awaited"
    SIGNAL = "signal"
    SCHEDULE = "schedule"
    REPLACED = "replaced"
    ENDED = "ended"
    CALLBACK = "callback"


class Cause(msgspec.Struct, frozen=True):
    """One cause: its kind, a sentence, and the facts in it."""

    why: Why
    text: str
    facts: dict[str, str | int] = {}


class Explanation(msgspec.Struct, frozen=True):
    """Why a task is in its state. There may be several causes."""

    task: TaskId
    state: State
    causes: tuple[Cause, ...]


def explain(ctx: Context, task: Task) -> Explanation:
    if task.state is State.READY:
        causes = _why_ready(ctx, task)
    elif task.attempt is not None:
        causes = _why_leased(ctx, task)
    elif task.state in ENDED:
        causes = [_why_ended(task), *_callbacks(ctx, task)]
    elif isinstance(task.flow, FlowState):
        causes = [_why_flow(ctx, task, task.flow)]
        causes += [_why_resting(task)] if task.state is State.PAUSED else []
    elif isinstance(task.flow, NodeState) and task.state is State.WAITING:
        causes = _why_node(ctx, task, task.flow)
    else:
        causes = [_why_resting(task)]
    return Explanation(task.id, task.state, (*causes, *_why_there(task)))


def _why_flow(ctx: Context, task: Task, flow: FlowState) -> Cause:
    """Say how far a flow is."""
    done = flow.total - flow.unfinished()
    facts: dict[str, str | int] = {"done": done, "total": flow.total}
    text = f"{done} of {flow.total} nodes are done"
    nodes = [ctx.book.tasks[each] for each in ctx.book.children.get(task.id, ())]
    running = [each.options.node.name for each in nodes if each.options.node and each.attempt]
    if running:
        text += f"; {len(running)} run, {_first(running)}"
        facts["running"] = ",".join(running[:_NAMED_MAX])
    if flow.fallen:
        text += f"; {flow.dead} are dead and {flow.killed} killed"
        facts |= {"dead": flow.dead, "killed": flow.killed}
    if flow.failures:
        text += f"; it fails: {flow.failure()}"
    if flow.undone:
        left = len(flow.undo) + flow.undoing
        text += f"; it compensates, {left} of {left + flow.undone - flow.undoing} are left"
    elif flow.ends is not None:
        text += f"; it is being stopped by {flow.ends.by or 'the broker'}"
    is_open = [name for name, group in flow.groups.items() if group.is_open]
    if is_open and flow.ends is None:
        text += f"; nodes can be added to {len(is_open)} open groups, {_first(is_open)}"
        facts["open"] = ",".join(is_open[:_NAMED_MAX])
    return Cause(Why.FLOW, text, facts)


def _first(names: list[str]) -> str:
    return f"first {names[0]!r}" if len(names) > 1 else repr(names[0])


def _why_node(ctx: Context, task: Task, state: NodeState) -> list[Cause]:
    """Say what a node waits for."""
    flow = ctx.book.tasks[task.options.parent]
    counts, node = flow_state(flow), settings_of(task)
    facts: dict[str, str | int] = {"flow": flow.id.hex()}
    causes = []
    if flow.state is State.PAUSED:
        by = history(flow)[-1].by
        text = f"its flow is paused by {by or 'an unknown client'}; play the flow"
        causes.append(Cause(Why.PAUSED, text, facts))
    for name in node.groups:
        group = counts.groups[name]
        ended = group.succeeded + group.failed
        more = ", which is open" if group.is_open else ""
        text = f"waits for group {name!r}{more}: {ended} of {group.total} nodes have ended"
        causes.append(Cause(Why.WAITING, text, {**facts, "group": name, "ended": ended}))
    names = [settings_of(ctx.book.tasks[each]).name for each in sorted(task.waiting_for or ())]
    if names:
        text = f"waits for {len(names)} unfinished nodes, {_first(names)}"
        causes.append(Cause(Why.WAITING, text, {**facts, "nodes": ",".join(names[:_NAMED_MAX])}))
    if not has_room(flow, task) and prospect(counts, task) is Prospect.GO:
        width = counts.groups[node.group].released
        text = f"its group {node.group!r} is as wide as it may be: {width} nodes are under way"
        causes.append(Cause(Why.GROUP_FULL, text, {**facts, "group": node.group}))
    if state.failed and not tolerates(counts, task):
        text = f"cannot run: {state.failed} of what it waits for failed; it ends after the rest"
        causes.append(Cause(Why.WAITING, text, {**facts, "failed": state.failed}))
    if node.need:
        text = f"needs {node.need} to succeed; {state.succeeded} have"
        causes.append(Cause(Why.WAITING, text, {**facts, "need": node.need}))
    return causes


def _why_there(task: Task) -> list[Cause]:
    """Name the schedule that submitted a task, and how many submits it stands for."""
    causes, fired, count = [], schedule_of(task.options), replaced(task)
    if fired is not None:
        text = f"is a run of schedule {fired[0]!r}, for the slot {fired[1]}"
        causes.append(Cause(Why.SCHEDULE, text, {"schedule": fired[0], "slot_us": fired[1]}))
    if count:
        later = "a later submit" if count == 1 else f"{count} later submits, one after the other"
        text = f"was replaced by {later}: it has the latest arguments"
        causes.append(Cause(Why.REPLACED, text, {"submits": count}))
    return causes


def history(task: Task) -> list[HistoryEntry]:
    """Return the history of a task from its submission on."""
    return [HistoryEntry(task.created_us, "submit", task.by), *(task.history or ())]


def whole_history(ctx: Context, task: Task) -> list[HistoryEntry]:
    """Return the history with how its request was served, and the last use of the cached answer.

    Single uses are not listed: there may be any number of them.
    """
    submitted, *rest = history(task)
    how, answer = how_made(task.options), ctx.book.answers.by_task.get(task.id)
    if how is not None:
        submitted = msgspec.structs.replace(submitted, detail=f"request: {how}")
    if answer is not None and (hits := answer.uses - joined(task)) > 0:
        rest.append(HistoryEntry(answer.used_us, How.HIT, answer.used_by, str(hits)))
    return [submitted, *rest]


def is_stuck(attempt: Attempt | None, policy: Policy, now_us: int) -> bool:
    """Return whether an attempt runs for longer than its queue's `stuck_after`."""
    if attempt is None or not attempt.started_us or not policy.stuck_after_us:
        return False
    return now_us - attempt.started_us > policy.stuck_after_us


def _why_resting(task: Task) -> Cause:
    if task.state is State.WAITING:
        waited_for = sorted(task_id.hex() for task_id in task.waiting_for or ())
        text = f"waits for {len(waited_for)} unfinished tasks, first {waited_for[0]}"
        return Cause(Why.WAITING, text, {"tasks": ",".join(waited_for[:100])})
    if task.state is State.SCHEDULED and task.steps is not None and task.steps.pending is not None:
        event = task.steps.pending.event
        facts: dict[str, str | int] = {"event": event}
        text = f"waits for the event {event!r}"
        if task.due_us < TIME_US_MAX:
            text += f" until {task.due_us}"
            facts["due_us"] = task.due_us
        return Cause(Why.EVENT, text, facts)
    pace = task.options.pace
    is_gathering = pace is not None and pace.how is Pacing.DEBOUNCE and is_open(task)
    if pace is not None and is_gathering and task.state is State.SCHEDULED:
        return _why_debounced(task, pace)
    if task.state is State.SCHEDULED:
        times = "1 failure" if task.failures == 1 else f"{task.failures} failures"
        what = f"retry after {times}" if task.failures else "start"
        if history(task)[-1].what == Event.SUSPEND:
            what = "go on"
        text = f"is due to {what} at {task.due_us}"
        return Cause(Why.SCHEDULED, text, {"due_us": task.due_us, "failures": task.failures})
    last = history(task)[-1]
    if task.state is State.HELD:
        text = f"held by {last.by or 'its submitter'}; play it to let it run"
        return Cause(Why.HELD, text, {"by": last.by, "since_us": last.at_us})
    if last.what == Event.LOSE:
        text = f"its worker {last.by} was lost while running it; play it to run it again"
    else:
        text = f"paused by {last.by or 'an unknown client'}; play it to let it run"
    return Cause(Why.PAUSED, text, {"by": last.by, "since_us": last.at_us})


def _why_debounced(task: Task, pace: Pace) -> Cause:
    quiet = format_duration(pace.span_us)
    text = f"waits until none of its kind is submitted for {quiet}, as it stands at {task.due_us}"
    facts: dict[str, str | int] = {"due_us": task.due_us, "quiet_us": pace.span_us}
    return Cause(Why.DEBOUNCED, text, {**facts, "key": pace.key})


def _why_ready(ctx: Context, task: Task) -> list[Cause]:
    queue, namespace = task.queue, task.queue.namespace
    causes = []
    if queue.paused_by:
        text = f"queue {queue.name!r} is paused by {queue.paused_by}"
        causes.append(Cause(Why.QUEUE_PAUSED, text, {"by": queue.paused_by}))
    causes += _why_misfit(task)
    causes += _why_limited(namespace, task)
    why_no_worker = _why_no_worker(ctx, task)
    causes += why_no_worker
    if why_no_worker and queue.pool is not None:
        causes += _why_pool(ctx, task)
    lane = task.lane
    ahead = 0 if lane is None else _ahead(ctx, task, lane)
    if ahead:
        more = " or more" if ahead >= AHEAD_COUNT_MAX else ""
        causes.append(Cause(Why.BEHIND, f"behind {ahead}{more} others", {"ahead": ahead}))
    causes += _why_share(task, ahead)
    return causes


def _why_share(task: Task, ahead: int) -> list[Cause]:
    """Explain the place of a task whose share takes turns with others."""
    fair, lane = task.queue.line.fair, task.lane
    if fair is None or lane is None or lane.share is None or fair.count <= 1:
        return []
    share, key = lane.share, task.queue.policy.fair_by
    whose = f"share {share.value!r} of {key}" if share.value else f"the share without {key}"
    more = " or more" if ahead >= AHEAD_COUNT_MAX else ""
    text = f"{whose} has {ahead}{more} before it; {fair.count} shares take turns"
    text += f", and it has {share.weight} at a time" if share.weight > 1 else ""
    facts: dict[str, str | int] = {"key": key, "share": share.value, "ahead": ahead}
    return [Cause(Why.SHARE, text, {**facts, "shares": fair.count, "weight": share.weight})]


def _why_misfit(task: Task) -> list[Cause]:
    """Tell that a call will fail, because it does not fit what its name takes."""
    known = task.queue.contracts.get(task.name)
    if known is None:
        return []
    is_node = isinstance(task.flow, NodeState)
    problem = known.misfit(task.payload, task.options, is_node=is_node)
    text = f"will fail: the call does not fit {task.name!r}: {problem}"
    return [Cause(Why.MISFIT, text, {"name": task.name})] if problem else []


def _why_limited(namespace: Namespace, task: Task) -> list[Cause]:
    """Name the limits that keep a task from starting, their use, and when they let go."""
    causes = []
    for name, _ in namespace.gates.names(task):
        gate = namespace.gates.gates.get(name)
        if gate is None or not namespace.gates.is_shut(gate):
            continue
        settings, facts = gate.settings, dict[str, str | int]()
        if not name[0]:
            text = (
                f"tag {name[1]!r} is at its limit: {gate.use} of {settings.concurrency} in flight"
            )
            facts |= {"tag": name[1], "limit": settings.concurrency, "in_flight": gate.use}
            causes.append(Cause(Why.TAG_AT_LIMIT, text, facts))
            continue
        keys = dict(zip(settings.keys, name[1:], strict=True))
        named = "".join(f", {key}={value}" for key, value in keys.items())
        facts |= {"limit": name[0], **{f"key.{key}": value for key, value in keys.items()}}
        if gate.is_full():
            text = f"limit {name[0]!r}{named}: {gate.use} of {settings.concurrency} run"
            full: dict[str, str | int] = {
                "in_flight": gate.use,
                "concurrency": settings.concurrency,
            }
            causes.append(Cause(Why.LIMIT_REACHED, text, {**facts, **full}))
        bucket = gate.bucket
        if bucket is not None and gate.opens_us:
            is_closed = bucket.until_us >= gate.opens_us
            what = "a worker was throttled" if is_closed else _rate(settings)
            text = f"limit {name[0]!r}{named}: {what}; the next may start at {gate.opens_us}"
            causes.append(Cause(Why.RATE_REACHED, text, {**facts, "until_us": gate.opens_us}))
    return causes


def _rate(settings: LimitSettings) -> str:
    return f"{settings.rate} in {format_duration(settings.per_us)}"


def _why_no_worker(ctx: Context, task: Task) -> list[Cause]:
    queue, namespace = task.queue, task.queue.namespace
    crews = [crew for crew in ctx.roster.crews(namespace.name, queue.name) if crew.serves(task.key)]
    workers = [worker for crew in crews for worker in crew.members.values()]
    if not workers:
        which = f"key {task.key!r}" if task.key else "tasks without a key"
        text = f"no worker serves queue {queue.name!r} and {which}"
        return [Cause(Why.NO_WORKER, text, {"queue": queue.name, "key": task.key})]
    workers = [
        worker for crew in crews if crew.knows(task.name) for worker in crew.members.values()
    ]
    if not workers:
        what = f"task {task.name!r}" if task.name else "tasks without a name"
        text = f"no worker that serves its queue implements {what}"
        return [Cause(Why.NAME_UNKNOWN, text, {"queue": queue.name, "name": task.name})]
    return _why_needs(ctx, task, workers) or _why_busy(task, workers)


def _why_busy(task: Task, workers: list[Worker]) -> list[Cause]:
    """Say why none of the workers that could run a task takes it."""
    needs = task.options.needs
    workers = [worker for worker in workers if needs is None or worker.can_host(needs)]
    free = [worker for worker in workers if worker.has_room()]
    if not free:
        states = Counter(map(_why_no_room, workers))
        told = ", ".join(f"{count} {state}" for state, count in states.items())
        text = f"no worker that serves it can take it now: {told}"
        return [Cause(Why.WORKERS_BUSY, text, {"workers": len(workers)})]
    if task.avoid and all(worker.id == task.avoid for worker in free):
        text = f"failed on worker {task.avoid!r}, the only one free; waits for another"
        return [Cause(Why.AVOIDS_WORKER, text, {"worker": task.avoid})]
    return []


def _why_needs(ctx: Context, task: Task, workers: list[Worker]) -> list[Cause]:
    """Say which needs of a task are not met, now or ever."""
    needs = task.options.needs
    if needs is None:
        return []
    able = [worker for worker in workers if worker.can_host(needs)]
    if not able:
        return _why_unmet(task.queue.name, needs, workers)
    return _why_not_free(ctx, task.lane, needs, able)


def _why_unmet(queue: str, needs: Needs, workers: list[Worker]) -> list[Cause]:
    """Say that no worker of the queue can ever run a task, and what the nearest one lacks."""
    worker = min(workers, key=lambda worker: shortfall(worker, needs))
    lacks = [
        f"{format_amount(amount - worker.resources.get(name, 0))} {name}"
        for name, amount in needs.resources
        if worker.resources.get(name, 0) < amount
    ]
    lacks += [
        f"the label {label[0]}={'|'.join(label[1])}"
        for label in needs.labels
        if not matches(worker.labels, (label,))
    ]
    told, needed = ", ".join(lacks), needs.told()
    text = (
        f"needs {needed}; no worker can ever run it: the nearest of queue {queue!r}, "
        f"{worker.id!r}, lacks {told}"
    )
    facts: dict[str, str | int] = {"needs": needed, "worker": worker.id, "lacks": told}
    return [Cause(Why.NEEDS_UNMET, text, facts)]


def _why_not_free(ctx: Context, lane: Lane | None, needs: Needs, able: list[Worker]) -> list[Cause]:
    """Say what a task with needs waits for, if workers that could run it have room."""
    roomy = [worker for worker in able if worker.has_room()]
    roster, tasks = ctx.roster, ctx.book.tasks
    if not roomy or lane is None:
        return []
    if any(can_take(roster, tasks, worker, lane, needs) for worker in roomy):
        return []
    enough = [worker for worker in roomy if worker.has_left(needs)]
    kept = [worker for worker in enough if worker.reserved not in (None, lane)]
    if kept:
        text = f"worker {kept[0].id!r} is kept free for a larger task that comes before it"
        return [Cause(Why.RESOURCES_BUSY, text, {"worker": kept[0].id})]
    if enough:
        text = f"avoids worker {enough[0].id!r} by its labels; waits for another"
        return [Cause(Why.AVOIDS_WORKER, text, {"worker": enough[0].id})]
    reserved = ctx.roster.reserved.get(lane)
    worker = reserved or roomy[0]
    missing = [
        f"{format_amount(amount - worker.left(name))} {name}"
        for name, amount in needs.resources
        if worker.left(name) < amount
    ]
    told = ", ".join(missing) or "a slot"
    text = f"fits worker {worker.id!r} once {told} more is free"
    text += " (reserved)" if reserved is not None else ""
    facts: dict[str, str | int] = {"worker": worker.id, "needs": needs.told(), "missing": told}
    return [Cause(Why.RESOURCES_BUSY, text, facts)]


def _why_no_room(worker: Worker) -> str:
    """Explain why a worker cannot be assigned a task."""
    if not worker.session:
        return "away"
    if worker.is_draining:
        return "draining"
    if not worker.is_ready:
        return "loading"
    if not worker.slots and not worker.claims:
        return "not asking for tasks"
    is_helping = worker.helps > 0 and len(worker.held) < worker.slots
    return "helping another task" if is_helping else "busy"


def _why_pool(ctx: Context, task: Task) -> list[Cause]:
    """Explain the state of the queue's pool with regard to a task."""
    pool = ctx.pools.by_name.get((task.queue.namespace.name, task.queue.name))
    group = None if pool is None else pool.groups.get(task.key)
    if pool is None or group is None or pool.settings is None:
        return []
    if group.state is GroupState.WAITING:
        ahead = list(pool.line).index(task.key)
        text = f"its pool has {len(pool.up)} groups up, the maximum; {ahead} groups are ahead of it"
        return [Cause(Why.POOL_FULL, text, {"up": len(pool.up), "ahead": ahead})]
    if problem := ctx.pools.trouble(group, ctx.now_us):
        text = f"its pool cannot start a worker: {problem}"
        return [Cause(Why.POOL_FAILING, text, {"failures": group.failures, "error": problem})]
    staying = [launch for launch in group.launches.values() if not launch.is_retired]
    ready = sum(launch.is_ready() for launch in staying)
    loading = sum(launch.has_joined for launch in staying) - ready
    if ready >= group.wanted or pool.settings.launcher == NO_LAUNCHER:
        return []
    text = f"its pool is starting workers: {ready} of {group.wanted} are ready, {loading} load"
    facts: dict[str, str | int] = {"wanted": group.wanted, "ready": ready, "loading": loading}
    return [Cause(Why.POOL_STARTING, text, facts)]


def _ahead(ctx: Context, task: Task, lane: Lane) -> int:
    """Count the tasks ahead in the lane, up to a limit that bounds the cost."""
    for ahead, other in enumerate(lane.ordered(ctx.book.tasks)):
        if other is task or ahead >= AHEAD_COUNT_MAX:
            return ahead
    return 0


def _why_leased(ctx: Context, task: Task) -> list[Cause]:
    attempt = lease_of(task)
    worker = ctx.roster.workers.get((task.queue.namespace.name, attempt.worker))
    facts: dict[str, str | int] = {"worker": attempt.worker, "fence": attempt.fence}
    if task.state is State.RUNNING:
        text = f"runs on worker {attempt.worker!r} since {attempt.started_us}"
        causes = [Cause(Why.RUNNING, text, {**facts, "since_us": attempt.started_us})]
    else:
        text = f"assigned to worker {attempt.worker!r}, which has not reported the start yet"
        causes = [Cause(Why.ASSIGNED, text, {**facts, "since_us": attempt.assigned_us})]
    fanout = ctx.fanouts.get(attempt.fence)
    if fanout is not None:
        text = f"has {len(fanout.helpers)} of {fanout.wanted} helpers for its fan-out"
        names = ",".join(sorted(fanout.helpers)[:100])
        helped: dict[str, str | int] = {"wanted": fanout.wanted, "helpers": names}
        causes.append(Cause(Why.HELPED, text, helped))
    if is_stuck(attempt, task.queue.policy, ctx.now_us):
        limit_us = task.queue.policy.stuck_after_us
        text = f"may be stuck: it has run for longer than {format_duration(limit_us)}"
        causes.append(Cause(Why.STUCK, text, {"stuck_after_us": limit_us}))
    if worker is None or not worker.session:
        text = f"worker {attempt.worker!r} is disconnected and may reconnect"
        causes.append(Cause(Why.WORKER_AWAITED, text, facts))
    if attempt.request is not None:
        asked = attempt.request
        text = f"{asked.signal} by {asked.by or 'an unknown client'}: {asked.stage}"
        causes.append(Cause(Why.SIGNAL, text, {"signal": asked.signal, "stage": asked.stage}))
    return causes


def _why_ended(task: Task) -> Cause:
    outcome = task.outcome
    text = str(task.state)
    if outcome is not None and outcome.reason:
        text += f", {outcome.reason}"
    if outcome is not None and outcome.error:
        text += f": {outcome.error.type}: {outcome.error.message}"
    facts: dict[str, str | int] = {"state": task.state}
    if task.state is State.KILLED and (killed := _kill_of(task)) is not None:
        text += f" by {killed.by or 'an unknown client'}"
        text += f": {killed.detail}" if killed.detail else ""
        facts["by"] = killed.by
    if outcome is not None and outcome.error and outcome.reason is Reason.DEPENDENCY:
        facts["dependency"] = outcome.error.message.partition(" ")[0]  # Its id comes first.
    return Cause(Why.ENDED, text, facts)


def _kill_of(task: Task) -> HistoryEntry | None:
    """Return the entry that says who killed a task; None if a worker stopped it when asked."""
    killed = (each for each in reversed(task.history or ()) if each.what == Event.KILL)
    return next(killed, None)


def _callbacks(ctx: Context, task: Task) -> list[Cause]:
    """Tell which callbacks of an end are still to be delivered, or could not be."""
    causes = []
    for callback, task_id in callbacks_of(task):
        found = ctx.book.tasks.get(task_id)
        facts: dict[str, str | int] = {"task": id_text(task_id), "url": callback.url}
        if found is None or found.state is State.SUCCEEDED:
            continue
        text = f"its callback to {callback.url} is {found.state}: task {id_text(task_id)}"
        outcome = found.outcome
        if outcome is not None and outcome.error is not None:
            text += f" ({outcome.error.message})"
        causes.append(Cause(Why.CALLBACK, text, {**facts, "state": found.state}))
    return causes

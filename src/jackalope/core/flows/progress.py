"""Progress: what follows from the end of a node for other nodes, and for the flow.

Theory of operation
===================

The record that ends a node has already counted it and left its result with those that wait for it
(`state.flows`). What is left to decide here follows from the counters alone, so it is decided once,
by the command that changed them, and written in the same batch:

1. A node that waits goes on when enough has ended well, unless its group is as wide as it may be:
   then it stands in the backlog of the group. It is dead when all has ended and not enough of it
   well.
2. A failure that every node behind it tolerates is collected. Any other makes the flow fail: at
   once, or when everything else has ended.
3. A flow that is being stopped kills its nodes, those that wait after what they wait for: so each
   has the results of all that succeeded when it is retried.
4. When nothing is unfinished, the compensations of a flow that failed run one after another, the
   last node first. Then the flow ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from jackalope.core.context import Context, Ending
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, LEASED, Event, Reason, State
from jackalope.core.limits import FLOW_INPUT_BYTES_MAX, NOTE_CHARS_MAX
from jackalope.core.records import FlowFailed, FlowStopped, QueueDeclared, TaskSubmitted
from jackalope.core.shapes.flow import (
    Ends,
    FlowState,
    NodeSettings,
    NodeState,
    OnFailure,
    compensation_id,
)
from jackalope.core.state.flows import (
    WITH_FLOW,
    Prospect,
    awaited,
    flow_of,
    flow_state,
    has_room,
    node_state,
    prospect,
    settings_of,
    tolerates,
)
from jackalope.core.task import Options, Task, TaskSpec
from jackalope.core.tasks.actions import kill
from jackalope.core.tasks.submit import begin, settle_dependents

#: Of how many failures a flow keeps the reason in words.
_FAILURES_TOLD = 10


class Backlog:
    """Nodes that could go on, but for the width of their group. Volatile: it follows from them."""

    def __init__(self) -> None:
        self.lines: dict[tuple[TaskId, str], list[tuple[int, TaskId]]] = {}

    def push(self, task: Task) -> None:
        """Remember a node; the first of its group goes first."""
        line = self.lines.setdefault((task.options.parent, settings_of(task).group), [])
        heappush(line, (node_state(task).index, task.id))

    def drop(self, flow: Task) -> None:
        """Forget the nodes of a flow that has ended."""
        for name in flow_state(flow).groups:
            self.lines.pop((flow.id, name), None)


def tasks_ended(ctx: Context, endings: Sequence[Ending]) -> None:
    """Note the nodes among tasks that have ended."""
    for task, _, _ in endings:
        if task.flow is not None:
            ctx.agenda.add(settle, task)


def settle(ctx: Context) -> None:
    """Let other nodes go on, or give them up, and let flows end, after nodes have ended.

    What ends here is settled in the next round, when it is known again who waited for it.
    """
    if ctx.agenda.ended:
        return
    flows: dict[TaskId, Task] = {}
    waiting = {task.id: nodes for task, nodes in ctx.agenda.take(settle_dependents)}
    for task in ctx.agenda.take(settle):
        flow = task if isinstance(task.flow, FlowState) else flow_of(ctx.book, task)
        flows[flow.id] = flow
        if flow.state in ENDED:
            ctx.own(Backlog).drop(flow)
        elif flow is not task:
            _node_ended(ctx, flow, task, waiting.get(task.id, ()))
    is_settled = not ctx.agenda.rest.get(settle)
    for flow in flows.values():
        if is_settled:
            complete(ctx, flow)
        else:
            ctx.agenda.add(settle, flow)  # A node that has just ended may be a failure.


def recovered(ctx: Context) -> None:
    """Find the nodes again that only the width of their group keeps, and what can go on."""
    for task in list(ctx.book.tasks.values()):
        if isinstance(task.flow, NodeState) and task.state is State.WAITING:
            look(ctx, flow_of(ctx.book, task), task)


def _node_ended(ctx: Context, flow: Task, task: Task, dependents: Iterable[Task]) -> None:
    node = settings_of(task)
    if node.undoes:
        return
    joiners = ctx.book.joiners.get((flow.id, node.group), ()) if node.group else ()
    waiting = [*dependents, *(ctx.book.tasks[each] for each in joiners)]
    if task.state is not State.SUCCEEDED and flow_state(flow).ends is None:
        _judge(ctx, flow, task, waiting)
    for each in waiting:
        look(ctx, flow, each)
    if node.group:
        widen(ctx, flow, node.group)


def _judge(ctx: Context, flow: Task, task: Task, waiting: list[Task]) -> None:
    """Let a flow fail because of a node, unless all that waits for the node tolerates that."""
    state, node, outcome = flow_state(flow), settings_of(task), task.outcome
    reason = outcome.reason if outcome is not None else None
    if reason is Reason.DEPENDENCY and state.failures:
        return  # It is not a failure of its own.
    group = state.groups.get(node.group)
    is_met = node_state(task).is_spare or (group is not None and group.is_met)
    if (waiting or is_met) and all(tolerates(state, each) for each in waiting):
        return
    detail = ""
    if len(state.failures) < _FAILURES_TOLD:
        why = f", {reason}" if reason else ""
        error = outcome.error if outcome is not None else None
        told = f": {error.type}: {error.message}" if error is not None else ""
        detail = f"node {node.name!r} is {task.state}{why}{told}"[:NOTE_CHARS_MAX]
    ctx.record(FlowFailed(ctx.now_us, flow.id, task.id, detail))
    settings = flow.options.flow
    if settings is not None and settings.on_failure is OnFailure.FAIL_FAST:
        stop(ctx, flow, Ends(State.DEAD, Reason.FAILED, "", state.failure()))


def look(ctx: Context, flow: Task, task: Task) -> None:
    """Let a node that waits go on, or give it up, if that follows from what has ended."""
    if task.state is not State.WAITING:
        return
    state = flow_state(flow)
    outlook = prospect(state, task)
    if state.ends is not None:
        if outlook is not Prospect.WAIT or _has_all(state, task):
            ctx.move(task, Event.KILL, State.KILLED, state.ends.by, detail=WITH_FLOW)
    elif outlook is Prospect.VAIN:
        _abandon(ctx, task, _too_few(state, task))
    elif outlook is Prospect.GO and flow.state is not State.PAUSED:
        if node_state(task).size > FLOW_INPUT_BYTES_MAX:
            _abandon(ctx, task, _TOO_LARGE)
        elif has_room(flow, task):
            is_early = task.due_us > ctx.now_us
            ctx.move(task, Event.UNBLOCK, State.SCHEDULED if is_early else State.READY)
        else:
            ctx.own(Backlog).push(task)


def _has_all(state: FlowState, task: Task) -> bool:
    node = node_state(task)
    return node.succeeded + node.failed >= awaited(state, task)[0]


def _abandon(ctx: Context, task: Task, why: str) -> None:
    ctx.move(task, Event.ABANDON, State.DEAD, reason=Reason.DEPENDENCY, detail=why)


_TOO_LARGE = (
    f"the results that it waits for take more than {FLOW_INPUT_BYTES_MAX} bytes; return references "
    "to large ones, or join in several steps"
)


def _too_few(state: FlowState, task: Task) -> str:
    """Say why a node cannot run."""
    own, need = node_state(task), settings_of(task).need
    failed = [each for _, each in own.inputs if each.state is not State.SUCCEEDED]
    first = f"node {failed[0].node!r} is {failed[0].state}" if failed else "there is no more"
    if not need:
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        return f"{first}{more}"[:NOTE_CHARS_MAX]
    total = awaited(state, task)[0]
    return f"{own.succeeded} of {total} succeeded, {need} are needed; {first}"[:NOTE_CHARS_MAX]


def widen(ctx: Context, flow: Task, group: str) -> None:
    """Let nodes of a group go on that only its width kept, while there is room."""
    if flow.state is State.PAUSED or flow_state(flow).ends is not None:
        return
    line = ctx.own(Backlog).lines.get((flow.id, group))
    while line:
        task = ctx.book.tasks.get(line[0][1])
        if task is not None and task.state is State.WAITING:
            if not has_room(flow, task):
                return
            heappop(line)
            look(ctx, flow, task)
        else:
            heappop(line)  # It has ended, or is held; it comes back when it is played.


def stop(ctx: Context, flow: Task, ends: Ends) -> None:
    """Stop a flow: kill its nodes, and let it end in this way after them."""
    _stopping(ctx, flow, ends)
    for child in [ctx.book.tasks[each] for each in ctx.book.children.get(flow.id, ())]:
        if child.state in ENDED:
            continue  # Killed with another one.
        if isinstance(child.flow, NodeState) and child.state is State.WAITING:
            look(ctx, flow, child)
        elif ctx.act(child, Event.KILL, ends.by) is None:
            kill(ctx, child, ends.by or flow.by, WITH_FLOW if child.state not in LEASED else "")
    ctx.agenda.add(settle, flow)


def _stopping(ctx: Context, flow: Task, ends: Ends) -> None:
    ctx.record(FlowStopped(ctx.now_us, flow.id, ends.to, ends.reason, ends.by, ends.detail))


def complete(ctx: Context, flow: Task) -> None:
    """Let a flow end, or begin with the next compensation, if nothing of it is unfinished."""
    state = flow_state(flow)
    if flow.state in ENDED or state.unfinished() or state.undoing:
        return
    ends = state.ends
    if ends is None:
        if flow.state is State.PAUSED or any(group.is_open for group in state.groups.values()):
            return
        if state.failures:
            ends = Ends(State.DEAD, Reason.FAILED, "", state.failure())
    if ends is None:
        ctx.move(flow, Event.COMPLETE, State.SUCCEEDED)
    elif state.undo:
        if state.ends is None:  # From here on it can only be undone.
            _stopping(ctx, flow, ends)
        _compensate(ctx, flow)
    else:
        detail = ends.detail
        if state.undone_badly:
            count = f"{state.undone_badly} of {state.undone} compensations did not succeed"
            detail = f"{detail}; {count}" if detail else count
        ctx.move(flow, Event.COMPLETE, ends.to, ends.by, reason=ends.reason, detail=detail)
    if flow.state in ENDED:
        ctx.own(Backlog).drop(flow)


def _compensate(ctx: Context, flow: Task) -> None:
    """Submit the compensation of the node that succeeded last of those not yet undone."""
    undo, namespace = flow_state(flow).undo[-1], flow.queue.namespace
    wanted, name = undo.compensation, undo.of.node
    if wanted.queue not in namespace.queues:  # It was there when the flow was submitted.
        declared = QueueDeclared(
            ctx.now_us, namespace.name, wanted.queue, ctx.default_policy, flow.by
        )
        ctx.record(declared)
    options = Options(headers=wanted.headers, parent=flow.id, node=NodeSettings(name, undoes=name))
    spec = TaskSpec(
        compensation_id(flow.id, name),
        wanted.queue,
        wanted.name,
        wanted.key,
        flow.priority,
        wanted.payload,
        options,
    )
    record = TaskSubmitted(ctx.now_us, namespace.name, spec, State.READY, flow.by, 0)
    begin(ctx, namespace.queues[wanted.queue], [record])

"""Actions on flows: stop, pause, play and retry the whole, or one node of it.

Owns what an action on a flow does to its nodes, and the reverse. A node that is leased is asked, as
any task is.
"""

from __future__ import annotations

from jackalope.core.commands import Action, ActOnTasks, RetryTerms
from jackalope.core.context import Context, Done, Missing
from jackalope.core.flows.progress import complete, look, settle, stop
from jackalope.core.ids import TaskId, id_text
from jackalope.core.lifecycle import ENDED, Event, Reason, State
from jackalope.core.records import InputsChanged, TaskRevived
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.flow import MEMBERS_FROM, Ends, FlowState, NodeState
from jackalope.core.state.flows import (
    WITH_FLOW,
    filled,
    flow_state,
    input_of,
    node_state,
    settings_of,
)
from jackalope.core.task import Task, TaskRow
from jackalope.core.tasks.actions import missing as find_missing
from jackalope.core.tasks.actions import revived_row

_NO_TERMS = RetryTerms()


def act(
    ctx: Context, task: Task, event: Event, by: str, terms: RetryTerms | None
) -> Done | Refusal | None:
    """Act on a flow or a node; None if it is as for any other task."""
    if isinstance(task.flow, FlowState):
        return _act_on_flow(ctx, task, event, by, terms)
    if event is Event.PLAY:
        return _play_node(ctx, task, by)
    if event is Event.RETRY and task.state in ENDED:
        return _retry(ctx, task, by, terms or _NO_TERMS)
    return None


def _act_on_flow(
    ctx: Context, flow: Task, event: Event, by: str, terms: RetryTerms | None
) -> Done | Refusal | None:
    outcome: Done | Refusal | None = None
    if event is Event.EXPIRE:
        outcome = _stop(ctx, flow, Ends(State.DEAD, Reason.EXPIRED, "", "its deadline has passed"))
    elif event is Event.KILL and flow.state not in ENDED:
        outcome = _stop(ctx, flow, Ends(State.KILLED, None, by))
    elif event is Event.PAUSE:
        outcome = _pause(ctx, flow, by)
    elif event is Event.PLAY:
        outcome = _play(ctx, flow, by)
    elif event is Event.RETRY:
        outcome = _retry(ctx, flow, by, terms or _NO_TERMS)
    elif event is Event.HOLD:
        message = f"task {id_text(flow.id)} is a flow, which no worker runs; pause it instead"
        outcome = Refusal(Code.WRONG_STATE, message)
    return outcome


def _stop(ctx: Context, flow: Task, ends: Ends) -> Done:
    """Stop a flow, unless that is under way already."""
    if flow_state(flow).ends is None:
        stop(ctx, flow, ends)
    complete(ctx, flow)
    return Done.CHANGED if flow.state in ENDED else Done.REQUESTED


def _pause(ctx: Context, flow: Task, by: str) -> Done:
    """Pause a flow and all of its nodes that could start; those that run go on."""
    if flow.state is State.PAUSED:
        return Done.CHANGED
    ctx.move(flow, Event.PAUSE, State.PAUSED, by)
    for each in _nodes(ctx, flow):
        if each.state in (State.READY, State.SCHEDULED) and not settings_of(each).undoes:
            ctx.move(each, Event.PAUSE, State.PAUSED, by, detail=WITH_FLOW)
    return Done.CHANGED


def _play(ctx: Context, flow: Task, by: str) -> Done:
    """Let a flow go on, and those of its nodes that were paused with it."""
    ctx.move(flow, Event.PLAY, State.WAITING, by)
    for each in _nodes(ctx, flow):
        if each.state is State.PAUSED and each.history:
            if each.history[-1].detail.endswith(WITH_FLOW):
                _play_node(ctx, each, by)
        else:
            look(ctx, flow, each)
    ctx.agenda.add(settle, flow)
    return Done.CHANGED


def _nodes(ctx: Context, flow: Task) -> list[Task]:
    """Return the nodes of a flow that have not ended, in their order."""
    found = [ctx.book.tasks[each] for each in ctx.book.children.get(flow.id, ())]
    nodes = [each for each in found if isinstance(each.flow, NodeState)]
    return sorted(nodes, key=lambda each: node_state(each).index)


def _play_node(ctx: Context, task: Task, by: str) -> Done | Refusal:
    flow = ctx.book.tasks[task.options.parent]
    if flow.state is State.PAUSED:
        message = f"its flow {id_text(flow.id)} is paused; play the flow"
        return Refusal(Code.WRONG_STATE, f"cannot play task {task.id.hex()}: {message}")
    is_early = task.due_us > ctx.now_us
    to = State.SCHEDULED if is_early else State.READY
    ctx.move(task, Event.PLAY, to if node_state(task).is_released else State.WAITING, by)
    look(ctx, flow, task)
    return Done.CHANGED


# Retries.


def _retry(ctx: Context, task: Task, by: str, terms: RetryTerms) -> Done | Refusal:
    """Let a node or all nodes of a flow that did not succeed begin again, and the flow go on."""
    flow = ctx.book.tasks.get(task.options.parent) if isinstance(task.flow, NodeState) else task
    if flow is None or not isinstance(flow.flow, FlowState):
        return _cannot(task, f"its flow {id_text(task.options.parent)} is gone")
    state, chosen = flow.flow, _chosen(ctx, flow, task)
    obstacle = _obstacle(ctx, flow, chosen)
    if obstacle:
        return _cannot(task, obstacle)
    rows = []
    for each in sorted((ctx.book.tasks[each] for each in chosen), key=_index):
        row = _row(ctx, state, each, chosen, terms if each is task else _NO_TERMS)
        if isinstance(row, Refusal):
            return row
        rows.append(row)
    if flow.state in ENDED:
        flow = _revive_flow(ctx, flow, by, terms if flow is task else _NO_TERMS)
    for row in rows:
        row.guardian = flow.id
        ctx.record(TaskRevived(ctx.now_us, row, by))
    _withdraw(ctx, flow, chosen)
    for row in rows:
        look(ctx, flow, ctx.book.tasks[row.id])
    ctx.agenda.add(settle, flow)
    return Done.CHANGED


def _obstacle(ctx: Context, flow: Task, chosen: set[TaskId]) -> str:
    """Return why nodes of a flow cannot be retried; empty if they can."""
    state = flow_state(flow)
    if flow.state is State.SUCCEEDED:
        return "its flow has succeeded, without it"
    if state.undone:
        return "nodes of its flow were compensated; submit the flow again"
    if state.ends is not None and flow.state not in ENDED:
        return "its flow is being stopped; retry when it has ended"
    gone = [each for each in chosen if each not in ctx.book.tasks]
    return f"node {id_text(gone[0])} was purged or forgotten" if gone else ""


def _cannot(task: Task, why: str) -> Refusal:
    return Refusal(Code.WRONG_STATE, f"cannot retry task {task.id.hex()}: {why}")


def _index(task: Task) -> int:
    return node_state(task).index


def _chosen(ctx: Context, flow: Task, task: Task) -> set[TaskId]:
    """Return the nodes that begin again: all that fell, or one with those that died of it.

    A flow that was stopped goes on as a whole: its nodes fell because of each other.
    """
    state, tasks = flow_state(flow), ctx.book.tasks
    if task is flow or state.ends is not None:
        return set(state.fallen_ids())
    chosen, family = {task.id}, [task]
    found = [tasks[each] for each in state.fallen_ids() if each in tasks]
    died = [each for each in found if _died_of_another(each)]
    for member in family:  # It grows on the way.
        group = settings_of(member).group
        for each in died:
            waits = member.id in each.options.depends_on or group in settings_of(each).groups
            if waits and each.id not in chosen:
                chosen.add(each.id)
                family.append(each)
    return chosen


def _died_of_another(task: Task) -> bool:
    return task.outcome is not None and task.outcome.reason is Reason.DEPENDENCY


def _row(
    ctx: Context, state: FlowState, task: Task, chosen: set[TaskId], terms: RetryTerms
) -> TaskRow | Refusal:
    """Return a node as it begins again: with what it has of those that are not retried."""
    row, tasks = revived_row(task, terms), ctx.book.tasks
    kept = [
        (place, each)
        for place, each in node_state(task).inputs
        if each.task not in chosen and not _is_under_way(tasks.get(each.task))
    ]
    have = {each.task for _, each in kept}
    waits: list[TaskId] = []
    for place, dependency in enumerate(task.options.depends_on):
        other = tasks.get(dependency)
        if dependency in chosen or _is_under_way(other):
            waits.append(dependency)
        elif other is not None and dependency not in have:
            kept.append((place, input_of(other)))  # It ended after this one.
    own = filled(NodeState(index=node_state(task).index), kept)
    row.flow, row.state, row.waiting_for = own, State.WAITING, tuple(sorted(waits))
    if not _has_what_ended(ctx, state, row, own, chosen):
        return _cannot(task, "results that it waits for came after it was killed, and are gone")
    return row


def _is_under_way(task: Task | None) -> bool:
    return task is not None and task.state not in ENDED


def _has_what_ended(
    ctx: Context, state: FlowState, row: TaskRow, own: NodeState, chosen: set[TaskId]
) -> bool:
    """Return whether a node has the results of all that has ended, as far as it needs them."""
    node = row.options.node
    if node is None or (node.need and own.succeeded >= node.need):
        return True
    named = sum(place < MEMBERS_FROM for place, _ in own.inputs)
    if named + len(row.waiting_for) < len(row.options.depends_on):
        return False
    if not node.groups:
        return True
    ended = sum(state.groups[name].succeeded + state.groups[name].failed for name in node.groups)
    again = sum(settings_of(ctx.book.tasks[each]).group in node.groups for each in chosen)
    return len(own.inputs) - named >= ended - again


def _revive_flow(ctx: Context, flow: Task, by: str, terms: RetryTerms) -> Task:
    row = revived_row(flow, terms)
    if isinstance(row.flow, FlowState):
        row.flow.ends = None
    row.state, row.guardian = State.WAITING, ctx.book.guardian(row.options.parent)
    ctx.record(TaskRevived(ctx.now_us, row, by))
    return ctx.book.tasks[flow.id]


def _withdraw(ctx: Context, flow: Task, chosen: set[TaskId]) -> None:
    """Take back what nodes that still wait were told of those that are retried."""
    for each in _nodes(ctx, flow):
        own = node_state(each)
        told = tuple(of.task for _, of in own.inputs if of.task in chosen)
        if told and not own.is_released and each.id not in chosen:
            ctx.record(InputsChanged(ctx.now_us, each.id, withdrawn=told))


def missing(ctx: Context, command: ActOnTasks) -> Missing:
    """Return the selected tasks that are not in memory, and what a retry needs of their flows."""
    needed = find_missing(ctx, command)
    if command.action is not Action.RETRY:
        return needed
    tasks = ctx.book.tasks
    for task_id in command.tasks or (ctx.book.recalled if command.filter is not None else ()):
        task = tasks.get(task_id)
        if task is None or task.flow is None or task.state not in ENDED:
            continue
        flow = tasks.get(task.options.parent) if isinstance(task.flow, NodeState) else task
        if flow is None:
            needed.ids.append(task.options.parent)
        elif isinstance(flow.flow, FlowState):
            _add_fallen(ctx, flow.flow, needed)
    return needed


def _add_fallen(ctx: Context, state: FlowState, needed: Missing) -> None:
    tasks = ctx.book.tasks
    for each in state.fallen_ids():
        task = tasks.get(each)
        if task is None:
            needed.ids.append(each)
            continue
        have = {of.task for _, of in node_state(task).inputs}
        links = task.options.depends_on
        needed.ids += [link for link in links if link not in have and link not in tasks]

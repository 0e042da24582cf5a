"""Submission of flows: all nodes at once, and more of them into groups that are open.

Owns that a flow is accepted as a whole or refused with everything that is wrong with it, and that
saying the same again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from itertools import groupby

import msgspec

from jackalope.core.commands.base import Limited
from jackalope.core.commands.flows import AddNodes, FlowNode, SubmitFlow
from jackalope.core.context import Context, Missing
from jackalope.core.contracts.fit import is_refused, misfits_of
from jackalope.core.effects import Accepted
from jackalope.core.flows.graph import edge_problems, node_problems, output_of, settings_problems
from jackalope.core.flows.progress import look, settle
from jackalope.core.ids import ID_BYTES, TaskId, id_text
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.limits import FLOW_COMPENSATIONS_MAX, FLOW_NODES_MAX
from jackalope.core.namespaces import not_kept, open_queues, room_for
from jackalope.core.records import SINCE, FlowStopped, GroupsClosed, InputsChanged, TaskSubmitted
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.flow import Arrival, FlowSettings, FlowState, node_id
from jackalope.core.state.flows import flow_state, input_of, settings_of
from jackalope.core.state.queue import Queue
from jackalope.core.task import (
    NO_OPTIONS,
    TRACE_HEADERS,
    BlobRef,
    Options,
    Task,
    TaskSpec,
    is_same_body,
    is_same_but_for_trace,
    size_of,
)
from jackalope.core.tasks.levels import too_old_for_options
from jackalope.core.tasks.submit import (
    begin,
    beginning,
    callbacks_wrong,
    check_alias,
    check_callbacks,
    open_callbacks,
    spec_problems,
)

#: How many problems one refusal lists.
_PROBLEMS_TOLD = 1_000

_encode = msgspec.msgpack.Encoder().encode


def missing_flow(ctx: Context, command: SubmitFlow) -> Missing:
    """Return the flow if it may have ended, and what it refers to. Its nodes are as new as it."""
    missing, task_id = Missing(command.namespace), command.flow.id
    if len(task_id) == ID_BYTES and task_id not in ctx.book.tasks:
        missing.ids += [task_id] if ctx.book.may_have_ended(task_id) else []
    for spec in (command.flow, *(each.spec for each in command.nodes)):
        if spec.options is not None and spec.options.alias:
            missing.aliases.append(spec.options.alias)
    parent = (command.flow.options or NO_OPTIONS).parent
    if parent and parent not in ctx.book.tasks:
        missing.ids.append(parent)
    return missing


def missing_nodes(ctx: Context, command: AddNodes) -> Missing:
    """Return the flow, its nodes that are named and the nodes that may have been added before."""
    tasks, missing = ctx.book.tasks, Missing(command.namespace)
    if len(command.flow) != ID_BYTES:
        return missing
    if command.flow not in tasks:
        missing.ids.append(command.flow)
    names = dict.fromkeys(name for each in command.nodes for name in (each.node.name, *each.after))
    for each in (node_id(command.flow, name) for name in names):
        if each not in tasks and ctx.book.may_have_ended(each):
            missing.ids.append(each)
    for node in command.nodes:
        if node.spec.options is not None and node.spec.options.alias:
            missing.aliases.append(node.spec.options.alias)
    return missing


def submit_flow(ctx: Context, command: SubmitFlow) -> Accepted | Refusal:
    """Accept a flow with all of its nodes, or refuse it with all that is wrong."""
    spec, nodes = command.flow, command.nodes
    refusal = _too_old(ctx) or _unsound(ctx, command)
    if refusal is None and spec.id in ctx.book.tasks:
        refusal = _repeat(ctx.book.tasks[spec.id], command)
        if refusal is None:
            _drop_blobs(ctx, nodes)
            return Accepted(len(nodes))
    refusal = refusal or _no_place(ctx, command, [spec, *_specs(nodes)], nodes)
    if refusal is not None:
        _drop_blobs(ctx, nodes)
        ctx.book.drop_blob(spec.payload)
        return refusal
    settings = msgspec.structs.replace(
        command.settings, output=output_of(command.settings, nodes), digest=_digest(command)
    )
    options = msgspec.structs.replace(spec.options or NO_OPTIONS, flow=settings)
    flow = msgspec.structs.replace(spec, options=options)
    queue = ctx.book.namespaces[command.namespace].queues[flow.queue]
    record = TaskSubmitted(
        ctx.now_us, command.namespace, flow, State.WAITING, command.by, 0, options.expires_at_us
    )
    begin(ctx, queue, [record])
    _begin_nodes(ctx, ctx.book.tasks[flow.id], nodes, command.by)
    return Accepted(len(nodes))


def add_nodes(ctx: Context, command: AddNodes) -> Accepted | Refusal:
    """Add nodes to open groups, and close groups; all of it, or refuse with all that is wrong."""
    flow = ctx.book.tasks.get(command.flow)
    if flow is None or not flow.queue.is_seen_by(command):
        _drop_blobs(ctx, command.nodes)
        message = f"no task {command.flow.hex()} in namespace {command.namespace!r}"
        return Refusal(Code.UNKNOWN_TASK, message)
    if not isinstance(flow.flow, FlowState):
        _drop_blobs(ctx, command.nodes)
        return Refusal(Code.INVALID, f"task {flow.id.hex()} is no flow; submit tasks one by one")
    known, new, problems = _tell_apart(ctx, flow, command.nodes)
    for each in known:
        ctx.book.drop_blob(each.spec.payload, unless=ctx.book.tasks[each.spec.id].payload)
    is_repeated = not new and not any(_is_open(flow.flow, name) for name in command.close)
    refusal = _unfit(problems) or _unfit(_close_problems(flow.flow, command.close))
    if refusal is None and is_repeated:
        return Accepted(len(command.nodes))
    refusal = refusal or _ended(flow) or _unsound_nodes(ctx, flow, new)
    refusal = refusal or _no_place(ctx, command, _specs(new), new)
    if refusal is not None:
        _drop_blobs(ctx, new)
        return refusal
    _begin_nodes(ctx, flow, new, command.by)
    close = tuple(name for name in dict.fromkeys(command.close) if _is_open(flow.flow, name))
    if close:
        ctx.record(GroupsClosed(ctx.now_us, flow.id, close, command.by))
        for name in close:
            for waiting in list(ctx.book.joiners.get((flow.id, name), ())):
                look(ctx, flow, ctx.book.tasks[waiting])
    ctx.agenda.add(settle, flow)
    return Accepted(len(command.nodes))


# Checks.


def _too_old(ctx: Context) -> Refusal | None:
    """Refuse what a member of the cluster could not read."""
    if ctx.level >= SINCE[FlowStopped]:
        return None
    message = f"flows need level {SINCE[FlowStopped]} of the log, which is at {ctx.level}"
    return Refusal(Code.INVALID, message + "; run `jackalope cluster upgrade`")


def _unfit(problems: list[str], what: str = "flow not accepted. ") -> Refusal | None:
    if not problems:
        return None
    told = problems[:_PROBLEMS_TOLD]
    if len(problems) > len(told):
        told.append(f"and {len(problems) - len(told)} more")
    return Refusal(Code.INVALID, what + "; ".join(told))


def _unsound(ctx: Context, command: SubmitFlow) -> Refusal | None:
    """Refuse a flow that cannot be one, whatever else there is."""
    spec, nodes, settings = command.flow, command.nodes, command.settings
    options = spec.options or NO_OPTIONS
    if len(spec.id) == ID_BYTES:
        _name(spec.id, nodes)
    problems = [f"flow: {problem}" for problem in spec_problems(spec)]
    problems += [
        f"flow: {field}: has no meaning for a flow, which no worker runs"
        for field in (
            "held",
            "depends_on",
            "run_at_us",
            "timeout_us",
            "retry",
            "same",
            "identity",
            "pace",
            "needs",
        )
        if getattr(options, field)
    ]
    groups = {group.name: group for group in settings.groups}
    problems += settings_problems(settings, nodes)
    problems += node_problems(nodes, groups)
    problems += edge_problems(nodes, groups)
    if problems:  # Otherwise they are looked at when it is known to be new.
        problems += [f"flow: {problem}" for problem in callbacks_wrong(ctx, command, spec)]
        problems += [
            f"node {each.node.name!r}: {problem}"
            for each in nodes
            for problem in callbacks_wrong(ctx, command, each.spec)
        ]
    return _unfit(problems)


def _name(flow: TaskId, nodes: list[FlowNode]) -> None:
    for each in nodes:
        each.spec.id = node_id(flow, each.node.name)


def _tell_apart(
    ctx: Context, flow: Task, nodes: list[FlowNode]
) -> tuple[list[FlowNode], list[FlowNode], list[str]]:
    """Return the nodes that were added before, those that are new, and what contradicts itself."""
    _name(flow.id, nodes)
    known, new, problems = [], [], []
    for each in nodes:
        task = ctx.book.tasks.get(each.spec.id)
        if task is None:
            new.append(each)
        elif _is_same_node(flow, task, each):
            known.append(each)
        else:
            new.append(each)
            problems.append(f"node {each.node.name!r}: exists with different content; rename it")
    return known, new, problems


def _is_same_node(flow: Task, task: Task, each: FlowNode) -> bool:
    spec, asked = each.spec, _options_of(flow, each)
    return (
        (task.queue.name, task.name, task.key) == (spec.queue, spec.name, spec.key)
        and task.priority + task.penalty == spec.priority
        and is_same_body(task.payload, spec.payload)
        and is_same_but_for_trace(task.options, asked)
    )


def _close_problems(state: FlowState, close: Iterable[str]) -> list[str]:
    return [f"close: there is no group {name!r}" for name in close if name not in state.groups]


def _is_open(state: FlowState, name: str) -> bool:
    return name in state.groups and state.groups[name].is_open


def _ended(flow: Task) -> Refusal | None:
    """Refuse to add to a flow that has ended, or is about to."""
    if flow.state in ENDED:
        message = f"flow {id_text(flow.id)} is {flow.state}; nothing can be added to it"
    elif flow_state(flow).ends is not None:
        message = f"flow {id_text(flow.id)} is being stopped; nothing can be added to it"
    else:
        return None
    return Refusal(Code.WRONG_STATE, message)


def _unsound_nodes(ctx: Context, flow: Task, nodes: list[FlowNode]) -> Refusal | None:
    """Refuse nodes that cannot be added to a flow."""
    state, settings = flow_state(flow), flow.options.flow or FlowSettings()
    problems = node_problems(nodes, {group.name: group for group in settings.groups})
    names = {each.node.name for each in nodes}
    for each in nodes:
        name, node = each.node.name, each.node
        if not _is_open(state, node.group):
            which = f"group {node.group!r} is closed" if node.group else "it is in no group"
            problems.append(f"node {name!r}: {which}; add nodes to an open group")
        if node.groups:
            problems.append(f"node {name!r}: groups: only nodes that come with the flow can wait")
        problems += [
            f"node {name!r}: after: there is no node {other!r}"
            for other in each.after
            if other not in names and node_id(flow.id, other) not in ctx.book.tasks
        ]
        if node.need > len(each.after) > 0:
            problems.append(f"node {name!r}: need: {node.need} of {len(each.after)}")
    if state.total + len(nodes) > FLOW_NODES_MAX:
        problems.append(f"nodes: a flow has at most {FLOW_NODES_MAX}")
    undoable = len(state.undo) + sum(each.node.compensation is not None for each in nodes)
    if undoable > FLOW_COMPENSATIONS_MAX:
        problems.append(f"compensations: a flow has at most {FLOW_COMPENSATIONS_MAX}")
    if not problems:
        closed = {
            each.name: msgspec.structs.replace(each, is_open=True) for each in settings.groups
        }
        inner = [_within(each, names) for each in nodes]
        problems = edge_problems(inner, closed) or _circles(ctx, flow, nodes)
    return _unfit(problems)


def _within(each: FlowNode, names: set[str]) -> FlowNode:
    """Return a node with only those edges that come from nodes of the same command."""
    after = tuple(name for name in each.after if name in names)
    node = msgspec.structs.replace(each.node, group="", need=0)
    return FlowNode(each.spec, node, after)


def _circles(ctx: Context, flow: Task, nodes: list[FlowNode]) -> list[str]:
    """List the added nodes that would wait for a node that waits for their own group."""
    members: dict[str, list[Task]] | None = None
    problems = []
    for each in nodes:
        for name in each.after:
            start = ctx.book.tasks.get(node_id(flow.id, name))
            if start is None or start.state in ENDED or not (start.waiting_for or _joins(start)):
                continue
            if members is None:
                members = _members(ctx, flow)
            if each.node.group in _groups_behind(ctx, start, members):
                group = each.node.group
                problems.append(
                    f"a cycle: {each.node.name} -> group {group} -> {name} -> {each.node.name}"
                )
    return problems


def _joins(task: Task) -> bool:
    return bool(settings_of(task).groups)


def _members(ctx: Context, flow: Task) -> dict[str, list[Task]]:
    members: dict[str, list[Task]] = {}
    for each in ctx.book.children.get(flow.id, ()):
        task = ctx.book.tasks[each]
        if task.options.node is not None:
            members.setdefault(task.options.node.group, []).append(task)
    return members


def _groups_behind(ctx: Context, start: Task, members: dict[str, list[Task]]) -> set[str]:
    """Return the groups that a node waits for, through whatever nodes and groups."""
    groups: set[str] = set()
    seen, ahead = {start.id}, [start]
    for task in ahead:  # It grows on the way.
        following = [ctx.book.tasks[each] for each in task.waiting_for or ()]
        for name in settings_of(task).groups:
            if name not in groups:
                groups.add(name)
                following += members.get(name, ())
        for each in following:
            if each.id not in seen:
                seen.add(each.id)
                ahead.append(each)
    return groups


def _no_place(
    ctx: Context, command: Limited, specs: list[TaskSpec], nodes: list[FlowNode]
) -> Refusal | None:
    """Refuse what there is no room for, and create the queues that do not exist if there is."""
    problems, aliases = [], set()
    for spec in specs:
        options = spec.options
        if refusal := check_callbacks(ctx, command, spec):
            problems.append(refusal.message)
        if options is not None and (refusal := too_old_for_options(ctx, options)):
            return refusal
        if options is not None and options.alias:
            taken = check_alias(ctx, command, options.alias)
            if options.alias in aliases:
                problems.append(f"alias {options.alias!r}: more than one task has it")
            elif taken is not None:
                return taken
            aliases.add(options.alias)
    problems += _misfits(ctx, command, nodes)
    undone = [each.node.compensation for each in nodes if each.node.compensation is not None]
    names = dict.fromkeys([*(spec.queue for spec in specs), *(each.queue for each in undone)])
    for name in names:
        queue = ctx.book.queue(command.namespace, name)
        if queue is not None and queue.traits is not None and queue.is_volatile():
            problems.append(not_kept(queue).message)
    refusal = _unfit(problems) or _no_parent(ctx, command, specs[0] if specs else None)
    return (
        refusal
        or _full(ctx, command, specs)
        or open_queues(ctx, command.namespace, tuple(names), command.by)
        or open_callbacks(ctx, command, specs)
    )


def _misfits(ctx: Context, command: Limited, nodes: list[FlowNode]) -> list[str]:
    """List the nodes that do not fit what their tasks take."""
    problems = []
    for each in nodes:
        queue = ctx.book.queue(command.namespace, each.spec.queue)
        if queue is not None and queue.contracts and is_refused(queue):
            misfits = misfits_of(queue, (each.spec,), are_nodes=True)
            problems += [f"node {each.node.name!r}: {problem}" for problem in misfits.values()]
    return problems


def _no_parent(ctx: Context, command: Limited, spec: TaskSpec | None) -> Refusal | None:
    if spec is None or spec.options is None or not spec.options.parent:
        return None
    parent = ctx.book.tasks.get(spec.options.parent)
    if parent is None or not parent.queue.is_seen_by(command):
        message = f"parent {spec.options.parent.hex()} is not a task of this namespace"
        return Refusal(Code.UNKNOWN_TASK, message)
    if parent.state in ENDED:
        message = f"parent {spec.options.parent.hex()} is {parent.state}; submit without a parent"
        return Refusal(Code.PARENT_ENDED, message)
    return None


def _full(ctx: Context, command: Limited, specs: list[TaskSpec]) -> Refusal | None:
    counts: dict[str, int] = {}
    for spec in specs:
        counts[spec.queue] = counts.get(spec.queue, 0) + 1
    for name, count in counts.items():
        queue = ctx.book.queue(command.namespace, name)
        limit = 0 if queue is None else queue.policy.depth_limit
        if queue is not None and limit and queue.depth + count > limit:
            return Refusal(
                Code.QUEUE_FULL,
                f"queue {name!r} holds {queue.depth} waiting tasks, and {count} more are over its "
                "depth limit; submit again later, or raise depth_limit",
                queue.retry_after_us(queue.depth + count - limit, ctx.now_us),
            )
    namespace = ctx.book.namespaces.get(command.namespace)
    if namespace is None or not namespace.has_quotas or not specs:
        return None
    known = (namespace.queues.get(name) for name in counts)
    queue = next(filter(None, known), None) or Queue(namespace, specs[0].queue, ctx.default_policy)
    sizes = [size_of(spec.payload) for spec in specs]
    return room_for(ctx, queue, sizes, is_whole=True)[1]


def _repeat(task: Task, command: SubmitFlow) -> Refusal | None:
    """Refuse to submit another flow with the id of one that exists; None if it is the same."""
    spec, settings = command.flow, task.options.flow
    if (
        settings is not None
        and settings.digest == _digest(command)
        and (task.queue.namespace.name, task.queue.name) == (command.namespace, spec.queue)
        and is_same_body(task.payload, spec.payload)
    ):
        return None
    message = f"task {spec.id.hex()} exists with different content; use a new id"
    return Refusal(Code.ID_CONFLICT, message)


def _digest(command: SubmitFlow) -> bytes:
    """Return the digest of all that was submitted, but for trace contexts and names of blobs."""
    digest = blake2b(digest_size=16)
    digest.update(_encode((_content(command.flow), command.settings)))
    for each in command.nodes:
        digest.update(_encode((_content(each.spec), each.node, each.after)))
    return digest.digest()


def _content(spec: TaskSpec) -> TaskSpec:
    payload, options = spec.payload, spec.options
    if isinstance(payload, BlobRef) and payload.digest:
        payload = BlobRef("", payload.size, payload.digest)
    if options is not None:
        headers = {name: it for name, it in options.headers.items() if name not in TRACE_HEADERS}
        options = msgspec.structs.replace(options, headers=headers)
    return msgspec.structs.replace(spec, payload=payload, options=options)


def _specs(nodes: list[FlowNode]) -> list[TaskSpec]:
    return [each.spec for each in nodes]


def _drop_blobs(ctx: Context, nodes: list[FlowNode]) -> None:
    for each in nodes:
        ctx.book.drop_blob(each.spec.payload)


# Beginning.


def _options_of(flow: Task, each: FlowNode) -> Options:
    return msgspec.structs.replace(
        each.spec.options or NO_OPTIONS,
        parent=flow.id,
        depends_on=tuple(node_id(flow.id, name) for name in each.after),
        node=each.node,
    )


def _begin_nodes(ctx: Context, flow: Task, nodes: list[FlowNode], by: str) -> None:
    """Let nodes begin: waiting, but for those that wait for nothing."""
    queues = ctx.book.namespaces[flow.queue.namespace.name].queues
    new = {each.spec.id for each in nodes}
    narrow = {group.name for group in (flow.options.flow or FlowSettings()).groups if group.width}
    for name, some in groupby(nodes, key=_queue_of):
        records = []
        for each in some:
            is_bound = each.after or each.node.groups or each.node.group in narrow
            state = State.WAITING if is_bound or flow.state is State.PAUSED else State.READY
            spec = msgspec.structs.replace(each.spec, options=_options_of(flow, each))
            records.append(_record(ctx, queues[name], spec, new, state))
            records[-1].by = by
        begin(ctx, queues[name], records)
    _give_inputs(ctx, nodes, new)
    for each in nodes:
        look(ctx, flow, ctx.book.tasks[each.spec.id])


def _queue_of(each: FlowNode) -> str:
    return each.spec.queue


def _record(
    ctx: Context, queue: Queue, spec: TaskSpec, new: set[TaskId], state: State
) -> TaskSubmitted:
    tasks, options = ctx.book.tasks, spec.options or NO_OPTIONS
    waiting_for = tuple(
        task_id
        for task_id in options.depends_on
        if task_id in new or tasks[task_id].state not in ENDED
    )
    state, expires_us = beginning(options, queue.policy, state, ctx.now_us)
    return TaskSubmitted(
        ctx.now_us, queue.namespace.name, spec, state, "", 0, expires_us, waiting_for
    )


def _give_inputs(ctx: Context, nodes: list[FlowNode], new: set[TaskId]) -> None:
    """Give nodes what those have left that ended before."""
    tasks = ctx.book.tasks
    for each in nodes:
        given: list[Arrival] = [
            (place, input_of(tasks[task_id]))
            for place, task_id in enumerate(tasks[each.spec.id].options.depends_on)
            if task_id not in new and tasks[task_id].state in ENDED
        ]
        if given:
            ctx.record(InputsChanged(ctx.now_us, each.spec.id, tuple(given)))

"""Views of flows: how far they have come, their groups, and their nodes with their attempts.

Owns the conversion of a flow and its nodes to what is shown of them. Changes nothing.
"""

from __future__ import annotations

from jackalope.core.lifecycle import ENDED, Event, State
from jackalope.core.shapes.flow import FlowSettings, FlowState, Input, NodeState
from jackalope.core.task import OnDependency, Task, TaskRow, last_start_us, last_worker, size_of
from jackalope.wire.views import AttemptView, ErrorView, FlowView, NodeGroupView, NodeView, view_as

#: How many attempts of a node are shown, the last ones.
ATTEMPTS_SHOWN_MAX = 20

#: What ends an attempt.
_ENDS = frozenset(
    map(str, (Event.FINISH, Event.FAIL, Event.RELEASE, Event.SUSPEND, Event.STOP, Event.LOSE))
)

_NO_STATE = FlowState()


def flow_view(flow: Task | TaskRow) -> FlowView:
    """Return the view of a flow, without its nodes."""
    options, outcome = flow.options, flow.outcome
    settings = options.flow or FlowSettings()
    state = flow.flow if isinstance(flow.flow, FlowState) else _NO_STATE
    return FlowView(
        id=flow.id,
        name=flow.name,
        state=flow.state,
        queue=flow.queue if isinstance(flow, TaskRow) else flow.queue.name,
        total=state.total,
        done=state.total - state.unfinished(),
        succeeded=state.succeeded,
        dead=state.dead,
        killed=state.killed,
        phase=_phase(flow.state, state),
        on_failure=settings.on_failure,
        output=settings.output,
        alias=options.alias,
        tags=options.tags,
        by=flow.by,
        created_us=flow.created_us,
        expires_us=flow.expires_us,
        ended_us=outcome.ended_us if outcome and flow.state in ENDED else 0,
        reason=outcome.reason if outcome else None,
        error=view_as(ErrorView, outcome.error) if outcome and outcome.error else None,
        groups=tuple(_group_view(settings, state)),
    )


def _phase(now: State, state: FlowState) -> str:
    if now in ENDED:
        return ""
    if state.undoing:
        return "compensating"
    return "stopping" if state.ends is not None else "running"


def _group_view(settings: FlowSettings, state: FlowState) -> list[NodeGroupView]:
    shown = []
    for group in settings.groups:
        so_far = state.groups.get(group.name)
        if so_far is None:
            shown.append(NodeGroupView(group.name, group.width, group.is_open))
            continue
        shown.append(
            NodeGroupView(
                group.name,
                group.width,
                so_far.is_open,
                so_far.total,
                so_far.succeeded + so_far.failed,
                so_far.succeeded,
            )
        )
    return shown


def node_view(row: TaskRow) -> NodeView:
    """Return the view of a node, or of a compensation."""
    options, outcome, attempt, node = row.options, row.outcome, row.attempt, row.options.node
    has_ended = row.state in ENDED
    return NodeView(
        id=row.id,
        node=node.name if node is not None else "",
        state=row.state,
        queue=row.queue,
        name=row.name,
        after=options.depends_on,
        group=node.group if node is not None else "",
        groups=node.groups if node is not None else (),
        need=node.need if node is not None else 0,
        collect=options.on_dependency is OnDependency.RUN,
        compensates=node.undoes if node is not None else "",
        worker=attempt.worker if attempt else last_worker(row),
        attempts=attempts_of(row),
        created_us=row.created_us,
        started_us=attempt.started_us if attempt else last_start_us(row) if has_ended else 0,
        ended_us=outcome.ended_us if outcome and has_ended else 0,
        result_size=size_of(outcome.result) if outcome else 0,
        reason=outcome.reason if outcome else None,
        error=view_as(ErrorView, outcome.error) if outcome and outcome.error else None,
        index=row.flow.index if isinstance(row.flow, NodeState) else 0,
    )


def node_views(rows: list[TaskRow]) -> tuple[NodeView, ...]:
    """Return the views of some nodes, in the order in which they were submitted."""
    return tuple(sorted(map(node_view, rows), key=lambda view: (view.created_us, view.index)))


def attempts_of(row: TaskRow) -> tuple[AttemptView, ...]:
    """Return the attempts of a task as its history has them, the oldest first."""
    found: list[AttemptView] = []
    worker, assigned_us, started_us = "", 0, 0
    for entry in row.history:
        if entry.what == Event.ASSIGN:
            worker, assigned_us, started_us = entry.by, entry.at_us, 0
        elif entry.what == Event.START:
            started_us = entry.at_us
        elif entry.what in _ENDS and assigned_us:
            found.append(AttemptView(worker, assigned_us, started_us, entry.at_us, entry.what))
            assigned_us = 0
    if assigned_us:
        found.append(AttemptView(worker, assigned_us, started_us))
    return tuple(found[-ATTEMPTS_SHOWN_MAX:])


def inputs_of(task: Task) -> tuple[Input, ...]:
    """Return what its predecessors left for a node; nothing for another task."""
    return task.flow.in_order() if isinstance(task.flow, NodeState) else ()

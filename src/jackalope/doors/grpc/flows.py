"""Flows over gRPC: graphs of tasks that are submitted at once, and how far they have come.

Owns how flows and their nodes stand in messages. What a flow may be is the core's matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from jackalope.broker import queries
from jackalope.broker.queries import About, Refused
from jackalope.core.commands.flows import AddNodes, FlowNode, SubmitFlow
from jackalope.core.ids import NO_TASK, TaskId, id_text
from jackalope.core.shapes.flow import (
    Compensation,
    FlowSettings,
    GroupSettings,
    NodeSettings,
    OnFailure,
    node_id,
)
from jackalope.core.task import BlobRef
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.submits import prepare
from jackalope.doors.grpc.task_messages import REASONS, STATES, error_shown, spec_of
from jackalope.doors.grpc.values import Words, from_struct, id_of, to_time
from jackalope.wire.views import AttemptView, FlowView, NodeGroupView, NodeView

_PAGE_DEFAULT = 100
_NODES_DEFAULT = 1_000

_ON_FAILURE = Words(pb.OnFailure, OnFailure)


class FlowService:
    """Flows."""

    async def submit_flow(self, call: Call, request: pb.SubmitFlowRequest) -> pb.SubmitFlowResponse:
        if not request.HasField("flow"):
            raise BadField("flow", "must be set")
        try:
            flow = spec_of(request.flow, lambda: call.door.ids.next(call.broker.now_us()))
        except BadField as bad:
            raise bad.below("flow") from None
        on_failure = _ON_FAILURE.word(request.on_failure, "on_failure") or OnFailure.CONTINUE
        groups = tuple(GroupSettings(each.name, each.width, each.open) for each in request.groups)
        settings = FlowSettings(on_failure, request.output, groups)
        nodes = await _nodes_of(call, request.nodes)
        await _submit(call, SubmitFlow(ref=0, flow=flow, settings=settings, nodes=nodes))
        return pb.SubmitFlowResponse(id=id_text(flow.id), node_ids=_ids(flow.id, nodes))

    async def add_nodes(self, call: Call, request: pb.AddNodesRequest) -> pb.AddNodesResponse:
        flow = id_of(request.flow_id, "flow_id")
        nodes = await _nodes_of(call, request.nodes)
        await _submit(call, AddNodes(ref=0, flow=flow, nodes=nodes, close=tuple(request.close)))
        return pb.AddNodesResponse(node_ids=_ids(flow, nodes))

    async def get_flow(self, call: Call, request: pb.GetFlowRequest) -> pb.GetFlowResponse:
        about = About(
            id=id_of(request.id, "id"),
            limit=request.page_size or _NODES_DEFAULT,
            cursor=request.page_token,
        )
        view = await queries.flow(call.broker, call.namespace, about)
        return pb.GetFlowResponse(flow=flow_shown(view), next_page_token=view.cursor)

    async def list_flows(self, call: Call, request: pb.ListFlowsRequest) -> pb.ListFlowsResponse:
        about = About(
            states=tuple(STATES.required(each, "states") for each in request.states),
            queue=request.queue,
            name=request.name,
            text=request.text,
            limit=request.page_size or _PAGE_DEFAULT,
            cursor=request.page_token,
        )
        page = await queries.flows(call.broker, call.namespace, about)
        return pb.ListFlowsResponse(
            flows=[flow_shown(view) for view in page.flows], next_page_token=page.cursor
        )


# In.


async def _nodes_of(call: Call, nodes: Sequence[pb.FlowNode]) -> list[FlowNode]:
    """Return nodes as the core takes them, their large payloads in the blob store."""
    for number, each in enumerate(nodes):
        if not each.HasField("task"):
            raise BadField(f"nodes[{number}].task", "must be set")
    specs = await prepare(call, [each.task for each in nodes], "nodes")
    found = []
    for number, (each, spec) in enumerate(zip(nodes, specs, strict=True)):
        spec.id = NO_TASK
        undo = each.compensation if each.HasField("compensation") else None
        node = NodeSettings(
            each.name,
            group=each.group,
            groups=tuple(each.groups),
            need=each.need,
            compensation=_compensation_of(undo, spec.queue, f"nodes[{number}]"),
        )
        found.append(FlowNode(spec, node, tuple(each.after)))
    return found


def _compensation_of(undo: pb.Compensation | None, queue: str, path: str) -> Compensation | None:
    if undo is None:
        return None
    headers = {}
    if undo.HasField("headers"):
        headers = from_struct(undo.headers, f"{path}.compensation.headers")
    return Compensation(undo.queue or queue, undo.name, undo.key, undo.payload, headers)


async def _submit(call: Call, command: SubmitFlow | AddNodes) -> None:
    """Ask for it, and let go of the blobs of what was refused."""
    try:
        await call.ask(command, len(command.nodes))
    except Refused:
        for node in command.nodes:
            if isinstance(node.spec.payload, BlobRef):
                call.broker.blobs.doubt(node.spec.payload)
        raise


# Out.


def _ids(flow: TaskId, nodes: list[FlowNode]) -> list[str]:
    return [id_text(node_id(flow, each.node.name)) for each in nodes]


def flow_shown(view: FlowView) -> pb.Flow:
    return pb.Flow(
        id=id_text(view.id),
        name=view.name,
        state=STATES.number(view.state),
        queue=view.queue,
        total=view.total,
        done=view.done,
        succeeded=view.succeeded,
        dead=view.dead,
        killed=view.killed,
        phase=view.phase,
        on_failure=_ON_FAILURE.number(view.on_failure),
        output=view.output,
        alias=view.alias,
        tags=view.tags,
        submitted_by=view.by,
        created_at=to_time(view.created_us),
        deadline_at=to_time(view.expires_us),
        ended_at=to_time(view.ended_us),
        reason=REASONS.number(view.reason),
        error=error_shown(view.error),
        groups=[_group_shown(each) for each in view.groups],
        nodes=[_node_shown(each) for each in view.nodes],
    )


def _group_shown(view: NodeGroupView) -> pb.FlowGroupStatus:
    return pb.FlowGroupStatus(
        name=view.name,
        width=view.width,
        open=view.is_open,
        total=view.total,
        done=view.done,
        succeeded=view.succeeded,
    )


def _node_shown(view: NodeView) -> pb.FlowNodeStatus:
    return pb.FlowNodeStatus(
        id=id_text(view.id),
        name=view.node,
        state=STATES.number(view.state),
        queue=view.queue,
        task_name=view.name,
        after=[id_text(each) for each in view.after],
        group=view.group,
        groups=view.groups,
        need=view.need,
        collect=view.collect,
        compensates=view.compensates,
        worker=view.worker,
        attempts=[_attempt_shown(each) for each in view.attempts],
        created_at=to_time(view.created_us),
        started_at=to_time(view.started_us),
        ended_at=to_time(view.ended_us),
        result_size=view.result_size,
        reason=REASONS.number(view.reason),
        error=error_shown(view.error),
        index=view.index,
    )


def _attempt_shown(view: AttemptView) -> pb.FlowAttempt:
    return pb.FlowAttempt(
        worker=view.worker,
        assigned_at=to_time(view.assigned_us),
        started_at=to_time(view.started_us),
        ended_at=to_time(view.ended_us),
        outcome=view.outcome,
    )

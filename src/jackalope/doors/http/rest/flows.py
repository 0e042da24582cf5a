"""Flows over REST: submit graphs of tasks, show them, and add nodes to their open groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from jackalope.broker import queries
from jackalope.broker.body_streams import store_payload
from jackalope.broker.queries import About, Refused
from jackalope.core.commands.flows import AddNodes, SubmitFlow
from jackalope.core.ids import TaskId, id_text
from jackalope.core.lifecycle import State
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.flow import node_id
from jackalope.core.task import BlobRef
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.request import (
    Request,
    answer,
    ask,
    door_of,
    read_body,
    read_query,
    task_id_of,
    view_of,
)
from jackalope.doors.http.rest.schemas import (
    Id,
    MaybeName,
    about,
    shape_of,
    show_error,
    with_sound_headers,
)
from jackalope.doors.http.router import Routes, Spec
from jackalope.errors import ConfigError
from jackalope.task_ids import fresh_task_id
from jackalope.tasks.flow_form import FlowForm, NodesForm
from jackalope.wire.views import AttemptView, FlowView, NodeGroupView, NodeView

routes = Routes("/api/v1", has_namespace=True)


class FlowSubmitted(msgspec.Struct):
    """A flow that was accepted, and the tasks that its nodes are."""

    id: Id
    nodes: dict[str, Id]


_show_attempt = shape_of(
    AttemptView, "AttemptShown", "An attempt at a node.", nullable=("outcome",)
)

_show_node = shape_of(
    NodeView,
    "NodeShown",
    "A node of a flow: `after` has the ids of the nodes that it waits for.",
    nullable=("worker", "group", "compensates"),
    inner={"attempts": _show_attempt, "error": show_error},
)

_show_group = shape_of(NodeGroupView, "NodeGroupShown", "A group of a flow.")

_show = shape_of(
    FlowView,
    "FlowShown",
    "A flow: how far it has come, its groups and a page of its nodes, which lists leave out.",
    nullable=("phase", "output", "alias", "cursor"),
    inner={"groups": _show_group, "nodes": _show_node, "error": show_error},
)

FlowShown: Any = _show.shown


class FlowList(msgspec.Struct):
    """Flows of a namespace, the newest first; `cursor` requests the next page."""

    flows: list[FlowShown]
    cursor: str | None


class FlowsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which flows."""

    state: Annotated[tuple[State, ...], about("In this state; may be repeated.")] = ()
    queue: Annotated[MaybeName, about("Listed under this queue.")] = ""
    name: Annotated[MaybeName, about("With this name.")] = ""
    text: Annotated[str, about("With this text in name or alias.", max_length=256)] = ""
    limit: Annotated[int, about("The maximum number of items.", ge=1, le=1_000)] = 100
    cursor: Annotated[str, about("The cursor of the previous page.", max_length=1_024)] = ""


class FlowQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which nodes of a flow."""

    limit: Annotated[int, about("The maximum number of nodes.", ge=1, le=1_000)] = 1_000
    cursor: Annotated[str, about("The cursor of the previous page.", max_length=1_024)] = ""


@routes.post(
    "/flows", "submit_tasks", Spec(FlowSubmitted, status=201, body=FlowForm, errors=(404, 409))
)
async def submit_flow(request: Request) -> Response:
    """Submit a flow. All of it is durable when the answer comes, or nothing of it is stored."""
    form = await read_body(request, FlowForm)
    now_us = door_of(request).broker.now_us()
    flow_id = task_id_of(form.id) if form.id else fresh_task_id(now_us)
    return await _submit(request, flow_id, lambda: form.command(flow_id, now_us))


@routes.get("/flows", "read_tasks", Spec(FlowList, query=FlowsQuery))
async def list_flows(request: Request) -> Response:
    """List the flows, the newest first."""
    query = read_query(request, FlowsQuery)
    asked = About(
        states=query.state,
        queue=query.queue,
        name=query.name,
        text=query.text,
        limit=query.limit,
        cursor=query.cursor,
    )
    page = await view_of(request, queries.flows, asked)
    return answer(FlowList([_show(view) for view in page.flows], page.cursor or None))


@routes.get("/flows/{flow_id}", "read_tasks", Spec(FlowShown, query=FlowQuery, errors=(404,)))
async def read_flow(request: Request, flow_id: str) -> Response:
    """Return a flow with its nodes, edges and groups: what a graph and a Gantt chart need."""
    query = read_query(request, FlowQuery)
    asked = About(id=task_id_of(flow_id), limit=query.limit, cursor=query.cursor)
    return answer(_show(await view_of(request, queries.flow, asked)))


@routes.post(
    "/flows/{flow_id}/nodes",
    "submit_tasks",
    Spec(FlowSubmitted, status=201, body=NodesForm, errors=(404, 409)),
)
async def add_nodes(request: Request, flow_id: str) -> Response:
    """Add nodes to open groups of a flow, all or none, and close groups. Safe to repeat."""
    form = await read_body(request, NodesForm)
    flow = task_id_of(flow_id)
    return await _submit(request, flow, lambda: form.command(flow))


async def _submit(
    request: Request, flow: TaskId, make: Callable[[], SubmitFlow | AddNodes]
) -> Response:
    """Submit nodes with their large payloads; let go of the blobs of what was refused."""
    door = door_of(request)
    try:
        command = make()
    except ConfigError as error:
        raise Rejected(400, str(error)) from None
    count = len(command.nodes)
    refusal = door.broker.admit(count)
    if refusal is not None:
        raise Refused(refusal)
    _check_sizes(command, door.settings.payload_bytes_max)
    specs = [node.spec for node in command.nodes]
    for spec in specs:
        spec.options = with_sound_headers(spec.options)
        await store_payload(door.broker.blobs, spec)
    try:
        await ask(request, command, count)
    except Refused:
        for spec in specs:
            if isinstance(spec.payload, BlobRef):
                door.broker.blobs.doubt(spec.payload)
        raise
    ids = {each.node.name: id_text(node_id(flow, each.node.name)) for each in command.nodes}
    return answer(FlowSubmitted(id_text(flow), ids), 201)


def _check_sizes(command: SubmitFlow | AddNodes, size_max: int) -> None:
    problems = [
        f"{node.node.name}: payload: {len(node.spec.payload)} bytes; at most {size_max}"
        for node in command.nodes
        if isinstance(node.spec.payload, bytes) and len(node.spec.payload) > size_max
    ]
    if problems:
        raise Refused(Refusal(Code.TOO_LARGE, "; ".join(problems)))

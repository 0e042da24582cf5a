"""Flows over gRPC: submitted, worked on, shown and added to."""

from typing import Any

import grpc
import pytest

from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from tests.doors.grpc.harness import PATIENCE_S, open_grpc
from tests.doors.harness import run

_UNKNOWN: Any = 99


def node(name: str, **fields: Any) -> pb.FlowNode:
    return pb.FlowNode(task=pb.TaskSpec(queue="q", name=name), name=name, **fields)


def flow(*nodes: pb.FlowNode, **fields: Any) -> pb.SubmitFlowRequest:
    return pb.SubmitFlowRequest(flow=pb.TaskSpec(queue="q", name="f"), nodes=nodes, **fields)


def test_a_flow_from_submit_to_end() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            client, large = house.client, b"x" * (INLINE_BYTES_MAX + 1)
            request = flow(
                node("first", group="g"),
                node("second", group="g"),
                node("join", groups=["g"], after=["first"]),
                groups=[pb.FlowGroup(name="g", width=1)],
                on_failure=pb.ON_FAILURE_FAIL_FAST,
            )
            made = await client.flows.SubmitFlow(request, timeout=PATIENCE_S)
            worker = client.worker()
            await worker.join(slots=1)
            for name, result in (("first", b"1"), ("second", large)):
                [given] = await worker.take()
                assert (given.name, list(given.inputs)) == (name, [])
                await worker.start(given)
                await worker.finish(given, result=result)
            [given] = await worker.take()
            assert [(each.node, each.group, each.result) for each in given.inputs] == [
                ("first", "", b"1"),  # By its own name, and as a member of the group.
                ("first", "g", b"1"),
                ("second", "g", b""),
            ]
            assert (given.inputs[2].is_large, given.inputs[2].result_size) == (True, len(large))
            download = pb.DownloadBlobRequest(
                task_id=given.task_id, fence=given.fence, session=worker.session, node="second"
            )
            parts = [part.data async for part in client.blobs.DownloadBlob(download)]
            assert b"".join(parts) == large
            shown = (await client.flows.GetFlow(pb.GetFlowRequest(id=made.id))).flow
            assert (shown.done, shown.total, shown.on_failure) == (2, 3, pb.ON_FAILURE_FAIL_FAST)
            assert [each.id for each in shown.nodes] == list(made.node_ids)
            assert shown.nodes[0].attempts[0].outcome == "finish"
            assert (shown.groups[0].done, shown.groups[0].width) == (2, 1)
            assert list(shown.nodes[2].after) == [made.node_ids[0]]
            await worker.start(given)
            await worker.finish(given, result=b"end")
            task = await client.get(made.id, include_result=True)
            assert (task.state, task.result) == (pb.TASK_STATE_SUCCEEDED, b"end")
            states = [pb.TASK_STATE_SUCCEEDED]
            listed = await client.flows.ListFlows(pb.ListFlowsRequest(states=states))
            assert [each.id for each in listed.flows] == [made.id]

    run(check())


def test_nodes_are_added_and_groups_closed() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            flows = house.client.flows
            groups = [pb.FlowGroup(name="g", open=True)]
            made = await flows.SubmitFlow(flow(node("join", groups=["g"]), groups=groups))
            more = pb.AddNodesRequest(flow_id=made.id, nodes=[node("a", group="g")], close=["g"])
            added = await flows.AddNodes(more)
            assert list((await flows.AddNodes(more)).node_ids) == list(added.node_ids)
            shown = (await flows.GetFlow(pb.GetFlowRequest(id=made.id))).flow
            assert (shown.total, shown.groups[0].open) == (2, False)

    run(check())


def test_a_compensation_is_taken() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            client = house.client
            await client.declare(retries=0)
            undo = pb.Compensation(name="undo", payload=b"u")
            request = flow(node("a", compensation=undo), node("b", after=["a"]))
            await client.flows.SubmitFlow(request)
            worker = client.worker()
            await worker.join(slots=1)
            [first] = await worker.take()
            await worker.start(first)
            await worker.finish(first, result=b"done")
            [second] = await worker.take()
            await worker.start(second)
            fail = pb.Fail(task_id=second.task_id, fence=second.fence, error=pb.TaskError(type="E"))
            await worker.ask(results=pb.ReportResults(failed=[fail]))
            [given] = await worker.take()
            assert (given.name, given.payload) == ("undo", b"u")
            assert [(each.node, each.result) for each in given.inputs] == [("a", b"done")]

    run(check())


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (pb.SubmitFlowRequest(), "flow"),
        (pb.SubmitFlowRequest(flow=pb.TaskSpec(queue="q"), nodes=[pb.FlowNode()]), "nodes[0].task"),
        (flow(node("a", after=["b"]), node("b", after=["a"])), "a -> b -> a"),
        (pb.SubmitFlowRequest(flow=pb.TaskSpec(queue="q"), on_failure=_UNKNOWN), "on_failure"),
    ],
)
def test_what_cannot_be_a_flow_is_refused(request_: pb.SubmitFlowRequest, text: str) -> None:
    async def check() -> None:
        async with open_grpc() as house:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await house.client.flows.SubmitFlow(request_)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert text in str(caught.value.details())

    run(check())

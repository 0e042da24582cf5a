"""A key of one namespace learns nothing of another: not a name, not an id, not a count.

The same walk over everything that can be read is made in two brokers: in one the tenant is alone,
in the other a second namespace has one of everything. All answers must be equal but for the times,
also those to questions about what only the second namespace has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.json_format import MessageToDict

from jackalope.broker.access import Access, hash_of, id_of, new_token
from jackalope.broker.config.listening import GrpcConfig
from jackalope.broker.queries import QUESTIONS
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands.flows import FlowNode, SubmitFlow
from jackalope.core.durations import HOUR
from jackalope.core.ids import TaskId
from jackalope.core.shapes.flow import FlowSettings, NodeSettings
from jackalope.core.task import Options, TaskSpec
from jackalope.doors.grpc.server import GrpcDoor
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.wire.messages import Manage, Nack, Query
from tests.doors.grpc.harness import PATIENCE_S, Client
from tests.doors.harness import House, Peer, open_house, run, spec

OWN, OTHER = "team", "zebra"
OWN_TASK, OTHER_TASK, OTHER_FLOW = (TaskId(bytes([0] * 15 + [each])) for each in (1, 2, 3))

#: The start of 2001 in microseconds: every greater number is a time.
TIMES = 978_307_200_000_000

#: What the queries are asked about: nothing, what is there for both, what the other has.
ASKED: list[dict[str, Any]] = [
    {},
    {"id": OWN_TASK, "queue": "q"},
    {"id": OTHER_TASK, "queue": "zebra-queue", "bodies": True},
    {"id": OTHER_FLOW, "parent": OTHER_FLOW},
    {"alias": "zebra-alias"},
    {"name": "zebra"},
    {"name": "zebra-schedule", "text": "zebra", "total": True},
    {"total": True},
]

#: The reads of gRPC, and what they are asked.
_IDS = [{"id": each.hex()} for each in (OWN_TASK, OTHER_TASK, OTHER_FLOW)]
_QUEUES = [{"queue": "q"}, {"queue": "zebra-queue"}]
CALLS: dict[str, list[dict[str, Any]]] = {
    "GetTask": [*_IDS, {"alias": "zebra-alias"}],
    "ListTasks": [{}, {"include_total": True}],
    "WaitTask": _IDS[1:],
    "ExplainTask": _IDS,
    "GetTaskHistory": _IDS,
    "ReadLogs": _IDS,
    "ListWorkers": [{}],
    "ListQueues": [{}],
    "GetQueue": _QUEUES,
    "ListLimits": [{}],
    "ListKeyLimits": [{}],
    "ListContracts": [{}, {"queue": "zebra-queue"}],
    "ListSchedules": [{}, {"text": "zebra"}],
    "GetSchedule": [{"name": "zebra-schedule"}],
    "GetFlow": _IDS,
    "ListFlows": [{}, {"text": "zebra"}],
    "ListBatches": _QUEUES,
    "GetBatch": [{**each, "number": 1} for each in _QUEUES],
    "DownloadBlob": [{"task_id": each["id"], "kind": 1} for each in _IDS],
    "ListApiKeys": [{}],
    "ListNamespaces": [{}],
    "GetNamespace": [{"name": OWN}, {"name": OTHER}],
}

Answers = dict[str, Any]


def _key(name: str, namespace: str = "") -> tuple[str, ApiKey]:
    token = new_token()
    permissions = (Permission.ADMIN,)
    return token, ApiKey(id_of(token), hash_of(token), name, permissions, namespace=namespace)


ROOT_TOKEN, ROOT = _key("zebra-root")
OWN_TOKEN, OWN_KEY = _key("ada", OWN)
_, OTHER_KEY = _key("zebra-key", OTHER)


async def _fill(house: House) -> None:
    """Give the other namespace one of everything."""
    peer = await house.peer("zebra-client", OTHER, ROOT_TOKEN)
    stored = {**msgspec.to_builtins(OTHER_KEY), "id": "abcdef"}
    acts: list[tuple[str, dict[str, Any]]] = [
        ("declare_namespace", {"name": OTHER, "changes": {"tasks_queued": 77}}),
        ("declare_queue", {"queue": "zebra-queue", "changes": {"batch_size": 2}}),
        (
            "declare_schedule",
            {"name": "zebra-schedule", "changes": {"queue": "zebra-queue", "every_us": HOUR}},
        ),
        ("limit_tag", {"tag": "zebra-tag", "limit": 3}),
        ("declare_limits", {"limits": {"zebra-limit": {"concurrency": 1}}}),
        ("create_api_key", {"key": stored}),
    ]
    for what, about in acts:
        await peer.ask_ok(Manage(0, what, about))
    task = spec(
        "zebra-queue",
        b"zebra",
        id=OTHER_TASK,
        name="zebra-name",
        options=Options(alias="zebra-alias"),
    )
    await peer.submit(task)
    nodes = [FlowNode(TaskSpec(OTHER_FLOW, "zebra-queue"), NodeSettings("zebra-node"))]
    flow = TaskSpec(OTHER_FLOW, "zebra-queue", name="zebra-flow")
    await peer.ask_ok(SubmitFlow(0, flow, FlowSettings(), nodes))
    worker = await house.peer("zebra-worker", OTHER, ROOT_TOKEN)
    await worker.join("zebra-worker", ("zebra-queue",))
    contracts = {"contracts": {"zebra-name": {}}, "queues": ["zebra-queue"]}
    await worker.ask_ok(Manage(0, "declare_contracts", contracts))


@asynccontextmanager
async def _broker(*, is_shared: bool) -> AsyncIterator[tuple[House, Peer]]:
    async with open_house(None, access=Access([ROOT, OWN_KEY, OTHER_KEY])) as house:
        if is_shared:
            await _fill(house)
        peer = await house.peer("tester", OWN, OWN_TOKEN)
        await peer.ask_ok(Manage(0, "declare_queue", {"queue": "q"}))
        await peer.submit(spec(id=OWN_TASK))
        yield house, peer


def _bare(found: Any) -> Any:
    """Return an answer without times."""
    if isinstance(found, dict):
        return {key: _bare(value) for key, value in found.items() if key != "points"}
    if isinstance(found, list | tuple):
        return [_bare(each) for each in found]
    if isinstance(found, int | float) and found > TIMES:
        return "time"
    if isinstance(found, str) and (found[:3] == "202" or (found.isdigit() and int(found) > TIMES)):
        return "time"
    return found


async def _walk_native(_: House, peer: Peer) -> Answers:
    answers: Answers = {}
    for name in QUESTIONS:
        for about in ASKED:
            found = await peer.ask(Query(0, name, about))
            told = (found.code, found.message) if isinstance(found, Nack) else found.body
            answers[f"{name} {about}"] = _bare(told)
    return answers


async def _walk_grpc(house: House, _: Peer) -> Answers:
    answers: Answers = {}
    door = GrpcDoor(house.broker, GrpcConfig(port=0), None)
    await door.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{door.port}") as channel:
            client = Client(channel, OWN_TOKEN, OWN)
            stubs = [each for each in vars(client).values() if hasattr(each, "__dict__")]
            for name, requests in CALLS.items():
                call = next(getattr(each, name) for each in stubs if hasattr(each, name))
                for fields in requests:
                    request = getattr(pb, f"{name}Request")(**fields)
                    answers[f"{name} {fields}"] = _bare(await _told(call, request, client))
    finally:
        await door.stop()
    return answers


async def _told(call: Any, request: Any, client: Client) -> Any:
    try:
        going = call(request, metadata=client.metadata, timeout=PATIENCE_S)
        if hasattr(going, "__aiter__"):
            return [MessageToDict(each) async for each in going]
        return MessageToDict(await going)
    except grpc.aio.AioRpcError as error:
        return [str(error.code()), error.details()]


def test_the_walk_has_every_read_of_grpc() -> None:
    prefixes = ("Get", "List", "Explain", "Read", "Wait", "Download")
    services = pb.DESCRIPTOR.services_by_name.values()
    names = {method.name for service in services for method in service.methods}
    assert {name for name in names if name.startswith(prefixes)} - {"Listen"} == set(CALLS)


@pytest.mark.parametrize("walk", [_walk_native, _walk_grpc])
def test_answers_are_the_same_whether_there_is_another_namespace(walk: Any) -> None:
    async def answers(*, is_shared: bool) -> Answers:
        async with _broker(is_shared=is_shared) as (house, peer):
            found: Answers = await walk(house, peer)
            return found

    alone, shared = run(answers(is_shared=False)), run(answers(is_shared=True))
    leaks = {each: (alone[each], shared[each]) for each in alone if alone[each] != shared[each]}
    assert leaks == {}
    assert any("q" in str(told) for told in alone.values())

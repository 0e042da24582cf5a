"""A key of one namespace learns nothing of another: not a name, not an id, not a count.

The same walk over everything that can be read is made in two brokers (`tenants`): in one the tenant
is alone, in the other a second namespace has one of everything. All answers must be equal but for
the times, byte for byte, also those to questions about what only the second namespace has.

The routes of HTTP and of RabbitMQ's management API are walked as the doors have them, so that a new
one is walked without being listed here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import product
from typing import Any
from urllib.parse import quote

import grpc
import httpx
import pytest
import websockets
from google.protobuf.json_format import MessageToDict
from pika.exceptions import AMQPError

from jackalope.broker.queries import QUESTIONS
from jackalope.core.ids import TaskId, id_text
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.http import dashboard
from jackalope.doors.http.app import GRIDLIKE, ROUTES
from jackalope.doors.http.management.server import ROUTES as MANAGEMENT
from jackalope.doors.http.router import Route
from jackalope.wire.messages import Events, Manage, Nack, Query, Subscribe
from tests.doors.grpc.harness import PATIENCE_S, Client
from tests.doors.harness import run, spec
from tests.doors.tenants import (
    NO_TASK,
    NOBODY,
    OTHER,
    OTHER_ENDED,
    OTHER_FLOW,
    OTHER_TASK,
    OWN,
    OWN_TASK,
    OWN_TOKEN,
    Answers,
    Shared,
    amqp_connection,
    bare,
    broker,
    leaks,
)

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
_IDS = [{"id": each.hex()} for each in (OWN_TASK, OTHER_TASK, OTHER_FLOW, OTHER_ENDED)]
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

#: What stands for each part of a path: the tenant's own, and what the other has of it.
_TASKS = [id_text(each) for each in (OWN_TASK, OTHER_TASK, OTHER_FLOW, OTHER_ENDED, NO_TASK)]
PARTS: dict[str, list[str]] = {
    "task_id": _TASKS,
    "flow_id": _TASKS,
    "key": ["zebra-key", *_TASKS],
    "identity": ["0" * 64],
    "number": ["1", "2"],
    "vhost": [OWN, OTHER, NOBODY, "/"],
    "kind": ["q", "e"],
    "end": ["source", "destination"],
    "action": ["kill"],
}
NAMES = ["q", "zebra", "zebra-queue", "zebra-messages", "zebra-exchange", "zebra-worker"]
NAMES += ["zebra-schedule", "zebra-limit", "zebra-name", "zebra-tag", OWN, NOBODY]

#: Parameters of queries that name something, or ask for a count.
QUERIES = ["", "?queue=zebra-queue", "?text=zebra", "?total=true", "?parent=" + _TASKS[1]]
QUERIES += ["?page=1", "?name=zebra"]


async def _walk_native(shared: Shared) -> Answers:
    answers: Answers = {}
    for name in QUESTIONS:
        for about in ASKED:
            found = await shared.peer.ask(Query(0, name, about))
            told = (found.code, found.message) if isinstance(found, Nack) else found.body
            answers[f"{name} {about}"] = bare(told)
    return answers


# gRPC.


async def _walk_grpc(shared: Shared) -> Answers:
    answers: Answers = {}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{shared.grpc.port}") as channel:
        client = Client(channel, OWN_TOKEN, OWN)
        stubs = [each for each in vars(client).values() if hasattr(each, "__dict__")]
        for name, requests in CALLS.items():
            call = next(getattr(each, name) for each in stubs if hasattr(each, name))
            for fields in requests:
                request = getattr(pb, f"{name}Request")(**fields)
                answers[f"{name} {fields}"] = bare(await _told(call, request, client))
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


# HTTP.


def _paths(routes: list[Route]) -> Iterator[str]:
    """Fill in the paths of all routes that answer GET."""
    for route in routes:
        if route.method == "GET" and not (route.spec and "event-stream" in route.spec.media_type):
            is_short = len(route.parameters()) < 3
            names = NAMES if is_short else ["q", "zebra-messages", "zebra-exchange"]
            values = [PARTS.get(name, names) for name in route.parameters()]
            for chosen in product(*values):
                filled = [quote(each, safe="") for each in chosen]
                path = route.path
                for name, value in zip(route.parameters(), filled, strict=True):
                    path = path.replace(f"{{{name}}}", value)
                yield path


async def _get(client: httpx.AsyncClient, url: str, **headers: str) -> Any:
    answer = await client.get(url, headers=headers)
    shown = {name: told for name, told in answer.headers.items() if name not in _NOT_COMPARED}
    body = answer.text
    if answer.headers.get("content-type", "").startswith("application/json"):
        body = json.loads(body)
    return bare([answer.status_code, shown, body])


_NOT_COMPARED = {"date", "content-length", "set-cookie"}


async def _walk_http(shared: Shared) -> Answers:
    answers: Answers = {}
    headers = {"Authorization": f"Bearer {OWN_TOKEN}"}
    url = f"http://127.0.0.1:{shared.http.port}"
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
        for path in _paths(ROUTES + GRIDLIKE):
            for query, there in product(QUERIES if "zebra" not in path else [""], (OWN, OTHER)):
                asked = {"X-Jackalope-Namespace": there}
                answers[f"{there} {path}{query}"] = await _get(client, path + query, **asked)
    return answers


async def _walk_management(shared: Shared) -> Answers:
    answers: Answers = {}
    url = f"http://127.0.0.1:{shared.management.port}"
    auth = ("tester", OWN_TOKEN)
    async with httpx.AsyncClient(base_url=url, auth=auth, timeout=PATIENCE_S) as client:
        for path in _paths(MANAGEMENT):
            for query in QUERIES if "{" not in path and "zebra" not in path else [""]:
                answers[path + query] = await _get(client, path + query)
    return answers


# AMQP.


def _amqp_acts(channel: Callable[[], Any]) -> Iterator[tuple[str, Callable[..., Any], Any]]:
    for name in ("q", "zebra-queue", "zebra-messages", NOBODY):
        yield f"declare {name}", lambda n: channel().queue_declare(n, passive=True), name
        yield f"get {name}", lambda n: channel().basic_get(n), name
        yield f"purge {name}", lambda n: channel().queue_purge(n), name
        yield f"bind {name}", lambda n: channel().queue_bind(n, "amq.direct", "key"), name
        yield f"publish {name}", lambda n: _publish(channel(), "", n), name
    for name in ("zebra-exchange", NOBODY):
        yield f"exchange {name}", lambda n: channel().exchange_declare(n, passive=True), name
        yield f"publish to {name}", lambda n: _publish(channel(), n, "zebra-key"), name
        yield f"bind to {name}", lambda n: channel().queue_bind("q", n, "key"), name


def _publish(channel: Any, exchange: str, key: str) -> Any:
    channel.confirm_delivery()
    return channel.basic_publish(exchange, key, b"hello", mandatory=True)


def _over_amqp(port: int) -> Answers:
    answers: Answers = {}
    for vhost in (OTHER, NOBODY, "/"):
        answers[f"open {vhost}"] = _raised(amqp_connection, port, OWN_TOKEN, vhost)
    connection = amqp_connection(port, OWN_TOKEN, OWN)
    for what, act, name in _amqp_acts(connection.channel):
        answers[what] = _raised(act, name)
    return answers


def _raised(act: Callable[..., Any], *about: Any) -> str:
    try:
        return str(act(*about))
    except AMQPError as error:
        return repr(error)


async def _walk_amqp(shared: Shared) -> Answers:
    return await asyncio.to_thread(_over_amqp, shared.amqp.port)


# Streams: what is heard while something happens elsewhere, until something happens here.


async def _until(own: str, read: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Return what is read, without times, up to what is about the tenant's own task."""
    heard: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while not heard or own not in str(heard[-1]):
            heard.append(bare(await read()))
    return heard


async def _submit_own(shared: Shared, number: int) -> str:
    own = TaskId(bytes([0xAB] * 15 + [number]))
    await shared.stir()
    await shared.peer.submit(spec(id=own))
    return id_text(own)


async def _walk_sockets(shared: Shared) -> Answers:
    answers: Answers = {}
    headers = {"Authorization": f"Bearer {OWN_TOKEN}"}
    paths = ["/api/v1/events", "/ws/updates"]
    paths += [f"/api/v1/events?task={each}" for each in _TASKS]
    paths += ["/api/v1/events?queue=zebra-queue", f"/api/v1/events?namespace={OTHER}"]
    for number, path in enumerate(paths):
        url = f"ws://127.0.0.1:{shared.http.port}{path}"
        url += "" if "?namespace" in url else f"{'&' if '?' in url else '?'}namespace={OWN}"
        try:
            async with websockets.connect(url, additional_headers=headers) as socket:
                word = "task_id" if "updates" in path else "task"
                for about in ({word: _TASKS[1]}, {word: _TASKS[2]}, {"queue": "q"}):
                    await socket.send(json.dumps({"action": "subscribe", **about}))
                subscribed = await _until('"queue":"q"', socket.recv)
                own = await _submit_own(shared, number)
                answers[path] = [subscribed, await _until(own, socket.recv)]
        except websockets.InvalidStatus as refused:
            answers[path] = bare([refused.response.status_code, str(refused.response.body)])
    return answers


async def _walk_pulse(shared: Shared) -> Answers:
    """Read the pulse until it is quiet after something happened elsewhere, then until it is not."""
    url = f"ws://127.0.0.1:{shared.http.port}/api/v1/pulse?namespace={OWN}"
    headers = {"Authorization": f"Bearer {OWN_TOKEN}"}
    async with websockets.connect(url, additional_headers=headers) as socket:
        first = await _until("pulse", socket.recv)
        await shared.stir()
        quiet = await _until("quiet", socket.recv)
        again = await _until("quiet", socket.recv)
        before = shared.broker.engine.sequence
        await shared.peer.ask_ok(Manage(0, "limit_tag", {"tag": "own", "limit": 3}))
        assert shared.broker.engine.sequence > before
        await _until("pulse", socket.recv)  # An act in the namespace is something new.
        await _submit_own(shared, 1)
        told = await _until("'depth': 2", lambda: _decoded(socket))
    types = [each["type"] for each in told]
    return {"first": len(first), "quiet": quiet, "again": again, "q": sorted(set(types))}


async def _decoded(socket: Any) -> Any:
    return json.loads(await socket.recv())


async def _walk_lines(shared: Shared) -> Answers:
    """Read server-sent events, and the lines of a log as they come."""
    answers: Answers = {}
    headers = {"Authorization": f"Bearer {OWN_TOKEN}", "X-Jackalope-Namespace": OWN}
    url = f"http://127.0.0.1:{shared.http.port}"
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
        for number, query in enumerate(("", "?queue=q")):
            async with client.stream("GET", f"/api/v1/events{query}") as answer:
                lines = answer.aiter_lines()
                first = [await anext(lines), await anext(lines)]
                own = await _submit_own(shared, number)
                answers[query] = [first, await _until(own, lines.__anext__)]
        there = {"X-Jackalope-Namespace": OTHER}
        answers["other"] = await _get(client, "/api/v1/events", **there)
        for task in _TASKS[1:]:
            answers[task] = await _get(client, f"/api/v1/tasks/{task}/logs?follow=true")
    return answers


async def _walk_grpc_streams(shared: Shared) -> Answers:
    answers: Answers = {}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{shared.grpc.port}") as channel:
        client = Client(channel, OWN_TOKEN, OWN)
        for number, fields in enumerate(({}, {"queue": "q"})):
            watched = client.tasks.WatchEvents(
                pb.WatchEventsRequest(**fields), metadata=client.metadata, timeout=PATIENCE_S
            )
            await watched.read()
            own = await _submit_own(shared, number)
            answers[f"events {fields}"] = await _until(own, partial(_read, watched))
            watched.cancel()
        for each in (OTHER_TASK, OTHER_ENDED, NO_TASK):
            request = pb.WatchTasksRequest(ids=[each.hex()])
            told = await _told(client.tasks.WatchTasks, request, client)
            answers[f"watch {each.hex()}"] = bare(told)
    return answers


async def _read(call: Any) -> Any:
    return MessageToDict(await call.read())


async def _walk_native_streams(shared: Shared) -> Answers:
    await shared.peer.ask_ok(Subscribe(0))
    own = await _submit_own(shared, 1)
    return {"events": await _until(own.replace("-", ""), lambda: _next_event(shared))}


async def _next_event(shared: Shared) -> Any:
    told = await shared.peer.expect(Events)
    return [(each.what, each.task.hex(), each.queue) for each in told.events]


@pytest.fixture(autouse=True)
def _quick_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "BEAT_S", 0.02)


@pytest.mark.parametrize(
    "walk", [_walk_sockets, _walk_pulse, _walk_lines, _walk_grpc_streams, _walk_native_streams]
)
def test_streams_are_quiet_while_another_namespace_works(
    walk: Callable[[Shared], Awaitable[Answers]],
) -> None:
    assert leaks(walk) == {}


@pytest.mark.parametrize(
    "walk", [_walk_native, _walk_grpc, _walk_http, _walk_management, _walk_amqp]
)
def test_answers_are_the_same_whether_there_is_another_namespace(
    walk: Callable[[Shared], Awaitable[Answers]],
) -> None:
    assert leaks(walk) == {}


def test_charts_have_the_rates_of_one_namespace_alone() -> None:
    async def charted(*, is_shared: bool) -> list[Any]:
        async with broker(is_shared=is_shared) as shared:
            await shared.stir()
            series = shared.broker.series
            points = series.close(shared.broker.now_us(), shared.broker.engine.core)
            series.write(points)
            found = await shared.peer.ask_ok(Query(0, "series", {}))
            told = found["points"]
            assert [each["submitted"] for each in told] == [1]
            return [{**each, "at_us": 0} for each in told]

    assert run(charted(is_shared=True)) == run(charted(is_shared=False))

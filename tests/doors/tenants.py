"""Two brokers to compare: one in which a tenant is alone, and one that it shares with another.

In the second, a namespace that the tenant must not know of has one of everything. Whatever the
tenant asks, both must answer the same but for the times.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pika
from pika.exceptions import AMQPError

from jackalope.broker.access import Access, hash_of, id_of, new_token
from jackalope.broker.cluster.overview import ClusterView, Seen, overview
from jackalope.broker.config.listening import GrpcConfig
from jackalope.broker.config.schema import AmqpConfig, GridlikeConfig, HttpConfig
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands.flows import FlowNode, SubmitFlow
from jackalope.core.durations import HOUR
from jackalope.core.ids import TaskId
from jackalope.core.shapes.flow import FlowSettings, NodeSettings
from jackalope.core.task import Options, TaskSpec
from jackalope.doors.amqp import AmqpDoor
from jackalope.doors.amqp.server import ConnectionRegistry
from jackalope.doors.grpc.server import GrpcDoor
from jackalope.doors.http.app import HttpDoor
from jackalope.doors.http.management.server import ManagementDoor
from jackalope.wire.messages import Manage
from jackalope.wire.peer import LogHealth, NodeStatus
from tests.doors.harness import House, Peer, open_house, run, spec

OWN, OTHER, NOBODY = "team", "zebra", "nobody"
OWN_TASK, OTHER_TASK, OTHER_FLOW, NO_TASK, OTHER_ENDED = (
    TaskId(bytes([0] * 15 + [each])) for each in (1, 2, 3, 4, 5)
)

#: The start of 2001 in microseconds: every greater number is a time.
TIMES = 978_307_200_000_000

#: What answers have of times, and of the address that a request was sent to.
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)?|127\.0\.0\.1:\d+")

Answers = dict[str, Any]


def _key(name: str, namespace: str = "") -> tuple[str, ApiKey]:
    token = new_token()
    permissions = (Permission.ADMIN,)
    return token, ApiKey(id_of(token), hash_of(token), name, permissions, namespace=namespace)


ROOT_TOKEN, ROOT = _key("zebra-root")
OWN_TOKEN, OWN_KEY = _key("ada", OWN)
_, OTHER_KEY = _key("zebra-key", OTHER)


class Shared:
    """A broker with all of its doors open, and the tenant's end of a native connection."""

    def __init__(self, house: House, peer: Peer, *, is_shared: bool) -> None:
        self.house, self.broker, self.peer = house, house.broker, peer
        self.is_shared = is_shared
        self.broker.overview = self._overview
        http = HttpConfig(port=0, rate_per_s=0)
        self.http = HttpDoor(house.broker, http, gridlike=GridlikeConfig(enabled=True))
        self.grpc = GrpcDoor(house.broker, GrpcConfig(port=0), None)
        self.amqp = AmqpDoor(house.broker, AmqpConfig(port=0))
        self.management = ManagementDoor(
            house.broker, ConnectionRegistry(self.amqp), http, amqp_port=0
        )

    def _overview(self) -> tuple[str, ClusterView]:
        """Show a cluster of one node, which has so much in its log as the broker has."""
        applied = self.broker.engine.sequence
        log = LogHealth("log", applied, "n", ())
        status = NodeStatus(
            "n", "c", "1", 1, 1, "leading", 1, "n", applied, 0, 0, 0, 0, 0, 0, log=log
        )
        return "n", overview("c", {"n": Seen(status, heard_us=0)})

    async def stir(self) -> None:
        """Let something happen in the other namespace, if there is one."""
        if self.is_shared:
            peer = await self.house.peer("zebra-stirs", OTHER, ROOT_TOKEN)
            await peer.ask_ok(Manage(0, "declare_queue", {"queue": new_token()[:9]}))
            await peer.submit(spec("zebra-done"), spec("zebra-queue"))
            worker = await self.house.peer("zebra-stirs", OTHER, ROOT_TOKEN)
            await worker.join("zebra-stirs", ("zebra-done",))

    @property
    def doors(self) -> tuple[Any, ...]:
        return self.http, self.grpc, self.amqp, self.management


async def _fill(shared: Shared) -> None:
    """Give the other namespace one of everything."""
    house = shared.house
    peer = await house.peer("zebra-client", OTHER, ROOT_TOKEN)
    stored = {**msgspec.to_builtins(OTHER_KEY), "id": "abcdef"}
    acts: list[tuple[str, dict[str, Any]]] = [
        ("declare_namespace", {"name": OTHER, "changes": {"tasks_queued": 77}}),
        ("declare_queue", {"queue": "zebra-queue", "changes": {"batch_size": 2}}),
        ("declare_queue", {"queue": "zebra-done"}),
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
    options = Options(alias="zebra-alias")
    await peer.submit(
        spec("zebra-queue", b"zebra", id=OTHER_TASK, name="zebra-name", options=options)
    )
    nodes = [FlowNode(TaskSpec(OTHER_FLOW, "zebra-queue"), NodeSettings("zebra-node"))]
    flow = TaskSpec(OTHER_FLOW, "zebra-queue", name="zebra-flow")
    await peer.ask_ok(SubmitFlow(0, flow, FlowSettings(), nodes))
    worker = await house.peer("zebra-worker", OTHER, ROOT_TOKEN)
    await worker.join("zebra-worker", ("zebra-done",))
    contracts = {"contracts": {"zebra-name": {}}, "queues": ["zebra-queue"]}
    await worker.ask_ok(Manage(0, "declare_contracts", contracts))
    await peer.submit(spec("zebra-done", id=OTHER_ENDED))
    await worker.finish(*await worker.take(), result=b"zebra-result")
    await asyncio.to_thread(_fill_over_amqp, shared.amqp.port)


def _fill_over_amqp(port: int) -> None:
    """Leave what RabbitMQ's clients make, and a connection that stays."""
    channel = amqp_connection(port, ROOT_TOKEN, OTHER).channel()
    channel.exchange_declare("zebra-exchange", "topic", durable=True)
    channel.queue_declare("zebra-messages", durable=True)
    channel.queue_bind("zebra-messages", "zebra-exchange", "#")
    channel.basic_publish("zebra-exchange", "zebra-key", b"zebra")


_CONNECTIONS: list[pika.BlockingConnection] = []


def amqp_connection(port: int, token: str, vhost: str) -> pika.BlockingConnection:
    """Connect to a virtual host; closed at the end of the test."""
    credentials = pika.PlainCredentials("tester", token)
    where = pika.ConnectionParameters("127.0.0.1", port, vhost, credentials)
    connection = pika.BlockingConnection(where)
    _CONNECTIONS.append(connection)
    return connection


@asynccontextmanager
async def broker(*, is_shared: bool) -> AsyncIterator[Shared]:
    """Start a broker in which the tenant has a queue and a task."""
    async with open_house(None, access=Access([ROOT, OWN_KEY, OTHER_KEY])) as house:
        peer = await house.peer("tester", OWN, OWN_TOKEN)
        shared = Shared(house, peer, is_shared=is_shared)
        for door in shared.doors:
            await door.start()
        try:
            if is_shared:
                await _fill(shared)
            await shared.peer.ask_ok(Manage(0, "declare_queue", {"queue": "q"}))
            await shared.peer.submit(spec(id=OWN_TASK))
            yield shared
        finally:
            while _CONNECTIONS:
                with suppress(AMQPError):
                    await asyncio.to_thread(_CONNECTIONS.pop().close)
            for door in reversed(shared.doors):
                await door.stop()


def bare(found: Any) -> Any:
    """Return an answer without times."""
    if isinstance(found, dict):
        return {key: bare(value) for key, value in found.items() if key not in _VARYING}
    if isinstance(found, list | tuple):
        return [bare(each) for each in found]
    if isinstance(found, int | float) and found > TIMES:
        return "time"
    if isinstance(found, str):
        return "time" if found.isdigit() and int(found) > TIMES else _CLOCK.sub("time", found)
    return found


#: What differs between any two runs: points of time, ports, and how long something is up.
_VARYING = frozenset({"points", "port", "listeners", "uptime", "os_pid", "now", "started_at"})


def leaks(walk: Callable[[Shared], Awaitable[Answers]]) -> dict[str, tuple[Any, Any]]:
    """Return the answers that differ between the two brokers."""

    async def answers(*, is_shared: bool) -> Answers:
        async with broker(is_shared=is_shared) as shared:
            return await walk(shared)

    alone, shared = run(answers(is_shared=False)), run(answers(is_shared=True))
    assert any("q" in str(told) for told in alone.values())
    assert alone.keys() == shared.keys()
    return {each: (alone[each], shared[each]) for each in alone if alone[each] != shared[each]}

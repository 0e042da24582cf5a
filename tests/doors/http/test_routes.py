"""Every route refuses a key that lacks its permission, or is of another namespace or other queues.

The routes are walked, those of REST, of GridLike and of the management API: a new one is tried like
all others. What is asked about a foreign queue is asked about one that is not there as well; a key
of other queues must not be able to tell the answers apart.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterator
from typing import Any, Self

import httpx
import pytest

from jackalope.broker.access import THE_BROKER, Access, hash_of, id_of, new_token
from jackalope.broker.config.schema import HttpConfig
from jackalope.broker.service import Broker
from jackalope.broker.views.amqp import Link, LinkChannel, LinkConsumer
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands import ClaimTasks, DeclareQueue, JoinWorker, SubmitTasks
from jackalope.core.effects import Effect
from jackalope.core.ids import id_text
from jackalope.core.task import Options, TaskSpec
from jackalope.doors.http.app import Application, HttpDoor, application, build
from jackalope.doors.http.asgi import WEBSOCKET
from jackalope.doors.http.auth import Gate
from jackalope.doors.http.management.conventions import Context
from jackalope.doors.http.management.server import _gate
from jackalope.doors.http.management.server import build as build_management
from jackalope.storage import Level, Storage
from tests.core.driving import task_id

THEIRS, NOWHERE = "zz-theirs", "zz-nowhere"
TASKS = {THEIRS: task_id(1), NOWHERE: task_id(9)}
MARK = "zz-"
TOKEN = new_token()

#: Streams that never end; `test_revoked` reads them.
ENDLESS = {"/api/v1/events"}

#: What needs no key, or shows nothing but the broker itself, to every key.
PUBLIC = {"/api/v1/namespaces", "/api/v1/cluster"}

#: Of the management API: what shows the node, or filters what it lists.
FILTERED = re.compile(
    r"/api/(overview|nodes|cluster-name|extensions|whoami|health|vhosts$|[a-z]+$|v1/(keys|audit)$)"
    r"|/api/v1/namespaces|/metrics"
)


def body_of(method: str, path: str, target: str) -> dict[str, Any]:
    """Return the arguments of a request that is in order."""
    held = {"fence": 1, "worker": f"{target}-worker"}
    bodies: dict[tuple[str, str], Any] = {
        ("POST", "/api/v1/tasks"): {"queue": target, "name": "t"},
        ("POST", "/api/v1/tasks/batch"): {"tasks": [{"queue": target, "name": "t"}]},
        ("POST", "/api/v1/requests"): {"queue": target, "name": "t", "payload": 1},
        ("POST", "/api/v1/tasks/actions"): {"action": "kill", "filter": {"queue": target}},
        ("PUT", "/api/v1/queues/{queue}"): {"policy": {"depth_limit": 7}},
        ("PUT", "/api/v1/limits/{tag}"): {"limit": 3},
        ("PUT", "/api/v1/key-limits/{name}"): {"concurrency": 3},
        ("PUT", "/api/v1/pools/{queue}"): {"launcher": "none"},
        ("POST", "/api/v1/pools/{queue}/groups"): {"key": "k", "action": "start"},
        ("POST", "/api/v1/keys"): {"name": "n", "permissions": ["work"]},
        ("POST", "/api/v1/workers/{worker}/claim"): {"queues": [target]},
        ("POST", "/api/v1/workers/{worker}/join"): {"queues": [target]},
        ("POST", "/api/v1/workers/{worker}/heartbeat"): {},
        ("POST", "/api/v1/attempts/{task_id}/fail"): held | {"error": {"type": "E"}},
        ("POST", "/api/v1/attempts/{task_id}/progress"): held | {"percent": 1},
        ("POST", "/api/v1/attempts/{task_id}/signal"): held | {"answer": "stopped"},
        ("POST", "/api/v1/attempts/{task_id}/start"): held,
        ("POST", "/api/v1/attempts/{task_id}/release"): held,
        ("POST", "/api/queues/{vhost}/{name}/get"): {
            "ackmode": "ack_requeue_true",
            "encoding": "auto",
            "count": 1,
        },
        ("POST", "/api/exchanges/{vhost}/{name}/publish"): {
            "routing_key": target,
            "properties": {},
            "payload": "x",
            "payload_encoding": "string",
        },
    }
    if path.startswith("/api/v1/cache/"):
        return {"json": {"queue": target}}
    if path == "/api/v1/tasks/raw":
        return {"content": b"x", "params": {"queue": target, "name": "t"}}
    if path.startswith("/api/v1/attempts/") and (method, path) not in bodies:
        return {"params": {k: str(v) for k, v in held.items()}, "content": b"x"}
    if path.startswith("/api/jobs/submit"):
        return {"files": {"payload": b"x"}, "data": {"priority": "batch"}}
    if method == "GET":
        return {}
    return {"json": bodies.get((method, path), {})}


def url_of(path: str, target: str) -> str:
    """Return a path about a queue, its task or its worker."""
    names = {
        "task": id_text(TASKS[target]),
        "key": f"{target}-alias",
        "queue": target,
        "job_type": target,
        "worker": f"{target}-worker",
        "vhost": "%2F",
        "name": target,
        "number": "1",
        "action": "kill",
        "kind": "q",
        "source": "amq.topic",
        "target": target,
        "end": "source",
    }
    if path.startswith("/api/connections/"):
        names["name"] = f"{target}-link"
    elif path.startswith("/api/channels/"):
        names["name"] = f"{target}-link (1)"
    return re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], f"{target}-other"), path)


class Silent:
    """A session that nobody listens to."""

    def deliver(self, effects: list[Effect]) -> None:
        """Take no notice."""

    def end(self, why: str) -> None:
        """Take no notice."""


class OneLink:
    """The connections of a door: one, with a consumer of the foreign queue."""

    def __init__(self) -> None:
        self.is_open = True

    def all(self) -> list[Link]:
        here, there = ("127.0.0.1", 5672), ("127.0.0.1", 40000)
        consumer = LinkConsumer("zz-tag", THEIRS)
        channels = (LinkChannel(1, consumers=(consumer,)),)
        about: dict[str, Any] = {"product": "zz-client"}
        name = f"{THEIRS}-link"
        return [
            Link(
                name, "default", "u", there, here, "AMQP", False, about, 1, 60, 131072, 9, channels
            )
        ]

    def close(self, name: str, why: str) -> bool:
        self.is_open = False
        return True


class House:
    """A broker with a foreign queue, and both of its HTTP doors without sockets."""

    def __init__(self, **limits: Any) -> None:
        self.token = TOKEN
        self.limits = limits

    def key(self, permissions: tuple[Permission, ...]) -> ApiKey:
        return ApiKey(id_of(self.token), hash_of(self.token), "k", permissions, **self.limits)

    async def __aenter__(self) -> Self:
        permissions = self.limits.pop("permissions", tuple(Permission))
        self.broker = Broker(
            Storage.open(None, Level.MEMORY), access=Access([self.key(permissions)])
        )
        await self.broker.start()
        self.door = HttpDoor(self.broker, HttpConfig(rate_per_s=0))
        self.links = OneLink()
        self.context = Context(self.broker, self.links, 0)
        session = self.broker.open_session(Silent())
        spec = TaskSpec(
            TASKS[THEIRS],
            THEIRS,
            payload=b"zz-payload",
            options=Options(alias=f"{THEIRS}-alias", tags=("zz-tag",)),
        )
        for command in (
            DeclareQueue(queue=THEIRS),
            DeclareQueue(queue="mine"),
            SubmitTasks(ref=0, tasks=[spec]),
            JoinWorker(
                ref=0, session=session, worker=f"{THEIRS}-worker", queues=(THEIRS,), slots=0
            ),
            ClaimTasks(session=session, ref=1),
        ):
            self.broker.post(command, THE_BROKER)
        await self.broker.read(lambda _: None)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.door.client_session.close()
        self.context.client_session.close()
        await self.broker.stop()

    async def ask(self, app: str, method: str, path: str, target: str) -> httpx.Response:
        if app == "http":
            asgi: Any = Gate(application(self.door), self.door)
            auth: dict[str, Any] = {"headers": {"Authorization": f"Bearer {self.token}"}}
        else:
            asgi = _gate(build_management(self.context, HttpConfig()), self.broker)
            auth = {"auth": ("any", self.token)}
        transport = httpx.ASGITransport(app=asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            more = body_of(method, path, target)
            return await client.request(method, url_of(path, target), **more, **auth)

    async def state(self) -> Any:
        """Return what others could have changed."""

        def look(engine: Any) -> Any:
            queue = engine.core.book.queue("default", THEIRS)
            task = engine.core.book.tasks[TASKS[THEIRS]]
            attempt = task.attempt
            bindings = list(queue.namespace.topology.bindings)
            return (
                *(queue.policy, queue.paused_by, queue.pool, dict(queue.counts), bindings),
                *(task.state, attempt and attempt.fence, attempt and attempt.request),
            )

        return self.links.is_open, await self.broker.read(look)


def _routes(app: Application) -> Iterator[tuple[str, str, Permission | None]]:
    for route in app.routes:
        if route.method not in (WEBSOCKET, "HEAD"):
            yield route.method, route.path, route.needs


def every_route() -> list[tuple[str, str, str, Permission]]:
    """Return every route that needs a permission: its application, method, path and permission."""
    storage = Storage.open(None, Level.MEMORY)
    broker = Broker(storage)
    apps = {
        "http": build(HttpDoor(broker)),
        "management": build_management(Context(broker, OneLink(), 0), HttpConfig()),
    }
    storage.close()
    return sorted(
        (app, method, path, needed)
        for app, built in apps.items()
        for method, path, needed in _routes(built)
        if needed and path not in ENDLESS
    )


EVERY = every_route()
tried = pytest.mark.parametrize(
    ("app", "method", "path", "needed"),
    EVERY,
    ids=[f"{app}-{method}-{path}" for app, method, path, _ in EVERY],
)


def run(test: Awaitable[None]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(whole())


def test_there_are_many_routes() -> None:
    assert len(EVERY) > 100


@tried
def test_a_key_without_the_permission_is_refused(
    app: str, method: str, path: str, needed: Permission
) -> None:
    async def test() -> None:
        others = tuple(each for each in Permission if each not in (needed, Permission.ADMIN))
        async with House(permissions=others) as house:
            before = await house.state()
            refused = await house.ask(app, method, path, THEIRS)
            assert refused.status_code == (403 if app == "http" else 401), refused.text
            assert await house.state() == before

    run(test())


@tried
def test_the_permission_is_enough(app: str, method: str, path: str, needed: Permission) -> None:
    async def test() -> None:
        async with House(permissions=(needed,)) as house:
            answered = await house.ask(app, method, path, THEIRS)
            assert answered.status_code not in (401, 403), answered.text
            if path.endswith(("/get", "/delete")) or path == "/api/jobs/{key}":
                assert answered.status_code != 404

    run(test())


@tried
def test_a_key_of_another_namespace_is_refused(
    app: str, method: str, path: str, needed: Permission
) -> None:
    async def test() -> None:
        async with House(namespace="elsewhere") as house:
            before = await house.state()
            answered = await house.ask(app, method, path, THEIRS)
            if answered.status_code < 400:
                assert path in PUBLIC or FILTERED.fullmatch(path), answered.text
                assert MARK not in answered.text
            assert await house.state() == before

    run(test())


@tried
def test_a_key_of_other_queues_cannot_tell_whether_there_is_one(
    app: str, method: str, path: str, needed: Permission
) -> None:
    async def test() -> None:
        texts = []
        for target in (THEIRS, NOWHERE):
            async with House(queues=("mine",)) as house:
                before = await house.state()
                answered = await house.ask(app, method, path, target)
                assert await house.state() == before
                text = answered.text.replace(target, "NAME")
                for shown in (id_text(TASKS[target]), TASKS[target].hex()):
                    text = text.replace(shown, "TASK")
                texts.append((answered.status_code, _without_times(text)))
        assert texts[0] == texts[1]
        assert MARK not in texts[0][1]

    run(test())


def _without_times(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z?", "TIME", text)
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "N", text)

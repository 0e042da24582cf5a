"""A server that behaves as Docker's API does, as far as containers go. It runs real processes.

Containers have the states, conflicts, events and errors of Docker's; what is in an image is only
its name, and the command runs on this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.pools.launchers.streams import Event, Streams

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Container:
    id: str
    name: str
    config: dict[str, Any]
    log: Path
    tell: Callable[[Container, str], None]
    state: str = "created"
    code: int = 0
    process: asyncio.subprocess.Process | None = None
    waiting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        env = dict(pair.split("=", 1) for pair in self.config["Env"])
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.config["Cmd"],
                env={"PATH": os.defpath, **env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.state = "running"
        self.tell(self, "start")
        self.waiting = asyncio.create_task(self.wait())

    async def wait(self) -> None:
        assert self.process is not None
        code = await self.process.wait()
        self.state, self.code = "exited", code if code >= 0 else 128 - code
        self.tell(self, "die")

    async def kill(self, number: signal.Signals) -> None:
        if self.process is not None and self.state == "running":
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            if number is signal.SIGKILL and self.waiting is not None:
                await self.waiting

    def summary(self) -> dict[str, Any]:
        status = f"Exited ({self.code}) 1 second ago" if self.state == "exited" else "Up 1 second"
        return {
            "Id": self.id,
            "Names": [f"/{self.name}"],
            "Image": self.config["Image"],
            "Labels": self.config["Labels"],
            "State": self.state,
            "Status": "Created" if self.state == "created" else status,
        }


@dataclass
class DockerServer:
    folder: Path
    images: set[str] = field(default_factory=set)
    containers: dict[str, Container] = field(default_factory=dict)
    #: Called before each request; it may wait, raise, or answer in Docker's place.
    fault: Callable[[web.Request], Awaitable[web.StreamResponse | None]] | None = None
    #: What fetching an image says; it waits until it may.
    pull_says: list[dict[str, Any]] = field(default_factory=list)
    may_pull: asyncio.Event = field(default_factory=asyncio.Event)
    pulls: int = 0
    streams: Streams = field(default_factory=Streams)
    url: str = ""
    _runner: web.AppRunner | None = None

    async def open(self) -> None:
        @web.middleware
        async def faulty(request: web.Request, handler: Handler) -> web.StreamResponse:
            answer = await self.fault(request) if self.fault is not None else None
            return answer if answer is not None else await handler(request)

        app = web.Application(middlewares=[faulty])
        app.router.add_get("/version", self._version)
        v = "/{version:v[0-9.]+}"
        app.router.add_get(f"{v}/events", self._events)
        app.router.add_get(f"{v}/containers/json", self._list)
        app.router.add_post(f"{v}/containers/create", self._create)
        app.router.add_get(f"{v}/containers/{{id}}/json", self._inspect)
        app.router.add_post(f"{v}/containers/{{id}}/start", self._start)
        app.router.add_post(f"{v}/containers/{{id}}/kill", self._kill)
        app.router.add_get(f"{v}/containers/{{id}}/logs", self._logs)
        app.router.add_delete(f"{v}/containers/{{id}}", self._delete)
        app.router.add_post(f"{v}/images/create", self._pull)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        for container in self.containers.values():
            await container.kill(signal.SIGKILL)
        self.streams.end()
        if self._runner is not None:
            await self._runner.cleanup()

    def by_worker(self, worker: str) -> Container:
        of_worker = (
            each
            for each in self.containers.values()
            if each.config["Labels"]["jackalope.worker"] == worker
        )
        return next(of_worker)

    def _find(self, request: web.Request) -> Container:
        wanted = request.match_info["id"]
        for container in self.containers.values():
            if wanted in {container.id, container.name}:
                return container
        raise web.HTTPNotFound(
            text=json.dumps({"message": f"No such container: {wanted}"}),
            content_type="application/json",
        )

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {"Version": "28.0.0", "ApiVersion": "1.48", "MinAPIVersion": "1.24"}
        )

    def _tell(self, container: Container, action: str) -> None:
        actor = {"ID": container.id, "Attributes": container.config["Labels"]}
        self.streams.send({"Type": "container", "Action": action, "Actor": actor})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        filters = json.loads(request.query.get("filters", "{}"))

        def fits(event: Event) -> bool:
            labels = (label.partition("=") for label in filters.get("label", []))
            return (
                event["Type"] in filters.get("type", [event["Type"]])
                and event["Action"] in filters.get("event", [event["Action"]])
                and all(event["Actor"]["Attributes"].get(name) == to for name, _, to in labels)
            )

        return await self.streams.serve(request, fits)

    async def _list(self, request: web.Request) -> web.Response:
        labels = json.loads(request.query.get("filters", "{}")).get("label", [])
        is_all = request.query.get("all", "").lower() in {"1", "true"}
        found = [
            each.summary()
            for each in self.containers.values()
            if (is_all or each.state == "running")
            and all(
                each.config["Labels"].get(name) == value
                for name, _, value in (label.partition("=") for label in labels)
            )
        ]
        return web.json_response(found)

    async def _create(self, request: web.Request) -> web.Response:
        config, name = await request.json(), request.query["name"]
        if config["Image"] not in self.images:
            return error(404, f"No such image: {config['Image']}")
        if any(each.name == name for each in self.containers.values()):
            return error(409, f'Conflict. The container name "/{name}" is already in use')
        id_ = f"{len(self.containers) + 1:064x}"
        log = self.folder / f"{name}.log"
        self.containers[id_] = Container(id_, name, config, log, self._tell)
        return web.json_response({"Id": id_, "Warnings": []}, status=201)

    async def _inspect(self, request: web.Request) -> web.Response:
        container = self._find(request)
        return web.json_response({"Id": container.id, "Config": {"Tty": False}})

    async def _start(self, request: web.Request) -> web.Response:
        container = self._find(request)
        if container.state == "running":
            return web.Response(status=304)
        try:
            await container.start()
        except OSError as problem:
            return error(400, f"failed to create task: OCI runtime create failed: {problem}")
        return web.Response(status=204)

    async def _kill(self, request: web.Request) -> web.Response:
        container = self._find(request)
        if container.state != "running":
            return error(409, f"container {container.id} is not running")
        await container.kill(signal.Signals[request.query.get("signal", "SIGKILL")])
        return web.Response(status=204)

    async def _logs(self, request: web.Request) -> web.Response:
        container = self._find(request)
        lines = (
            container.log.read_bytes().splitlines(keepends=True) if container.log.exists() else []
        )
        frames = [
            b"\x02\0\0\0" + len(line).to_bytes(4, "big") + line
            for line in lines[-int(request.query.get("tail", "1000")) :]
        ]
        return web.Response(
            body=b"".join(frames), content_type="application/vnd.docker.multiplexed-stream"
        )

    async def _delete(self, request: web.Request) -> web.Response:
        container = self._find(request)
        if container.state == "running":
            if request.query.get("force", "").lower() not in {"1", "true"}:
                return error(409, "You cannot remove a running container")
            await container.kill(signal.SIGKILL)
        del self.containers[container.id]
        self._tell(container, "destroy")
        return web.Response(status=204)

    async def _pull(self, request: web.Request) -> web.StreamResponse:
        self.pulls += 1
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        await answer.write(b'{"status":"Pulling"}\r\n')
        await self.may_pull.wait()
        for line in self.pull_says:
            await answer.write(json.dumps(line).encode() + b"\r\n")
        if not self.pull_says:
            self.images.add(f"{request.query['fromImage']}")
        await answer.write_eof()
        return answer


def error(status: int, message: str) -> web.Response:
    # Docker names no charset, and its clients look closely.
    body = json.dumps({"message": message}).encode()
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json"})

"""A server that behaves as the API of Kubernetes does, as far as deployments go.

Behind it are the controllers that matter: deployments keep as many pods as they should, pods are
real processes that are started again when they end, what belongs to a deployment goes with it. It
lists by labels and in pages, tells of changes since a list, refuses what is there
already, and speaks of errors as Kubernetes does. What is in an image is only its name, and the
command runs on this machine.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.pools.launchers.streams import Event, Streams

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PATHS = {
    "deployments": "/apis/apps/v1",
    "pods": "/api/v1",
    "horizontalpodautoscalers": "/apis/autoscaling/v2",
    "scaledobjects": "/apis/keda.sh/v1alpha1",
}
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
DELETED_AT = "2026-01-01T00:00:00Z"
#: A cluster waits for ten seconds and more.
BACK_OFF_S = 0.2


@dataclass
class Pod:
    """A pod: its object, and its process."""

    body: dict[str, Any]
    log: Path
    running: asyncio.Task[None]
    process: asyncio.subprocess.Process | None = None
    kill_at: float = 0.0

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


@dataclass
class KubernetesServer:
    folder: Path
    objects: dict[str, dict[str, dict[str, Any]]] = field(
        default_factory=lambda: {kind: {} for kind in PATHS}
    )
    pods: dict[str, Pod] = field(default_factory=dict)
    #: Called before each request; it may wait, raise, or answer in the cluster's place.
    fault: Callable[[web.Request], Awaitable[web.StreamResponse | None]] | None = None
    #: The most that comes in one page, whatever is asked for.
    page_max: int = 3
    asked: list[str] = field(default_factory=list)
    url: str = ""
    streams: Streams = field(default_factory=Streams)
    #: What changed, and the first change that is still known.
    changes: list[tuple[int, Event]] = field(default_factory=list)
    known_from: int = 0
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _ending: set[asyncio.Task[None]] = field(default_factory=set)
    _runner: web.AppRunner | None = None

    async def open(self) -> None:
        @web.middleware
        async def faulty(request: web.Request, handler: Handler) -> web.StreamResponse:
            self.asked.append(f"{request.method} {request.path}")
            answer = await self.fault(request) if self.fault is not None else None
            return answer if answer is not None else await handler(request)

        app = web.Application(middlewares=[faulty])
        for kind, path in PATHS.items():
            whole = f"{path}/namespaces/{{namespace}}/{{kind:{kind}}}"
            app.router.add_get(whole, self._list)
            app.router.add_post(whole, self._create)
            app.router.add_delete(f"{whole}/{{name}}", self._delete)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        for pod in tuple(self.pods.values()):
            await self._end_pod(pod, 0)
        for task in tuple(self._ending):
            await task
        self.streams.end()
        if self._runner is not None:
            await self._runner.cleanup()

    # Requests.

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch(request)
        kind = request.match_info["kind"]
        found = [body for _, body in sorted(self.objects[kind].items()) if is_chosen(request, body)]
        first = int(request.query.get("continue", "0"))
        limit = min(int(request.query.get("limit", "500")), self.page_max)
        more = str(first + limit) if first + limit < len(found) else None
        metadata = {"resourceVersion": str(next(self._numbers)), "continue": more}
        return answer(200, {"items": found[first : first + limit], "metadata": metadata})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since, wanted = int(request.query["resourceVersion"]), request.match_info["kind"]
        past = [change for number, change in self.changes if number > since]
        if since < self.known_from:
            gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
            past = [{"type": "ERROR", "object": gone}]

        def fits(event: Event) -> bool:
            if event["type"] == "ERROR":
                return True
            return bool(event["object"]["kind"] == wanted) and is_chosen(request, event["object"])

        return await self.streams.serve(request, fits, past)

    def tell(self, kind: str, type_: str, body: dict[str, Any]) -> None:
        """Tell of a change to those who watch, and to those who will."""
        number = next(self._numbers)
        metadata = {**body["metadata"], "resourceVersion": str(number)}
        event = {"type": type_, "object": {**body, "kind": kind, "metadata": metadata}}
        self.changes.append((number, json.loads(json.dumps(event))))
        self.streams.send(event)

    async def _create(self, request: web.Request) -> web.Response:
        kind, body = request.match_info["kind"], await request.json()
        metadata = body["metadata"]
        labels = metadata["labels"].values()
        if not NAME.fullmatch(metadata["name"]) or len(metadata["name"]) > 253:
            return status(422, f'{kind} "{metadata["name"]}" is invalid: metadata.name')
        if any(len(value) > 63 or not LABEL.fullmatch(value) for value in labels):
            return status(422, f'{kind} "{metadata["name"]}" is invalid: metadata.labels')
        if metadata["name"] in self.objects[kind]:
            return status(409, f'{kind} "{metadata["name"]}" already exists')
        metadata["uid"] = f"uid-{next(self._numbers)}"
        metadata["namespace"] = request.match_info["namespace"]
        self.objects[kind][metadata["name"]] = body
        self.tell(kind, "ADDED", body)
        if kind == "deployments":
            body["status"] = {}
            for _ in range(body["spec"]["replicas"]):
                self._start_pod(body)
        return answer(201, body)

    async def _delete(self, request: web.Request) -> web.Response:
        kind, name = request.match_info["kind"], request.match_info["name"]
        if name not in self.objects[kind]:
            return status(404, f'{kind} "{name}" not found')
        grace = request.query.get("gracePeriodSeconds")
        if kind == "pods":
            self._end_soon(self.pods[name], None if grace is None else int(grace))
            return answer(200, self.objects[kind][name])
        body = self.objects[kind][name]
        if kind == "deployments" and self._pods_of(body):
            body["metadata"]["deletionTimestamp"] = DELETED_AT
            self.tell(kind, "MODIFIED", body)
            for pod in self._pods_of(body):
                self._end_soon(pod, None)
            if request.query.get("propagationPolicy") == "Foreground":
                return answer(200, body)
        self._forget(kind, name)
        return answer(200, {"kind": "Status", "status": "Success"})

    def _forget(self, kind: str, name: str) -> None:
        """Remove an object, and what it owns."""
        body = self.objects[kind].pop(name)
        self.tell(kind, "DELETED", body)
        uid = body["metadata"]["uid"]
        for other in PATHS.keys() - {"pods"}:
            for each in tuple(self.objects[other].values()):
                owners = each["metadata"].get("ownerReferences", [])
                if any(owner["uid"] == uid for owner in owners):
                    self._forget(other, each["metadata"]["name"])

    # Controllers.

    def _pods_of(self, deployment: dict[str, Any]) -> list[Pod]:
        uid = deployment["metadata"]["uid"]
        return [
            pod
            for pod in self.pods.values()
            if pod.body["metadata"]["ownerReferences"][0]["uid"] == uid
        ]

    def _start_pod(self, deployment: dict[str, Any]) -> None:
        template, owner = deployment["spec"]["template"], deployment["metadata"]
        name = f"{owner['name'][:50]}-{next(self._numbers):x}"
        body = {
            "metadata": {
                **template["metadata"],
                "name": name,
                "uid": f"uid-{name}",
                "ownerReferences": [
                    {
                        "uid": owner["uid"],
                        "name": owner["name"],
                        "kind": "Deployment",
                        "apiVersion": "v1",
                    }
                ],
            },
            "spec": template["spec"],
            "status": {"containerStatuses": [container_status()]},
        }
        running = asyncio.get_running_loop().create_task(self._run(name, deployment))
        self.pods[name] = Pod(body, self.folder / f"{name}.log", running)
        self.objects["pods"][name] = body
        self.tell("pods", "ADDED", body)

    async def _run(self, name: str, deployment: dict[str, Any]) -> None:
        """Keep a pod's process, as a kubelet does."""
        pod = self.pods[name]
        container = pod.body["spec"]["containers"][0]
        env = {
            each["name"]: each["value"].replace("$$(", "$(") if "value" in each else name
            for each in container["env"]
        }
        state = pod.body["status"]["containerStatuses"]
        while "deletionTimestamp" not in pod.body["metadata"]:
            with pod.log.open("wb") as log:
                pod.process = await asyncio.create_subprocess_exec(
                    *container["command"],
                    env={"PATH": os.defpath, **env},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            state[0] = container_status(is_running=True)
            self._count(deployment, pod)
            code = await pod.process.wait()
            ended = {"exitCode": code if code >= 0 else 128 - code, "reason": "Error"}
            if container.get("terminationMessagePolicy") == "FallbackToLogsOnError" and code:
                ended["message"] = pod.log.read_text()[-2048:]
            state[0] = container_status(ended=ended)
            self._count(deployment, pod)
            if "deletionTimestamp" not in pod.body["metadata"]:
                await asyncio.sleep(BACK_OFF_S)

    def _count(self, deployment: dict[str, Any], pod: Pod) -> None:
        self.tell("pods", "MODIFIED", pod.body)
        states = [pod.body["status"]["containerStatuses"][0] for pod in self._pods_of(deployment)]
        deployment["status"] = {"readyReplicas": sum(each["ready"] for each in states)}
        if deployment["metadata"]["name"] in self.objects["deployments"]:
            self.tell("deployments", "MODIFIED", deployment)

    def _end_soon(self, pod: Pod, grace_s: int | None) -> None:
        spec = pod.body["spec"]
        grace = spec.get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s
        task = asyncio.get_running_loop().create_task(self._end_pod(pod, grace))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_pod(self, pod: Pod, grace_s: float) -> None:
        now = asyncio.get_running_loop().time()
        # A grace can be made shorter, not longer.
        is_first = "deletionTimestamp" not in pod.body["metadata"]
        pod.kill_at = now + grace_s if is_first else min(pod.kill_at, now + grace_s)
        pod.body["metadata"]["deletionTimestamp"] = DELETED_AT
        self.tell("pods", "MODIFIED", pod.body)
        if is_first:
            send(pod, signal.SIGTERM)
        while not pod.running.done():
            left = pod.kill_at - asyncio.get_running_loop().time()
            if left <= 0:
                send(pod, signal.SIGKILL)
            await asyncio.wait({pod.running}, timeout=max(0.02, min(left, 0.1)))
        self._bury(pod)

    def _bury(self, pod: Pod) -> None:
        if self.pods.pop(pod.name, None) is None:
            return
        del self.objects["pods"][pod.name]
        self.tell("pods", "DELETED", pod.body)
        owner = pod.body["metadata"]["ownerReferences"][0]
        deployment = self.objects["deployments"].get(owner["name"])
        if deployment is None:
            return
        if "deletionTimestamp" not in deployment["metadata"]:
            self._start_pod(deployment)
        elif not self._pods_of(deployment):
            self._forget("deployments", owner["name"])


def is_chosen(request: web.Request, body: dict[str, Any]) -> bool:
    """Say whether an object has the labels that are asked for."""
    wanted = request.query.get("labelSelector", "")
    pairs = (pair.partition("=") for pair in wanted.split(",") if pair)
    return all(body["metadata"]["labels"].get(name) == value for name, _, value in pairs)


def send(pod: Pod, number: signal.Signals) -> None:
    if pod.process is not None and pod.process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(pod.process.pid, number)


def container_status(
    *, is_running: bool = False, ended: dict[str, Any] | None = None
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": "worker",
        "image": "",
        "imageID": "",
        "ready": is_running,
        "restartCount": 0,
    }
    if is_running:
        return {**made, "state": {"running": {}}}
    waiting = {"reason": "CrashLoopBackOff" if ended else "ContainerCreating"}
    last = {"lastState": {"terminated": ended}} if ended else {}
    return {**made, "state": {"waiting": waiting}, **last}


def answer(code: int, body: dict[str, Any]) -> web.Response:
    # Kubernetes names no charset, and its clients look closely.
    headers = {"Content-Type": "application/json"}
    return web.Response(body=json.dumps(body).encode(), status=code, headers=headers)


def status(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return answer(code, {**body, "message": message, "reason": "", "code": code})

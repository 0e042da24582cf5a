"""Watches: how they end, and what the control loops make of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import Launcher, LaunchFailed, Reach
from jackalope.pools.reconciler import PoolService
from tests.doors.http.harness import HttpHouse, open_http
from tests.pools.launchers.backends import (
    Watched,
    is_empty,
    launch,
    play,
    reach,
    running,
    to_start,
    until,
    watched,
)
from tests.pools.launchers.docker import Docker
from tests.pools.launchers.docker_server import error
from tests.pools.launchers.kubernetes import Kubernetes
from tests.pools.launchers.kubernetes_server import status

HOUR_S = 3600.0

Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


@pytest.fixture(params=[Docker, Kubernetes], ids=["docker", "kubernetes"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Docker | Kubernetes:
    kind: type[Docker | Kubernetes] = request.param
    return kind(tmp_path)


@pytest.fixture
def cluster(tmp_path: Path) -> Kubernetes:
    return Kubernetes(tmp_path)


def is_watch(request: web.Request) -> bool:
    return request.path.endswith("/events") or "watch" in request.query


def answering(answer: Callable[[], web.Response]) -> Fault:
    """Answer those who want to watch."""

    async def fault(request: web.Request) -> web.Response | None:
        return answer() if is_watch(request) else None

    return fault


# How a watch ends.


def test_watch_that_the_backend_ends_is_over(backend: Docker | Kubernetes) -> None:
    async def scenario(launcher: Launcher) -> None:
        async with watched(launcher) as watch:
            backend.server.streams.end()
            await watch.over()

    play(backend, scenario)


def test_watch_that_breaks_off_is_told(backend: Docker | Kubernetes) -> None:
    async def scenario(launcher: Launcher) -> None:
        async with watched(launcher) as watch:
            backend.server.streams.break_off()
            with pytest.raises(LaunchFailed, match=r"cannot watch .* is unreachable: .*; "):
                await watch.over()

    play(backend, scenario)


def test_watch_that_never_begins_is_given_up(backend: Docker | Kubernetes) -> None:
    async def hang(request: web.Request) -> None:
        if is_watch(request):
            await asyncio.Event().wait()

    async def scenario(launcher: Launcher) -> None:
        backend.server.fault = hang
        hasty = backend.made(timeout="1s")
        with pytest.raises(LaunchFailed, match=r"cannot watch .* did not respond within 1 s; "):
            await Watched(hasty).over()
        await hasty.close()

    play(backend, scenario)


def test_refusal_of_a_watch_is_told(backend: Docker | Kubernetes) -> None:
    refusal = error if isinstance(backend, Docker) else status

    async def scenario(launcher: Launcher) -> None:
        backend.server.fault = answering(lambda: refusal(503, "out of cheese"))
        with pytest.raises(LaunchFailed, match=r"cannot watch .*out of cheese.*; check "):
            await Watched(launcher).over()

    play(backend, scenario)


def test_moment_that_is_gone_ends_a_watch_and_the_next_begins_with_a_list(
    cluster: Kubernetes,
) -> None:
    async def scenario(launcher: Launcher) -> None:
        cluster.server.known_from = 1 << 60
        async with watched(launcher) as watch:
            await watch.over()
        cluster.server.known_from = 0
        async with watched(launcher) as watch:
            await launcher.start(*to_start("w-1"))
            await watch.next()

    play(cluster, scenario)


def test_refusal_of_a_moment_that_is_gone_ends_a_watch(cluster: Kubernetes) -> None:
    async def scenario(launcher: Launcher) -> None:
        cluster.server.fault = answering(lambda: status(410, "too old resource version"))
        watch = Watched(launcher)
        await watch.over()
        assert not watch.told.is_set()

    play(cluster, scenario)


def test_error_within_a_watch_is_told(cluster: Kubernetes) -> None:
    async def scenario(launcher: Launcher) -> None:
        async with watched(launcher) as watch:
            about = {"kind": "Status", "code": 500, "message": "out of cheese"}
            cluster.server.streams.send({"type": "ERROR", "object": about})
            with pytest.raises(LaunchFailed, match=r"out of cheese \(500\); check"):
                await watch.over()

    play(cluster, scenario)


def test_watch_that_babbles_is_told(cluster: Kubernetes) -> None:
    async def scenario(launcher: Launcher) -> None:
        cluster.server.fault = answering(lambda: web.Response(text="<html>"))
        async with watched(launcher) as watch:
            with pytest.raises(LaunchFailed, match="the server is not Kubernetes"):
                await watch.over()

    play(cluster, scenario)


def test_change_of_a_pod_alone_is_told(cluster: Kubernetes) -> None:
    async def scenario(launcher: Launcher) -> None:
        await running(cluster, launcher, launch("w-1"))
        async with watched(launcher) as watch:
            (pod,) = cluster.server.pods.values()
            cluster.server.tell("pods", "MODIFIED", pod.body)
            await watch.next()

    play(cluster, scenario)


def test_image_that_cannot_be_fetched_is_told_by_a_watch(tmp_path: Path) -> None:
    backend = Docker(tmp_path)

    async def scenario(launcher: Launcher) -> None:
        backend.server.images.clear()
        backend.server.pull_says = [{"errorDetail": {"message": "denied"}, "error": "denied"}]
        async with watched(launcher) as watch:
            await launcher.start(*to_start("w-1"))
            assert not watch.told.is_set()
            backend.server.may_pull.set()
            await watch.next()
            (entry,) = await launcher.list()
            assert entry.phase is Phase.ENDED
            # Docker knows nothing of it, and tells nothing of its end.
            await launcher.stop("w-1", 1)
            await watch.next()
            assert await launcher.list() == []

    play(backend, scenario)


# What the control loops make of it.


class Rounds:
    """A broker with one pool, and a count of how often its launcher looks."""

    def __init__(self, backend: Docker | Kubernetes, house: HttpHouse) -> None:
        self._backend = backend
        self._http = house.client
        self._looks = 0
        self.watches_are_refused = False
        backend.server.fault = self._count

    async def _count(self, request: web.Request) -> web.Response | None:
        if is_watch(request):
            return web.Response(status=503) if self.watches_are_refused else None
        is_list = request.path.endswith(("/containers/json", "/deployments"))
        self._looks += request.method == "GET" and is_list
        return None

    async def begin(self) -> None:
        (await self._http.put("/api/v1/pools/core", json={"launcher": "it"})).raise_for_status()
        start = {"key": "k", "action": "start"}
        (await self._http.post("/api/v1/pools/core/groups", json=start)).raise_for_status()

    async def end(self) -> None:
        (await self._http.delete("/api/v1/pools/core")).raise_for_status()

    async def has_failed(self) -> bool:
        return bool((await self._http.get("/api/v1/pools/core")).json()["failed"])

    async def are_rare(self) -> bool:
        """Say whether nobody looks for a time in which somebody would otherwise."""
        before = self._looks
        await asyncio.sleep(0.5)
        return self._looks == before

    async def go_often(self) -> None:
        """Wait for looks that nothing asked for."""
        enough = self._looks + 10

        async def are_enough() -> bool:
            return self._looks >= enough

        await until(are_enough, "looks")


@asynccontextmanager
async def rounds_of(backend: Docker | Kubernetes, launcher: Launcher) -> AsyncIterator[Rounds]:
    async with open_http() as house:
        pools = PoolService(house.broker, {"it": launcher}, 0.02, HOUR_S)
        await pools.start()
        rounds = Rounds(backend, house)
        pools.begin(Reach("jackalope://127.0.0.1:1"))
        try:
            await rounds.begin()
            yield rounds
            await rounds.end()
            await until(lambda: is_empty(launcher), "the end of all workers")
        finally:
            await pools.stop()


def test_end_of_a_worker_is_seen_long_before_the_next_look(backend: Docker | Kubernetes) -> None:
    async def scenario(launcher: Launcher) -> None:
        async with rounds_of(backend, launcher) as rounds:
            worker = await only_worker(launcher)
            await until(rounds.are_rare, "the watch")
            await backend.end(worker)
            await until(rounds.has_failed, "the end of the worker")

    play(backend, scenario)


def test_without_a_watch_rounds_go_often_until_there_is_one(backend: Docker | Kubernetes) -> None:
    async def scenario(launcher: Launcher) -> None:
        async with rounds_of(backend, launcher) as rounds:
            worker = await only_worker(launcher)
            await until(rounds.are_rare, "the watch")
            rounds.watches_are_refused = True
            backend.server.streams.break_off()
            await rounds.go_often()
            await backend.end(worker)
            await until(rounds.has_failed, "the end of the worker")
            rounds.watches_are_refused = False
            await until(rounds.are_rare, "the next watch")

    play(backend, scenario)


async def only_worker(launcher: Launcher) -> str:
    await until(lambda: has_one(launcher), "the worker")
    (found,) = await launcher.list()
    await reach(launcher, found.launch, Phase.RUNNING)
    return found.launch


async def has_one(launcher: Launcher) -> bool:
    return len(await launcher.list()) == 1

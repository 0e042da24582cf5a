"""The Docker launcher: what only containers can suffer."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import Launcher, LaunchFailed
from jackalope.pools.launchers.docker import container_config
from jackalope.pools.launchers.settings import DockerSettings, read_settings
from tests.pools.launchers.backends import (
    find,
    is_empty,
    launch,
    play,
    reach,
    running,
    to_start,
    until,
)
from tests.pools.launchers.docker import IMAGE, Docker
from tests.pools.launchers.docker_server import error


@pytest.fixture
def backend(tmp_path: Path) -> Docker:
    return Docker(tmp_path)


def test_hanging_order_is_given_up_and_holds_up_no_other(backend: Docker) -> None:
    async def hang(request: web.Request) -> None:
        if "w-1" in request.query.get("name", ""):
            await asyncio.Event().wait()

    async def scenario(launcher: Launcher) -> None:
        backend.server.fault = hang
        hasty = backend.made(timeout="1s")
        hanging = asyncio.create_task(hasty.start(*to_start("w-1")))
        await running(backend, launcher, launch("w-2"))
        with pytest.raises(LaunchFailed, match=r"did not respond within 1 s; check"):
            await hanging
        await hasty.close()

    play(backend, scenario)


def test_order_that_docker_carries_out_too_late_is_told(backend: Docker) -> None:
    async def scenario(launcher: Launcher) -> None:
        async def hang_at_start(request: web.Request) -> None:
            if request.path.endswith("/start"):
                await asyncio.Event().wait()

        backend.server.fault = hang_at_start
        hasty = backend.made(timeout="3s")
        with pytest.raises(LaunchFailed, match="did not respond"):
            await hasty.start(*to_start("w-1"))
        await hasty.close()
        found = await reach(launcher, "w-1", Phase.ENDED)
        assert found.detail == "its container was created but not started"
        await launcher.stop("w-1", 1)
        await until(lambda: is_empty(launcher))

    play(backend, scenario)


@pytest.mark.parametrize(
    ("status", "advice"),
    [(500, "check Docker's log"), (403, "access to Docker"), (400, "the launcher's settings")],
)
def test_error_of_docker_is_told(backend: Docker, status: int, advice: str) -> None:
    async def fail(request: web.Request) -> web.Response | None:
        return error(status, "out of cheese") if "w-1" in str(request.query) else None

    async def scenario(launcher: Launcher) -> None:
        backend.server.fault = fail
        with pytest.raises(LaunchFailed, match=f"start worker w-1: .*out of cheese; .*{advice}"):
            await launcher.start(*to_start("w-1"))
        await running(backend, launcher, launch("w-2"))

    play(backend, scenario)


def test_answer_that_is_none_is_told(backend: Docker) -> None:
    async def babble(request: web.Request) -> web.Response | None:
        return web.Response(text="<html>") if request.path.endswith("/create") else None

    async def scenario(launcher: Launcher) -> None:
        backend.server.fault = babble
        with pytest.raises(LaunchFailed, match=r"start worker w-1: the server at .* is not Docker"):
            await launcher.start(*to_start("w-1"))

    play(backend, scenario)


def test_worker_that_cannot_start_leaves_no_container(backend: Docker) -> None:
    async def scenario(launcher: Launcher) -> None:
        broken = backend.made(command=["/no/such/program"])
        with pytest.raises(LaunchFailed, match="OCI runtime create failed"):
            await broken.start(*to_start("w-1"))
        assert backend.server.containers == {}
        await broken.close()

    play(backend, scenario)


def test_missing_image_is_fetched_once_for_all(backend: Docker) -> None:
    async def scenario(launcher: Launcher) -> None:
        backend.server.images.clear()
        await asyncio.gather(*(launcher.start(*to_start(f"w-{number}")) for number in range(3)))
        waiting = await launcher.list()
        assert [each.phase for each in waiting] == [Phase.STARTING] * 3
        assert waiting[0].detail == f"the image {IMAGE} is being pulled"
        await launcher.start(*to_start("w-0"))
        await launcher.stop("w-2", 1)
        backend.server.may_pull.set()
        for worker in ("w-0", "w-1"):
            await reach(launcher, worker, Phase.RUNNING)
        assert await find(launcher, "w-2") is None
        assert backend.server.pulls == 1

    play(backend, scenario)


def test_image_that_cannot_be_fetched_is_told(backend: Docker) -> None:
    async def scenario(launcher: Launcher) -> None:
        backend.server.images.clear()
        backend.server.pull_says = [{"errorDetail": {"message": "denied"}, "error": "denied"}]
        backend.server.may_pull.set()
        await launcher.start(*to_start("w-1"))
        detail = (await reach(launcher, "w-1", Phase.ENDED)).detail
        assert "pull the image" in detail
        assert "denied" in detail
        await launcher.stop("w-1", 1)
        assert await launcher.list() == []
        never = backend.made(pull="never")
        with pytest.raises(LaunchFailed, match=r"No such image.*check that the image"):
            await never.start(*to_start("w-2"))
        await never.close()

    play(backend, scenario)


def test_close_leaves_an_image_on_its_way(backend: Docker) -> None:
    async def scenario(launcher: Launcher) -> None:
        backend.server.images.clear()
        await launcher.start(*to_start("w-1"))
        await launcher.close()
        assert await launcher.list() == []

    play(backend, scenario)


def test_no_docker_is_told(monkeypatch: pytest.MonkeyPatch, backend: Docker) -> None:
    async def scenario(launcher: Launcher) -> None:
        missing = backend.made(host="")
        with pytest.raises(LaunchFailed, match="start it, or set `host`"):
            await missing.list()
        await missing.close()

    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
    play(backend, scenario)


def test_container_is_made_as_set() -> None:
    settings = read_settings(
        {
            "type": "docker",
            "image": "worker:1",
            "network": "jackalope",
            "extra_hosts": ["host.docker.internal:host-gateway"],
            "volumes": ["/srv/data:/data:ro"],
            "user": "1000",
            "memory_bytes_max": 1 << 30,
            "cpus": 1.5,
            "labels": {"team": "infra"},
            "log_bytes_max": 0,
        }
    )
    assert isinstance(settings, DockerSettings)
    config = container_config(settings, launch("w-1"), {"A": "b=c"}, "one")
    assert "Cmd" not in config
    assert config["Env"] == ["A=b=c"]
    assert config["User"] == "1000"
    assert config["Labels"] == {
        "team": "infra",
        "jackalope.owner": "one",
        "jackalope.worker": "w-1",
        "jackalope.namespace": "default",
        "jackalope.pool": "core",
        "jackalope.key": "42",
        "jackalope.generation": str(2**63 + 1),
        "jackalope.version": "v1.2+dirty",
    }
    assert config["HostConfig"] == {
        "Init": True,
        "RestartPolicy": {"Name": "no"},
        "Binds": ["/srv/data:/data:ro"],
        "ExtraHosts": ["host.docker.internal:host-gateway"],
        "Memory": 1 << 30,
        "NanoCpus": 1_500_000_000,
        "NetworkMode": "jackalope",
    }

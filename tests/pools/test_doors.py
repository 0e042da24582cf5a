"""Pools with real workers, seen and changed over REST, the native protocol and the command line."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from jackalope import Jackalope
from jackalope.broker.config.schema import NativeConfig
from jackalope.doors.native import NativeDoor
from jackalope.pools.launcher import Reach
from jackalope.pools.launchers import make_launcher
from jackalope.pools.reconciler import PoolService
from tests.doors.http.harness import open_http
from tests.pools.harness import LIGHT_WORKER

PATIENCE_S = 60.0
COMMAND = [sys.executable, "-E", str(LIGHT_WORKER)]


class Open:
    """A broker with both doors and two launchers, one of which cannot start anything."""

    def __init__(self, address: str, http: httpx.AsyncClient, app: Jackalope) -> None:
        self.address = address
        self.http = http
        self.app = app

    async def pool(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.http.get("/api/v1/pools/core")).json()
        return found

    async def until(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the pool is so, and return it."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so(pool := await self.pool()):  # noqa: ASYNC110  over HTTP
                await asyncio.sleep(0.05)
        return pool

    async def change(self, **settings: object) -> httpx.Response:
        return await self.http.put("/api/v1/pools/core", json=settings)

    async def act(self, key: str, action: str) -> httpx.Response:
        body = {"key": key, "action": action}
        return await self.http.post("/api/v1/pools/core/groups", json=body)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Open]:
    async with open_http() as house:
        launchers = {
            name: make_launcher({"type": "subprocess", "command": command}, folder / name, "me")
            for name, command in (("local", COMMAND), ("broken", ["/no/such/program"]))
        }
        pools = PoolService(house.broker, launchers, every_s=0.1)
        await pools.start()
        door = NativeDoor(house.broker, NativeConfig(port=0))
        await door.start()
        address = f"jackalope://127.0.0.1:{door.port}"
        pools.begin(Reach(address))
        try:
            async with Jackalope(address) as app:
                home = Open(address, house.client, app)
                yield home
                await house.client.delete("/api/v1/pools/core")
                async with asyncio.timeout(PATIENCE_S):
                    while await launchers["local"].list():  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
        finally:
            await pools.stop()
            await door.stop()


@pytest.mark.feature("O25")
def test_a_pool_over_rest(tmp_path: Path) -> None:
    asyncio.run(over_rest(tmp_path))


async def over_rest(folder: Path) -> None:
    async with opened(folder) as home:
        assert (await home.http.get("/api/v1/pools/core")).status_code == 404
        assert (await home.act("k", "start")).status_code == 404
        unknown = await home.change(launcher="nobody")
        assert "use none, local, broken" in unknown.json()["error"]
        assert (await home.change(launcher="local", stop_delay="1m")).json()["settings"][
            "stop_delay"
        ] == "1m"
        assert await home.app.call("core", "a/b", b"1", timeout=PATIENCE_S) == b"a/b|1"
        # A worker can be ready before its launcher has told what it is called there.
        pool = await home.until(lambda pool: pool["groups"][0]["launches"][0]["external_id"])
        (group,) = pool["groups"]
        assert group["launches"][0]["state"] == "ready"
        assert (group["key"], group["state"], group["wanted"]) == ("a/b", "active", 1)
        assert (pool["up"], pool["launched"], pool["failed"]) == (1, 1, 0)
        await status_is_told(home, group["workers"][0])
        metrics = (await home.http.get("/metrics")).text
        name = '{namespace="default",queue="core",state="active"} 1.0'
        assert f"jackalope_pool_groups{name}" in metrics
        assert 'jackalope_pool_launches_total{namespace="default",queue="core"} 1.0' in metrics
        assert (await home.act("a/b", "pin")).json()["groups"][0]["is_pinned"] is True
        assert (await home.act("a/b", "stop")).status_code == 409
        await home.act("a/b", "unpin")
        assert (await home.act("a/b", "stop")).status_code == 200
        await home.until(lambda pool: not pool["groups"])


async def status_is_told(home: Open, worker: str) -> None:
    told = (await home.http.get("/status", params={"keys": ["a/b", "c"]})).json()["workers"]
    assert told[worker]["status"] == "Ready"
    assert told[worker]["worker_metadata"]["worker_key"] == "a/b"
    assert (await home.http.get("/status", params={"keys": "c"})).json() == {"workers": {}}
    for path in ("/version", "/osrdyne/version"):
        assert (await home.http.get(path)).json()["git_describe"]
    assert (await home.http.get("/osrdyne/health")).json() == {"status": "ok"}
    same = (await home.http.get("/osrdyne/status", params={"keys": ["a/b", "c"]})).json()
    assert same["workers"] == told


@pytest.mark.feature("O20")
def test_another_version_replaces_the_workers(tmp_path: Path) -> None:
    asyncio.run(replace(tmp_path))


async def replace(folder: Path) -> None:
    async with opened(folder) as home:
        await home.change(launcher="local", version="1")
        await home.app.call("core", "k", b"1", timeout=PATIENCE_S)
        await home.change(version="2")

        def is_replaced(pool: dict[str, Any]) -> bool:
            launches = pool["groups"][0]["launches"]
            return [(each["version"], each["state"]) for each in launches] == [("2", "ready")]

        await home.until(is_replaced)
        assert await home.app.call("core", "k", b"2", timeout=PATIENCE_S) == b"k|2"


def test_a_launch_that_fails_is_explained(tmp_path: Path) -> None:
    asyncio.run(explain(tmp_path))


async def explain(folder: Path) -> None:
    async with opened(folder) as home:
        await home.change(launcher="broken")
        handle = await home.app.submit("core", b"1", key="k")
        await home.until(lambda pool: pool["failed"] > 0)
        causes = {cause.why: cause.text for cause in (await handle.explain()).causes}
        assert "/no/such/program" in causes["pool_failing"]
        pool = await home.pool()
        assert "/no/such/program" in pool["groups"][0]["trouble"]
        await home.change(launcher="local")
        assert await handle.wait(PATIENCE_S) == "succeeded"


@pytest.mark.feature("O19")
def test_scaling_out_and_in(tmp_path: Path) -> None:
    asyncio.run(scale(tmp_path))


async def scale(folder: Path) -> None:
    async with opened(folder) as home:
        await home.app.declare_queue("core", preset="pool")
        await home.app.pause_queue("core")
        limits = {"workers_max": 3, "tasks_per_worker": 10, "clear_within": 0}
        await home.change(launcher="local", shrink_delay="200ms", **limits)
        handles = [await home.app.submit("core", b"x", key="k") for _ in range(25)]
        await home.app.resume_queue("core")
        await home.until(lambda pool: pool["launched"] >= 3)
        for handle in handles:
            assert await handle.wait(PATIENCE_S) == "succeeded"
        await home.until(lambda pool: len(pool["groups"][0]["workers"]) == 1)


def test_pools_on_the_command_line(tmp_path: Path) -> None:
    asyncio.run(on_the_command_line(tmp_path))


async def on_the_command_line(folder: Path) -> None:
    async with opened(folder) as home:

        async def jackalope(*words: str) -> Any:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "jackalope", "--broker", home.address),
                *("--format", "json", *words),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, error = await process.communicate()
            return json.loads(out) if process.returncode == 0 else error.decode()

        settings = await jackalope("pools", "set", "core", "launcher=local", "stop_delay=1m")
        assert settings["launcher"] == "local"
        assert "workers_maxx" in await jackalope("pools", "set", "core", "workers_maxx=1")
        await jackalope("pools", "pin", "core", "k")
        await home.until(lambda pool: pool["groups"][0]["workers"] != [])
        shown = await jackalope("pools", "show", "core")
        assert [group["key"] for group in shown["groups"]] == ["k"]
        assert [pool["queue"] for pool in await jackalope("pools")] == ["core"]
        assert "is pinned" in await jackalope("pools", "stop", "core", "k")
        assert "has no pool" in await jackalope("pools", "show", "other")

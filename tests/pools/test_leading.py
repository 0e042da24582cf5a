"""The pools of a cluster when another node leads: the next leader adopts what it can see."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jackalope.broker.access import THE_BROKER
from jackalope.broker.config.schema import ClusterConfig, Config, DataConfig
from jackalope.broker.local_session import LocalSession
from jackalope.broker.service import Broker
from jackalope.cli.serving import make_launchers
from jackalope.core.commands import ActOnGroup, DeclarePool, GroupAction
from jackalope.pools.launcher import Reach
from jackalope.pools.launchers import is_local
from jackalope.pools.leading import LeaderPools
from jackalope.storage import Level, Storage
from tests.pools.launchers.backends import PATIENCE_S, Backend, Subprocess, until
from tests.pools.launchers.docker import Docker
from tests.pools.launchers.kubernetes import Kubernetes, KubernetesHpa

REACH = Reach("jackalope://127.0.0.1:1,127.0.0.1:2")
POOL: dict[str, object] = {"launcher": "l", "workers_min": 1, "workers_max": 1}


class Member:
    """A node that leads when it is told to."""

    def __init__(self, name: str, folder: Path, settings: dict[str, object]) -> None:
        config = Config(
            data=DataConfig(folder=str(folder / name)),
            cluster=ClusterConfig(id="c", node=name),
            launchers={"l": settings},
        )
        self.broker = Broker(Storage.open(None, Level.MEMORY))
        self.launcher = make_launchers(config)["l"]
        local = ["l"] if is_local(settings) else []
        self.pools = LeaderPools(self.broker, {"l": self.launcher}, local, REACH, 0.05)

    async def lead(self) -> None:
        await self.pools.lead()
        session = LocalSession(self.broker, THE_BROKER)
        session.open()
        await session.ask(DeclarePool(queue="q", changes=POOL))
        await session.ask(ActOnGroup(queue="q", key="k", action=GroupAction.PIN))
        session.close()
        self.pools.begin()

    async def workers(self) -> list[str]:
        return [each.launch for each in await self.launcher.list()]

    async def launches(self) -> list[str]:
        """Return what the core has launched or adopted, and its launcher has reported."""
        pools = (await self.broker.read(lambda engine: engine.core)).pools
        return [launch.id for launch in pools.launches.values() if launch.is_listed]

    async def keeps_one(self) -> bool:
        return len(await self.launches()) == 1


@asynccontextmanager
async def two(
    backend: Backend, settings: dict[str, object]
) -> AsyncIterator[tuple[Member, Member]]:
    members = [Member(name, backend.folder, settings) for name in ("a", "b")]
    for each in members:
        await each.broker.start()
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            yield members[0], members[1]
    finally:
        for each in members:
            for worker in await each.workers():
                await each.launcher.stop(worker, 0)
            await each.pools.stop()
            await each.broker.stop()


@pytest.mark.parametrize("kind", [Docker, Kubernetes, KubernetesHpa])
def test_the_next_leader_adopts_what_all_nodes_see(
    kind: type[Docker | Kubernetes], tmp_path: Path
) -> None:
    async def run() -> None:
        backend = kind(tmp_path)
        await backend.open()
        async with two(backend, backend.settings()) as (first, second):
            await first.lead()
            await until(first.keeps_one)
            began = await first.workers()
            first.pools.follow(another_leads=True)
            await second.lead()
            await until(second.keeps_one)
            assert await second.launches() == began
            assert await first.workers() == await second.workers() == began
        await backend.close()

    asyncio.run(run())


def test_what_no_other_node_sees_ends_when_another_leads(tmp_path: Path) -> None:
    async def run() -> None:
        backend = Subprocess(tmp_path)
        command, env = [str(backend.worker)], {"DUMP": str(backend.dump)}
        settings: dict[str, object] = {"type": "subprocess", "command": command, "env": env}
        async with two(backend, settings) as (first, second):
            await first.lead()
            await until(first.keeps_one)
            began = await first.workers()
            first.pools.follow(another_leads=False)
            await first.lead()  # Nobody else came: it goes on with what it has.
            await until(first.keeps_one)
            assert await first.workers() == began
            first.pools.follow(another_leads=True)
            await second.lead()
            await until(second.keeps_one)
            await until(lambda: _has_none(first))
            assert await second.workers() not in ([], began)

    asyncio.run(run())


async def _has_none(member: Member) -> bool:
    return not await member.workers()

"""A standby takes the place of a cluster: no node acknowledges anything afterwards."""

import asyncio
from pathlib import Path

import pytest

from jackalope.broker.cluster import peers
from jackalope.broker.cluster.leadership import Role
from jackalope.broker.cluster.peer_link import Credentials, PeerRefused, connect
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from jackalope.storage.standby import read_fence
from jackalope.wire.peer import AskFence, Fenced
from tests.broker.cluster.machines import Cluster, Machine, in_loop, running, until
from tests.broker.cluster.test_node import tasks

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ASK_EVERY_S", 0.1)


async def fence(machine: Machine) -> int:
    """Ask a node as a standby does, and return the last batch."""
    link = await connect("127.0.0.1", machine.peer_ports[machine.name], Credentials("s"))
    try:
        return (await link.ask(AskFence("s:7420"), Fenced)).last
    finally:
        await link.leave()


async def follower(cluster: Cluster) -> Machine:
    leader = await cluster.led()
    return next(each for each in cluster.machines if each is not leader)


@pytest.mark.parametrize("asks_leader", [True, False])
@in_loop
async def test_a_fence_reaches_every_node_and_outlives_it(
    tmp_path: Path, asks_leader: bool
) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
        for task in tasks(1, 5):
            await cluster.submit(task)
        leader = await cluster.led()
        away = await follower(cluster)
        await away.lose()
        others = [each for each in cluster.machines if each is not away]
        asked = leader if asks_leader else next(each for each in others if each is not leader)
        await until(lambda: asked.node.view.leader == leader.name)
        last = await fence(asked)
        assert last == leader.broker.engine.sequence
        await until(lambda: all(each.node.view.role is Role.FENCED for each in others))
        assert leader.node.elsewhere("native") == "s:7420"
        assert "s:7420 was promoted" in leader.broker.health.down
        assert await fence(asked) == last  # Safe to repeat.
        # One that was away reads it, as does one that is started again.
        await away.start()
        await others[0].lose()
        await others[0].start()
        await until(lambda: all(e.node.view.role is Role.FENCED for e in cluster.machines))
        for each in cluster.machines:
            assert each.broker.engine.sequence == last
            found = read_fence(tmp_path / each.name)
            assert found is not None
            assert (found.by, found.sequence) == ("s:7420", last)
        await asyncio.sleep(0.5)  # Longer than the takeover of these nodes.
        assert not any(each.leads for each in cluster.machines)


@in_loop
async def test_without_a_leader_there_is_no_fence(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
        left = await follower(cluster)
        for each in cluster.machines:
            each.node.refusals.append(lambda: "not now")
        await until(lambda: not any(each.leads for each in cluster.machines))
        await until(lambda: not left.node.view.leader)
        with pytest.raises(PeerRefused, match="no node of the cluster leads"):
            await fence(left)
        assert left.node.view.role is Role.FOLLOWING

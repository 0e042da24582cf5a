"""Rolling upgrades: nodes of two versions work together, then the level of the log is raised."""

import asyncio
import time
from pathlib import Path
from typing import Self

import pytest

from jackalope import Jackalope
from jackalope.broker.cluster.peer_link import PeerGone
from jackalope.core.records import LEVEL
from tests.cluster import application
from tests.cluster.brokers import Brokers, Process, until
from tests.cluster.test_commands import run, status

pytestmark = pytest.mark.timeout(400)

OLDER = "tests.cluster.older"

#: How long nothing may be acknowledged while a node is replaced. In earnest a hand-over takes
#: less than a second; here two cores run all of it, and other tests.
GAP_S = 20.0


class Submitting:
    """Submits tasks one after the other, as long as it is open."""

    def __init__(self, brokers: Brokers) -> None:
        self._address = Jackalope(brokers.address).address
        self._task: asyncio.Task[None] | None = None
        self.gap_s = 0.0
        self.count = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._submit())
        return self

    async def _submit(self) -> None:
        app = application.app
        app.address = self._address
        async with app:
            told_s = time.monotonic()
            while True:
                await application.mark.submit("/nowhere", self.count)
                self.count += 1
                self.gap_s = max(self.gap_s, time.monotonic() - told_s)
                told_s = time.monotonic()
                await asyncio.sleep(0.01)

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def follows(node: Process) -> bool:
    try:
        return node.status().role == "following"
    except PeerGone:
        return False


async def replace(brokers: Brokers, node: Process) -> None:
    """Stop a node of the old version, and start it with the new one."""
    await asyncio.to_thread(node.stop, 60)
    node.module = "jackalope"
    node.start()
    await asyncio.to_thread(until, lambda: follows(node), brokers.all, 120)


async def upgrade(brokers: Brokers) -> tuple[float, int]:
    """Replace the followers, then let the leader step down and replace it."""
    async with Submitting(brokers) as load:
        old = await asyncio.to_thread(brokers.leader)
        for node in brokers.all:
            if node is not old:
                await replace(brokers, node)
        code, _, err = await asyncio.to_thread(run, brokers, "upgrade")
        assert code == 1
        assert f"{old.name} (Jackalope" in err
        assert "reads up to 1" in err
        code, _, err = await asyncio.to_thread(run, brokers, "step-down")
        assert code == 0, err
        assert await asyncio.to_thread(brokers.leader) is not old
        await replace(brokers, old)
        begun = load.count
        await asyncio.to_thread(until, lambda: load.count >= begun + 20, brokers.all)
        return load.gap_s, load.count


def test_nodes_are_replaced_one_by_one_and_then_the_level_is_raised(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    try:
        for each in brokers.all:
            each.module = OLDER
            each.start()
        brokers.leader()
        assert status(brokers)[1]["level"] == 1
        gap_s, count = asyncio.run(upgrade(brokers))
        assert gap_s < GAP_S
        _, view = status(brokers)
        assert view["level"] == 1  # It was not raised yet, though all members read more.
        assert any("`cluster upgrade` raises it" in each for each in view["problems"])
        code, out, err = run(brokers, "upgrade")
        assert code == 0, err
        assert f"is raised from 1 and is now at level {LEVEL}" in out
        assert status(brokers)[1]["level"] == LEVEL
        leader = brokers.leader()
        assert sum(leader.get("/api/v1/stats")[1]["counts"].values()) >= count

        # The level outlives the leader, and a node of the old version does not guess.
        leader.kill()
        leader.module = OLDER
        leader.start()
        assert brokers.leader() is not leader
        until(lambda: "reads up to 1" in (is_told(leader)), brokers.all)
        assert status(brokers)[1]["level"] == LEVEL
    finally:
        for each in brokers.all:
            each.end()


def is_told(node: Process) -> str:
    """Return why a node does not follow; or what it logged, if it did not even start."""
    try:
        return node.status().why
    except PeerGone:
        return node.log()[-2_000:]

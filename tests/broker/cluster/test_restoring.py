"""Nodes that the log cannot bring up any more: they take over the state of another."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from jackalope.broker.cluster import peer_host, peers, restoring
from jackalope.broker.cluster.leadership import Role
from jackalope.core import Core
from jackalope.storage import DiskFull
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from jackalope.storage.snapshots import Incoming
from tests.broker.cluster.machines import Cluster, Machine, in_loop, running, until
from tests.broker.cluster.test_node import check_equal, tasks

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ASK_EVERY_S", 0.1)


async def with_a_log_that_is_cut(cluster: Cluster, *, first: int = 1) -> list[Machine]:
    """Submit tasks while the followers are away, cut the log, and return the followers."""
    leader = await cluster.led()
    await cluster.settled()
    away = [each for each in cluster.machines if each is not leader]
    for each in away:
        await each.lose()
    for task in tasks(first, 30):
        await cluster.submit(task)
    journal = leader.node._journal
    await leader.broker.in_journal(lambda: journal.cut(journal.last() - 2))
    return away


async def load(cluster: Cluster, first: int) -> None:
    """Submit tasks without a pause."""
    number = first
    while True:
        await cluster.submit(tasks(number, 1)[0])
        number += 1


@pytest.mark.parametrize("is_empty", [True, False])
@in_loop
async def test_a_node_is_restored_under_load(tmp_path: Path, is_empty: bool) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
        for task in tasks(1, 5):
            await cluster.submit(task)
        away = await with_a_log_that_is_cut(cluster, first=10)
        loading = asyncio.create_task(load(cluster, 1_000))
        for each in away:
            if is_empty:
                shutil.rmtree(tmp_path / each.name)
            await each.start()
        before = len(cluster.acknowledged)
        await until(lambda: all(each.node.view.role is Role.FOLLOWING for each in away))
        await until(lambda: len(cluster.acknowledged) > before + 10)
        loading.cancel()
        with suppress(asyncio.CancelledError):
            await loading
        await check_equal(cluster)
        # What was restored can lead, and survives a restart.
        leader = await cluster.led()
        await leader.lose()
        await cluster.submit(tasks(500, 1)[0])
        await leader.start()
        await check_equal(cluster)


@in_loop
async def test_two_nodes_restore_at_once(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
        away = await with_a_log_that_is_cut(cluster)
        for each in away:
            shutil.rmtree(tmp_path / each.name)
        await asyncio.gather(*(each.start() for each in away))
        await check_equal(cluster)
        left = await asyncio.to_thread(lambda: sorted(tmp_path.glob("*/shards/0/*")))
        names = {each.name.partition("-")[0] for each in left}
        assert names == {"logs.db", "mirror", "series.db", "tasks.db"}


def _breaks_off(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Let the sender be gone after the first part."""

    async def some() -> AsyncIterator[bytes]:
        yield (await anext(chunks))[:100_000]
        raise ConnectionResetError("the sender was killed")

    return some()


def _is_damaged(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Let the sender's own file be damaged: the digest of what it sends is right."""

    async def some() -> AsyncIterator[bytes]:
        async for chunk in chunks:
            yield chunk[:8192] + bytes(8192) + chunk[16384:]

    return some()


@pytest.mark.parametrize("fault", [_breaks_off, _is_damaged])
def test_a_bad_sender_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: object
) -> None:
    assert callable(fault)
    real, asked = peer_host._chunks, []

    def chunks(path: Path) -> AsyncIterator[bytes]:
        asked.append(path)
        found = real(path)
        if len(asked) > 2:
            return found
        broken = fault(found)
        assert isinstance(broken, AsyncIterator)
        return broken

    monkeypatch.setattr(peer_host, "_chunks", chunks)
    monkeypatch.setattr("jackalope.broker.cluster.node._RESTORE_S", 0.05)

    async def play() -> None:
        log = MemoryLog()
        async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
            away = await with_a_log_that_is_cut(cluster)
            for each in away:
                await each.start()
            await check_equal(cluster)
        assert len(asked) >= 4

    asyncio.run(play())


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [True]

    class Filling(Incoming):
        def add(self, data: bytes) -> None:
            if full[0]:
                raise DiskFull("no room")
            super().add(data)

    monkeypatch.setattr(restoring, "Incoming", Filling)
    monkeypatch.setattr("jackalope.broker.cluster.node._RESTORE_S", 0.05)

    async def play() -> None:
        log = MemoryLog()
        async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
            away = await with_a_log_that_is_cut(cluster)
            for each in away:
                await each.start()
            await until(lambda: all(each.node.view.role is Role.RESTORING for each in away))
            assert all("the log begins" in each.node.status().why for each in away)
            await asyncio.sleep(0.3)
            full[0] = False
            await check_equal(cluster)

    asyncio.run(play())


@in_loop
async def test_a_node_that_restores_can_be_stopped(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
        away = await with_a_log_that_is_cut(cluster)
        leader = await cluster.led()
        await leader.lose()  # Nobody has a state to give.
        for each in away:
            await each.start()
        await until(lambda: all(each.node.view.role is Role.RESTORING for each in away))
        for each in away:
            await each.stop()
            await each.start()
        await leader.start()
        await check_equal(cluster)


@in_loop
async def test_doors_are_answered_while_a_state_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of many tasks takes seconds: the loop goes on meanwhile."""
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        await cluster.submit(tasks(1, 1)[0])
        leader = await cluster.led()
        engine, has_ticked, went_on = leader.broker.engine, threading.Event(), []
        stored = engine.stored

        def build() -> tuple[Core, int]:
            went_on.append(has_ticked.wait(30))
            return stored()

        monkeypatch.setattr(engine, "stored", build)
        asyncio.get_running_loop().call_later(0.1, has_ticked.set)
        leader.node.step_down()
        await until(lambda: bool(went_on))
        assert went_on[0], "the loop stood still"
        await cluster.settled()
        assert leader.submitted() == cluster.acknowledged

"""The log is cut through what every member has, and no further than a member can come back from."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from jackalope.broker import engine, writers
from jackalope.broker.cluster import node, peers, trimming
from jackalope.broker.cluster.trimming import Keep, Need, cut_through
from jackalope.core.durations import DAY, SECOND
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from tests.broker.cluster.machines import Cluster, Machine, running, until
from tests.broker.cluster.test_node import check_equal, tasks

pytestmark = pytest.mark.timeout(120)

KEEP = Keep(1_000, DAY)


@pytest.mark.parametrize(
    ("own", "others", "size", "through"),
    [
        (100, [Need(90), Need(80)], 10, 80),
        (70, [Need(90), Need(80)], 10, 70),  # never more than the leader itself needs
        (100, [Need(90), Need(20, 5 * SECOND)], 10, 20),  # one that is gone is waited for
        (100, [Need(90), Need(20, 2 * DAY)], 10, 90),  # not for ever
        (100, [Need(90), Need(20, 5 * SECOND)], 1_001, 90),  # nor at any price
        (100, [Need(90), Need(0, 5 * SECOND)], 10, 0),  # one that was never heard of
        (100, [Need(90), Need(20)], 1_001, 20),  # one that is slow is waited for longer
        (100, [Need(90), Need(20)], 2_001, 100),
        (100, [Need(90), Need(95, is_restoring=True)], 10, 0),
        (100, [Need(90), Need(95, is_restoring=True)], 1_001, 0),
        (100, [Need(90), Need(95, is_restoring=True)], 2_001, 100),
        (100, [Need(90), Need(95, 5 * SECOND, is_restoring=True)], 1_001, 90),
        (100, [], 10, 100),
    ],
)
def test_how_far_the_log_is_cut(own: int, others: list[Need], size: int, through: int) -> None:
    assert cut_through(own, others, size, KEEP) == through


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ASK_EVERY_S", 0.05)
    monkeypatch.setattr(trimming, "_TRIM_S", 0.1)
    monkeypatch.setattr(trimming, "_SYNC_S", 0.1)


async def submit(cluster: Cluster, first: int, count: int) -> None:
    for task in tasks(first, count):
        await cluster.submit(task)


async def flushed(machines: Iterable[Machine]) -> None:
    await asyncio.gather(*(each.broker.flush() for each in machines))


def first_batch(machine: Machine) -> int:
    return machine.node._journal.begins()


async def restart_each(cluster: Cluster, machines: list[Machine]) -> None:
    """Let each node start again from its own disk, and the cluster go on."""
    for each in machines:
        await each.stop()
        await each.start()
        await cluster.settled()
        assert each.node.restores == 0
    await submit(cluster, 100, 5)
    await check_equal(cluster)


def test_what_all_have_is_cut_and_all_start_again_from_their_own_disks(tmp_path: Path) -> None:
    async def play() -> None:
        log = MemoryLog()
        async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
            await submit(cluster, 1, 30)
            machines = await cluster.settled()
            await flushed(machines)
            await until(lambda: first_batch(machines[0]) > 20)
            await restart_each(cluster, machines)

    asyncio.run(play())


@pytest.mark.parametrize("beats_max", [5, 1_000])
def test_beats_of_an_idle_cluster_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beats_max: int
) -> None:
    """The last batch stays, and all behind it; so there is an empty one now and then."""
    monkeypatch.setattr(node, "_BEATS_MAX", beats_max)
    monkeypatch.setattr(engine, "FORGET_EVERY_US", SECOND // 10)
    monkeypatch.setattr(writers, "_FLUSH_EVERY_US", SECOND // 10)

    async def play() -> None:
        log = MemoryLog()
        async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
            await submit(cluster, 1, 3)
            machines = await cluster.settled()
            await flushed(machines)
            idle_at = log.end
            await until(lambda: log.end > idle_at + 40)
            if beats_max > 40:
                trims = sum(each.node.trimmer.times for each in machines)
                await until(lambda: sum(each.node.trimmer.times for each in machines) > trims + 5)
                assert min(log.messages) < idle_at
                return
            await until(lambda: min(log.messages) > idle_at + 20)
            monkeypatch.setattr(node, "_BEATS_MAX", 1_000)
            await restart_each(cluster, machines)

    asyncio.run(play())


async def lose_one(folder: Path, keep: Keep) -> tuple[int, int]:
    """Let a member be away while the others go on; return how it came back.

    Returns:
        The batch with which the log began when it was back, and how often it was restored.
    """
    log = MemoryLog()
    async with running(folder, lambda: MemoryEngine(log), has_peers=True) as cluster:
        await submit(cluster, 1, 5)
        leader = await cluster.led()
        up = await cluster.settled()
        away = next(each for each in up if each is not leader)
        staying = [each for each in up if each is not away]
        await away.lose()
        for each in staying:
            each.node.trimmer.keep = keep
        before = leader.broker.engine.sequence
        await submit(cluster, 10, 30)
        await flushed(staying)
        await until(lambda: leader.broker.engine.durable() > before + 20)
        trims = leader.node.trimmer.times
        await until(lambda: leader.node.trimmer.times > trims + 3)
        begins = first_batch(leader)
        await away.start()
        await check_equal(cluster)
        return begins, away.node.restores


def test_a_member_that_is_away_is_waited_for(tmp_path: Path) -> None:
    begins, restores = asyncio.run(lose_one(tmp_path, Keep()))
    assert begins < 12
    assert restores == 0


def test_a_member_that_is_away_for_too_long_is_restored(tmp_path: Path) -> None:
    begins, restores = asyncio.run(lose_one(tmp_path, Keep(bytes_max=100)))
    assert begins > 20
    assert restores > 0


def test_planted_the_leader_looks_at_its_own_history_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log then no longer has what the member lacks."""
    monkeypatch.setattr(trimming, "cut_through", lambda own, *_: own)
    begins, restores = asyncio.run(lose_one(tmp_path, Keep()))
    assert begins > 20
    assert restores > 0

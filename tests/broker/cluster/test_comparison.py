"""State digests: a node that applies records to another effect is found, and does not lead."""

import asyncio
from pathlib import Path

import pytest

from jackalope.broker.cluster.leadership import Role
from jackalope.broker.cluster.peer_host import PeerHost
from jackalope.core.records import AnyRecord, TaskSubmitted
from jackalope.core.state import digest
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from tests.broker.cluster.machines import Cluster, Machine, in_loop, running, until
from tests.broker.cluster.test_node import check_equal, tasks

pytestmark = pytest.mark.timeout(120)


def compare_often(cluster: Cluster) -> None:
    for machine in cluster.machines:
        machine.node.comparison.every_batches = 5


@in_loop
async def test_nodes_that_are_equal_are_found_equal(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        compare_often(cluster)
        for task in tasks(1, 30):
            await cluster.submit(task)
        await check_equal(cluster)
        followers = [each for each in cluster.machines if not each.leads]
        await until(lambda: all(each.node.comparison.compared >= 5 for each in followers))
        assert not any(each.node.status().diverged for each in cluster.machines)


def skip_one(machine: Machine) -> None:
    """Let a node forget to apply one submitted task, as a bug would."""
    core = machine.broker.engine.core
    apply, skipped = core.apply, list[AnyRecord]()

    def apply_the_rest(*records: AnyRecord) -> None:
        if not skipped:
            skipped.extend(each for each in records if isinstance(each, TaskSubmitted))
            records = tuple(each for each in records if each not in skipped)
        apply(*records)

    core.apply = apply_the_rest  # type: ignore[method-assign]


@in_loop
async def test_a_node_that_skips_a_record_is_found_and_restored(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
        compare_often(cluster)
        await cluster.submit(tasks(1, 1)[0])
        await cluster.settled()
        broken = next(each for each in cluster.machines if not each.leads)
        skip_one(broken)
        for task in tasks(2, 10):
            await cluster.submit(task)
        await until(lambda: broken.node.status().diverged == 1)
        others = [each for each in cluster.machines if each is not broken]
        assert not any(each.node.status().diverged for each in others)
        # It has taken the state of another node, and is equal again.
        await cluster.submit(tasks(20, 1)[0])
        await check_equal(cluster)
        await until(lambda: broken.node.view.role is Role.FOLLOWING)


@in_loop
async def test_a_round_compares_all_of_the_state_while_tasks_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "TASKS_PER_SLICE", 2)
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        for task in tasks(1, 40):
            await cluster.submit(task)
        leader = await cluster.led()
        followers = [each for each in await cluster.settled() if each is not leader]

        async def submit_more() -> None:
            for task in tasks(100, 60):
                await cluster.submit(task)

        more = asyncio.create_task(submit_more())
        slices = await leader.node.comparison.go_round(leader.broker)
        await more
        assert slices >= 16
        await until(lambda: all(each.node.comparison.compared >= slices for each in followers))
        # And once more, while nothing else is written.
        assert await leader.node.comparison.go_round(leader.broker) >= slices
        await until(lambda: all(each.node.comparison.compared >= 2 * slices for each in followers))
        assert not any(each.node.comparison.diverged for each in cluster.machines)
        with pytest.raises(ValueError, match="does not lead"):
            await PeerHost(followers[0].broker, "c", "x", followers[0].node).compare()

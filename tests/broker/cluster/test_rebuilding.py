"""A log that is lost: one node begins a new one with its mirror, and the others find their way."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jackalope.broker.cluster import node, peers
from jackalope.broker.cluster.founding import EPOCHS_SKIPPED, Left, found_again, lacks, left_in
from jackalope.broker.cluster.leadership import Role
from jackalope.storage import FolderBusy, StorageFault
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from tests.broker.cluster.machines import Cluster, in_loop, running, until
from tests.broker.cluster.test_node import check_equal, tasks
from tests.ports import free_port

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ASK_EVERY_S", 0.1)
    monkeypatch.setattr(node, "_RESTORE_S", 0.1)


async def lose_all(cluster: Cluster) -> None:
    for each in cluster.machines:
        if each.is_up:
            await each.lose()


async def submit(cluster: Cluster, first: int, count: int) -> None:
    for task in tasks(first, count):
        await cluster.submit(task)


def left(tmp_path: Path) -> dict[str, Left]:
    return {name: left_in(tmp_path / name) for name in "abc"}


@in_loop
async def test_nodes_that_were_behind_take_over_what_the_longest_has(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
        await submit(cluster, 1, 10)
        leader = await cluster.led()
        behind, equal = [each for each in cluster.machines if each is not leader]
        await cluster.settled()
        await behind.lose()
        await submit(cluster, 11, 10)
        await cluster.settled()
        await lose_all(cluster)
        epoch = leader.node.view.epoch
        found = left(tmp_path)
        longest = found[leader.name]
        assert longest.leader == leader.name
        assert longest.last > found[behind.name].last
        assert lacks(longest, found.values()) == []
        assert f"{longest.folder} has the batches" in lacks(found[behind.name], [longest])[0]
        assert found_again(tmp_path / leader.name, epoch) == ""

        log.messages.clear()
        log.end = 0
        for each in cluster.machines:
            each.founder = leader.name
        for each in (equal, behind):  # They wait for the founder.
            await each.start()
        await leader.start()
        assert (await cluster.led()).name == leader.name
        assert leader.node.view.epoch == epoch + EPOCHS_SKIPPED + 1
        await submit(cluster, 21, 3)
        await check_equal(cluster)
        assert len(leader.submitted()) == 23
        assert (behind.node.restores, equal.node.restores) == (1, 0)


@in_loop
async def test_a_claim_more_or_less_is_no_other_history(tmp_path: Path) -> None:
    """The last claim stood in one mirror alone, and then no batch."""
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
        await submit(cluster, 1, 5)
        await cluster.settled()
        await lose_all(cluster)
        before = left(tmp_path)
        a, b, c = cluster.machines
        await a.start()
        await until(lambda: a.leads)
        await a.lose()
        found = left(tmp_path)
        if found["a"].last == before["b"].last:
            assert found["a"].epoch > before["b"].epoch
        found_again(tmp_path / "a", found["a"].epoch)
        log.messages.clear()
        log.end = 0
        for each in cluster.machines:
            each.founder = "a"
            await each.start()
        await submit(cluster, 6, 3)
        await check_equal(cluster)
        await until(lambda: {b.node.view.role, c.node.view.role} == {Role.FOLLOWING})


@in_loop
async def test_a_node_that_has_more_than_the_new_log_is_not_overwritten(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True) as cluster:
        await submit(cluster, 1, 5)
        await cluster.settled()
        leader = await cluster.led()
        other, short = [each for each in cluster.machines if each is not leader]
        await short.lose()
        await submit(cluster, 6, 5)
        await cluster.settled()
        await lose_all(cluster)
        epoch = leader.node.view.epoch
        found_again(tmp_path / short.name, epoch)
        log.messages.clear()
        log.end = 0
        for each in cluster.machines:
            each.founder = short.name
            await each.start()
        for each in (leader, other):
            await until(lambda each=each: each.node.view.role is Role.QUARANTINED)  # type: ignore[misc]
            assert len(each.submitted()) == 10
        assert short.leads


def test_folders_that_are_none_or_in_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageFault, match="not the data folder of a node"):
        left_in(tmp_path)


@in_loop
async def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        await submit(cluster, 1, 1)
        for job in (lambda: left_in(tmp_path / "a"), lambda: found_again(tmp_path / "a", 1)):
            with pytest.raises(FolderBusy, match="in use by a broker"):
                job()


def command(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "jackalope", "cluster", *words, "--config", str(file)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


@in_loop
async def test_a_shorter_mirror_is_refused_unless_the_loss_is_accepted(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        await submit(cluster, 1, 3)
        await cluster.settled()
        leader = await cluster.led()
        short, other = [each.name for each in cluster.machines if each is not leader]
        await next(each for each in cluster.machines if each.name == short).lose()
        await submit(cluster, 4, 2)
        await cluster.settled()
        await lose_all(cluster)
    last = left(tmp_path)[short].last
    file = tmp_path / "cluster.yaml"
    members = [f"{name}=127.0.0.1 peer={free_port()}" for name in "abc"]
    cluster_ = {"id": "c", "members": members, "secret": "s"}
    file.write_text(yaml.safe_dump({"cluster": cluster_}))
    words = ["rebuild-log", "--from", str(tmp_path / short), "--node", short]
    for name in (leader.name, other):
        words += ["--compare", f"{name}={tmp_path / name}"]
    refused = command(file, *words)
    assert refused.returncode == 1
    assert "another member has more" in refused.stderr
    assert f"has the batches {last + 1} to {last + 2}" in refused.stderr
    assert not (tmp_path / "cluster-rebuilt.yaml").exists()
    founding = tmp_path / short / "shards" / "0" / "founding"
    assert not founding.exists()

    assert "'z' is not a member" in command(file, *words, "--gone", "z").stderr
    both = command(file, "verify", *(f"--data={tmp_path / name}" for name in (short, other)))
    assert both.returncode == 0, both.stdout  # One is behind the other, which is no damage.
    accepted = command(file, *words, "--accept-loss")
    assert accepted.returncode == 0, accepted.stderr
    assert int(founding.read_text()) > EPOCHS_SKIPPED
    written = yaml.safe_load((tmp_path / "cluster-rebuilt.yaml").read_text())
    assert written["cluster"] == {**cluster_, "founder": short}

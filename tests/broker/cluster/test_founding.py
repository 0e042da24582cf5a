"""The data folder of a broker that was alone becomes a cluster's."""

import asyncio
from pathlib import Path

import pytest

from jackalope.broker.access import THE_BROKER
from jackalope.broker.cluster import node, peers
from jackalope.broker.cluster.founding import found_from
from jackalope.broker.cluster.leadership import Role
from jackalope.broker.config.schema import ClusterConfig, Config
from jackalope.broker.local_session import LocalSession
from jackalope.broker.service import Broker
from jackalope.cli.cluster import ClusterPlace
from jackalope.core.commands import SubmitTasks
from jackalope.storage import FolderBusy, Storage, StorageFault
from jackalope.storage.memory import MemoryBlobs
from jackalope.storage.shared.journal import SharedJournal
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from tests.broker.cluster.machines import in_loop, running, until
from tests.broker.cluster.test_node import check_equal, tasks

pytestmark = pytest.mark.timeout(120)

NOW_US = 1_900_000_000_000_000


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ASK_EVERY_S", 0.1)
    monkeypatch.setattr(node, "_RESTORE_S", 0.1)


async def alone(folder: Path, count: int = 20) -> Broker:
    """Start a broker that is alone, and give it tasks."""
    broker = Broker(Storage.open(folder))
    await broker.start()
    session = LocalSession(broker, THE_BROKER)
    session.open()
    for task in tasks(1, count):
        await session.ask(SubmitTasks(0, [task], namespace="default"))
    session.close()
    return broker


@in_loop
async def test_three_nodes_go_on_with_what_one_broker_had(tmp_path: Path) -> None:
    broker = await alone(tmp_path / "a")
    there, fence = set(broker.engine.core.book.tasks), broker.engine.core.book.counters.fence
    await broker.stop()
    mark = found_from(tmp_path / "a", NOW_US)
    assert mark.sequence == broker.engine.sequence
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log), has_peers=True, founder="a") as cluster:
        cluster.acknowledged |= there
        first = await cluster.led()
        assert first.name == "a"
        await cluster.submit(tasks(100, 1)[0])
        await check_equal(cluster)
        machines = await cluster.settled()
        assert all(there <= each.submitted() for each in machines)
        assert all(each.broker.engine.core.book.counters.fence >= fence for each in machines)
        await first.lose()  # What it brought is the others' as well.
        await cluster.submit(tasks(101, 1)[0])
        await first.start()
        await check_equal(cluster)


@in_loop
async def test_no_other_node_begins_the_log(tmp_path: Path) -> None:
    broker = await alone(tmp_path / "a")
    await broker.stop()
    found_from(tmp_path / "a", NOW_US)
    log = MemoryLog()
    async with running(
        tmp_path, lambda: MemoryEngine(log), has_peers=True, founder="a", starting="bc"
    ) as cluster:
        a, *others = cluster.machines
        tried = [each.node for each in others]
        await until(lambda: all(each.view.role is Role.FOLLOWING for each in tried))
        await asyncio.sleep(1)  # Three times as long as they wait for a leader.
        assert log.end == 0
        await a.start()
        await cluster.submit(tasks(100, 1)[0])
        await check_equal(cluster)
        assert len((await cluster.settled())[0].submitted()) == 21


@in_loop
async def test_a_folder_is_founded_once_and_never_alone_again(tmp_path: Path) -> None:
    broker = await alone(tmp_path / "a")
    with pytest.raises(FolderBusy):
        found_from(tmp_path / "a", NOW_US)
    await broker.stop()
    found_from(tmp_path / "a", NOW_US)
    with pytest.raises(StorageFault, match="of a node already"):
        found_from(tmp_path / "a", NOW_US)
    with pytest.raises(StorageFault, match="belongs to a node of a cluster"):
        Storage.open(tmp_path / "a")


def test_nothing_is_made_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageFault, match="no data folder"):
        found_from(tmp_path / "a", NOW_US)
    Storage.open(tmp_path / "b").close()
    with pytest.raises(StorageFault, match="nothing in it"):
        found_from(tmp_path / "b", NOW_US)
    Storage.open(tmp_path / "b").close()  # It is as it was.


def test_blobs_of_another_store_are_missed(tmp_path: Path) -> None:
    async def play() -> None:
        broker = await alone(tmp_path / "a")
        await broker.stop()

    asyncio.run(play())
    storage = Storage.open(tmp_path / "a")
    storage.history._db._writer.execute("INSERT INTO blobs VALUES (x'01', 'elsewhere')")
    storage.close()
    with pytest.raises(StorageFault, match="1 blobs are not in the folder"):
        found_from(tmp_path / "a", NOW_US)


def test_a_founder_without_a_state_is_refused(tmp_path: Path) -> None:
    members = ("a=h", "b=i", "c=j")
    config = Config(cluster=ClusterConfig(id="c", node="a", members=members, founder="a"))
    engine = MemoryEngine()
    storage = Storage.open_node(tmp_path, engine, "c", "a", MemoryBlobs())
    with pytest.raises(StorageFault, match="nothing to begin the cluster with"):
        ClusterPlace(config)._found(tmp_path, engine, storage)
    storage.close()


@in_loop
async def test_what_a_node_does_beside_its_broker_is_done_once_and_ends(tmp_path: Path) -> None:
    place = ClusterPlace(Config(cluster=ClusterConfig(id="c", node="a", members=("a=h",))))
    storage = Storage.open_node(tmp_path, MemoryEngine(), "c", "a", MemoryBlobs())
    assert isinstance(storage.journal, SharedJournal)
    place._journal = storage.journal
    before = asyncio.all_tasks()
    place.node(Broker(storage))
    begun = asyncio.all_tasks() - before
    names = sorted(task.get_name() for task in begun)
    assert names == ["jackalope-log-health", "jackalope-nats-server"]
    await place.rest()
    assert all(task.done() for task in begun)
    storage.close()

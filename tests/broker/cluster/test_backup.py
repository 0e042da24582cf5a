"""Backups of a running node, and the cluster that begins with one."""

import asyncio
import io
import os
import sqlite3
import tarfile
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from jackalope.broker.access import THE_BROKER
from jackalope.broker.backup_file import Backup
from jackalope.broker.cluster import node, peers
from jackalope.broker.cluster.backup import restore_backup, write_backup
from jackalope.broker.cluster.peer_host import PeerHost
from jackalope.broker.cluster.peer_link import Credentials, PeerGone, connect
from jackalope.broker.config.schema import ClusterConfig, Config
from jackalope.broker.local_session import LocalSession
from jackalope.broker.service import Broker
from jackalope.cli.cluster import ClusterPlace
from jackalope.core.commands import SubmitTasks
from jackalope.doors.peer import PeerDoor
from jackalope.storage import Corrupt, Storage, StorageFault
from jackalope.storage.blobs.folder import FolderBlobs
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from tests.broker.cluster.machines import in_loop, running
from tests.broker.cluster.test_founding import alone
from tests.broker.cluster.test_node import check_equal, tasks

pytestmark = pytest.mark.timeout(120)

BODY = os.urandom(700_000)


async def backed_up(folder: Path, file: Path, *, loses_blob: bool = False) -> Backup:
    """Back up a broker that is alone, with twenty tasks and a large payload, while it works."""
    broker = await alone(folder)
    ref = broker.storage.blobs.write([BODY])
    session = LocalSession(broker, THE_BROKER)
    session.open()
    large = replace(tasks(50, 1)[0], payload=ref)
    await session.ask(SubmitTasks(0, [large], namespace="default"))
    session.close()
    if loses_blob:
        broker.storage.blobs.delete(ref.blob)
    door = PeerDoor(PeerHost(broker, "one", "alone"), ("127.0.0.1", 0), "s")
    await door.start()
    link = await connect("127.0.0.1", door.port, Credentials("s"))
    try:
        return await write_backup(link, file)
    finally:
        await link.leave()
        await door.stop()
        await broker.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = asyncio.run(backed_up(tmp_path / "one", tmp_path / "backup.tar"))
    assert (made.cluster, made.blobs, made.missing) == ("one", 1, ())
    return tmp_path / "backup.tar"


def test_a_backup_is_one_file_that_its_owner_alone_reads(file: Path) -> None:
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as tar:
        names = tar.getnames()
    assert names[:2] == ["mark.json", "tasks.db"]
    assert names[-1] == "end.json"
    assert sorted(each.name for each in file.parent.iterdir()) == ["backup.tar", "one"]


def test_a_cluster_begins_with_a_backup(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "ASK_EVERY_S", 0.1)
    monkeypatch.setattr(node, "_RESTORE_S", 0.1)
    found = restore_backup(file, tmp_path / "a")
    assert found.blobs == 1

    async def play() -> None:
        log = MemoryLog()
        async with running(
            tmp_path, lambda: MemoryEngine(log), has_peers=True, founder="a"
        ) as cluster:
            await cluster.submit(tasks(100, 1)[0])
            await check_equal(cluster)
            assert len((await cluster.settled())[0].submitted()) == 22

    asyncio.run(play())


def test_blobs_of_a_backup_go_to_the_store_of_the_cluster(file: Path, tmp_path: Path) -> None:
    restore_backup(file, tmp_path / "a")
    kept: dict[str, bytes] = {}
    engine = MemoryEngine()

    class Keeping(FolderBlobs):
        def adopt(self, name: str, chunks: Iterable[bytes]) -> None:
            kept[name] = b"".join(chunks)

    storage = Storage.open_node(tmp_path / "a", engine, "c", "a", Keeping(tmp_path / "kept"))
    members = ("a=h", "b=i", "c=j")
    config = Config(cluster=ClusterConfig(id="c", node="a", members=members, founder="a"))
    ClusterPlace(config)._found(tmp_path / "a", engine, storage)
    assert list(kept.values()) == [BODY]
    assert storage.history.blobs() == list(kept)
    ClusterPlace(config)._found(tmp_path / "a", engine, storage)  # It may be repeated.
    storage.close()


def _cut(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def _changed(raw: bytes) -> bytes:
    at = raw.index(BODY[1000:1100])
    return raw[:at] + bytes(10) + raw[at + 10 :]


def _without_end(raw: bytes) -> bytes:
    return raw[: raw.index(b"end.json")].ljust(len(raw), b"\0")


def _elsewhere(raw: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(raw)) as old, tarfile.open(fileobj=out, mode="w") as new:
        for info in old:
            body = old.extractfile(info)
            name = "blobs/../../../out" if info.name.startswith("blobs/") else info.name
            new.addfile(info.replace(name=name), body)
    return out.getvalue()


def _nothing(_: bytes) -> bytes:
    return b"this is no backup at all"


@pytest.mark.parametrize("harm", [_cut, _changed, _without_end, _elsewhere, _nothing])
def test_a_damaged_backup_is_refused_and_leaves_nothing(
    file: Path, tmp_path: Path, harm: Callable[[bytes], bytes]
) -> None:
    file.write_bytes(harm(file.read_bytes()))
    with pytest.raises(Corrupt):
        restore_backup(file, tmp_path / "a")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["backup.tar", "one"]


def test_a_folder_that_is_there_is_left_alone(file: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageFault, match="exists already"):
        restore_backup(file, tmp_path / "one")
    Storage.open(tmp_path / "one").close()


def test_a_blob_that_was_gone_is_named(tmp_path: Path) -> None:
    made = asyncio.run(backed_up(tmp_path / "one", tmp_path / "b.tar", loses_blob=True))
    assert (made.blobs, len(made.missing)) == (0, 1)
    restore_backup(tmp_path / "b.tar", tmp_path / "a")
    with closing(sqlite3.connect(tmp_path / "a/shards/0/tasks.db")) as history:
        assert history.execute("SELECT count(*) FROM tasks").fetchone() == (21,)


@in_loop
async def test_a_backup_that_breaks_off_leaves_no_file(tmp_path: Path) -> None:
    broker = Broker(Storage.open(tmp_path / "one"))
    await broker.start()
    door = PeerDoor(PeerHost(broker, "one", "alone"), ("127.0.0.1", 0), "s")
    await door.start()
    link = await connect("127.0.0.1", door.port, Credentials("s"))
    await door.stop()
    with pytest.raises(PeerGone):
        await write_backup(link, tmp_path / "b.tar")
    await link.leave()
    await broker.stop()
    left = await asyncio.to_thread(lambda: sorted(each.name for each in tmp_path.iterdir()))
    assert left == ["one"]

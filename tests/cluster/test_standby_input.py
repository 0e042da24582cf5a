"""What a standby does with a primary that it cannot follow, and with other journals and places."""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cluster.brokers import Process, until
from tests.cluster.pairs import (
    Pair,
    address,
    command,
    config_of,
    following,
    follows,
    peer_port,
    promote,
    rewrite,
    started,
    submit,
    trim,
    trouble,
)
from tests.ports import free_port

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with started(Pair(tmp_path)) as pair:
        yield pair


@contextmanager
def running(*processes: Process) -> Iterator[None]:
    with ExitStack() as ending:
        for each in processes:
            ending.callback(each.end)
            each.start()
        yield


def has_all(process: Process, tasks: list[str]) -> bool:
    return all(process.get(f"/api/v1/tasks/{task}")[0] == 200 for task in tasks)


def test_wrong_secrets_and_addresses_are_named(pair: Pair) -> None:
    port = peer_port(pair.primary)
    nothing = free_port()
    for peer, told in (
        ({"secret": "another"}, "the secret is another one"),
        ({"secret": "of the tests", "follow": f"127.0.0.1:{nothing}"}, f"{nothing}: Connection"),
        ({"follow": f"127.0.0.1:{peer_port(pair.standby)}"}, "is this broker itself"),
    ):
        pair.standby.kill()
        rewrite(pair.standby, peer=peer)
        pair.standby.start()
        until(lambda told=told: told in trouble(pair.standby), pair.both)  # type: ignore[misc]
    assert command(pair.standby, "cluster", "status").returncode == 5
    pair.standby.kill()
    rewrite(pair.standby, peer={"follow": f"127.0.0.1:{port}"})
    pair.standby.start()
    until(lambda: follows(pair.standby), pair.both)


def test_another_broker_at_the_address_is_not_copied(pair: Pair, tmp_path: Path) -> None:
    kept = submit(address(pair.primary), tmp_path, 0, 3)
    pair.until_equal()
    pair.primary.kill()
    subprocess.run(["rm", "-rf", str(pair.primary.folder / "data")], check=True)
    pair.primary.start()
    until(lambda: "another broker answers" in trouble(pair.standby), pair.both)
    assert has_all(pair.standby, kept)
    # That one is none of its business: it is not fenced.
    assert "NOT fenced" in pair.promote().stdout
    submit(address(pair.primary), tmp_path, 3, 1)
    assert has_all(pair.standby, kept)


def test_both_journals_in_sqlite(tmp_path: Path) -> None:
    with started(Pair(tmp_path, data={"journal": "sqlite"})) as pair:
        told = submit(address(pair.primary), tmp_path, 0, 20)
        pair.until_equal()
        pair.standby.kill()
        told += submit(address(pair.primary), tmp_path, 20, 10)
        assert pair.primary.stop() == 0
        trim(pair.primary.folder / "data")  # While the standby is away.
        pair.primary.start()
        until(lambda: pair.primary.get("/health")[0] == 200, pair.both)
        pair.standby.start()
        pair.until_equal()
        until(lambda: "its state is copied" in pair.standby.log(), pair.both)
        told += submit(address(pair.primary), tmp_path, 30, 10)
        pair.until_equal()
        for each in pair.both:
            assert (each.folder / "data" / "journal.db").exists()
            assert not (each.folder / "data" / "journal").exists()
        pair.primary.kill()
        pair.standby.kill()
        # One that does not run is promoted in its folder.
        promoted = promote(pair.standby)
        assert "NOT fenced" in promoted.stdout, promoted.stderr
        assert "was then 0 batches" in promoted.stdout
        pair.standby.start()
        until(lambda: pair.standby.get("/health")[0] == 200, pair.both)
        assert (pair.standby.folder / "data" / "journal.db").exists()
        assert has_all(pair.standby, told)


def test_a_full_disk_stops_following_until_there_is_room(pair: Pair, tmp_path: Path) -> None:
    folder = "x" * 2_000
    told = submit(address(pair.primary), Path(folder), 0, 5)
    pair.until_equal()
    assert pair.standby.process is not None
    pid = pair.standby.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (40_000, hard))
    told += submit(address(pair.primary), Path(folder), 5, 40)
    until(lambda: "no space left" in trouble(pair.standby), pair.both)
    assert pair.applied(pair.standby) < pair.applied(pair.primary)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
    pair.until_equal()
    assert has_all(pair.standby, told)
    pair.standby.kill()
    pair.standby.start()
    pair.until_equal()
    assert has_all(pair.standby, told)
    assert pair.promote().returncode == 0


def test_a_standby_of_a_standby_and_the_way_back(pair: Pair, tmp_path: Path) -> None:
    """A second one follows the first, is not promoted in its place, and replaces it afterwards."""
    second = following(tmp_path, "second", pair.standby)
    everything = [*pair.both, second]
    with running(second):
        told = submit(address(pair.primary), tmp_path, 0, 10)
        until(lambda: has_all(second, told), everything)
        assert pair.promote().returncode == 0
        told += submit(address(pair.standby), tmp_path, 10, 10)
        until(lambda: has_all(second, told), everything)
        promoted = promote(second)
        assert promoted.returncode == 0, promoted.stdout
        assert "nothing of it is missing" in promoted.stdout
        assert second.address("native") in trouble(pair.standby)
        assert has_all(second, told)
        submit(address(second), tmp_path, 20, 1)


def test_the_standby_of_a_standby_does_not_fence_what_it_cannot_reach(
    pair: Pair, tmp_path: Path
) -> None:
    second = following(tmp_path, "second", pair.standby)
    with running(second):
        until(lambda: follows(second), [*pair.both, second])
        promoted = promote(second)
        assert promoted.returncode == 1
        assert "it is a standby itself" in promoted.stdout
        submit(address(pair.primary), tmp_path, 0, 1)


def test_a_restored_primary_is_fenced_and_its_own_way_is_told(pair: Pair, tmp_path: Path) -> None:
    submit(address(pair.primary), tmp_path, 0, 3)
    pair.until_equal()
    assert pair.primary.stop() == 0
    data, backup = pair.primary.folder / "data", tmp_path / "backup"
    subprocess.run(["cp", "-a", str(data), str(backup)], check=True)
    pair.primary.start()
    until(lambda: pair.primary.get("/health")[0] == 200, pair.both)
    submit(address(pair.primary), tmp_path, 3, 10)
    pair.until_equal()
    pair.primary.kill()
    subprocess.run(["rm", "-rf", str(data)], check=True)
    backup.rename(data)
    pair.primary.start()
    until(lambda: "restored from a backup" in trouble(pair.standby), pair.both)
    assert "start a new one with an empty folder" in trouble(pair.standby)
    promoted = pair.promote()
    assert promoted.returncode == 1
    assert "the old broker is fenced" in promoted.stdout
    assert "restored from a backup" in promoted.stdout
    assert pair.standby.address("native") in trouble(pair.primary)


def test_a_standby_needs_a_secret_and_a_disk(tmp_path: Path) -> None:
    for more, told in (
        ({"peer": {"secret": ""}}, "peer.secret: needed with"),
        ({"data": {"durability": "memory"}}, "other than `memory`"),
    ):
        config = config_of(peer={"follow": "127.0.0.1:1"})
        for key, value in more.items():
            config[key] |= value
        bad = Process("bad", tmp_path / told[:4], config)
        done = command(bad, "serve")
        assert done.returncode == 2
        assert told in done.stderr

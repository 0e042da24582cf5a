"""A standby of real processes: the primary is killed, and the standby takes its place."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.brokers import until
from tests.cluster.pairs import Pair, command, started, submit, trim, trouble, worker

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with started(Pair(tmp_path)) as pair:
        yield pair


def test_a_reachable_primary_is_fenced_and_nothing_is_missing(pair: Pair, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    told = submit(pair.primary.address("native").join(["jackalope://", ""]), marks, 0, 40)
    promoted = pair.promote()
    assert promoted.returncode == 0, promoted.stderr
    assert "the old broker is fenced" in promoted.stdout
    until(lambda: pair.standby.get("/health")[0] == 200, pair.both)
    for task in told:
        assert pair.standby.get(f"/api/v1/tasks/{task}")[0] == 200
    # The old one acknowledges nothing, and sends clients on; also after a restart.
    assert pair.standby.address("native") in trouble(pair.primary)
    status, body = pair.primary.post("/api/v1/tasks", {"queue": "marks", "payload": 1})
    assert status == 503
    assert pair.standby.address("native") in body["error"]
    with worker(pair.address, tmp_path):
        submit(pair.address, marks, 40, 10)
        until(lambda: len(list(marks.iterdir())) == 50, pair.both)
    assert pair.primary.stop() == 0
    pair.primary.start()
    assert pair.primary.process is not None
    assert pair.primary.process.wait(60) == 3
    assert "was promoted" in pair.primary.log()


def test_a_killed_primary_is_replaced(pair: Pair, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    with worker(pair.address, tmp_path):
        told = submit(pair.address, marks, 0, 60)
        pair.until_equal()
        pair.primary.kill()
        until(lambda: "nothing was heard" in trouble(pair.standby), pair.both)
        promoted = pair.promote()
        assert promoted.returncode == 1
        assert "NOT fenced" in promoted.stdout
        assert "last heard" in promoted.stdout
        until(lambda: pair.standby.get("/health")[0] == 200, pair.both)
        assert all(pair.standby.get(f"/api/v1/tasks/{task}")[0] == 200 for task in told)
        submit(pair.address, marks, 60, 20)
        until(lambda: len(list(marks.iterdir())) == 80, pair.both)
    # It goes on leading after a restart, with the configuration of a standby.
    pair.standby.kill()
    pair.standby.start()
    until(lambda: pair.standby.get("/health")[0] == 200, pair.both)
    assert "`peer.follow` is ignored" in pair.standby.log()
    assert command(pair.standby, "cluster", "status").returncode == 0
    assert all(pair.standby.get(f"/api/v1/tasks/{task}")[0] == 200 for task in told)


def test_a_standby_answers_reads_and_refuses_writes(pair: Pair, tmp_path: Path) -> None:
    (task,) = submit(pair.address, tmp_path, 0, 1)
    pair.until_equal()
    status, health = pair.standby.get("/health")
    assert (status, health["is_leader"]) == (503, False)
    status, found = pair.standby.get(f"/api/v1/tasks/{task}")
    assert (status, found["queue"]) == (200, "marks")
    status, body = pair.standby.post("/api/v1/tasks", {"queue": "marks", "payload": 1})
    assert (status, body["reason"]) == (421, "not_leader")
    assert pair.primary.address("http") in body["error"]


def test_both_sides_are_killed_and_come_back(pair: Pair, tmp_path: Path) -> None:
    told = []
    for round_ in range(2):
        told += submit(f"jackalope://{pair.primary.address('native')}", tmp_path, round_, 10)
        pair.standby.kill()
        told += submit(f"jackalope://{pair.primary.address('native')}", tmp_path, round_, 10)
        pair.primary.kill()
        pair.standby.start()
        pair.primary.start()
        until(lambda: pair.primary.get("/health")[0] == 200, pair.both)
        pair.until_equal()
    assert all(pair.standby.get(f"/api/v1/tasks/{task}")[0] == 200 for task in told)


def test_a_primary_that_was_restored_is_found(pair: Pair, tmp_path: Path) -> None:
    """Its folder is an older one, and goes on from there: the copy takes nothing of it."""
    address = f"jackalope://{pair.primary.address('native')}"
    submit(address, tmp_path, 0, 5)
    pair.until_equal()
    assert pair.primary.stop() == 0
    data = pair.primary.folder / "data"
    backup = tmp_path / "backup"
    subprocess.run(["cp", "-a", str(data), str(backup)], check=True)
    pair.primary.start()
    until(lambda: pair.primary.get("/health")[0] == 200, pair.both)
    kept = submit(address, tmp_path, 5, 5)
    pair.until_equal()
    pair.primary.kill()
    subprocess.run(["rm", "-rf", str(data)], check=True)
    backup.rename(data)
    pair.standby.kill()  # It comes back when the primary has gone its own way.
    pair.primary.start()
    until(lambda: pair.primary.get("/health")[0] == 200, pair.both)
    other = submit(address, tmp_path, 10, 20)
    pair.standby.start()
    until(lambda: "is not the one that is here" in trouble(pair.standby), pair.both)
    assert all(pair.standby.get(f"/api/v1/tasks/{task}")[0] == 200 for task in kept)
    assert all(pair.standby.get(f"/api/v1/tasks/{task}")[0] == 404 for task in other)


def test_a_folder_is_not_mistaken(pair: Pair) -> None:
    for each in pair.both:
        each.kill()
    (pair.standby.folder / "alone.yaml").write_text(
        (pair.standby.folder / "jackalope.yaml").read_text().replace("follow:", "address:")
    )
    assert "the copy of another broker" in refused_start(pair.standby.folder, "alone.yaml")
    told = refused_start(pair.primary.folder, "jackalope.yaml", "--follow", "127.0.0.1:1")
    assert "has data of its own" in told


def refused_start(folder: Path, *words: str) -> str:
    """Start a broker that must not start, and return what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "jackalope", "serve", "--config", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    return done.stderr


def test_a_standby_begins_with_a_copy_of_what_was_trimmed(pair: Pair, tmp_path: Path) -> None:
    """What the journal no longer has is copied as a whole, before the entries that follow it."""
    address = f"jackalope://{pair.primary.address('native')}"
    pair.standby.kill()
    told = submit(address, tmp_path, 0, 20)
    subprocess.run(["rm", "-rf", str(pair.standby.folder / "data")], check=True)
    assert pair.primary.stop() == 0
    trim(pair.primary.folder / "data")
    pair.primary.start()
    until(lambda: pair.primary.get("/health")[0] == 200, pair.both)
    pair.standby.start()
    pair.until_equal()
    until(lambda: "its state is copied" in pair.standby.log(), pair.both)
    told += submit(address, tmp_path, 20, 5)
    pair.until_equal()
    assert all(pair.standby.get(f"/api/v1/tasks/{task}")[0] == 200 for task in told)
    pair.standby.kill()
    pair.standby.start()  # It goes on from its own folder.
    told += submit(address, tmp_path, 25, 5)
    pair.until_equal()
    assert pair.standby.log().count("its state is copied") == 1
    assert pair.promote().returncode == 0
    assert all(pair.standby.get(f"/api/v1/tasks/{task}")[0] == 200 for task in told)

"""Large payloads and results reach the standby, and go from it, with the tasks that name them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jackalope.storage.blobs.folder import FolderBlobs
from jackalope.storage.blobs.s3 import S3Blobs
from tests.cluster.brokers import Process, until
from tests.cluster.pairs import (
    Pair,
    address,
    body_of,
    command,
    results,
    rewrite,
    started,
    submit_large,
    trim,
    trouble,
    worker,
)
from tests.storage.blobs.s3_server import KEYS, S3Server

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with started(Pair(tmp_path)) as pair:
        yield pair


def names(process: Process) -> set[str]:
    return set(FolderBlobs(process.folder / "data" / "blobs").names())


def metric(process: Process, name: str) -> float:
    lines = process.text("/metrics").splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def test_payloads_and_results_are_there_after_a_promotion(pair: Pair, tmp_path: Path) -> None:
    tasks = submit_large(address(pair.primary), 1, 3)
    pair.until_equal()
    with worker(address(pair.primary), tmp_path):
        assert results(address(pair.primary), tasks) == [body_of(n) for n in (1, 2, 3)]
    waiting = submit_large(address(pair.primary), 4, 3)
    pair.until_equal()
    assert len(names(pair.primary)) >= 9
    assert names(pair.standby) == names(pair.primary)
    assert metric(pair.standby, "jackalope_standby_connected") == 1
    assert metric(pair.standby, "jackalope_standby_lag_entries") == 0
    assert metric(pair.standby, "jackalope_standby_blobs_lacking") == 0
    pair.primary.kill()
    until(lambda: "nothing was heard" in trouble(pair.standby), pair.both)
    assert metric(pair.standby, "jackalope_standby_connected") == 0
    assert metric(pair.standby, "jackalope_standby_lag_seconds") > 0
    promoted = pair.promote()
    assert "NOT fenced" in promoted.stdout
    assert "large payloads" not in promoted.stdout
    with worker(address(pair.standby), tmp_path):
        expected = [body_of(n) for n in range(1, 7)]
        assert results(address(pair.standby), tasks + waiting) == expected


def test_deletes_follow(pair: Pair) -> None:
    task, kept = submit_large(address(pair.primary), 1, 2)
    until(lambda: len(names(pair.standby)) == 2, pair.both)
    for action in ("kill", "purge"):
        done = command_of(pair.primary, action, task)
        assert done == 0
    until(lambda: len(names(pair.primary)) == 1, pair.both)
    until(lambda: names(pair.standby) == names(pair.primary), pair.both)
    assert pair.standby.get(f"/api/v1/tasks/{kept}")[0] == 200


def command_of(process: Process, action: str, task: str) -> int:
    status, _ = process.post(f"/api/v1/tasks/{task}/{action}", {})
    return 0 if status < 300 else status


def test_what_the_primary_lost_is_named(pair: Pair) -> None:
    pair.standby.kill()
    tasks = submit_large(address(pair.primary), 1, 3)
    lost = min(names(pair.primary))
    (pair.primary.folder / "data" / "blobs" / lost[:2] / lost).unlink()
    pair.standby.start()
    pair.until_equal()
    assert len(names(pair.standby)) == 2
    until(lambda: metric(pair.standby, "jackalope_standby_blobs_lacking") == 1, pair.both)
    promoted = pair.promote()
    assert promoted.returncode == 1
    assert "the old broker is fenced" in promoted.stdout
    assert "1 large payloads and results that tasks name were not copied" in promoted.stdout
    assert lost in promoted.stdout
    assert all(pair.standby.get(f"/api/v1/tasks/{task}")[0] == 200 for task in tasks)


def test_copying_goes_on_after_both_were_killed(pair: Pair) -> None:
    pair.standby.kill()
    submit_large(address(pair.primary), 1, 60)
    pair.standby.start()
    until(lambda: len(names(pair.standby)) > 3, pair.both)
    pair.standby.kill()
    pair.primary.kill()
    for each in pair.both:
        each.start()
    until(lambda: pair.primary.get("/health")[0] == 200, pair.both)
    pair.until_equal()
    assert names(pair.standby) == names(pair.primary)
    assert pair.promote().returncode == 0


def test_a_state_that_is_copied_brings_its_blobs(pair: Pair) -> None:
    pair.standby.kill()
    submit_large(address(pair.primary), 1, 10)
    assert pair.primary.stop() == 0
    trim(pair.primary.folder / "data")
    pair.primary.start()
    until(lambda: pair.primary.get("/health")[0] == 200, pair.both)
    pair.standby.start()
    pair.until_equal()
    until(lambda: "its state is copied" in pair.standby.log(), pair.both)
    until(lambda: names(pair.standby) == names(pair.primary), pair.both)
    shown = command(pair.standby, "cluster", "status")
    assert shown.returncode == 0, shown.stdout
    assert pair.promote().returncode == 0


# In S3.


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


def store(server: S3Server, prefix: str) -> S3Blobs:
    return S3Blobs(server.place(prefix=prefix), "looks")


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_bucket_may_be_shared_or_copied(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS.id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret)
    first = f"primary-{is_shared}"
    second = first if is_shared else f"standby-{is_shared}"
    pair = Pair(tmp_path, blobs={"store": "s3", "bucket": "test", "endpoint": server.url})
    rewrite(pair.primary, blobs={"prefix": first})
    rewrite(pair.standby, blobs={"prefix": second})
    with started(pair):
        tasks = submit_large(address(pair.primary), 1, 3)
        pair.until_equal()
        owner = store(server, first).holder()
        assert (store(server, second).holder() == owner) == is_shared
        pair.primary.kill()
        until(lambda: "nothing was heard" in trouble(pair.standby), pair.both)
        promoted = pair.promote()
        assert "NOT fenced" in promoted.stdout
        assert "large payloads" not in promoted.stdout, promoted.stdout
        with worker(address(pair.standby), tmp_path):
            assert results(address(pair.standby), tasks) == [body_of(n) for n in (1, 2, 3)]
        assert store(server, second).holder() != owner
        if is_shared:  # The old broker is kept from what is no longer its own.
            pair.primary.start()
            assert pair.primary.process is not None
            assert pair.primary.process.wait(60) == 3
            assert "belongs to another broker" in pair.primary.log()

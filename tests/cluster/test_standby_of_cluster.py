"""A standby of three real nodes: it goes on when the leader is killed, and fences all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.brokers import Brokers, Process, running, until
from tests.cluster.pairs import (
    address,
    body_of,
    command,
    following,
    follows,
    promote,
    results,
    submit,
    submit_large,
    trouble,
    worker,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with running(tmp_path) as brokers:
        brokers.leader()
        yield brokers


@pytest.fixture
def standby(brokers: Brokers, tmp_path: Path) -> Iterator[Process]:
    standby = following(tmp_path, "standby", *brokers.all)
    try:
        standby.start()
        until(lambda: follows(standby), [standby, *brokers.all])
        yield standby
    finally:
        standby.end()


def until_known(standby: Process, tasks: list[str], brokers: Brokers) -> None:
    """Return when a standby has tasks."""
    until(
        lambda: all(standby.get(f"/api/v1/tasks/{task}")[0] == 200 for task in tasks[-1:]),
        [standby, *brokers.all],
    )
    assert all(standby.get(f"/api/v1/tasks/{task}")[0] == 200 for task in tasks)


def test_it_follows_through_a_failover_and_fences_all_nodes(
    brokers: Brokers, standby: Process, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    told = submit(brokers.address, marks, 0, 20)
    until_known(standby, told, brokers)
    killed = brokers.leader()
    killed.kill()
    told += submit(brokers.address, marks, 20, 20)
    until_known(standby, told, brokers)
    assert brokers.leader() is not killed
    told += submit(brokers.address, marks, 40, 5)
    (large,) = submit_large(brokers.address, 1, 1)  # Its payload is a blob beside the log.

    promoted = promote(standby)
    assert promoted.returncode == 0, promoted.stdout + promoted.stderr
    assert "the old broker is fenced" in promoted.stdout
    assert all(standby.get(f"/api/v1/tasks/{task}")[0] == 200 for task in told)
    # No node acknowledges anything, and each names the one that does.
    for each in brokers.all:
        if each is not killed:
            until(lambda each=each: "was promoted" in trouble(each), brokers.all)  # type: ignore[misc]
            status, body = each.post("/api/v1/tasks", {"queue": "marks", "payload": 1})
            assert (status, body["reason"]) == (503, "no_leader")
            assert standby.address("native") in body["error"]
    # One that was down at that time reads it in the log, and is refused from then on.
    killed.start()
    until(lambda: "was promoted" in trouble(killed), brokers.all)
    killed.kill()
    killed.start()
    assert killed.process is not None
    assert killed.process.wait(60) == 3
    assert "was promoted" in killed.log()
    # Clients that know the cluster alone are sent on.
    with worker(f"{brokers.address},{standby.address('native')}", tmp_path):
        submit(brokers.address, marks, 45, 5)
        until(lambda: len(list(marks.iterdir())) == 50, [standby, *brokers.all])
        assert results(address(standby), [large]) == [body_of(1)]


def test_a_cluster_that_is_gone_is_not_fenced(
    brokers: Brokers, standby: Process, tmp_path: Path
) -> None:
    told = submit(brokers.address, tmp_path, 0, 10)
    until_known(standby, told, brokers)
    shown = command(standby, "cluster", "status", "--format", "json")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    for each in brokers.all:
        each.end()
    until(lambda: "nothing was heard" in trouble(standby), [standby])
    shown = command(standby, "cluster", "status")
    assert shown.returncode == 5
    assert "the primary is not followed" in shown.stdout
    promoted = promote(standby)
    assert promoted.returncode == 1
    assert "NOT fenced" in promoted.stdout
    assert "0 batches and" in promoted.stdout
    assert all(standby.get(f"/api/v1/tasks/{task}")[0] == 200 for task in told)
    submit(f"jackalope://{standby.address('native')}", tmp_path, 10, 1)

"""Clusters of real processes: clients and workers go on while brokers and servers are killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jackalope import Jackalope
from tests.cluster import application
from tests.cluster.brokers import Brokers, until

pytestmark = pytest.mark.timeout(300)

#: How long nothing may be acknowledged. In earnest a broker that is killed costs less than two
#: seconds, and a server that decided four to nine; here two cores run three of each, and the tests.
GAP_S = 30.0


@pytest.fixture
def worker(whole: Brokers, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (tmp_path / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jackalope", "worker", "tests.cluster.application:app"],
            env=os.environ | {"JACKALOPE_URL": whole.address},
            stdout=log,
            stderr=log,
        )
    yield process
    process.kill()
    process.wait()


@contextmanager
def client(brokers: Brokers, address: str = "") -> Iterator[Jackalope]:
    """Let the tasks of the application be submitted to a cluster."""
    app = application.app
    before, app.address = app.address, Jackalope(address or brokers.address).address
    try:
        yield app
    finally:
        app.address = before


async def submit_all(
    brokers: Brokers, folder: Path, fault: Callable[[], None], count: int = 60
) -> float:
    """Submit tasks one by one with a fault on the way, and await every result.

    Returns:
        The longest time in which nothing was acknowledged.
    """
    gap_s, told_s, handles = 0.0, time.monotonic(), []
    with client(brokers) as app:
        async with app:
            for number in range(count):
                if number == count // 2:
                    await asyncio.to_thread(fault)
                    told_s = time.monotonic()
                handles.append(await application.mark.submit(str(folder), number))
                gap_s, told_s = max(gap_s, time.monotonic() - told_s), time.monotonic()
            for number, handle in enumerate(handles):
                assert await handle.result(timeout=120) == number
    return gap_s


def run(brokers: Brokers, tmp_path: Path, fault: Callable[[], None]) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    gap_s = asyncio.run(submit_all(brokers, marks, fault))
    assert len(list(marks.iterdir())) == 60
    assert gap_s < GAP_S


@pytest.mark.usefixtures("worker")
@pytest.mark.feature("D36")
def test_a_killed_leader_costs_no_task(whole: Brokers, tmp_path: Path) -> None:
    run(whole, tmp_path, lambda: whole.leader().kill())


@pytest.mark.usefixtures("worker")
def test_a_stopped_leader_hands_over(whole: Brokers, tmp_path: Path) -> None:
    leader = whole.leader()
    run(whole, tmp_path, lambda: print(leader.stop()))
    assert leader.process is not None
    assert leader.process.returncode == 0


@pytest.mark.usefixtures("worker")
@pytest.mark.feature("D36")
def test_a_leader_that_is_stopped_for_a_while_is_fenced(whole: Brokers, tmp_path: Path) -> None:
    old = whole.leader()
    assert old.process is not None
    pid = old.process.pid
    run(whole, tmp_path, lambda: os.kill(pid, signal.SIGSTOP))
    os.kill(pid, signal.SIGCONT)
    until(lambda: "leads" in str(old.get("/health")[1].get("trouble")), whole.all)
    assert whole.leader() is not old


@pytest.mark.usefixtures("worker")
def test_a_killed_server_costs_no_task(whole: Brokers, tmp_path: Path) -> None:
    """The leader has lost its own copy of the log, and another node leads."""
    pid = int((whole.leader().folder / "data" / "nats" / "server.pid").read_text())
    run(whole, tmp_path, lambda: os.kill(pid, signal.SIGKILL))


def test_a_long_task_outlives_its_leader(
    whole: Brokers, worker: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    async def play() -> int:
        with client(whole) as app:
            async with app:
                handle = await application.last.submit(str(tmp_path), 8.0)
                await asyncio.to_thread(until, (tmp_path / "began").exists, whole.all)
                await asyncio.to_thread(lambda: whole.leader().kill())
                return await handle.result(timeout=120)

    pid = asyncio.run(play())
    assert (tmp_path / "began").read_text() == f"{pid}\n"  # It ran once.
    assert worker.poll() is None


@pytest.mark.usefixtures("worker")
def test_a_large_payload_is_read_from_another_leader(whole: Brokers) -> None:
    body = os.urandom(3_000_000)

    async def play() -> None:
        with client(whole) as app:
            async with app:
                assert await (await application.echo.submit(body)).result(timeout=60) == body
                handle = await application.echo.submit(body)
                assert await handle.result(timeout=60) == body
                await asyncio.to_thread(lambda: whole.leader().kill())
                assert await handle.result(timeout=120) == body

    asyncio.run(play())


def test_a_client_that_was_given_one_address_learns_the_others(whole: Brokers) -> None:
    leader = whole.leader()

    async def play() -> None:
        with client(whole, f"jackalope://{leader.address('native')}") as app:
            async with app:
                await application.echo.submit(b"before")
                await asyncio.to_thread(leader.kill)
                async with asyncio.timeout(120):
                    await application.echo.submit(b"after")

    asyncio.run(play())
    assert not leader.is_up


def test_cluster_status_shows_who_answers(whole: Brokers) -> None:
    leader = whole.leader()
    follower = next(each for each in whole.all if each is not leader)
    address = f"jackalope://{follower.address('native')}"
    shown = subprocess.run(
        [sys.executable, "-m", "jackalope", "--broker", address, "cluster-status", "-f", "json"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert shown.returncode == 0, shown.stderr
    cluster = json.loads(shown.stdout)
    assert cluster["is_replicated"] is True
    (node,) = cluster["nodes"]
    assert (node["node"], node["role"]) == (leader.address("native"), "leader")


def test_nodes_tell_what_they_are_on_the_peer_port(whole: Brokers) -> None:
    leader = whole.leader()
    for each in whole.all:
        status = each.status()
        assert (status.node, status.cluster) == (each.name, "test")
        assert (status.role == "leading") == (each is leader)
        assert status.leader == leader.name
        assert status.log_end > 0


def test_a_follower_sends_clients_on(whole: Brokers) -> None:
    leader = whole.leader()
    follower = next(each for each in whole.all if each is not leader)
    status, health = follower.get("/health")
    assert (status, health["is_leader"]) == (503, False)
    assert leader.name in health["trouble"]
    assert follower.get("/health/ready")[0] == 200
    assert [each for each in whole.all if each.get("/health/leader")[0] == 200] == [leader]
    status, body = follower.post("/api/v1/tasks", {"queue": "marks", "name": "unknown"})
    assert status == 201, body
    path = f"/api/v1/tasks/{body['id']}"
    assert (follower.get(path)[0], leader.get(path)[0]) == (200, 200)
    until(lambda: follower.get(f"{path}?stale=allow")[0] == 200, whole.all)

"""A standby of real processes: the primary is killed, and the standby takes its place."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from jackalope import Jackalope
from jackalope.core.ids import id_text
from jackalope.core.records import encode_batch
from jackalope.storage import Storage
from tests.cluster import application
from tests.cluster.brokers import Process, until
from tests.ports import free_port

pytestmark = pytest.mark.timeout(240)

SECRET = "of the tests"  # noqa: S105


def config_of(**peer: Any) -> dict[str, Any]:
    return {
        "data": {"folder": "data"},
        "native": {"port": free_port(), "heartbeat": "500ms"},
        "http": {"port": free_port()},
        "peer": {"port": free_port(), "secret": SECRET, **peer},
    }


class Pair:
    """A broker and its standby."""

    def __init__(self, folder: Path) -> None:
        first = config_of()
        self.primary = Process("primary", folder / "primary", first)
        second = config_of(follow=f"127.0.0.1:{first['peer']['port']}")
        self.standby = Process("standby", folder / "standby", second)
        self.both = [self.primary, self.standby]

    @property
    def address(self) -> str:
        return "jackalope://" + ",".join(each.address("native") for each in self.both)

    def promote(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "jackalope", "promote", "--config", "jackalope.yaml"],
            cwd=self.standby.folder,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def applied(self, process: Process) -> int:
        return int(process.get("/health")[1].get("applied") or -1)

    def until_equal(self) -> None:
        """Return when the standby has all that the primary has."""
        until(lambda: 0 < self.applied(self.primary) == self.applied(self.standby), self.both)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    with ExitStack() as ending:
        for each in pair.both:
            ending.callback(each.end)
            each.start()
        until(lambda: pair.primary.get("/health")[0] == 200, pair.both)
        until(lambda: "0 batches behind" in trouble(pair.standby), pair.both)
        yield pair


def trouble(process: Process) -> str:
    return str(process.get("/health")[1].get("trouble", ""))


@contextmanager
def client(address: str) -> Iterator[Jackalope]:
    app = application.app
    before, app.address = app.address, Jackalope(address).address
    try:
        yield app
    finally:
        app.address = before


@contextmanager
def worker(address: str, folder: Path) -> Iterator[None]:
    with (folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jackalope", "worker", "tests.cluster.application:app"],
            env=os.environ | {"JACKALOPE_URL": address},
            stdout=log,
            stderr=log,
        )
    yield
    process.kill()
    process.wait()


def submit(address: str, folder: Path, first: int, count: int) -> list[str]:
    """Submit tasks, and return the ids of those that were acknowledged."""

    async def play() -> list[str]:
        with client(address) as app:
            async with app:
                numbers = range(first, first + count)
                return [
                    id_text((await application.mark.submit(str(folder), n)).id) for n in numbers
                ]

    return asyncio.run(play())


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
    status, _ = pair.primary.post("/api/v1/tasks", {"queue": "marks", "payload": 1})
    assert status >= 400
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
    assert "its state is copied" in pair.standby.log()
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


def trim(data: Path) -> None:
    """Remove from a journal what history has; a broker does so after a thousand batches."""
    storage = Storage.open(data)
    storage.journal.claim()
    storage.journal.trim(storage.history.applied())
    storage.journal.append(encode_batch([]))
    storage.close()

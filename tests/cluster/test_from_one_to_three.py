"""From one machine to three: a worker finishes on a cluster what one broker gave it."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.cluster import application
from tests.cluster.brokers import Brokers, Process, until
from tests.cluster.test_processes import client

pytestmark = pytest.mark.timeout(300)


def configure(brokers: Brokers, *, is_alone: bool) -> None:
    """Write the files of the nodes, or that of the first as of a broker that is alone."""
    for each in brokers.all:
        told = dict(each.config)
        if is_alone:
            del told["cluster"]
        else:
            told["cluster"] = {**told["cluster"], "founder": "a"}
        (each.folder / "jackalope.yaml").write_text(yaml.safe_dump(told))


def found(brokers: Brokers) -> None:
    """Stop the broker that is alone, and start three nodes with what it had."""
    first = brokers.all[0]
    assert first.stop() == 0
    made = subprocess.run(
        [sys.executable, "-m", "jackalope", "cluster", "init", "--from", "data"]
        + [part for name in "abc" for part in ("-m", f"{name}=127.0.0.1")],
        cwd=first.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert "--node a --data data" in made.stdout
    written = yaml.safe_load((first.folder / "cluster.yaml").read_text())
    assert written["cluster"]["founder"] == "a"
    configure(brokers, is_alone=False)
    for each in reversed(brokers.all):  # The founder comes last.
        each.start()


def back_up(node: Process, tmp_path: Path) -> None:
    """Back the running cluster up, and make a folder of that."""
    for command in (
        ["backup", "../now.tar", "--config", "jackalope.yaml"],
        ["restore", "../now.tar", "--data", "../restored"],
    ):
        ran = subprocess.run(
            [sys.executable, "-m", "jackalope", "cluster", *command],
            cwd=node.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
    with closing(sqlite3.connect(tmp_path / "restored/shards/0/tasks.db")) as history:
        assert history.execute("SELECT count(*) FROM tasks").fetchone() == (22,)
    blobs = list((tmp_path / "restored/shards/0/moving").iterdir())
    assert 3_000_000 < blobs[0].stat().st_size < 3_001_000


def test_a_worker_finishes_on_a_cluster_what_one_broker_gave_it(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    configure(brokers, is_alone=True)
    body = os.urandom(3_000_000)
    first = brokers.all[0]
    first.start()
    with (tmp_path / "worker.log").open("ab") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "jackalope", "worker", "tests.cluster.application:app"],
            env=os.environ | {"JACKALOPE_URL": brokers.address},
            stdout=log,
            stderr=log,
        )

    async def play() -> int:
        with client(brokers) as app:
            async with app:
                stored = await application.echo.submit(body)
                assert await stored.result(timeout=60) == body
                handle = await application.last.submit(str(tmp_path), 15.0)
                await asyncio.to_thread(until, (tmp_path / "began").exists, brokers.all[:1])
                waiting = [await application.mark.submit(str(marks), n) for n in range(20)]
                await asyncio.to_thread(found, brokers)
                pid = await handle.result(timeout=200)
                for number, each in enumerate(waiting):
                    assert await each.result(timeout=60) == number
                assert await stored.result(timeout=60) == body  # It has moved with the rest.
                return pid

    (marks := tmp_path / "marks").mkdir()
    try:
        pid = asyncio.run(play())
        assert (tmp_path / "began").read_text() == f"{pid}\n"  # It ran once.
        assert sorted(int(each.name) for each in marks.iterdir()) == list(range(20))
        until(lambda: len({each.status().applied for each in brokers.all}) == 1, brokers.all)
        back_up(first, tmp_path)
    finally:
        worker.kill()
        worker.wait()
        for each in brokers.all:
            each.end()

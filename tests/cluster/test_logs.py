"""Task logs of a cluster of real processes: what was seen is there when another member leads."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import application
from tests.cluster.brokers import Process, running
from tests.cluster.test_processes import client

pytestmark = pytest.mark.timeout(300)


def test_log_is_followed_over_a_failover_and_members_that_return_catch_up(tmp_path: Path) -> None:
    async def check() -> None:
        folder = tmp_path / "lines"
        folder.mkdir()
        with running(tmp_path) as brokers:
            first = await asyncio.to_thread(brokers.leader)
            with working(brokers.address), client(brokers) as app:
                async with app:
                    handle = await application.talk.submit(str(folder))
                    lines = handle.logs(follow=True)

                    async def next_line(number: int) -> None:
                        (folder / str(number)).touch()
                        async with asyncio.timeout(90):
                            assert (await anext(lines)).text == f"line {number}"

                    for number in range(3):
                        await next_line(number)
                    await asyncio.to_thread(first.kill)
                    await next_line(3)
                    assert await asyncio.to_thread(texts, brokers.leader(), str(handle)) == [
                        f"line {number}" for number in range(4)
                    ]
                    await asyncio.to_thread(first.start)
                    (folder / "end").touch()
                    await next_line(4)
                    assert [line async for line in lines] == []
                    assert await handle.result() == "said"
                    await until_there(first, 5)

    asyncio.run(check())


@contextmanager
def working(address: str) -> Iterator[None]:
    """Let a worker run."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "jackalope", "worker", "tests.cluster.application:app"],
        env={**os.environ, "JACKALOPE_URL": address},
    )
    try:
        yield
    finally:
        worker.kill()
        worker.wait()


def texts(process: Process, task: str) -> list[str]:
    _, body = process.get(f"/api/v1/tasks/{task}/logs")
    return [line["text"] for line in body["lines"]]


async def until_there(process: Process, count: int) -> None:
    """Wait until a member that was away has all lines in its own file."""
    path = process.folder / "data" / "shards" / "0" / "logs.db"
    async with asyncio.timeout(60):
        while True:
            if path.exists():
                with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
                    (found,) = connection.execute("SELECT count(*) FROM lines").fetchone()
                    if found == count:
                        return
            await asyncio.sleep(0.2)

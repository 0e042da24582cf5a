"""A worker of several namespaces, as real processes: slots together, turns, signals and kills."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from jackalope import Jackalope
from jackalope.core.lifecycle import State
from tests.cli.conftest import JACKALOPE, Serving, clean_environment
from tests.client.harness import run
from tests.ports import free_port
from tests.worker.needing_application import hold, relay
from tests.worker.test_resources import ROOT, Line, until

SLOTS = 3
NAMES = ("acme", "globex", "initech")


class Site:
    """A broker, and one worker of several namespaces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "held.txt"
        self.port = free_port()
        data = str(folder / "data")
        self.broker = Serving("--port", str(self.port), "--data", data, cwd=folder)
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return f"jackalope://127.0.0.1:{self.port}"

    def start(self, *names: str) -> subprocess.Popen[bytes]:
        command = [
            *(JACKALOPE, "--broker", self.address, "worker"),
            *("tests.worker.needing_application:app", "--namespaces", ",".join(names)),
            *("--concurrency", str(SLOTS), "--grace", "1s", "--name", "w", "--log-format", "json"),
        ]
        with (self.folder / "worker.txt").open("ab") as out:
            worker = subprocess.Popen(
                command, cwd=ROOT, env=clean_environment(), stdout=out, stderr=out
            )
        self.workers.append(worker)
        return worker

    def lines(self) -> list[Line]:
        words = [line.split() for line in self.log.read_text().splitlines()]
        return [Line(what, *map(int, others)) for what, *others in words]

    def parts(self) -> list[int]:
        """Return the processes of the namespaces, in their order."""
        pid = self.workers[-1].pid
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return sorted(map(int, text.split()))

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.broker.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    try:
        yield site
    finally:
        site.close()


async def clients(stack: AsyncExitStack, site: Site, *names: str) -> list[Jackalope]:
    return [
        await stack.enter_async_context(Jackalope(site.address, namespace=name)) for name in names
    ]


async def joined(*clients: Jackalope) -> None:
    async def are_there() -> bool:
        return all([any(each.load is not None for each in await c.workers()) for c in clients])

    await until(are_there)


def most_at_once(lines: list[Line]) -> int:
    now = most = 0
    for line in lines:
        now += 1 if line.what == "begin" else -1
        most = max(most, now)
    return most


def test_slots_are_together_and_namespaces_take_turns(site: Site) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            apps = await clients(stack, site, *NAMES)
            await apps[0].declare_namespace("acme", {"weight": 2})
            handles = []
            for number, app in enumerate(apps):
                task = app.task(name="hold", queue="jobs")(hold)
                log = str(site.log)
                handles += [
                    await task.submit(log, number * 1_000 + each, 0, 0, 0.05) for each in range(40)
                ]
            worker = site.start(*NAMES)
            for handle in handles:
                await handle.result(timeout=60)
            lines = site.lines()
            assert most_at_once(lines) == SLOTS
            # While all of them have tasks, acme has two turns where the others have one.
            begun = [line.number // 1_000 for line in lines if line.what == "begin"][8:64]
            shares = [begun.count(number) for number in range(3)]
            assert 24 <= shares[0] <= 32, shares
            assert 10 <= min(shares[1:]) <= max(shares[1:]) <= 18, shares
            # Tasks of one namespace never run in the process of another.
            processes = {(line.pid, line.number // 1_000) for line in lines}
            assert len(processes) == len({pid for pid, _ in processes}) == 3
            worker.terminate()
            assert await asyncio.to_thread(worker.wait, 30) == 0

    run(story())


def test_what_a_task_submits_goes_to_its_own_namespace(site: Site) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            apps = await clients(stack, site, "acme", "globex")
            site.start("acme", "globex")
            for number, app in enumerate(apps):
                task = app.task(name="relay", queue="jobs")(relay)
                handle: Any = await task.submit(str(site.log), number)
                child = app.handle(await handle.result(timeout=60))
                assert await child.result(timeout=60) == number

    run(story())


def test_a_process_that_is_killed_is_started_again(site: Site) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            apps = await clients(stack, site, "acme", "globex")
            site.start("acme", "globex")
            await joined(*apps)
            tasks = [app.task(name="hold", queue="jobs")(hold) for app in apps]
            long = [await tasks[0].submit(str(site.log), each, 0, 0, 60) for each in range(SLOTS)]
            await until(lambda: site.log.exists() and len(site.lines()) == SLOTS)
            other = await tasks[1].submit(str(site.log), 1_000, 0, 0, 0.01)
            assert (await other.status()).state == State.READY, "acme has all the slots"
            holder = site.lines()[0].pid
            assert holder in site.parts()
            os.kill(holder, signal.SIGKILL)
            # Its slots are free for the other when it is given up, and it comes back.
            await other.result(timeout=60)
            await until(lambda: len({line.pid for line in site.lines()}) == 3)
            for handle in long:
                await handle.kill()

    run(story())


def test_the_processes_end_with_the_worker(site: Site) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            apps = await clients(stack, site, "acme", "globex")
            worker = site.start("acme", "globex")
            await joined(*apps)
            parts = site.parts()
            assert len(parts) == 2
            worker.kill()
            await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in parts))

    run(story())

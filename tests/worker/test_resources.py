"""Resources with real processes: no worker ever runs more than it has, whoever is killed.

What runs where is counted from a file that the tasks write, and not from what the broker says.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from jackalope import Jackalope
from jackalope.client.handle import Handle
from jackalope.core.lifecycle import State
from tests.cli.conftest import JACKALOPE, Serving, clean_environment
from tests.client.harness import run
from tests.ports import free_port
from tests.worker.needing_application import hold

ROOT = Path(__file__).parents[2]
GIB = 2**30
HAS = {"gpu": 2, "mem": 8 * GIB}
WAIT_S = 60


class Line(NamedTuple):
    """A line of the log of the tasks."""

    what: str
    pid: int
    number: int
    gpu: int
    mem: int


class Site:
    """A broker and two workers, each of which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "held.txt"
        self.port = free_port()
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.start_broker()

    @property
    def address(self) -> str:
        return f"jackalope://127.0.0.1:{self.port}"

    def start_broker(self) -> None:
        data = str(self.folder / "data")
        self.broker = Serving("--port", str(self.port), "--data", data, cwd=self.folder)

    def start_worker(self, name: str) -> None:
        command = [
            *(
                JACKALOPE,
                "--broker",
                self.address,
                "worker",
                "tests.worker.needing_application:app",
            ),
            *("--name", name, "--concurrency", "8", "--grace", "1s"),
            *("--resource", "gpu=2", "--resource", "mem=8GiB"),
        ]
        with (self.folder / f"{name}.txt").open("ab") as out:
            self.workers[name] = subprocess.Popen(
                command, cwd=ROOT, env=clean_environment(), stdout=out, stderr=out
            )

    def kill_worker(self, name: str) -> None:
        self.workers[name].kill()
        self.workers[name].wait()

    def lines(self) -> list[Line]:
        if not self.log.exists():
            return []
        words = [line.split() for line in self.log.read_text().splitlines()]
        return [Line(what, *map(int, others)) for what, *others in words]

    def close(self) -> None:
        for worker in self.workers.values():
            worker.kill()
            worker.wait()
        self.broker.stop()


def most_held(lines: Iterable[Line]) -> dict[int, Counter[str]]:
    """Return how much of each resource each process has held at once, at most."""
    held: dict[int, Counter[str]] = defaultdict(Counter)
    most: dict[int, Counter[str]] = defaultdict(Counter)
    for line in lines:
        sign = 1 if line.what == "begin" else -1
        held[line.pid].update({"gpu": sign * line.gpu, "mem": sign * line.mem})
        most[line.pid] |= held[line.pid]
    return most


async def submit(
    client: Jackalope, site: Site, number: int, *, gpu: int = 0, mem: int = 0, seconds: float
) -> Handle[Any]:
    needs = {name: amount for name, amount in (("gpu", gpu), ("mem", mem)) if amount}
    task = client.task(name="hold", queue="jobs", needs=needs)(hold)
    return await task.submit(str(site.log), number, gpu, mem, seconds)


async def until(is_so: Callable[[], Awaitable[bool] | bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            found = is_so()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.05)


def play(story: Callable[[Site, Jackalope], Awaitable[None]], folder: Path) -> None:
    site = Site(folder)

    async def play() -> None:
        for name in ("w1", "w2"):
            site.start_worker(name)
        async with Jackalope(site.address) as client:

            async def both() -> bool:
                return sum(bool(view.resources) for view in await client.workers()) == 2

            await until(both)
            await story(site, client)

    try:
        run(play())
    finally:
        site.close()


def test_no_worker_runs_more_than_it_has_whoever_is_killed(tmp_path: Path) -> None:
    async def story(site: Site, client: Jackalope) -> None:
        kinds = [(1, GIB), (2, 0), (0, 5 * GIB), (1, 3 * GIB)]
        handles = []
        for number in range(60):
            gpu, mem = kinds[number % len(kinds)]
            seconds = 0.1 + number % 5 * 0.05
            handles.append(await submit(client, site, number, gpu=gpu, mem=mem, seconds=seconds))

        def begun() -> int:
            return sum(line.what == "begin" for line in site.lines())

        await until(lambda: begun() >= 6)
        site.kill_worker("w1")
        await until(lambda: begun() >= 14)
        site.start_worker("w1")
        await until(lambda: begun() >= 20)
        site.broker.stop(signal.SIGKILL)
        site.start_broker()
        await until(lambda: begun() >= 36)
        site.kill_worker("w2")
        site.start_worker("w2")

        async def all_ended() -> bool:
            states = [(await handle.status()).state for handle in handles]
            return set(states) == {State.SUCCEEDED}

        await until(all_ended)
        lines = site.lines()
        for most in most_held(lines).values():
            assert all(most[name] <= amount for name, amount in HAS.items()), most
        # Some process was full, or nothing is proved.
        assert max(most["gpu"] for most in most_held(lines).values()) == HAS["gpu"]
        assert {line.number for line in lines if line.what == "end"} == set(range(60))
        crashes = 0
        for handle in handles:
            history = [entry.what for entry in await handle.history()]
            assert history.count("finish") == 1, history
            crashes += (await handle.status()).crashes
        assert crashes >= 1, "no worker was killed while it had a task"
        for view in await client.workers():
            assert view.used == {}, view

    play(story, tmp_path)


def test_small_tasks_do_not_starve_a_large_one(tmp_path: Path) -> None:
    async def story(site: Site, client: Jackalope) -> None:
        for number in range(8):
            await submit(client, site, number, gpu=1, seconds=0.2 + number % 4 * 0.07)
        large = await submit(client, site, 1_000, gpu=2, seconds=0.1)
        later = [
            await submit(client, site, number, gpu=1, seconds=0.2 + number % 4 * 0.07)
            for number in range(100, 140)
        ]
        await large.result(timeout=WAIT_S)
        for handle in later:
            await handle.result(timeout=WAIT_S)
        lines = site.lines()
        order = [line.number for line in lines if line.what == "begin"]
        before = [number for number in order[: order.index(1_000)] if number >= 100]
        # The other worker goes on meanwhile, and what is kept free is given to no later one.
        assert len(before) <= 8, order
        for most in most_held(lines).values():
            assert most["gpu"] <= HAS["gpu"], most

    play(story, tmp_path)

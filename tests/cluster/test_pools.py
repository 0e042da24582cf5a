"""A pool of a cluster of real processes: whoever leads keeps it, and nobody else does."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from jackalope import Jackalope
from jackalope.pools.launchers.worker_state import WorkerFolder
from tests.cluster import application
from tests.cluster.brokers import ROOT, Brokers, Process, running, until

pytestmark = pytest.mark.timeout(300)

COMMAND = [sys.executable, "-m", "jackalope", "worker", "tests.cluster.application:app"]
LAUNCHER = {"type": "subprocess", "command": COMMAND, "folder": str(ROOT)}
WORKERS_MAX = 2
POOL = {"launcher": "local", "workers_max": WORKERS_MAX, "tasks_per_worker": 1}
CONFIG: dict[str, Any] = {"launchers": {"local": LAUNCHER}, "pools": {"models": POOL}}

numbers = count()


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with running(tmp_path, **CONFIG) as brokers:
        brokers.leader()
        try:
            yield brokers
        finally:
            for folder in (folder for node in brokers.all for folder in folders(node)):
                if process := folder.process():
                    process.send_to_group(signal.SIGKILL)


def folders(node: Process) -> list[WorkerFolder]:
    home = node.folder / "data" / "launchers" / "local"
    return [WorkerFolder(home, name) for name in WorkerFolder.names_in(home)]


def workers(node: Process) -> set[str]:
    """Return the workers that run on the machine of a node."""
    found = ((folder.worker, folder.process()) for folder in folders(node))
    return {name for name, process in found if process is not None and process.is_alive()}


class Caller:
    """Calls the pool."""

    def __init__(self, brokers: Brokers, folder: Path) -> None:
        self.folder = folder
        self.address = Jackalope(brokers.address).address
        folder.mkdir()

    def serve(self, calls: int = 6) -> set[str]:
        """Have some calls answered, and return by whom."""
        return asyncio.run(self._all([next(numbers) for _ in range(calls)]))

    async def _all(self, mine: list[int], seconds: float = 0) -> set[str]:
        app = application.app
        before, app.address = app.address, self.address
        try:
            async with app:
                submitted = [
                    await application.serve.options(key="k").submit(str(self.folder), each, seconds)
                    for each in mine
                ]
                return {await each.result(timeout=120) for each in submitted}
        finally:
            app.address = before

    async def hold(self, end: Process) -> tuple[int, str]:
        """Stop a node while a call is under way; return how often that was begun, and who did."""
        number = next(numbers)
        waiting = asyncio.create_task(self._all([number], 3.0))
        await asyncio.to_thread(until, (self.folder / str(number)).exists, [end])
        await asyncio.to_thread(end.stop, 60)
        (worker,) = await waiting
        return len((self.folder / str(number)).read_text().splitlines()), worker


def test_a_killed_leader_leaves_no_worker_behind(brokers: Brokers, tmp_path: Path) -> None:
    first, caller = brokers.leader(), Caller(brokers, tmp_path / "calls")
    assert caller.serve() <= workers(first)
    assert 0 < len(workers(first)) <= WORKERS_MAX
    assert not any(workers(each) for each in brokers.all if each is not first)

    left = workers(first)
    first.kill()
    second = brokers.leader()
    served: set[str] = set()

    def have_all_served() -> bool:
        served.update(caller.serve())
        return bool(served & left) and bool(served & workers(second))

    until(have_all_served, brokers.all)
    assert workers(first) <= left
    assert 0 < len(workers(second)) <= WORKERS_MAX

    first.start()
    until(lambda: not folders(first), brokers.all)
    assert brokers.leader() is second
    assert caller.serve() <= workers(second)


def test_a_leader_that_is_stopped_ends_its_workers(brokers: Brokers, tmp_path: Path) -> None:
    first, caller = brokers.leader(), Caller(brokers, tmp_path / "calls")
    caller.serve()
    held = workers(first)
    began, by = asyncio.run(caller.hold(first))
    assert (began, by in held) == (1, True)  # What a worker has begun, it ends.
    until(lambda: not workers(first), brokers.all)
    second = brokers.leader()
    assert caller.serve() <= workers(second)

    first.start()
    until(lambda: not folders(first), brokers.all)
    assert caller.serve() <= workers(second)

"""Limits by key and `kill -9`: what tasks wrote into a file shows that every limit was kept."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from jackalope.transport.address import parse_address
from tests.acceptance import tasks
from tests.acceptance.harness import House, wait_until
from tests.acceptance.tasks import HOST_BURST, HOST_RATE, PER_USER

_TASKS = 64
_KILLS = 4
#: A task begins so much later than it was assigned, at most: workers share a busy machine. A limit
#: that is twice as high has so many starts more in three seconds.
_LATE_S = 1.5


@dataclass
class Run:
    """A task that ran, by the seconds of one clock that all processes have."""

    user: str
    host: str
    begin: float
    end: float = 0.0


def _runs(log: Path, killed: dict[int, float]) -> list[Run]:
    """Return all that ran. What a worker had when it was killed ended then."""
    runs: list[Run] = []
    current: dict[tuple[str, str], Run] = {}
    for line in log.read_text().splitlines():
        what, at_ns, user, host, name, pid = line.split()
        if what == "begin":
            run = current[name, pid] = Run(user, host, int(at_ns) / 1e9)
            run.end = killed.get(int(pid), 0.0)
            runs.append(run)
        else:
            current[name, pid].end = int(at_ns) / 1e9
    return runs


def _most_at_once(runs: list[Run]) -> int:
    steps = sorted([(run.end, -1) for run in runs] + [(run.begin, 1) for run in runs])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def _excess(starts: list[float]) -> float:
    """Return by how many starts a window has more than the bucket, at most."""
    starts = sorted(starts)
    return max(
        (last - first + 1) - HOST_BURST - HOST_RATE * (starts[last] - starts[first])
        for first in range(len(starts))
        for last in range(first, len(starts))
    )


async def _submit(house: House) -> None:
    calls = []
    for number in range(_TASKS):
        user = "busy" if number % 2 else f"user{number % 3}"
        calls.append((str(house.log), str(number), user, "ab"[number // 2 % 2], 0.4))
    tasks.app.address = parse_address(house.address)
    async with tasks.app:
        await tasks.limited.submit_many(calls)


def test_limits_are_kept_while_workers_and_the_broker_are_killed(tmp_path: Path) -> None:
    house, killed = House(tmp_path), dict[int, float]()

    def done() -> int:
        return len(house.runs("end"))

    def go_on_until(count: int) -> None:
        wait_until(lambda: done() > count, "tasks go on")

    def kill(name: str) -> None:
        process = house.workers[name]
        killed[process.pid] = time.monotonic()
        house.kill(process)
        house.start_worker(name, "limited")

    try:
        house.start_broker()
        asyncio.run(_submit(house))
        for number in range(2):
            house.start_worker(f"w{number}", "limited")
        for number in range(_KILLS):
            go_on_until(8 * (number + 1))
            if number % 2:
                house.kill(house.broker)
                house.start_broker()
            else:
                kill(f"w{number // 2}")
        wait_until(lambda: done() >= _TASKS, "everything ends", 40)
    finally:
        house.close()
    runs = _runs(house.log, killed)
    users = {run.user for run in runs}
    most = {user: _most_at_once([run for run in runs if run.user == user]) for user in users}
    assert max(most.values()) == PER_USER == most["busy"]
    for user in users:
        for host in "ab":
            both = [run for run in runs if (run.user, run.host) == (user, host)]
            assert _most_at_once(both) <= 1, (user, host)
    for host in "ab":
        starts = [run.begin for run in runs if run.host == host]
        assert max(starts) - min(starts) > 2 * _LATE_S, "too short to tell"
        assert _excess(starts) <= HOST_RATE * _LATE_S, sorted(starts)

"""A task that prints without end: memory is bounded, the newest lines are kept, others go on.

`FLOOD_MEGABYTES=1024` runs it at full size; the figures are in docs/how-to/task-logs.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import wait_until
from tests.acceptance.test_task_logs import TalkingHouse

MEBIBYTE = 1024 * 1024
MEGABYTES = int(os.environ.get("FLOOD_MEGABYTES", "64"))

#: How much more memory a worker and a broker may take than before, whatever is printed.
WORKER_GROWTH_BYTES_MAX = 40 * MEBIBYTE
BROKER_GROWTH_BYTES_MAX = 60 * MEBIBYTE


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TalkingHouse]:
    found = TalkingHouse(tmp_path_factory.mktemp("flood"))
    found.serve()
    command = [sys.executable, "-m", "jackalope", "worker", "tests.worker.logs.tasks:app"]
    options = ["-b", found.address, "-q", "default", "--concurrency", "4"]
    found.workers["worker"] = subprocess.Popen(
        [*command, *options, "--task-logs", "broker"],
        env=found.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # What comes once for all is no growth.
    for name in ("flood", "flood_in_process"):
        assert ended(found, submit(found, name, "lines", 1))["state"] == "succeeded"
    yield found
    found.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("flood", "lines"), ("flood", "endless"), ("flood", "garbage"), ("flood_in_process", "child")],
)
def test_flood(house: TalkingHouse, name: str, kind: str) -> None:
    worker, broker = house.workers["worker"].pid, house.broker.pid if house.broker else 0
    before = {pid: peak_bytes(pid) for pid in (worker, broker)}
    task = submit(house, name, kind, MEGABYTES)
    others = [submit(house, "count_in_thread", f"other {n}", 100) for n in range(3)]
    for number, other in enumerate(others):
        ended(house, other)
        assert house.texts(other) == [f"other {number} {line}" for line in range(100)]
    view = ended(house, task)
    assert view["state"] == "succeeded", view
    page = house.get(f"/api/v1/tasks/{task}/logs?tail=true&limit=1000")
    texts = [line["text"] for line in page["lines"]]
    # What a child process writes keeps its place among the other lines only about.
    assert "the end" in (texts if kind == "child" else texts[-1:])
    (kept,) = page["attempts"]
    assert kept["size"] <= 4 * MEBIBYTE
    if kind in ("lines", "child"):
        line = "a line of a log" if kind == "lines" else "of a child process"
        printed = MEGABYTES * 1024 * 64 if kind == "lines" else MEGABYTES * MEBIBYTE / 19
        assert kept["lines"] + kept["dropped"] == pytest.approx(printed, abs=3)
        assert kept["dropped"] > 0
        assert line in texts
    growth = {pid: peak_bytes(pid) - before[pid] for pid in before}
    sizes = {"worker": growth[worker] // MEBIBYTE, "broker": growth[broker] // MEBIBYTE}
    print(f"{name} {kind}: {sizes} MiB more, {house.cli('wait', task).stdout.split()[-1]} s")
    assert growth[worker] < WORKER_GROWTH_BYTES_MAX
    assert growth[broker] < BROKER_GROWTH_BYTES_MAX


def submit(house: TalkingHouse, name: str, *args: object) -> str:
    named = ("--queue", "default", "--name", name, "--json", json.dumps(args))
    ran = house.cli("submit", *named)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def ended(house: TalkingHouse, task: str) -> Any:
    found: dict[str, Any] = {}

    def has_ended() -> bool:
        found.update(house.get(f"/api/v1/tasks/{task}"))
        return found["state"] in ("succeeded", "dead", "killed")

    wait_until(has_ended, "the task ends", 60 + MEGABYTES)
    return found


def peak_bytes(pid: int) -> int:
    """Return how much memory a process had at most."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

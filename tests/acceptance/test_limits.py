"""Limits by key and `kill -9`: what an operator changed stays changed while the worker lives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.harness import House, wait_until


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.close()


def limits(house: House) -> dict[str, int]:
    """Return how many may run at once, by limit."""
    ran = house.cli("limits", "-f", "json")
    assert ran.returncode == 0, ran.stderr
    return {each["name"]: each["settings"]["concurrency"] for each in json.loads(ran.stdout)}


def run_one(house: House) -> None:
    """Let the worker run a task. What it sent when it joined was received before its result."""
    options = ("--queue", "q", "--name", "call", "--json", '["ada"]', "--wait")
    ran = house.cli("submit", *options)
    assert ran.returncode == 0, ran.stderr


def test_a_live_change_survives_a_broker_that_is_killed(house: House) -> None:
    house.start_broker()
    worker = house.start_worker("w1", "q", app="tests.acceptance.limited:app")
    declared = {"call:user": 2, "all-calls": 9, "stay:user": 2}
    wait_until(lambda: limits(house) == declared, "the worker has declared its limits")
    assert house.cli("limits", "set", "call:user", "--concurrency", "1").returncode == 0
    assert house.cli("limits", "delete", "all-calls", "--yes").returncode == 0
    for _ in range(2):
        house.kill(house.broker)
        house.start_broker()
        run_one(house)
        assert limits(house) == {"call:user": 1, "stay:user": 2}
    assert worker.poll() is None
    # A worker that starts declares its limits again.
    house.kill(worker)
    house.start_worker("w2", "q", app="tests.acceptance.limited:app")
    wait_until(lambda: limits(house) == declared, "the next worker has declared its limits")


def test_no_task_starts_before_the_limits_of_a_new_worker_hold(house: House) -> None:
    """Tasks that wait for the first worker are limited from the first one on."""
    house.start_broker()
    for _ in range(8):
        options = ("--queue", "q", "--name", "stay", "--keys", "user=ada", "--json", '["ada"]')
        assert house.cli("submit", *options).returncode == 0
    house.start_worker("w1", "q", app="tests.acceptance.limited:app")

    def counts() -> tuple[int, int]:
        [limit] = [
            each
            for each in json.loads(house.cli("limits", "-f", "json").stdout)
            if each["name"] == "stay:user"
        ] or [{"in_flight": 0, "waiting": 0}]
        return limit["in_flight"], limit["waiting"]

    wait_until(lambda: counts()[0] > 0, "tasks run")
    assert counts() == (2, 6)

"""Requests by processes of their own: one run for all of them, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackalope import State
from jackalope.transport.address import parse_address
from tests.acceptance import tasks
from tests.acceptance.harness import House, wait_until

CLIENTS = 10

#: A client: asks, says so, and prints the answer and how it was come by.
ASK = """
import asyncio, sys
from tests.acceptance.tasks import app, share

async def main():
    async with app:
        asked = await share.send_request(sys.argv[1], sys.argv[2], float(sys.argv[3]))
        print("asked", flush=True)
        answer = await asked.answer()
        print(answer.how, answer.value, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    house.start_broker()
    tasks.app.address = parse_address(house.address)
    yield house
    house.close()


def ask(house: House, name: str, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ASK, str(house.log), name, str(seconds)],
        env={**os.environ, "JACKALOPE_BROKER": house.address},
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_asked(clients: list[subprocess.Popen[str]]) -> None:
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.readline() == "asked\n"


def end(client: subprocess.Popen[str]) -> None:
    client.kill()
    client.wait()
    if client.stdout is not None:
        client.stdout.close()


def answers(clients: list[subprocess.Popen[str]]) -> list[tuple[str, str]]:
    """Return how each was served, and with what."""
    told = []
    for client in clients:
        assert client.stdout is not None
        how, _, value = client.stdout.readline().strip().partition(" ")
        assert client.wait(60) == 0
        told.append((how, value))
    return told


def test_ten_clients_ask_at_once_and_the_broker_is_killed(house: House) -> None:
    clients = [ask(house, "t1", 1) for _ in range(CLIENTS)]
    try:
        wait_asked(clients)
        house.start_worker("one", "shared")
        wait_until(lambda: house.runs()["t1"] == 1, "the task has begun")
        house.kill(house.broker)
        house.start_broker()
        told = answers(clients)
    finally:
        for client in clients:
            end(client)
    assert sorted(how for how, _ in told) == ["joined"] * (CLIENTS - 1) + ["miss"]
    assert len({value for _, value in told}) == 1
    assert house.runs()["t1"] == 1
    late = ask(house, "t1", 1)
    wait_asked([late])
    [(how, value)] = answers([late])
    end(late)
    assert (how, value) == ("hit", told[0][1])
    assert house.runs()["t1"] == 1
    shown = house.cli("cache", "list", "--format", "json")
    assert '"uses": 10' in shown.stdout


def test_worker_and_clients_are_killed_and_the_request_is_answered(house: House) -> None:
    clients = [ask(house, "t2", 1) for _ in range(3)]
    try:
        wait_asked(clients)
        victim = house.start_worker("victim", "shared", 1, "--lease", "3s", "--grace", "1s")
        wait_until(lambda: house.runs()["t2"] == 1, "the task has begun")
        house.kill(victim)
        clients[0].send_signal(signal.SIGKILL)
        house.start_worker("heir", "shared", 1, "--lease", "3s", "--grace", "1s")
        told = answers(clients[1:])
    finally:
        for client in clients:
            end(client)
    assert len({value for _, value in told}) == 1

    async def later() -> str:
        """The client that was killed comes back, and knows only what it asked for."""
        async with tasks.app:
            asked = await tasks.share.find_request(str(house.log), "t2", 1.0)
            assert await asked.wait() is State.SUCCEEDED
            return await asked.result()

    assert asyncio.run(later()) == told[0][1]
    assert house.runs("end")["t2"] == 1

"""Tasks for the acceptance tests. They write down when they begin and end, so that runs count."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from jackalope import Jackalope, Limit

app = Jackalope(os.environ.get("JACKALOPE_BROKER", "jackalope://localhost:7420"), timeout=60)


@app.task(queue="sums")
async def add(a: int, b: int) -> int:
    return a + b


@app.task(queue="work", retries=0)
async def work(log: str, name: str, seconds: float) -> str:
    note(log, "begin", name)
    await asyncio.sleep(seconds)
    note(log, "end", name)
    return name


@app.task(queue="shared", retries=0, version="1")
async def share(log: str, name: str, seconds: float) -> str:
    note(log, "begin", name)
    await asyncio.sleep(seconds)
    note(log, "end", name)
    return f"{name} by {os.getpid()}"


@app.task(queue="careful", retries=0)
async def careful(log: str, name: str, seconds: float) -> str:
    note(log, "begin", name)
    await asyncio.sleep(seconds)
    note(log, "end", name)
    return name


@app.task(queue="blocking")
def block(log: str, name: str, seconds: float) -> str:
    note(log, "begin", name)
    time.sleep(seconds)
    note(log, "end", name)
    return name


@app.task(queue="poison")
async def poison() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


#: How many tasks of a user run at once, and how many start at a host: at once, and in a second.
PER_USER, HOST_BURST, HOST_RATE = 2, 2, 4


@app.task(
    queue="limited",
    limits=[
        Limit(key="user", concurrency=PER_USER),
        Limit(key="host", rate=HOST_RATE, burst=HOST_BURST),
        Limit(key=["user", "host"], concurrency=1),
    ],
)
async def limited(log: str, name: str, user: str, host: str, seconds: float) -> None:
    note(log, f"begin {time.monotonic_ns()} {user} {host}", name)
    await asyncio.sleep(seconds)
    note(log, f"end {time.monotonic_ns()} {user} {host}", name)


@app.task(queue="talk")
def talk(folder: str) -> int:
    """Print a line for each file `0`, `1`, … as it appears, until there is one called `end`."""
    number = 0
    while True:
        is_over = (Path(folder) / "end").exists()
        while (Path(folder) / str(number)).exists():
            print(f"line {number}")
            number += 1
        if is_over:
            return number
        time.sleep(0.01)


def note(log: str, what: str, name: str) -> None:
    """Add a line to a file that several processes write."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{what} {name} {os.getpid()}\n")

"""An application whose tasks fan out, for real workers in processes of their own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from jackalope import ItemError, Jackalope, Reject, current

app = Jackalope(os.environ.get("JACKALOPE_BROKER", "jackalope://localhost:7420"), timeout=60)


class Point(msgspec.Struct):
    x: int
    y: int


# Items.


@app.task(queue="items")
def plain(number: int) -> list[int]:
    return [number, os.getpid()]


@app.task(queue="items")
def add_points(point: Point, move: Point, by: int = 0) -> Point:
    return Point(point.x + move.x, point.y + move.y + by)


@app.task(queue="items")
async def nap(number: int) -> list[int]:
    await asyncio.sleep(0.001)
    return [number, os.getpid()]


@app.task(queue="items", isolation="process")
def isolated(number: int) -> list[int]:
    return [number, os.getpid()]


@app.task(queue="items")
def busy(number: int) -> list[int]:
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass
    return [number, os.getpid()]


@app.task(queue="items")
def fussy(number: int) -> int:
    if number % 10 == 3:
        raise ValueError(f"{number} is not to my taste")
    if number % 10 == 7:
        raise Reject(f"{number} never is")
    return number


@app.task(queue="items")
def dangerous(number: int, owner: int) -> int:
    """Kill any process but the owner's with one of the items."""
    if number == 13 and os.getpid() != owner:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@app.task(queue="items")
def meet(number: int, folder: str, wanted: int) -> list[int]:
    """Return once so many processes are here at once."""
    while arrived(folder) < wanted:
        time.sleep(0.005)
    return [number, os.getpid()]


@app.task(queue="items")
async def meet_on_a_loop(number: int, folder: str, wanted: int) -> list[int]:
    while arrived(folder) < wanted:  # noqa: ASYNC110  another process arrives
        await asyncio.sleep(0.005)
    return [number, os.getpid()]


@app.task(queue="items", isolation="process")
def meet_isolated(number: int, folder: str, wanted: int) -> list[int]:
    return meet(number, folder, wanted)


def arrived(folder: str) -> int:
    """Arrive, and return how many processes have."""
    place = Path(folder)
    place.mkdir(exist_ok=True)
    (place / str(os.getpid())).touch()
    return len(list(place.iterdir()))


@app.task(queue="items")
def hold_interpreter(number: int, seconds: float) -> int:
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return number


ITEMS: dict[str, Any] = {
    "plain": plain,
    "nap": nap,
    "isolated": isolated,
    "busy": busy,
    "fussy": fussy,
    "meet": meet,
    "meet_on_a_loop": meet_on_a_loop,
    "meet_isolated": meet_isolated,
}


def told(result: object) -> object:
    """Return a result, or the place and the kind of what failed."""
    return [result.index, result.error.type] if isinstance(result, ItemError) else result


# Owners. They return what came back, the processes that computed it, and what else there is to say.


@app.task(queue="owners", retries=0)
async def fan_out(name: str, count: int, choices: dict[str, Any], begun: str = "") -> list[Any]:
    numbers, pids = [], set()
    details = {each: choices.pop(each) for each in ("ordered", "fixed") if each in choices}
    async with current().helpers(**choices) as helpers:
        async for number, pid in helpers.map(ITEMS[name], range(count), **details):
            numbers.append(number)
            pids.add(pid)
            if begun and len(numbers) == 100:
                Path(begun).touch()  # noqa: ASYNC240  short
        return [numbers, sorted(pids), helpers.by_broker]


@app.task(queue="owners", retries=0)
def fan_out_plainly(name: str, count: int, choices: dict[str, Any]) -> list[Any]:
    numbers, pids = [], set()
    fixed = choices.pop("fixed", None)
    with current().helpers(**choices) as helpers:
        for number, pid in helpers.map(ITEMS[name], range(count), fixed=fixed):
            numbers.append(number)
            pids.add(pid)
        return [numbers, sorted(pids), helpers.by_broker]


@app.task(queue="owners", retries=0, isolation="process")
def fan_out_isolated(name: str, count: int, choices: dict[str, Any]) -> list[Any]:
    return fan_out_plainly(name, count, choices)


@app.task(queue="owners", retries=3, retry_delay=0)
async def fan_out_again(name: str, count: int, folder: str) -> list[Any]:
    """Write down each attempt, so that a test can kill its worker."""
    context = current()
    async with context.helpers() as helpers:
        total = 0
        async for number, _ in helpers.map(ITEMS[name], range(count)):
            total += number
            if total == 0:
                mark = Path(folder) / f"attempt-{context.attempt}"
                mark.write_text(str(os.getpid()))
        return [total, context.attempt]


@app.task(queue="owners", retries=0)
async def move_points(count: int) -> list[list[int]]:
    points = [Point(n, -n) for n in range(count)]
    async with current().helpers() as helpers:
        for by in (1, 2):
            fixed = {"move": Point(1, 1), "by": by}
            points = [point async for point in helpers.map(add_points, points, fixed=fixed)]
        return [[point.x, point.y] for point in points]


@app.task(queue="owners", retries=0)
async def move_in_rounds(count: int, rounds: int, folder: str) -> list[list[int]]:
    """Wait for a helper, then move points round after round, each time by something else."""
    points = [Point(n, -n) for n in range(count)]
    async with current().helpers() as helpers:
        meeting = {"folder": folder, "wanted": 2}
        _ = [number async for number in helpers.map(meet, range(8), fixed=meeting)]
        for by in range(rounds):
            fixed = {"move": Point(1, 0), "by": by}
            points = [point async for point in helpers.map(add_points, points, fixed=fixed)]
        return [[point.x, point.y] for point in points]


@app.task(queue="owners", retries=0)
async def complain(count: int, choices: dict[str, Any]) -> list[Any]:
    async with current().helpers(0) as helpers:
        return [told(result) async for result in helpers.map(fussy, range(count), **choices)]


@app.task(queue="owners", retries=0)
async def face_danger(count: int, folder: str) -> list[Any]:
    """Wait for helpers, then give them what kills them, and say which items failed."""
    async with current().helpers() as helpers:
        meeting = {"folder": folder, "wanted": 2}
        _ = [number async for number in helpers.map(meet, range(8), fixed=meeting)]
        fixed = {"owner": os.getpid()}
        results = helpers.map(dangerous, range(count), fixed=fixed, on_error="collect")
        return [told(result) async for result in results]


@app.task(queue="owners", retries=0)
async def stream(count: int) -> list[Any]:
    """Take items that come slowly, and see how far ahead of the results they were taken."""
    taken = 0
    ahead = 0

    async def items() -> AsyncIterator[int]:
        nonlocal taken
        for number in range(count):
            await asyncio.sleep(0)
            taken += 1
            yield number

    numbers = []
    async with current().helpers() as helpers:
        async for number, _ in helpers.map(ITEMS["plain"], items()):
            numbers.append(number)
            ahead = max(ahead, taken - len(numbers))
    return [numbers == list(range(count)), ahead]


@app.task(queue="owners", retries=0)
async def hold_back(seconds: float, folder: str) -> int:
    """Let the one helper there is hold its interpreter for longer than silence is borne."""
    async with current().helpers() as helpers:
        meeting = {"folder": folder, "wanted": 2}
        _ = [number async for number in helpers.map(meet, range(8), fixed=meeting)]
        results = helpers.map(hold_interpreter, [1, 2], fixed={"seconds": seconds})
        return sum([number async for number in results])


CENSUS_ITEMS = 150


@app.task(queue="items")
def count_one(item: int, number: int) -> int:
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass
    return number + item


@app.task(queue="owners", retries=0, version="1")
async def census(number: int) -> list[int]:
    """Return what came back, all of it: an item that is missing or there twice can be seen."""
    async with current().helpers() as helpers:
        results = helpers.map(count_one, range(CENSUS_ITEMS), fixed={"number": number})
        return [result async for result in results]

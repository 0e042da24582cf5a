"""What every system is given to do: items that do nothing, items of a millisecond, and k-means.

Knows no system: a `Map` calls one of these functions on items, with the same arguments for each,
and gives back the results in their order.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

#: The name of a function, its items, and its further arguments.
Map = Callable[[str, Sequence[int], dict[str, Any]], Iterable[Any]]

_POINTS_PER_CHUNK = 500
_CENTRES = 8
_ITERATIONS_PROBE = 200_000


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    noops: int
    spins: int
    iterations_per_ms: int
    chunks: int
    rounds: int


def noop(item: int) -> int:
    """Do nothing."""
    return item


def spin(item: int, iterations: int) -> int:
    """Compute for about a millisecond."""
    for _ in range(iterations):
        item = (item * 31 + 7) % 1_000_003
    return item


def assign(chunk: int, centres: list[list[float]]) -> list[list[float]]:
    """Return the sums and the count of a chunk's points nearest to each centre."""
    sums = [[0.0, 0.0, 0.0] for _ in centres]
    for x, y in _points(chunk):
        best, nearest = float("inf"), 0
        for number, (a, b) in enumerate(centres):
            distance = (x - a) * (x - a) + (y - b) * (y - b)
            if distance < best:
                best, nearest = distance, number
        of = sums[nearest]
        of[0] += x
        of[1] += y
        of[2] += 1.0
    return sums


FUNCTIONS: dict[str, Callable[..., Any]] = {"noop": noop, "spin": spin, "assign": assign}


def measure(apply: Map, plan: Plan) -> dict[str, float]:
    """Return how many seconds each load took."""
    figures = {}
    if plan.noops:
        figures["noop_s"] = _timed(lambda: run_noops(apply, plan))
    figures["spin_s"] = _timed(lambda: run_spins(apply, plan))
    figures["kmeans_s"] = _timed(lambda: run_kmeans(apply, plan))
    return figures


def run_noops(apply: Map, plan: Plan) -> None:
    """Get every item back."""
    _check(sum(apply("noop", range(plan.noops), {})), sum(range(plan.noops)))


def run_spins(apply: Map, plan: Plan) -> None:
    """Compute items of a millisecond."""
    fixed = {"iterations": plan.iterations_per_ms}
    _check(sum(1 for _ in apply("spin", range(plan.spins), fixed)), plan.spins)


def run_kmeans(apply: Map, plan: Plan) -> None:
    """Move centres for some rounds: each begins when the one before it is merged."""
    centres = [list(point) for point in _points(0)[:_CENTRES]]
    for _ in range(plan.rounds):
        merged = [[0.0, 0.0, 0.0] for _ in centres]
        for sums in apply("assign", range(plan.chunks), {"centres": centres}):
            for whole, part in zip(merged, sums, strict=True):
                for at, value in enumerate(part):
                    whole[at] += value
        _check(round(sum(of[2] for of in merged)), plan.chunks * _POINTS_PER_CHUNK)
        centres = [[x / (count or 1), y / (count or 1)] for x, y, count in merged]


def iterations_per_ms() -> int:
    """Return how many iterations take a millisecond here, at best."""
    best = min(_timed(lambda: spin(1, _ITERATIONS_PROBE)) for _ in range(5))
    return round(_ITERATIONS_PROBE / best / 1_000)


@cache
def _points(chunk: int) -> list[tuple[float, float]]:
    """Return the points of a chunk, which each process makes for itself."""
    chance = random.Random(chunk)
    return [(chance.random(), chance.random()) for _ in range(_POINTS_PER_CHUNK)]


def _check(found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"wrong results: {found}, not {wanted}")


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began

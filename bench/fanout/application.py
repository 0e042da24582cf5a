"""The load as tasks of Jackalope: one that owns the fan-out, and the functions of its items."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from bench.fanout.load import Plan, measure
from bench.fanout.load import assign as assign_points
from bench.fanout.load import noop as do_nothing
from bench.fanout.load import spin as compute
from jackalope import Jackalope, current

_HELPERS_S_MAX = 30.0

app = Jackalope(os.environ.get("JACKALOPE_BENCH_FANOUT", "jackalope://localhost:7420"), timeout=120)


@app.task(queue="fanout")
def noop(item: int) -> int:
    """Do nothing."""
    return do_nothing(item)


@app.task(queue="fanout")
def spin(item: int, iterations: int) -> int:
    """Compute for about a millisecond."""
    return compute(item, iterations)


@app.task(queue="fanout")
def assign(chunk: int, centres: list[list[float]]) -> list[list[float]]:
    """Sum a chunk's points by the nearest centre."""
    return assign_points(chunk, centres)


_TASKS: dict[str, Any] = {"noop": noop, "spin": spin, "assign": assign}


@app.task(queue="fanout", retries=0)
def own(warm_up: dict[str, int], plan: dict[str, int]) -> dict[str, float]:
    """Own the fan-out: one of as many processes as there are cores, and computes like the rest."""
    with current().helpers() as helpers:

        def apply(name: str, items: Sequence[int], fixed: dict[str, Any]) -> Iterable[Any]:
            return helpers.map(_TASKS[name], items, fixed=fixed)

        end = time.monotonic() + _HELPERS_S_MAX
        while helpers.count < (os.cpu_count() or 1) - 1:
            measure(apply, Plan(**warm_up))
            if time.monotonic() > end:
                raise RuntimeError(f"only {helpers.count} helpers came")
        measure(apply, Plan(**warm_up))
        return measure(apply, Plan(**plan))


def measured(warm_up: Plan, plan: Plan) -> dict[str, float]:
    """Submit the task, and return what it measured."""
    with app.sync:
        return app.sync(own.run(asdict(warm_up), asdict(plan)))

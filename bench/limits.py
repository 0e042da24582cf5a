"""`python -m bench limits`: what an assignment costs under limits by key, with few keys and many.

As many tasks wait in each case, a third of them behind a limit that lets none go. It is CPU time of
a whole life: submitted, assigned, started, finished. The claim is that it is flat: it does not grow
with the number of keys, but for what is not in a cache.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from itertools import cycle

from bench import lives
from bench.shares import SharedSource
from jackalope.core import Core
from jackalope.core.commands import DeclareQueue, LimitTag
from jackalope.core.commands.limits import DeclareLimits
from jackalope.core.effects import Effect

_TURNS = 60
_RATE = 1_000_000

#: The policy of the queue and the limit of each case. All let tasks go, so that lives are compared.
_CASES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "no limit": ({}, {}),
    "concurrency": ({}, {"keys": ("tenant",), "concurrency": lives.BATCH}),
    "rate": ({}, {"keys": ("tenant",), "rate": _RATE}),
    "fair shares": ({"fair_by": "tenant"}, {}),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--keys", type=int, default=100_000, metavar="N", help="the most keys")


def run(args: argparse.Namespace) -> int:
    """Measure, and show."""
    found = {case: measure(case, (1, 1_000, args.keys)) for case in _CASES}
    if args.json:
        print(json.dumps(found))
        return 0
    print(f"{'':14} {'keys':>8} {'life':>10} {'quartiles':>16} {'of 1 key':>9}")
    for case, by_keys in found.items():
        first = by_keys[1]["life_us"]
        for keys, figures in by_keys.items():
            spread = f"{figures['low_us']:.1f}-{figures['high_us']:.1f} us"
            ratio = figures["life_us"] / first
            print(f"{case:14} {keys:>8,} {figures['life_us']:>7.1f} us {spread:>16} {ratio:>8.2f}x")
    return 0


def measure(case: str, counts: tuple[int, ...]) -> dict[int, dict[str, float]]:
    """Return the microseconds of a life with so many keys: the median and the quartiles."""
    cores = {keys: _filled(case, keys, max(counts)) for keys in counts}
    costs: dict[int, list[float]] = {keys: [] for keys in counts}
    waiting: dict[int, list[Effect]] = {}
    for keys, (core, _) in cores.items():
        _, waiting[keys] = core.handle(lives.BEGIN_US, lives.join())
    gc.collect()
    gc.freeze()
    for turn in range(_TURNS):
        now_us = lives.BEGIN_US + turn * 1_000
        for keys, (core, frames) in cores.items():  # In turns, so that a busy machine is for all.
            frame = next(frames)
            begin = time.process_time()
            core.handle(now_us, lives.submit(frame))
            for start, finish in lives.reports(waiting[keys]):
                core.handle(now_us, start)
                _, waiting[keys] = core.handle(now_us, finish)
            costs[keys].append((time.process_time() - begin) / lives.BATCH * 1e6)
            core.book.stored(core.book.take_changes())
    gc.unfreeze()
    return {keys: _summary(each) for keys, each in costs.items()}


def _summary(costs: list[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(costs, n=4)
    return {"life_us": median, "low_us": low, "high_us": high}


def _filled(case: str, keys: int, most: int) -> tuple[Core, cycle[bytes]]:
    """Return a core in which two tasks for each of the most keys wait, and those to come."""
    policy, limit = _CASES[case]
    core = Core()
    core.handle(lives.BEGIN_US, DeclareQueue(queue="queue", changes={"depth_limit": 0, **policy}))
    core.handle(lives.BEGIN_US, LimitTag(tag="closed", limit=0))
    if limit:
        core.handle(lives.BEGIN_US, DeclareLimits(limits={"limit": limit}))
    shut = max(1, keys // 3)
    lives.fill(core, SharedSource(shut, is_closed=True).frames(2 * most // 3))
    source = SharedSource(max(1, keys - shut))
    lives.fill(core, source.frames(2 * most - 2 * most // 3))
    return core, cycle(source.frames(_TURNS * lives.BATCH))

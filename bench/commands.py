"""What a task takes in the core at each stage of its life, by how many share a command.

A task that comes alone pays for its command and for every list of one. As a program with
a size and a count it prints this for the tree that PYTHONPATH names: `bench compare` asks an older
one so.
"""

from __future__ import annotations

import gc
import json
import sys
from time import perf_counter_ns

from bench import lives
from jackalope.core import Core

STAGES = ("submit", "start", "finish")


def measure(size: int, count: int) -> dict[str, float]:
    """Return the microseconds of a task at each stage, and of all three.

    Of all commands it is the one that a tenth are faster than: the machine is not alone.
    """
    batch, lives.BATCH = lives.BATCH, size
    frames = lives.Source().frames(count)
    lives.BATCH = batch
    core = Core()
    core.handle(lives.BEGIN_US, lives.open_queue())
    core.handle(lives.BEGIN_US, lives.join(100))
    gc.freeze()
    took_ns: dict[str, list[int]] = {stage: [] for stage in STAGES}
    for number, frame in enumerate(frames):
        now_us, command = lives.BEGIN_US + number * 1_000, lives.submit(frame)
        begin_ns = perf_counter_ns()
        _, effects = core.handle(now_us, command)
        took_ns["submit"].append(perf_counter_ns() - begin_ns)
        ((start, finish),) = lives.reports(effects)
        for stage, report in (("start", start), ("finish", finish)):
            begin_ns = perf_counter_ns()
            core.handle(now_us, report)
            took_ns[stage].append(perf_counter_ns() - begin_ns)
        core.book.stored(core.book.take_changes())
    found = {stage: sorted(each)[len(each) // 10] / size / 1e3 for stage, each in took_ns.items()}
    return {**found, "life": sum(found.values())}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))

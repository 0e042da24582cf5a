"""Fair shares in the core: what a life costs with many shares, beside few and beside none.

As many tasks wait in each case, two in each of the many shares, and a third of the shares is closed
by a tag. It is CPU time: memory that is not in a cache counts, other programs do not.
"""

from __future__ import annotations

import statistics
import time
from itertools import cycle

from bench import lives
from jackalope.core import Core
from jackalope.core.commands import DeclareQueue, LimitTag
from jackalope.core.effects import Effect
from jackalope.core.task import Options, TaskSpec

#: How many turns are measured of each, one after the other, so that a busy machine is busy for all.
_TURNS = 120

_CLOSED = "closed"


class SharedSource(lives.Source):
    """Makes tasks of so many tenants, one after the other."""

    def __init__(self, tenants: int, *, is_closed: bool = False) -> None:
        super().__init__()
        self._tenants = cycle(range(tenants))
        self._tags = (_CLOSED,) if is_closed else ()
        self._prefix = "closed" if is_closed else "open"

    def _spec(self) -> TaskSpec:
        spec = super()._spec()
        tenant = f"{self._prefix} {next(self._tenants)}"
        if self._tags:
            spec.id = type(spec.id)(spec.id[:15] + b"\xff")
        spec.options = Options(tags=self._tags, keys={"tenant": tenant})
        return spec


def measure(shares: int) -> dict[str, float]:
    """Return the microseconds of a life: without shares, with a hundred, and with many."""
    cores = {
        "life_us_no_shares": _filled(shares, shares, ""),
        "life_us_100_shares": _filled(100, shares, "tenant"),
        f"life_us_{shares // 1000}k_shares": _filled(shares, shares, "tenant"),
    }
    costs: dict[str, list[float]] = {name: [] for name in cores}
    waiting: dict[str, list[Effect]] = {}
    for name, (core, _) in cores.items():
        _, waiting[name] = core.handle(lives.BEGIN_US, lives.join())
    for _ in range(_TURNS):
        for name, (core, frames) in cores.items():
            frame = next(frames)
            begin = time.process_time()
            core.handle(lives.BEGIN_US, lives.submit(frame))
            for start, finish in lives.reports(waiting[name]):
                core.handle(lives.BEGIN_US, start)
                _, waiting[name] = core.handle(lives.BEGIN_US, finish)
            costs[name].append((time.process_time() - begin) / lives.BATCH * 1e6)
            core.book.stored(core.book.take_changes())
    return {name: round(statistics.median(each), 2) for name, each in costs.items()}


def _filled(shares: int, half: int, fair_by: str) -> tuple[Core, cycle[bytes]]:
    """Return a core in which tasks of so many shares wait, two times `half`, and those to come."""
    core, closed = Core(), shares // 3
    changes = {"depth_limit": 0, "fair_by": fair_by}
    core.handle(lives.BEGIN_US, DeclareQueue(queue="queue", changes=changes))
    core.handle(lives.BEGIN_US, LimitTag(tag=_CLOSED, limit=0))
    lives.fill(core, SharedSource(closed, is_closed=True).frames(half // 3))
    source = SharedSource(shares - closed)
    lives.fill(core, source.frames(2 * half - half // 3))
    return core, cycle(source.frames(_TURNS * lives.BATCH))

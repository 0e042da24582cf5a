"""The tables: the systems with their ratios to the bare machine, and the stages as bars."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.latency.stages import Stages, names

_BARE = "bare"
_BAR_CHARS = 40


class Kind(NamedTuple):
    """What was asked for, and how."""

    what: str
    is_hot: bool

    def __str__(self) -> str:
        how = "one after the other" if self.is_hot else "with pauses of 20 ms"
        return f"one {self.what}, {how}"


class Measured:
    """The times of one system, and what they cost."""

    def __init__(self, kind: Kind, system: str) -> None:
        self.kind = kind
        self.system = system
        self.spans: list[tuple[int, int]] = []
        self.medians_us: list[float] = []  # of each round
        self._cpu_ns: dict[str, int] = {}

    def add(self, answer: Mapping[str, Any]) -> None:
        """Take the answer of one turn."""
        spans = [(begin, end) for begin, end in answer["spans"]]
        self.spans += spans
        self.medians_us.append(statistics.median(end - begin for begin, end in spans) / 1e3)
        for who, spent in answer["cpu_ns"].items():
            self._cpu_ns[who] = self._cpu_ns.get(who, 0) + spent

    def times_us(self) -> list[float]:
        return [(end - begin) / 1e3 for begin, end in self.spans]

    def cpu_us(self, who: str) -> float:
        """Return the CPU time of one request in the processes of a side."""
        return self._cpu_ns.get(who, 0) / len(self.spans) / 1e3

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.kind.what,
            "is_hot": self.kind.is_hot,
            "system": self.system,
            "times_us": self.times_us(),
            "cpu_us": {who: self.cpu_us(who) for who in self._cpu_ns},
        }


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the tenth, the fiftieth and the ninety-ninth of a hundred."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[9], cuts[49], cuts[98]


def show(measured: Sequence[Measured], stages: Mapping[Kind, list[Stages]]) -> None:
    """Print what was measured."""
    for kind in dict.fromkeys(of.kind for of in measured):
        _show_systems(kind, [of for of in measured if of.kind == kind])
        if stages.get(kind):
            _show_stages(stages[kind])
    print(
        "\nMicroseconds. `x bare`: over the bare machine; in brackets the least and the greatest "
        "ratio of medians in a round.\nOn a busy machine trust p10 and CPU. `timed` is jackalope "
        "with marks; its stages are medians,\nwhich need not add up to the median of all."
    )


def _show_systems(kind: Kind, systems: Sequence[Measured]) -> None:
    bare = next((of for of in systems if of.system == _BARE), None)
    print(f"\n{kind}: {len(systems[0].spans)} of each")
    heads = ("p10", "p50", "p99", "server CPU", "client CPU", "worker CPU")
    print(f"  {'':18}" + "".join(f"{head:>11}" for head in heads) + "   x bare: p10, p50")
    for of in systems:
        cells = [f"{value:11,.0f}" for value in percentiles(of.times_us())]
        spent = [of.cpu_us(who) for who in ("server", "client", "worker")]
        cells += [f"{us:11,.0f}" if us else f"{'-':>11}" for us in spent]
        print(f"  {of.system:18}{''.join(cells)}   {_ratio(of, bare)}")


def _ratio(of: Measured, bare: Measured | None) -> str:
    if bare is None:
        return "-"
    ours, its = percentiles(of.times_us()), percentiles(bare.times_us())
    rounds = [one / other for one, other in zip(of.medians_us, bare.medians_us, strict=False)]
    least, most = min(rounds), max(rounds)
    return f"{ours[0] / its[0]:5.2f}, {ours[1] / its[1]:.2f} [{least:.2f}-{most:.2f}]"


def _show_stages(found: Sequence[Stages]) -> None:
    rows = {}
    for name in names(found):
        times = [stages[name] / 1e3 for stages in found if name in stages]
        if len(times) >= len(found) / 2:
            rows[name] = percentiles(times) if len(times) > 1 else (times[0],) * 3
    longest = max(p50 for _, p50, _ in rows.values())
    width = max(map(len, rows))
    print(f"\n    {'stage of jackalope':{width}}{'p10':>8}{'p50':>8}{'p99':>8}")
    for name, (p10, p50, p99) in rows.items():
        bar = "#" * max(1, round(p50 / longest * _BAR_CHARS))
        print(f"    {name:{width}}{p10:8,.0f}{p50:8,.0f}{p99:8,.0f}  {bar}")

"""A picture of the peers' figures: `python -m bench.plot peers.json peers.png`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

_US, _OTHERS, _EMPTY = "#b5532a", "#7f9bb3", "#999999"

_PANELS = (
    ("submit_one_per_s", "submit one at a time, tasks/s", "{:,.0f}"),
    ("submit_bulk_per_s", "submit in bulk, tasks/s", "{:,.0f}"),
    ("end_to_end_per_s", "end to end, one worker, tasks/s", "{:,.0f}"),
    ("round_trip_p50_ms", "round trip, idle, ms: p50 (line: p99)", "{:,.2g}"),
    ("rss_mb_100k", "memory at 100,000 pending, MB", "{:,.0f}"),
    ("cpu_at_5000_per_s", "broker's CPU at 5,000 tasks/s, cores", "{:,.2g}"),
)


def draw(figures: Mapping[str, dict[str, Any]], path: Path) -> None:
    """Draw a bar for every system and figure that there is, on logarithmic scales."""
    mpl.use("Agg")
    systems = {name: of for name, of in figures.items() if "error" not in of}
    height = 1.6 + 0.32 * len(systems)
    picture, grid = plt.subplots(2, 3, figsize=(14, 1.5 * height), layout="constrained")
    for number, (axes, (figure, title, form)) in enumerate(zip(grid.flat, _PANELS, strict=True)):
        _draw_panel(axes, systems, figure, form)
        axes.set_title(title, fontsize=10, loc="left")
        if number % 3:
            axes.set_yticklabels([])
    picture.savefig(path, dpi=120)
    plt.close(picture)


def _draw_panel(axes: Any, systems: Mapping[str, dict[str, Any]], figure: str, form: str) -> None:
    names = list(systems)
    values = [of[figure] for of in systems.values()]
    # From the power of ten below the smallest.
    left = 10 ** math.floor(math.log10(min((value for value in values if value), default=1)))
    axes.set_xscale("log")
    beside_axis = axes.get_yaxis_transform()
    for at, (name, value) in enumerate(zip(names, values, strict=True)):
        text, colour = (form.format(value), "black") if value else ("none", _EMPTY)
        axes.text(0.01, at, text, color=colour, fontsize=8, va="center", transform=beside_axis)
        if value:
            axes.barh(at, value - left, left=left, color=_US if name == "jackalope" else _OTHERS)
        if value and figure == "round_trip_p50_ms":
            axes.plot([value, systems[name]["round_trip_p99_ms"]], [at, at], color="black", lw=1)
    axes.set_xlim(left=left)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.xaxis.set_minor_formatter("")
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))

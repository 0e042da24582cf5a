"""The table of a run beside RabbitMQ: what each did, and how many times better ours is."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping

Figures = Mapping[str, Mapping[str, float]]


def print_table(figures: Figures, less_is_better: Collection[str] = ()) -> None:
    """Print the figures of `jackalope` beside those of `rabbitmq`, if there are any."""
    ours, theirs = figures["jackalope"], figures.get("rabbitmq", {})
    width = max(20, *(len(what) for what in ours))
    ratios = []
    print(f"{'':{width}} {'jackalope':>10} {'rabbitmq':>10} {'ratio':>6}")
    for what, figure in ours.items():
        if what in theirs:
            ratio = figure / theirs[what]
            ratios.append(1 / ratio if what in less_is_better else ratio)
            print(f"{what:{width}} {figure:10,.0f} {theirs[what]:10,.0f} {ratios[-1]:6.1f}")
        else:
            print(f"{what:{width}} {figure:10,.0f}")
    if ratios:
        mean = statistics.geometric_mean(ratios)
        print(f"{'geometric mean':{width}} {'':10} {'':10} {mean:6.1f}")

"""`python -m bench fanout`: many small items over all cores, by Jackalope and by others.

Everything in one run, the systems in turn, several times: the figures are medians. `items /s` is of
items that do nothing, from the first one handed in to the last result read. Efficiency is of items
of a millisecond and of k-means, whose rounds are each merged before the next: the time of processes
that share the work in advance and never talk, which is what the cores can do, over the system's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace

from bench.fanout.load import Plan, iterations_per_ms
from bench.fanout.systems import CORES, SYSTEMS
from bench.peers import install
from bench.peers.processes import ROOT, stop_tree

_US = "jackalope"
_FLOOR = "processes that never talk"
_SYSTEM_S_MAX = 90
_COLUMNS = ("items /s", "1 ms items", "k-means")
_LEGEND = (
    "In brackets: how many times more Jackalope does. Efficiency: the time of processes that share "
    "the work in advance and never talk, over the system's."
)

#: What is wrong, or the figures by their names.
Figures = dict[str, float | str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--only", metavar="WORD", help="systems with this in their name, and ours")
    parser.add_argument("--quick", action="store_true", help="coarse, within a minute")
    parser.add_argument("--repeats", type=int, metavar="N", help="3, or 1 with --quick")


def run(args: argparse.Namespace) -> int:
    """Set up what is missing, measure, and show."""
    install.install_venv(install.VENV_FANOUT)
    install.enter(install.VENV_FANOUT)
    names = [name for name in SYSTEMS if not args.only or args.only in name]
    names = list(dict.fromkeys([_FLOOR, _US, *names]))
    plan = Plan(
        noops=0,
        spins=1_000 if args.quick else 2_000,
        iterations_per_ms=iterations_per_ms(),
        chunks=200,
        rounds=4 if args.quick else 8,
    )
    taken: dict[str, list[Figures]] = {name: [] for name in names}
    for _ in range(args.repeats or (1 if args.quick else 3)):
        for name in names:
            if not any("error" in figures for figures in taken[name]):
                taken[name].append(_measure(name, plan, is_quick=args.quick))
    figures = {name: _summary(runs, taken[_FLOOR]) for name, runs in taken.items()}
    print(json.dumps(figures) if args.json else table(figures))
    return 0


def _measure(name: str, plan: Plan, *, is_quick: bool) -> Figures:
    """Measure one system once, in a process of its own."""
    noops = SYSTEMS[name][1] // (2 if is_quick else 1)
    request = {"system": name, "plan": asdict(replace(plan, noops=noops))}
    command = [sys.executable, "-m", "bench.fanout.child", json.dumps(request)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=False
    )
    try:
        output, _ = process.communicate(timeout=_SYSTEM_S_MAX)
        answer: dict[str, float | str] = json.loads(output.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {_SYSTEM_S_MAX} s"}
    except (IndexError, ValueError):
        return {"error": f"ended with {process.returncode} and without an answer"}
    finally:
        stop_tree(process)
    if noops and "noop_s" in answer:
        answer["items /s"] = noops / float(answer["noop_s"])
    return answer


def _summary(runs: list[Figures], floor: list[Figures]) -> Figures:
    """Return the medians of a system's figures; efficiency beside the floor of the same round."""
    for of in runs:
        if "error" in of:
            return of
    figures: Figures = {}
    if "items /s" in runs[0]:
        figures["items /s"] = statistics.median(float(of["items /s"]) for of in runs)
    for column, figure in (("1 ms items", "spin_s"), ("k-means", "kmeans_s")):
        ratios = [
            float(least[figure]) / float(of[figure])
            for of, least in zip(runs, floor, strict=True)
            if "error" not in least
        ]
        if ratios:
            figures[column] = statistics.median(ratios)
    return figures


def table(figures: Mapping[str, Figures]) -> str:
    """Return the table, in Markdown."""
    ours = figures[_US]
    lines = [
        f"| on {CORES} cores | items /s that do nothing | efficiency, 1 ms items | k-means |",
        "|---|---|---|---|",
    ]
    for name, of in figures.items():
        if "error" not in of:
            cells = [_cell(of, ours, column) for column in _COLUMNS]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", _LEGEND]
    lines += [
        f"- {name}: {' '.join(str(of['error']).split())[-300:]}"
        for name, of in figures.items()
        if "error" in of
    ]
    return "\n".join(lines)


def _cell(of: Figures, ours: Figures, column: str) -> str:
    if column not in of:
        return "-"
    value = float(of[column])
    text = f"{value:,.0f}" if column == "items /s" else f"{value:.0%}"
    if of is ours or column not in ours:
        return text
    ratio = float(ours[column]) / value
    return f"{text} ({ratio:.2g}x)" if ratio < 10 else f"{text} ({ratio:,.0f}x)"

"""`python -m bench flows`: the systems take turns, and medians with their spread are printed."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import asdict

from bench.children import ask
from bench.flows.base import Figures, Plan
from bench.flows.child import SYSTEMS
from bench.peers import install

_US = "jackalope"
_FIGURES = {"chain_ms": False, "join_s": False, "per_s": True}  # whether more is better
_CHILD_S_MAX = 600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--only", metavar="WORD", help="systems with this in their name, and ours")
    parser.add_argument("--quick", action="store_true", help="a group of 1,000, once")
    parser.add_argument("--repeats", type=int, metavar="N", help="3, or 1 with --quick")


def run(args: argparse.Namespace) -> int:
    """Set up what is missing, measure, and show."""
    install.install_venv(install.VENV_FLOWS)
    names = [name for name in SYSTEMS if not args.only or args.only in name]
    names = list(dict.fromkeys([_US, *names]))
    plan = Plan(steps=100, chains=2 if args.quick else 5, members=1_000 if args.quick else 10_000)
    taken: dict[str, list[Figures]] = {name: [] for name in names}
    for _ in range(args.repeats or (1 if args.quick else 3)):
        for name in names:
            if not any("error" in figures for figures in taken[name]):
                taken[name].append(_measure(name, plan))
                print(f"{name:14} {taken[name][-1]}", file=sys.stderr, flush=True)
    medians = {name: _summary(figures) for name, figures in taken.items()}
    if args.json:
        print(json.dumps({"plan": asdict(plan), "systems": medians}))
    else:
        _show(plan, medians)
    return 1 if "error" in medians[_US] else 0


def _measure(name: str, plan: Plan) -> Figures:
    return ask("bench.flows.child", name, asdict(plan), install.VENV_FLOWS, _CHILD_S_MAX)


def _summary(taken: list[Figures]) -> Figures:
    good = [figures for figures in taken if "error" not in figures]
    if not good:
        return {"error": taken[0]["error"]}
    summary: Figures = {"spread": {}}
    for figure in _FIGURES:
        values = [figures[figure] for figures in good]
        summary[figure] = statistics.median(values)
        summary["spread"][figure] = [min(values), max(values)]
    return summary


def _show(plan: Plan, medians: dict[str, Figures]) -> None:
    print(f"chain of {plan.steps} steps, join over {plan.members:,} tasks; medians [min, max]")
    ours = medians[_US]
    for name, figures in medians.items():
        if "error" in figures:
            print(f"{name:14} {figures['error'].splitlines()[0]}")
            continue
        parts = []
        for figure, is_more_better in _FIGURES.items():
            low, high = figures["spread"][figure]
            text = f"{figure} {figures[figure]:,} [{low:,}, {high:,}]"
            if name != _US and "error" not in ours:
                pair = (ours[figure], figures[figure])
                times = pair[0] / pair[1] if is_more_better else pair[1] / pair[0]
                text += f" (Jackalope {times:.1f} times as fast)"
            parts.append(text)
        print(f"{name:14} {'; '.join(parts)}")

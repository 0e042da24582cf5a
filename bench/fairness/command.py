"""`python -m bench fairness`: how long a small tenant waits behind large ones."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from bench.children import Figures, ask
from bench.fairness.base import Plan
from bench.fairness.child import SYSTEMS
from bench.peers import install

_CHILD_S_MAX = 600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--only", metavar="WORD", help="systems with this in their name")
    parser.add_argument("--quick", action="store_true", help="1,000 tenants, for ten seconds")
    parser.add_argument("--per-s", type=int, default=240, metavar="N", help="tasks a second")


def run(args: argparse.Namespace) -> int:
    """Set up what is missing, measure, and show."""
    install.install_venv(install.VENV_FLOWS)
    plan = Plan(
        tenants=1_000 if args.quick else 10_000, per_s=args.per_s, seconds=10 if args.quick else 60
    )
    taken: dict[str, Figures] = {}
    for name in SYSTEMS:
        if not args.only or args.only in name:
            taken[name] = ask(
                "bench.fairness.child", name, asdict(plan), install.VENV_FLOWS, _CHILD_S_MAX
            )
            print(f"{name:20} {taken[name]}", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps({"plan": asdict(plan), "systems": taken}))
    else:
        _show(plan, taken)
    return 1 if any("error" in figures for figures in taken.values()) else 0


def _show(plan: Plan, taken: dict[str, Figures]) -> None:
    print(f"{plan.tenants:,} tenants, Zipf; {plan.per_s} tasks a second for {plan.seconds} s")
    print(
        f"{'':20} {'small p50':>10} {'p99':>9} {'ideal p99':>10} {'largest p99':>12} {'done/s':>8}"
    )
    for name, figures in taken.items():
        if "error" in figures:
            print(f"{name:20} {figures['error'].splitlines()[0]}")
            continue
        print(
            f"{name:20} {figures['small_p50_s']:>8.2f} s {figures['small_p99_s']:>7.2f} s"
            f" {figures['small_ideal_p99_s']:>8.2f} s {figures['large_p99_s']:>10.2f} s"
            f" {figures['done_per_s']:>8.0f}"
        )

"""The `peers` command: its options, its environment, its output."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from bench.peers import install, registry, report, runs, servers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--only", metavar="A,B", help=f"of {', '.join(registry.ALONE)}")
    parser.add_argument("--quick", action="store_true", help="coarse, within two minutes")
    parser.add_argument("--repeats", type=int, metavar="N", help="3, or 1 with --quick")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write peers.json, .md and .png")
    parser.add_argument("--redis-fsync", choices=["everysec", "always"], default="everysec")
    parser.add_argument("--queue-type", choices=["quorum", "classic"], default="quorum")


def run(args: argparse.Namespace) -> int:
    """Set up what is missing, measure, and show."""
    names = registry.ALONE if args.only is None else args.only.split(",")
    unknown = [name for name in names if name not in registry.PEERS]
    if unknown:
        print(f"bench: no system is called {', '.join(unknown)}", file=sys.stderr)
        return 2
    if not install.is_ready() or servers.missing():
        install.install()
    install.enter(install.VENV)
    # So that a run that is told to end stops what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    settings = runs.Settings(
        names=names,
        is_quick=args.quick,
        repeats=args.repeats or (1 if args.quick else 3),
        redis_fsync=args.redis_fsync,
        queue_type=args.queue_type,
    )
    figures = runs.run(settings)
    print(json.dumps(figures) if args.json else report.table(figures))
    if args.save is not None:
        report.save(figures, args.save)
    return 0

"""The `aims` command: which rows, for how long, and where the table goes."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench.aims import table
from bench.aims.parts import PARTS, Run, Scale, say
from bench.peers import install
from bench.peers.processes import ROOT

PAGE = ROOT / "docs" / "explanation" / "performance.md"

_QUICK = Scale(3, 60, 40, 2_000, 8, 2, 200, 2, 4, 3)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(row.name for row in table.ROWS)
    parser.add_argument("--rows", metavar="A,B", help=f"of {names}, or parts: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="coarse, within three minutes")
    parser.add_argument("--write", action="store_true", help="put the table into the page")


def run(args: argparse.Namespace) -> int:
    """Measure what is asked for, and show what was found, also if it is told to end."""
    chosen = None if args.rows is None else set(args.rows.split(","))
    unknown = (chosen or set()) - {row.name for row in table.ROWS} - set(PARTS)
    if unknown:
        print(f"bench: no row is called {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if not install.is_ready():
        say("not all peers are installed: `python -m bench.peers.install` installs them")
    install.enter(install.VENV)
    # So that a run that is told to end stops what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rows = [row for row in table.ROWS if chosen is None or chosen & {row.name, row.part}]
    begin, load = time.monotonic(), os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="jackalope-aims-"))
    found = Run({row.name for row in rows}, _QUICK if args.quick else Scale(), folder)
    try:
        for part in dict.fromkeys(row.part for row in rows):
            _measure(part, found)
    except (KeyboardInterrupt, SystemExit):
        found.notes.append("Stopped before its end; nothing is written into the page.")
        args.write = False
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    minutes, after = (time.monotonic() - begin) / 60, os.getloadavg()[0]
    when = time.strftime("%Y-%m-%d")
    found.notes.insert(
        0,
        f"Medians [quartiles] of the rounds, on {os.cpu_count()} cores in {minutes:.0f} minutes on "
        f"{when}; load average {load:.1f} before and {after:.1f} after, that of the run included.",
    )
    text = table.markdown(rows, found.found, found.notes)
    print(text)
    if args.write:
        table.write(PAGE, text)
    return 0


def _measure(part: str, found: Run) -> None:
    """Let a part measure; what fails is told, and its rows stay empty."""
    say(part)
    try:
        PARTS[part](found)
    except Exception as error:  # noqa: BLE001  the other parts go on
        found.leave_out(part, f"{type(error).__name__}: {error}")

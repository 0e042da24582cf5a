"""What one commit of the journal costs: segments and SQLite beside the bare disk, in turns.

The floor is a write into a file that is already there, and a sync: what every durable
acknowledgement costs at least on this disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.sqlite.journal import SqliteJournal

#: Batches of one record, of ten and of a hundred.
SIZES = (186, 1_860, 18_600)
COMMITS = 100
FLOOR_BYTES = 64 * 1024 * 1024

Append = Callable[[bytes], object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command line."""
    parser.add_argument("--rounds", type=int, default=12, help="how often each has its turn")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; a temporary one")


def run(options: argparse.Namespace) -> int:
    """Measure, and print medians with their quartiles."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        ways = {
            "floor": _floor(folder, opened),
            "segments": _journal(SegmentJournal(folder / "journal"), opened),
            "sqlite": _journal(SqliteJournal(folder / "journal.db"), opened),
        }
        walls: dict[tuple[int, str], list[float]] = {}
        costs: dict[tuple[int, str], list[float]] = {}
        for _ in range(options.rounds):
            for size in SIZES:
                for name, append in ways.items():
                    wall_us, cpu_us = _measure(append, os.urandom(size))
                    walls.setdefault((size, name), []).append(wall_us)
                    costs.setdefault((size, name), []).append(cpu_us)
    print(f"{'bytes':>7} {'way':9} {'p50 us':>18} {'CPU us':>18} {'x floor':>8}")
    for (size, name), found in walls.items():
        ratio = statistics.median(found) / statistics.median(walls[size, "floor"])
        spread = f"{_spread(found):>18} {_spread(costs[size, name]):>18}"
        print(f"{size:>7} {name:9} {spread} {ratio:>8.2f}")
    return 0


def _measure(append: Append, body: bytes) -> tuple[float, float]:
    """Return the median time and the mean CPU time of a commit."""
    times = []
    cpu = time.process_time()
    for _ in range(COMMITS):
        begin = time.perf_counter()
        append(body)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6, (time.process_time() - cpu) / COMMITS * 1e6


def _floor(folder: Path, opened: ExitStack) -> Append:
    descriptor = os.open(folder / "floor", os.O_RDWR | os.O_CREAT)
    opened.callback(os.close, descriptor)
    os.write(descriptor, bytes(FLOOR_BYTES))
    os.fsync(descriptor)
    offset = 0

    def append(body: bytes) -> None:
        nonlocal offset
        os.pwrite(descriptor, body, offset)
        os.fdatasync(descriptor)
        offset = (offset + len(body)) % (FLOOR_BYTES - max(SIZES))

    return append


def _journal(journal: SegmentJournal | SqliteJournal, opened: ExitStack) -> Append:
    opened.enter_context(closing(journal))
    journal.claim()
    return journal.append


def _spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.0f} [{low:.0f}-{high:.0f}]"

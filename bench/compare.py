"""The working tree beside the last release, on this machine, in turns.

The release is unpacked below `build/`. Both trees are measured by the benchmarks of this one, with
the same Python and packages, except for lives in the core: those are driven by each tree's own
benchmark, since the core is no public interface. In every round one tree follows the other, each
time in the other order; the ratio of a round compares what was measured within seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from bench.peers.processes import ROOT
from bench.turns import Driver

_LIVES = 20_000
_SUBMITS = 200
_TRIPS = 120
_BULK = 5_000
_TASKS = 5_000
_ROUNDS = 9

#: Prints the CPU time of a life in microseconds, by the benchmark of the tree that it runs in.
_LIFE = """
import gc, time
from bench import core, lives
frames = lives.Source().frames({count})
gc.freeze()
begin = time.process_time()
core._live(frames)
print((time.process_time() - begin) / {count} * 1e6)
"""

#: Lives in the core of which every command has one task.
_SINGLES = 3_000

#: What is measured, and whether more of it is better.
_FIGURES = {
    "a life in the core, CPU us": False,
    "one submit in the core, us": False,
    "one start in the core, us": False,
    "one finish in the core, us": False,
    "a life of single commands in the core, us": False,
    "one submit, p50 us": False,
    "one submit, broker CPU us": False,
    "bulk submit, tasks /s": True,
    "round trip, p50 us": False,
    "round trip, CPU us of all": False,
    "end to end, tasks /s": True,
    "end to end, broker CPU us a task": False,
    "end to end, CPU us a task of all": False,
}

Figures = dict[str, float]


class NoBase(Exception):
    """There is nothing to compare with."""


class Tree:
    """A tree of the source: where it is, and what takes its turns."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        self.rounds: list[Figures] = []
        self.driver: Driver | None = None

    def start(self, folder: Path) -> Driver:
        """Start client and broker of this tree."""
        folder.mkdir()
        # Found before what is installed, which is always the working tree.
        environment = {"PYTHONPATH": str(self.root / "src")}
        self.driver = Driver("jackalope", folder, sys.executable, environment)
        return self.driver

    def ask(self, what: str, count: int = 0) -> dict[str, Any]:
        assert self.driver is not None
        answer = self.driver.ask(what, count)
        if self.driver.error:
            raise RuntimeError(f"{self.name}: {self.driver.error}")
        return answer

    def life_us(self) -> float | None:
        """Return what a life in the core takes; None if this tree cannot measure it."""
        done = self._run("-c", _LIFE.format(count=_LIVES))
        return float(done.stdout) if done.returncode == 0 else None

    def single_us(self) -> dict[str, float]:
        """Return what each stage of a life takes if each command has one task."""
        done = self._run("-P", str(ROOT / "bench" / "commands.py"), "1", str(_SINGLES))
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": f"{self.root}:{self.root / 'src'}"},
            capture_output=True,
            text=True,
            check=False,
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base", metavar="REF", help="a commit or tag; the newest tag otherwise")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="how often each has its turn")
    parser.add_argument("--json", action="store_true", help="print every round as JSON")


def run(args: argparse.Namespace) -> int:
    try:
        name, root = _unpack(args.base or _last_release())
    except NoBase as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    trees = [Tree(name, root), Tree("working tree", ROOT)]
    with _started(trees):
        for number in range(args.rounds):
            for tree in _in_turn(trees, number):
                tree.rounds.append(_alone(tree))
        for tree in trees:
            tree.ask("reset")
            tree.ask("worker")
        for number in range(args.rounds):
            for tree in _in_turn(trees, number):
                tree.rounds[number] |= _with_worker(tree)
    if args.json:
        print(json.dumps({tree.name: tree.rounds for tree in trees}))
    else:
        _show(*trees)
    return 0


def _last_release() -> str:
    """Return the newest tag.

    Raises:
        NoBase: there is none.
    """
    told = _git("describe", "--tags", "--abbrev=0")
    if told.returncode != 0:
        raise NoBase("no release is tagged yet; name a commit: make bench-quick BASE=<commit>")
    return told.stdout.decode().strip()


def _unpack(ref: str) -> tuple[str, Path]:
    """Return the name of a commit, and its source below `build/`.

    Raises:
        NoBase: git does not know it.
    """
    told = _git("rev-parse", "--short=10", "--verify", f"{ref}^{{commit}}")
    if told.returncode != 0:
        raise NoBase(f"git knows no commit {ref!r}: {told.stderr.decode().strip()}")
    commit = told.stdout.decode().strip()
    folder = ROOT / "build" / f"base-{commit}"
    if not folder.exists():
        for old in folder.parent.glob("base-*"):
            shutil.rmtree(old)
        packed = _git("archive", commit, "src", "bench")
        if packed.returncode != 0:
            raise NoBase(f"git cannot archive {ref}: {packed.stderr.decode().strip()}")
        unfinished = folder.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(unfinished, filter="data")
        unfinished.rename(folder)
    return (ref if ref.startswith(commit[:7]) else f"{ref} ({commit})"), folder


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)


@contextmanager
def _started(trees: Sequence[Tree]) -> Iterator[None]:
    folder = Path(tempfile.mkdtemp(prefix="jackalope-compare-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for number, tree in enumerate(trees):
            stack.callback(tree.start(folder / str(number)).stop)
        for tree in trees:
            if tree.driver is not None and tree.driver.answer().get("error"):
                raise RuntimeError(f"{tree.name}: {tree.driver.error}")
        yield


def _in_turn(trees: Sequence[Tree], number: int) -> Sequence[Tree]:
    return trees if number % 2 else trees[::-1]


def _alone(tree: Tree) -> Figures:
    """Measure what needs no worker."""
    figures: Figures = {}
    life_us = tree.life_us()
    if life_us is not None:
        figures["a life in the core, CPU us"] = life_us
    for stage, us in tree.single_us().items():
        what = "a life of single commands" if stage == "life" else f"one {stage}"
        figures[f"{what} in the core, us"] = us
    single = tree.ask("submit", _SUBMITS)
    figures["one submit, p50 us"] = _median_us(single)
    figures["one submit, broker CPU us"] = single["cpu_ns"]["server"] / _SUBMITS / 1e3
    figures["bulk submit, tasks /s"] = _rate(tree.ask("bulk", _BULK), _BULK)
    return figures


def _with_worker(tree: Tree) -> Figures:
    """Measure what needs a worker."""
    trips, tasks = tree.ask("round trip", _TRIPS), tree.ask("end to end", _TASKS)
    return {
        "round trip, p50 us": _median_us(trips),
        "round trip, CPU us of all": sum(trips["cpu_ns"].values()) / _TRIPS / 1e3,
        "end to end, tasks /s": _rate(tasks, _TASKS),
        "end to end, broker CPU us a task": tasks["cpu_ns"]["server"] / _TASKS / 1e3,
        "end to end, CPU us a task of all": sum(tasks["cpu_ns"].values()) / _TASKS / 1e3,
    }


def _median_us(answer: Mapping[str, Any]) -> float:
    return float(statistics.median(end - begin for begin, end in answer["spans"])) / 1e3


def _rate(answer: Mapping[str, Any], count: int) -> float:
    ((begin_ns, end_ns),) = answer["spans"]
    return count * 1e9 / float(end_ns - begin_ns)


def _show(old: Tree, new: Tree) -> None:
    width = max(map(len, _FIGURES))
    print(f"{'':{width}} {old.name:>24} {new.name:>24}   times better")
    for name, is_more_better in _FIGURES.items():
        before = [figures[name] for figures in old.rounds if name in figures]
        after = [figures[name] for figures in new.rounds if name in figures]
        cells = f"{name:{width}} {spread(before):>24} {spread(after):>24}"
        print(f"{cells}   {verdict(before, after, is_more_better=is_more_better)}")
    print(
        f"\nMedians and quartiles of {len(new.rounds)} rounds; `times better` of the ratios within "
        f"a round: above 1 the working tree\nis better, and `~` says that the quartiles hold 1, so "
        f"that nothing is known. Load average at the end: {os.getloadavg()[0]:.1f}."
    )


def spread(values: Sequence[float]) -> str:
    """Return the median, and the quartiles if there are enough."""
    if not values:
        return "-"
    if len(values) < 2:
        return f"{values[0]:,.3g}" if values[0] < 100 else f"{values[0]:,.0f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    digits = 0 if middle >= 100 else 1
    return f"{middle:,.{digits}f} [{low:,.{digits}f}-{high:,.{digits}f}]"


def verdict(before: Sequence[float], after: Sequence[float], *, is_more_better: bool) -> str:
    """Return how many times better the later is, and whether that is more than noise."""
    ratios = [new / old for old, new in zip(before, after, strict=False) if old and new]
    if not ratios:
        return "-"
    better = ratios if is_more_better else [1 / ratio for ratio in ratios]
    if len(better) < 2:
        return f"~ {better[0]:.2f}"
    low, middle, high = statistics.quantiles(better, n=4, method="inclusive")
    return f"{'~' if low <= 1 <= high else ' '} {middle:.2f} [{low:.2f}-{high:.2f}]"

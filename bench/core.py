"""The core and its storage: lives a second, bytes a task, recovery, and whether depth costs.

Memory is measured as resident memory in a process of its own. Everything else is repeated, and the
median counts, because the machine is not alone.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from bench import commands, floor, lives, shares
from jackalope.broker.engine import Engine, Flush
from jackalope.core import Core
from jackalope.core.effects import Effect
from jackalope.storage import Level, Storage

AIMS = {
    "lives_per_s_memory": 60_000,
    "lives_per_s_journal": 40_000,
    "bytes_per_task_100k": 700,
    "bytes_per_task_1m": 700,
    "recovery_s_1m": 20,
    "cost_ratio_1m_to_1k": 1.5,
}

_REPEATS = 5
_FLUSH_EVERY_TURNS = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tasks")
    parser.add_argument("--profile", action="store_true", help="where the time of a life goes")


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    if args.profile:
        profile()
        return 0
    figures = measure(is_quick=args.quick, say=not args.json)
    print(json.dumps(figures) if args.json else table(figures))
    return 0


def measure(*, is_quick: bool, say: bool) -> dict[str, float]:
    """Run every measurement, and return the figures by name."""
    scale = 10 if is_quick else 1
    figures: dict[str, float] = {}

    def note(name: str, figure: Callable[[], float], digits: int = 0) -> None:
        begin = time.perf_counter()
        value = round(figure(), digits)
        figures[name] = value if digits else int(value)
        if say:
            seconds = time.perf_counter() - begin
            print(f"  {name:32} {figures[name]:>12,}   ({seconds:.1f} s)", file=sys.stderr)

    gc.freeze()
    for size, tasks in ((1, 10_000), (lives.BATCH, 100_000)):
        for stage, us in commands.measure(size, tasks // scale).items():
            figures[f"{stage}_us_of_{size}"] = round(us, 2)
    figures.update(shares.measure(100_000 // scale))
    note("lives_per_s_memory", lambda: _median(lambda: _lives_in_memory(100_000 // scale)))
    note("lives_per_s_journal", lambda: _median(lambda: _lives_stored(100_000 // scale)))
    note(
        "lives_per_s_journal_history",
        lambda: _median(lambda: _lives_stored(100_000 // scale, is_flushing=True)),
    )
    note("floor_fsyncs_per_s", lambda: _median(floor.fsyncs_per_s))
    note("bytes_per_task_100k", lambda: _in_child("bytes_per_task", 100_000 // scale))
    note("bytes_per_task_1m", lambda: _in_child("bytes_per_task", 1_000_000 // scale))
    note("recovery_s_1m", lambda: _recovery_s(1_000_000 // scale), 2)
    note("cost_ratio_1m_to_1k", lambda: _cost_ratio(1_000_000 // scale), 3)
    return figures


def table(figures: dict[str, float]) -> str:
    """Lay the figures out beside what was aimed at."""
    lines = [f"{'':32} {'measured':>12} {'aim':>12}"]
    for name, value in figures.items():
        aim = AIMS.get(name)
        lines.append(f"{name:32} {value:>12,} {'' if aim is None else f'{aim:>12,}'}")
    return "\n".join(lines)


def profile() -> None:
    """Print where the time of a life goes."""
    frames = lives.Source().frames(30_000)
    profiler = cProfile.Profile()
    profiler.enable()
    _live(frames)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def _median(figure: Callable[[], float]) -> float:
    return statistics.median(figure() for _ in range(_REPEATS))


def _lives_in_memory(tasks: int) -> float:
    frames = lives.Source().frames(tasks)
    begin = time.perf_counter()
    finished = _live(frames)
    return finished / (time.perf_counter() - begin)


def _live(frames: list[bytes]) -> int:
    """Take tasks through a core: submitted, assigned, started, finished, gone."""
    core = Core()
    core.handle(lives.BEGIN_US, lives.open_queue())
    core.handle(lives.BEGIN_US, lives.join())
    finished = 0
    for number, frame in enumerate(frames):
        now_us = lives.BEGIN_US + number * 1_000
        _, effects = core.handle(now_us, lives.submit(frame))
        for start, finish in lives.reports(effects):
            core.handle(now_us, start)
            records, _ = core.handle(now_us, finish)
            finished += len(records)
        core.book.stored(core.book.take_changes())
    return finished


def _lives_stored(tasks: int, *, is_flushing: bool = False) -> float:
    """Take tasks through the engine and a journal on disk, 100 at each stage in every batch."""
    folder = Path(tempfile.mkdtemp(prefix="jackalope-bench-"))
    storage = Storage.open(folder, Level.FSYNC)
    try:
        engine = Engine(storage.journal, storage.history, storage.blobs)
        writer = _Writer(engine) if is_flushing else None
        _turn(engine, lives.BEGIN_US, [lives.open_queue(), lives.join(3 * lives.BATCH)])
        frames = lives.Source().frames(tasks)
        begin = time.perf_counter()
        _pipeline(engine, frames, writer)
        rate = tasks / (time.perf_counter() - begin)
        if writer is not None:
            writer.stop()
        return rate
    finally:
        storage.close()
        shutil.rmtree(folder)


def _pipeline(engine: Engine, frames: list[bytes], writer: _Writer | None) -> None:
    """Submit a batch, start the one before it and finish the one before that, in each turn."""
    started: list[object] = []
    assigned: list[Effect] = []
    for number, frame in enumerate([*frames, b"", b""]):
        commands = [lives.submit(frame)] if frame else []
        finishing, started = started, []
        for start, finish in lives.reports(assigned):
            commands.append(start)
            started.append(finish)
        assigned = _turn(engine, lives.BEGIN_US + number * 1_000, [*commands, *finishing])
        if writer is None:
            # Without history nothing would ever leave memory.
            engine.core.book.stored(engine.core.book.take_changes())
        elif number % _FLUSH_EVERY_TURNS == 0:
            writer.flush(lives.BEGIN_US)


def _turn(engine: Engine, now_us: int, commands: list) -> list[Effect]:  # type: ignore[type-arg]
    turn = engine.decide(now_us, commands)
    engine.store(turn)
    return engine.settle(turn)


class _Writer:
    """A thread that writes behind, as the running broker has one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._todo: SimpleQueue[Flush | None] = SimpleQueue()
        self._done: SimpleQueue[Flush] = SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def flush(self, now_us: int) -> None:
        """Hand over what changed, and let go of what is written."""
        while not self._done.empty():
            self._engine.end_flush(self._done.get())
        flush = self._engine.begin_flush(now_us)
        if flush is not None:
            self._todo.put(flush)

    def stop(self) -> None:
        """Wait until everything is written."""
        self._todo.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (flush := self._todo.get()) is not None:
            self._engine.write_flush(flush)
            self._done.put(flush)


def bytes_per_task(tasks: int) -> float:
    """Return by how much resident memory grows for each ready task."""
    core = Core()
    core.handle(lives.BEGIN_US, lives.open_queue())
    frames = lives.Source().frames(tasks)
    lives.fill(core, frames[:1])
    gc.collect()
    before = _resident_bytes()
    lives.fill(core, frames[1:])
    gc.collect()
    return (_resident_bytes() - before) / (tasks - lives.BATCH)


def _resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def _in_child(name: str, tasks: int) -> float:
    code = f"import json; from bench import core; print(json.dumps(core.{name}({tasks})))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(json.loads(child.stdout))


def _recovery_s(tasks: int) -> float:
    """Store live tasks as the broker does, then time opening the folder again."""
    folder = Path(tempfile.mkdtemp(prefix="jackalope-bench-"))
    try:
        _store_ready(folder, tasks)
        begin = time.perf_counter()
        storage = Storage.open(folder, Level.FSYNC)
        engine = Engine(storage.journal, storage.history, storage.blobs)
        seconds = time.perf_counter() - begin
        if len(engine.core.book.tasks) != tasks:
            raise RuntimeError(f"recovered {len(engine.core.book.tasks)} of {tasks} tasks")
        storage.close()
        return seconds
    finally:
        shutil.rmtree(folder)


def _store_ready(folder: Path, tasks: int) -> None:
    storage = Storage.open(folder, Level.FSYNC)
    engine = Engine(storage.journal, storage.history, storage.blobs)
    _turn(engine, lives.BEGIN_US, [lives.open_queue()])
    frames = lives.Source().frames(tasks)
    for begin in range(0, len(frames), 10):
        _turn(engine, lives.BEGIN_US, [lives.submit(frame) for frame in frames[begin : begin + 10]])
        if begin % 200 == 0:
            flush = engine.begin_flush(lives.BEGIN_US)
            if flush is not None:
                engine.write_flush(flush)
                engine.end_flush(flush)
    storage.close()


def _cost_ratio(deep: int) -> float:
    """Return how much more a life costs behind many queued tasks than behind a thousand."""
    shallow_core, deep_core = Core(), Core()
    source = lives.Source()
    for core, depth in ((shallow_core, 1_000), (deep_core, deep)):
        core.handle(lives.BEGIN_US, lives.open_queue())
        lives.fill(core, source.frames(depth))
    frames = source.frames(60_000)
    costs: dict[int, list[float]] = {id(shallow_core): [], id(deep_core): []}
    waiting = {}
    for core in (shallow_core, deep_core):
        _, waiting[id(core)] = core.handle(lives.BEGIN_US, lives.join())
    # Turn by turn, so that a busy machine is busy for both.
    for number, frame in enumerate(frames):
        core = (shallow_core, deep_core)[number % 2]
        begin = time.perf_counter()
        _, _ = core.handle(lives.BEGIN_US, lives.submit(frame))
        for start, finish in lives.reports(waiting[id(core)]):
            core.handle(lives.BEGIN_US, start)
            _, waiting[id(core)] = core.handle(lives.BEGIN_US, finish)
        costs[id(core)].append(time.perf_counter() - begin)
        core.book.stored(core.book.take_changes())
    return statistics.median(costs[id(deep_core)]) / statistics.median(costs[id(shallow_core)])

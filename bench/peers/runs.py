"""The runs: each system again and again, each time in a process of its own, and the medians.

The systems take turns, so that a busy machine is busy for all of them. Memory does not vary, so a
full run measures it once for each system; a quick run measures it on the way.
"""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.peers import install
from bench.peers.base import FIGURES, Figures, Plan
from bench.peers.processes import ROOT, stop_tree

_QUICK = Plan(
    has_memory=True, has_speed=True, memory_s=1, phase_s=0.4, round_trips=40, tasks_max=10_000
)
_FULL_SPEED = Plan(
    has_memory=False, has_speed=True, memory_s=0, phase_s=4, round_trips=300, tasks_max=100_000
)
_FULL_MEMORY = Plan(
    has_memory=True, has_speed=False, memory_s=240, phase_s=1, round_trips=0, tasks_max=0
)

_QUICK_S_MAX = 115
_QUICK_CHILD_S_MAX = 25
_CHILD_S_MAX = 600


@dataclass(frozen=True)
class Settings:
    """What to run, and how."""

    names: Sequence[str]
    is_quick: bool
    repeats: int
    redis_fsync: str
    queue_type: str
    has_memory: bool = True
    # Three servers take longer to start than one.
    starts: int = 1


def run(settings: Settings) -> dict[str, Figures]:
    """Measure every system, and return its medians or its error by its name."""
    quick_s = _QUICK_S_MAX * settings.repeats * settings.starts
    deadline = time.monotonic() + (quick_s if settings.is_quick else 1e9)
    answers: dict[str, list[Figures]] = {name: [] for name in settings.names}
    speed = _QUICK if settings.is_quick else _FULL_SPEED
    speed = replace(speed, has_memory=speed.has_memory and settings.has_memory)
    memory = [_FULL_MEMORY] if settings.has_memory and not settings.is_quick else []
    rounds = memory + [speed] * settings.repeats
    for number, plan in enumerate(rounds, 1):
        for name in settings.names:
            # What failed twice and never ran will not run the next time.
            if len(answers[name]) > 1 and all("error" in answer for answer in answers[name]):
                continue
            begin = time.monotonic()
            answer = _run_once(settings, name, plan, deadline - begin)
            answers[name].append(answer)
            outcome = answer.get("error", "ok").splitlines()[0]
            seconds = time.monotonic() - begin
            _say(f"round {number} of {len(rounds)}: {name:18} {seconds:5.1f} s  {outcome}")
    return {name: _summary(answers[name]) for name in settings.names}


def _run_once(settings: Settings, name: str, plan: Plan, remaining_s: float) -> Figures:
    if remaining_s < 5:
        return {"error": "no time left: a quick run ends within two minutes"}
    folder = Path(tempfile.mkdtemp(prefix="jackalope-peers-"))
    request = {
        "name": name,
        "plan": asdict(plan),
        "redis_fsync": settings.redis_fsync,
        "queue_type": settings.queue_type,
    }
    try:
        (folder / "request.json").write_text(json.dumps(request))
        seconds_max = _QUICK_CHILD_S_MAX * settings.starts if settings.is_quick else _CHILD_S_MAX
        return _in_child(name, folder, min(seconds_max, remaining_s))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _in_child(name: str, folder: Path, seconds: float) -> Figures:
    python = install.python(install.VENV_ARQ if name == "arq" else install.VENV)
    program = str(python) if python.exists() else sys.executable
    log = folder / "driver.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [program, "-m", "bench.peers.child", str(folder / "request.json")],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            logs = f"{_tail(log)} {_tail(folder / 'worker.log')}"
            return {"error": f"not done after {seconds:.0f} s: {logs}"}
        finally:
            # Also on the way out of an interrupted run.
            stop_tree(child, signal.SIGKILL)
    try:
        answer: Figures = json.loads((folder / "answer.json").read_text())
    except FileNotFoundError:
        return {"error": f"ended with {child.returncode} and no answer: {_tail(log)}"}
    return answer


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-300:].strip() if log.exists() else ""


def _summary(answers: Sequence[Figures]) -> Figures:
    """Return the medians of the runs that worked, or the error if none did."""
    good = [answer for answer in answers if "error" not in answer]
    errors = [answer["error"] for answer in answers if "error" in answer]
    if not any(answer["end_to_end_per_s"] for answer in good):
        return {"error": errors[0] if errors else "no run measured its speed"}
    summary: Figures = {"spread": {}}
    for figure in FIGURES:
        values = [answer[figure] for answer in good if answer[figure] is not None]
        summary[figure] = statistics.median(values) if values else None
        summary["spread"][figure] = [min(values, default=None), max(values, default=None)]
    summary["durability"] = good[-1]["durability"]
    summary["version"] = good[-1]["version"]
    notes = dict.fromkeys(note for answer in good for note in answer["notes"])
    failures = [f"{len(errors)} of {len(answers)} runs failed: {errors[0]}"] if errors else []
    summary["notes"] = [*notes, *failures]
    return summary


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)

"""Measurements in processes of their own: the request, the answer, and what is left behind.

Two systems do not share an interpreter: each reads its place from the environment when it is
imported, and leaves threads and connections behind.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers import install
from bench.peers.place import Place
from bench.peers.processes import ROOT, stop_tree

Figures = dict[str, Any]

#: Measures a system, given its class, its place, the plan and a folder.
Run = Callable[[type, Place, dict[str, Any], Path], Figures]


def ask(module: str, name: str, plan: dict[str, Any], venv: str, seconds: float) -> Figures:
    """Measure a system in a child, and return the figures, or the reason why not as `error`."""
    folder = Path(tempfile.mkdtemp(prefix="jackalope-bench-"))
    try:
        request = folder / "request.json"
        request.write_text(json.dumps({"name": name, "plan": plan}))
        python = install.python(venv)
        program = str(python) if python.exists() else sys.executable
        with (folder / "driver.log").open("wb") as log:
            child = subprocess.Popen(
                [program, "-m", module, str(request)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                return {"error": f"not done after {seconds} s"}
            finally:
                stop_tree(child, signal.SIGKILL)
        written = folder / "answer.json"
        if not written.exists():
            return {"error": (folder / "driver.log").read_text(errors="replace")[-300:]}
        answer: Figures = json.loads(written.read_text())
        return answer
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def answer_to(file: Path, package: str, systems: Mapping[str, str], run: Run) -> int:
    """Measure what a request asks for, in the child, and write the figures or the reason."""
    request = json.loads(file.read_text())
    place = Place.new(request["name"], file.parent, "everysec", "classic")
    place.export()
    answer: Figures
    try:
        module, _, system = systems[place.name].partition(":")
        kind = getattr(import_module(f"{package}.{module}"), system)
        answer = run(kind, place, request["plan"], file.parent)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the reason is the answer
        answer = {"error": f"{type(error).__name__}: {error}"}
    file.with_name("answer.json").write_text(json.dumps(answer))
    return 1 if "error" in answer else 0

"""One measurement of one system, in a process of its own: `python -m bench.peers.child REQUEST`.

The request is JSON in a file; the answer is written beside it. A process of its own keeps one
client's threads, memory and event loop away from the next, and can be ended when it hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bench.peers import registry
from bench.peers.base import Figures, Plan, measure
from bench.peers.place import Place
from bench.peers.processes import tree

_FLOOR_S = 0.2
_FLOOR_BODY = bytes(4096)


def main() -> int:
    """Measure what the request asks for, and write the figures or the reason why not."""
    file = Path(sys.argv[1])
    request = json.loads(file.read_text())
    place = Place.new(request["name"], file.parent, request["redis_fsync"], request["queue_type"])
    place.export()
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    answer: Figures
    try:
        answer = _measure(place, Plan(**request["plan"]))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the reason is the answer
        answer = {"error": f"{type(error).__name__}: {error}"}
    file.with_name("answer.json").write_text(json.dumps(answer))
    return 1 if "error" in answer else 0


def _watch(parent: int) -> None:
    """Leave no server behind when whoever started this process is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    for pid in reversed(tree([os.getpid()])):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _measure(place: Place, plan: Plan) -> Figures:
    module, _, peer = registry.PEERS[place.name].partition(":")
    make = getattr(import_module(f"bench.peers.{module}"), peer)
    has_uvloop = find_spec("uvloop") is not None
    new_loop = import_module("uvloop").new_event_loop if has_uvloop else asyncio.new_event_loop
    fsyncs_per_s = _fsyncs_per_s(place.path / "floor") if plan.has_speed else None
    gc.freeze()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        figures = runner.run(measure(make(place), plan))
    figures["floor_fsyncs_per_s"] = fsyncs_per_s
    return figures


def _fsyncs_per_s(file: Path) -> int:
    """Return how many durable appends a second the disk of the servers takes."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        count, begin = 0, time.perf_counter()
        while (passed_s := time.perf_counter() - begin) < _FLOOR_S:
            os.write(descriptor, _FLOOR_BODY)
            os.fdatasync(descriptor)
            count += 1
        return round(count / passed_s)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())

"""Systems that take turns, each in a process of its own: `python -m bench.turns NAME FOLDER`.

Each line of the input asks for something, as JSON; each line of the output has its times, on the
clock that all processes share, and the CPU time that it took. The systems stay up from the first
round to the last, and only the one whose turn it is does anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

from bench.peers.base import BULK, Peer
from bench.peers.place import Place
from bench.peers.processes import ROOT, cpu_ns, resident_mb, stop_tree

#: Where each system is.
SYSTEMS = {
    "bare": "bench.latency.bare:Bare",
    "jackalope": "bench.peers.jackalope:JackalopePeer",
    "timed": "bench.latency.timed:Timed",
    "huey_sqlite": "bench.peers.huey:HueySqlite",
    "beanstalkd": "bench.peers.beanstalkd:Beanstalkd",
    "rabbitmq_pika": "bench.peers.pika:Pika",
    "dramatiq_rabbitmq": "bench.peers.dramatiq:DramatiqRabbitmq",
}

_WARM_UP = 30
_STOP_S_MAX = 60
_REST_S = 2


class Driver:
    """A system that waits for its turns."""

    def __init__(
        self, name: str, folder: Path, python: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.error = ""
        self._log = (folder / "driver.log").open("wb")
        self._process = subprocess.Popen(
            [python, "-m", "bench.turns", name, str(folder)],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def ask(self, what: str, count: int = 0, pause_s: float = 0.0) -> dict[str, Any]:
        """Let it take a turn; what it cannot do counts as its error."""
        if self.error:
            return {}
        request = {"what": what, "count": count, "pause_s": pause_s}
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Read its next answer; the first one says that it is ready."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its process ended"}
        self.error = answer.get("error", "")
        return answer

    def stop(self) -> None:
        """Let it end by itself, and make it end if it does not."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            stop_tree(self._process, signal.SIGKILL)
        self._log.close()


def main() -> int:
    """Open the system, and take turns until the input ends."""
    name, folder = sys.argv[1:]
    Place.new(name, Path(folder), "everysec", "quorum").export()
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        module, _, kind = SYSTEMS[name].partition(":")
        peer: Peer = getattr(import_module(module), kind)(Place.current())
        gc.freeze()
        import_module("uvloop").run(_take_turns(peer, answers))
    except (Exception, SystemExit) as error:  # noqa: BLE001  the reason is the answer
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers)
        return 1
    return 0


async def _take_turns(peer: Peer, answers: Any) -> None:
    try:
        await peer.open()
        print(json.dumps({}), file=answers)
        # In a thread: a client that says nothing for long is cut off.
        while line := await asyncio.to_thread(sys.stdin.readline):
            answer: dict[str, Any] = {}
            request = json.loads(line)
            if request["what"] == "worker":
                await peer.start_worker()
            elif request["what"] == "reset":
                await peer.reset()
            elif request["what"] == "memory":
                answer = await _fill(peer, request["count"])
            elif request["what"] == "sustain":
                answer = await _sustain(peer, request["count"], request["pause_s"])
            else:
                answer = await _turn(peer, **request)
            print(json.dumps(answer), file=answers)
    finally:
        await peer.stop()


async def _turn(peer: Peer, what: str, count: int, pause_s: float) -> dict[str, Any]:
    """Do as many operations, and return when each began and ended; in bulk it is one of all."""
    operations: dict[str, Callable[[], Awaitable[Any]]] = {
        "submit": peer.submit_one,
        "round trip": peer.round_trip,
        "bulk": lambda: _submit_many(peer, count),
        "end to end": lambda: _run_many(peer, count),
    }
    operation, repeats = operations[what], count
    if what in ("bulk", "end to end"):
        repeats = 1
        await peer.submit_bulk(1)
    else:
        for _ in range(2 if pause_s else _WARM_UP):
            await operation()
    before, children_ns, ours_ns = _cpu_ns(peer), _children_ns(peer), process_time_ns()
    spans = []
    for _ in range(repeats):
        if pause_s:
            await asyncio.sleep(pause_s)
        begin_ns = perf_counter_ns()
        await operation()
        spans.append((begin_ns, perf_counter_ns()))
    if repeats == 1:
        await peer.settle()  # What is put off is a part of the price of many.
    # First: looking for the others takes time of its own.
    ours_ns = process_time_ns() - ours_ns
    after, children_ns = _cpu_ns(peer), _children_ns(peer) - children_ns
    if repeats > 1:
        await peer.settle()  # It would fall into the turn of another system.
    spent = {who: after[who] - before[who] for who in after}
    return {"spans": spans, "cpu_ns": {**spent, "client": ours_ns}, "children_ns": children_ns}


async def _fill(peer: Peer, count: int) -> dict[str, Any]:
    """Return the memory of the server's processes with so many tasks pending, all written."""
    await _submit_many(peer, count)
    await peer.settle()
    await asyncio.sleep(_REST_S)
    return {"mb": resident_mb(peer.server_pids())}


async def _sustain(peer: Peer, count: int, seconds: float) -> dict[str, Any]:
    """Run so many tasks again and again, until what is put off is done as well."""
    await _run_many(peer, count)
    await peer.settle()
    before, children_ns, ours_ns = _cpu_ns(peer), _children_ns(peer), process_time_ns()
    begin_ns, done = perf_counter_ns(), 0
    while perf_counter_ns() - begin_ns < seconds * 1e9:
        await _run_many(peer, count)
        done += count
    await peer.settle()
    end_ns = perf_counter_ns()
    ours_ns = process_time_ns() - ours_ns
    spent = {who: spent_ns - before[who] for who, spent_ns in _cpu_ns(peer).items()}
    return {
        "spans": [(begin_ns, end_ns)],
        "done": done,
        "cpu_ns": {**spent, "client": ours_ns},
        "children_ns": _children_ns(peer) - children_ns,
    }


async def _submit_many(peer: Peer, count: int) -> list[Any]:
    handles: list[Any] = []
    while len(handles) < count:
        handles += await peer.submit_bulk(min(BULK, count - len(handles)))
    return handles


async def _run_many(peer: Peer, count: int) -> None:
    await peer.wait(await _submit_many(peer, count))


def _children_ns(peer: Peer) -> int:
    """Return the part of the server's CPU time that is that of its children."""
    pids = peer.server_pids()
    return cpu_ns(pids) - cpu_ns(pids, is_alone=True)


def _cpu_ns(peer: Peer) -> dict[str, int]:
    return {"server": cpu_ns(peer.server_pids()), "worker": cpu_ns(peer.worker_pids())}


if __name__ == "__main__":
    sys.exit(main())

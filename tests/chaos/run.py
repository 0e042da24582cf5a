"""A run: machines, workers and load on them, and what is learnt at its end.

Owns the order of a run's life. Which faults there are is not known here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from jackalope.core.lifecycle import LEASED, PENDING
from tests.chaos import evidence, machines
from tests.chaos.application import QUEUE
from tests.chaos.evidence import recorded_at
from tests.chaos.history import Op, now, read
from tests.chaos.machines import Machines, Place

WORKERS = ("w1", "w2", "w3")

#: How long a cluster may take to be whole again; in earnest it is some seconds, and here the
#: machine may run much else.
SETTLE_S = 90.0


class Run:
    """One cluster under load."""

    def __init__(self, machines: Machines, folder: Path) -> None:
        self.machines = machines
        self.folder = folder  # of the notes
        self.load: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.recorders: list[subprocess.Popen[bytes]] = []
        self.settle_s = SETTLE_S

    def begin(self) -> None:
        """Start workers and load, and return when something was acknowledged."""
        self.machines.leader()
        for machine in self.machines.all:
            record = ("-m", "tests.chaos.evidence", str(recorded_at(self.folder, machine)))
            self.recorders.append(self._start(f"log-{machine.name}", {}, *record, on=machine))
        url = self.machines.address
        for name in WORKERS:
            extra = {
                "JACKALOPE_URL": url,
                "CHAOS_WORKER": name,
                "CHAOS_NOTES": str(self.folder / f"{name}.jsonl"),
            }
            application = "tests.chaos.application:app"
            command = ("-m", "jackalope", "worker", application, "--name", name)
            self.workers.append(self._start(name, extra, *command, "--concurrency", "4"))
        hosts = [machine.host for machine in self.machines.all]
        self.load = self._start("load", {}, "-m", "tests.chaos.load", str(self.folder), url, *hosts)
        self.machines.until(lambda: self.acknowledged_after(0), "a task ended", SETTLE_S)

    def _start(
        self, name: str, extra: dict[str, str], *command: str, on: Place | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                (on or self.machines.load).command(sys.executable, *command),
                env=os.environ | extra,
                stdout=log,
                stderr=log,
            )

    # What is seen of it.

    def acknowledgements(self) -> list[int]:
        """Return when clients were told that something is stored, in order."""
        return sorted(op.back for op in read(self.folder) if is_acknowledged(op))

    def acknowledged_after(self, at: int) -> bool:
        times = self.acknowledgements()
        return bool(times) and times[-1] > at

    def settle(self) -> float:
        """Wait until all nodes are there, one leads, and tasks are accepted again.

        Returns how many seconds that took.
        """
        began = time.monotonic()
        machines = self.machines
        assert self.load is not None
        machines.leader(SETTLE_S)

        def are_equal() -> bool:
            found = [machine.get("/health")[1] for machine in machines.all]
            applied = [each.get("applied", -1000) for each in found]
            roles = sorted(str(each.get("role")) for each in found)
            is_led = roles == ["follower"] * (len(roles) - 1) + ["leader"]
            return is_led and max(applied) - min(applied) < 50

        machines.until(are_equal, "all nodes follow", SETTLE_S)
        at = now()
        machines.until(lambda: self.acknowledged_after(at), "clients are answered", SETTLE_S)
        assert self.load.poll() is None, (self.folder / "load.log").read_text()[-3000:]
        return time.monotonic() - began

    # Its end.

    def finish(self) -> evidence.Evidence:
        """Let everything come to an end, stop all brokers at once, and read what they left."""
        assert self.load is not None
        (self.folder / "stop").touch()
        if self.load.wait(400):
            raise AssertionError((self.folder / "load.log").read_text()[-3000:])
        self._drain()
        for machine in self.machines.all:
            machine.kill()
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self._record_the_rest()
        return evidence.gather(self.machines.all, self.folder)

    def _record_the_rest(self) -> None:
        """Wait until all that is in the log was recorded: for a while nothing more comes."""
        paths = [recorded_at(self.folder, machine) for machine in self.machines.all]
        before: list[int] = []
        since = time.monotonic()
        while time.monotonic() - since < 3:
            sizes = [path.stat().st_size for path in paths]
            if sizes != before:
                before, since = sizes, time.monotonic()
            time.sleep(0.1)

    def _drain(self) -> None:
        """Wait until no task is open, and no node behind."""

        def is_drained() -> bool:
            found = [machine.get("/health")[1] for machine in self.machines.all]
            if len({each.get("applied", index) for index, each in enumerate(found)}) > 1:
                return False
            leader = self.machines.leaders()
            if not leader:
                return False
            counts = leader[0].get(f"/api/v1/queues/{QUEUE}")[1].get("counts", {"ready": 1})
            return not any(counts.get(str(state)) for state in PENDING | LEASED)

        self.machines.until(is_drained, "every task has ended", SETTLE_S)

    def end(self) -> None:
        for process in (*self.workers, *self.recorders, self.load):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def is_acknowledged(op: Op) -> bool:
    return op.kind == "submit" and op.outcome == "ok"


def longest_gap_s(times: list[int], begin: int, end: int) -> float:
    """Return the longest time without an acknowledgement that touches an interval."""
    marks = [at for at in times if at < begin][-1:] or [begin]
    marks += [at for at in times if begin <= at <= end]
    marks += [at for at in times if at > end][:1] or [end]
    return max(later - earlier for earlier, later in pairwise(marks)) / 1e9


@contextmanager
def running(
    folder: Path, count: int = 3, *, disk_mb: int = 0, settings: dict[str, Any] | None = None
) -> Iterator[Run]:
    """Start a cluster and load on it; leave no process, whatever happens."""
    notes = folder / "notes"
    notes.mkdir()
    with ExitStack() as cleaning:
        made = machines.running(folder, count, disk_mb=disk_mb, settings=settings)
        run = Run(cleaning.enter_context(made), notes)
        cleaning.callback(run.end)
        run.begin()
        yield run

"""Processes that the benchmark starts, and what `/proc` says of their memory and CPU.

Only what was started here is ever stopped: each by its id, together with its descendants.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_READY_S_MAX = 100
_STOP_S_MAX = 10


class Started:
    """A process with its log, to be stopped with all of its descendants."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        self.name = Path(command[0]).name

    @property
    def pid(self) -> int:
        """Return the id of the process itself."""
        return self._process.pid

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Return once it is ready.

        Raises:
            RuntimeError: It ended, or was not ready in time; the end of its log is in the message.
        """
        deadline = time.monotonic() + _READY_S_MAX
        while not is_ready():
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended at once: {self.last_words()}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self.name} is not ready after {_READY_S_MAX} s: {self.last_words()}"
                )
            time.sleep(0.02)

    def last_words(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-500:].strip()

    def kill(self) -> None:
        """Kill the process, and none of its descendants."""
        self._process.kill()
        self._process.wait()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, and make it end if it does not."""
        stop_tree(self._process, how)


def stop_tree(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """End a process that was started here, and every descendant it leaves behind."""
    family = {pid: _started_at(pid) for pid in tree([process.pid])}
    if process.poll() is None:
        process.send_signal(how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S_MAX)
    for pid, started_at in family.items():
        # An id alone may be somebody else's by now.
        if started_at is not None and _started_at(pid) == started_at:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


def python_program(name: str) -> str:
    """Return the path of a program that a package put beside this Python."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise RuntimeError(f"{name} is not installed beside {sys.executable}")
    return str(path)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    """Tell whether somebody accepts connections at a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def tree(pids: Iterable[int]) -> list[int]:
    """Return the processes and all their living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    todo = list(pids)
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo.extend(children.get(pid, []))
    return found


def resident_mb(pids: Iterable[int]) -> float:
    """Return the resident memory of processes and descendants, shared pages counted once."""
    return sum(_resident_kb(pid) for pid in tree(pids)) / 1024


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU time of processes and descendants, the dead ones included."""
    ticks = 0
    for pid in tree(pids):
        fields = _stat(pid)
        if fields is not None:
            # utime, stime, and the same two of children that ended and were waited for.
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / _TICKS_PER_S


def cpu_ns(pids: Iterable[int], *, is_alone: bool = False) -> int:
    """Return the CPU time of processes and descendants to the nanosecond, of living threads only.

    Without the descendants if it is to be alone.

    `cpu_s` counts in hundredths of a second, which is too coarse for a few requests.
    """
    total = 0
    for pid in pids if is_alone else tree(pids):
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                total += int((thread / "schedstat").read_text().split()[0])
    return total


def _resident_kb(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    lines = (line.split() for line in rollup.splitlines() if line.startswith("Pss:"))
    return next((int(words[1]) for words in lines), 0)


def _started_at(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """Return the fields of `/proc/PID/stat` from the state on, or None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name before it may hold spaces and parentheses.
    return text.rpartition(")")[2].split()

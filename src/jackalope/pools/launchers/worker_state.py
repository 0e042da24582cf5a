"""The state of a launched process, in files that outlive the broker that launched it.

Owns the files and their meaning, no process. Each file has one writer:

- `labels`: who it is, by the launcher, before anything is started. A folder appears with it at
  once, by a rename, so that of two orders for one worker only one comes through.
- `process`: its own line of `/proc/PID/stat`, by the process itself before it becomes a worker. So
  there is no moment at which it runs and could not be found.
- `exit`: the exit code, by what waits for the worker.
- `log`: all that it prints. It is cut by the launcher when it grows too long.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from jackalope.core.commands import Seen
from jackalope.core.effects import StartOrder
from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import named_labels, seen_with

# Folders with a dot are no worker's: its id has none.
_NEW = ".new-"
_GONE = ".gone-"
_PAST = ".past"

#: Threads that make the same folder would use the same one to prepare it.
_making = threading.Lock()

WORDS_LINES_MAX = 10
WORDS_BYTES_MAX = 2000


class WorkerFolder:
    """What is known of one process."""

    def __init__(self, home: Path, worker: str) -> None:
        self.worker = worker
        self.path = home / worker
        self.log = self.path / "log"
        self._home = home
        # What never changes once it is there is read once.
        self._labels: Seen | None = None
        self._process: Process | None = None

    @staticmethod
    def names_in(home: Path) -> list[str]:
        """Return the names of all that were launched and not forgotten."""
        try:
            return sorted(path.name for path in home.iterdir() if not path.name.startswith("."))
        except FileNotFoundError:
            return []

    @classmethod
    def retired_in(cls, home: Path) -> list[WorkerFolder]:
        """Return the folders that were retired and not yet removed."""
        found = [cls(home, path.name.removeprefix(_GONE)) for path in home.glob(f"{_GONE}*")]
        for folder in found:
            folder.path = home / f"{_GONE}{folder.worker}"
            folder.log = folder.path / "log"
        return found

    def make(self, order: StartOrder) -> bool:
        """Make the folder; return whether there was none."""
        with _making:
            return self._make(order)

    def _make(self, order: StartOrder) -> bool:
        if self.path.exists():
            return False
        new = self._home / f"{_NEW}{self.worker}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700, parents=True)
        (new / "labels").write_bytes(msgspec.json.encode(named_labels(order)))
        try:
            new.rename(self.path)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            if not self.path.exists():
                raise
            return False
        return True

    def labels(self) -> Seen | None:
        """Return who it is; None if it is forgotten, or damaged."""
        if self._labels is None:
            try:
                text = (self.path / "labels").read_bytes()
                labels = msgspec.json.decode(text, type=dict[str, str | int])
            except (OSError, msgspec.DecodeError):
                return None
            self._labels = seen_with(labels, Phase.STARTING, prefix="")
        return self._labels if self._labels and self._labels.launch == self.worker else None

    def is_there(self) -> bool:
        """Return whether it was launched and not forgotten."""
        return self.path.exists()

    def made_at(self) -> float:
        """Return when it was made, in seconds since the epoch."""
        try:
            return (self.path / "labels").stat().st_mtime
        except OSError:
            return 0.0

    def has_begun(self) -> bool:
        """Return whether a process is there, even if it has not finished writing its identity."""
        return (self.path / "process").exists()

    def process(self) -> Process | None:
        """Return the process, once it has written its identity."""
        if self._process is None:
            try:
                text = (self.path / "process").read_text(errors="replace")
            except OSError:
                return None
            self._process = read_stat(text)
        return self._process

    def exit_code(self) -> int | None:
        try:
            text = (self.path / "exit").read_text()
        except OSError:
            return None
        # Without its end the line is not whole yet.
        return int(text) if text.endswith("\n") and text.strip().isdecimal() else None

    def last_words(self) -> str:
        lines = self._tail(WORDS_BYTES_MAX).decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-WORDS_LINES_MAX:])

    def bound_log(self, bytes_max: int) -> None:
        """Keep the last half of a log that is too long.

        It is open for appending elsewhere, so it is cut in place. What is printed between the look
        and the cut is lost.
        """
        try:
            if self.log.stat().st_size <= bytes_max:
                return
            kept = self._tail(bytes_max // 2)
            with self.log.open("r+b") as file:
                file.truncate(0)
            with self.log.open("ab") as file:
                file.write(kept.partition(b"\n")[2] or kept)
        except OSError:
            return  # It is gone, or out of reach: nothing hangs on it.

    def retire(self) -> None:
        """Take the folder out of the way at once: who has not begun by now cannot begin."""
        gone = self._home / f"{_GONE}{self.worker}"
        shutil.rmtree(gone, ignore_errors=True)
        with suppress(FileNotFoundError):
            self.path.rename(gone)
        self.path, self.log = gone, gone / "log"

    def remove(self, logs_kept: int) -> None:
        """Remove the folder, and keep the log among those of the past."""
        past = self._home / _PAST
        with suppress(OSError):
            if logs_kept and self.log.stat().st_size:
                past.mkdir(mode=0o700, exist_ok=True)
                self.log.rename(past / f"{self.worker}.log")
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            logs = sorted(past.iterdir(), key=lambda log: log.stat().st_mtime)
            for log in logs[: max(0, len(logs) - logs_kept)]:
                log.unlink()

    def _tail(self, bytes_max: int) -> bytes:
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - bytes_max))
                return file.read(bytes_max)
        except OSError:
            return b""


# Processes of this machine that may have lost their parent: their identity, and signals.

PROC = Path("/proc")

# Places in /proc/PID/stat, counted from behind the name, which may hold anything.
_STATE, _SESSION, _BEGAN = 0, 3, 19

#: A zombie has ended: it waits for its parent to reap it.
_ENDED_STATES = frozenset("ZXx")


class Process(msgspec.Struct, frozen=True):
    """A process: its id, and when it began, in ticks since the machine did."""

    pid: int
    began: int

    def is_alive(self) -> bool:
        fields = _stat(self.pid)
        return fields is not None and _is(self, fields) and fields[_STATE] not in _ENDED_STATES

    def children(self) -> list[Process]:
        """Return the processes that it started itself and that still run.

        One that was forked and has not become its own program yet is not among them: a shell's
        copy still has the traps of the shell, and a signal to it would be lost.
        """
        try:
            text = (PROC / f"{self.pid}/task/{self.pid}/children").read_text()
        except OSError:
            return []
        own = _command_line(self.pid)
        found = [process_of(int(pid)) for pid in text.split()]
        children = [
            child for child in found if child and _command_line(child.pid) not in {own, b""}
        ]
        return children if self.is_alive() else []

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still itself."""
        if self.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def send_to_group(self, number: signal.Signals) -> None:
        """Send a signal to it and to all of the process group that it leads."""
        if self.is_alive():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)


def has_ended(pid: int) -> bool:
    """Return whether a child of ours has ended, and reap it if so."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def process_of(pid: int) -> Process | None:
    fields = _stat(pid)
    return None if fields is None else Process(pid, int(fields[_BEGAN]))


def read_stat(line: str) -> Process | None:
    """Read a line of `/proc/PID/stat`; None if it is not whole."""
    pid, fields = line.partition(" ")[0], _fields(line)
    if not line.endswith("\n") or not pid.isdecimal() or len(fields) <= _BEGAN:
        return None
    return Process(int(pid), int(fields[_BEGAN]))


def session_members(sessions: Mapping[int, str]) -> list[Process]:
    """Return what runs in some sessions and has their mark, NAME=VALUE, in its environment.

    The number of a session is used again as well: the mark shows whether it is the one meant.
    """
    found = []
    for name in [path.name for path in PROC.iterdir()] if sessions else ():
        fields = _stat(int(name)) if name.isdecimal() else None
        if (
            fields is None
            or fields[_STATE] in _ENDED_STATES
            or int(fields[_SESSION]) not in sessions
        ):
            continue
        with suppress(OSError):
            mark = sessions[int(fields[_SESSION])].encode()
            if mark in (PROC / name / "environ").read_bytes().split(b"\0"):
                found.append(Process(int(name), int(fields[_BEGAN])))
    return found


def _stat(pid: int) -> list[str] | None:
    try:
        with open(f"{PROC}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123  asked often
            return _fields(file.read().decode(errors="replace")) or None
    except OSError:
        return None


def _command_line(pid: int) -> bytes:
    try:
        return (PROC / f"{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _fields(line: str) -> list[str]:
    return line.rpartition(")")[2].split()


def _is(process: Process, fields: list[str]) -> bool:
    return int(fields[_BEGAN]) == process.began

"""Processes of this machine that may be nobody's children any more: who they are, and signals.

A process id is used again once its process is gone. So a process is known by its id together with
the moment it began, as `/proc` has them; one whose moment is another is somebody else's, and gets
no signal. It knows nothing of workers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

PROC = Path("/proc")

# Places in /proc/PID/stat, counted from behind the name, which may hold anything.
_STATE, _SESSION, _BEGAN = 0, 3, 19

#: A zombie has ended: it waits for its parent to hear of it.
_GONE = frozenset("ZXx")


class Process(msgspec.Struct, frozen=True):
    """A process: its id, and when it began, in ticks since the machine did."""

    pid: int
    began: int

    def is_alive(self) -> bool:
        """Tell whether it still runs."""
        fields = _stat(self.pid)
        return fields is not None and _is(self, fields) and fields[_STATE] not in _GONE

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
    """Tell whether a child of ours has ended, and let it go if so."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def process_of(pid: int) -> Process | None:
    """Return the process that has an id at present."""
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

    The number of a session is used again as well: the mark tells whether it is the one meant.
    """
    found = []
    for name in [path.name for path in PROC.iterdir()] if sessions else ():
        fields = _stat(int(name)) if name.isdecimal() else None
        if fields is None or fields[_STATE] in _GONE or int(fields[_SESSION]) not in sessions:
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

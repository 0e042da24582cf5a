"""Exit causes: why a process is gone, in words that help.

Owns the reading of exit statuses, and of the kernel's count of processes it has killed for memory.
"""

from __future__ import annotations

import signal
from pathlib import Path

from jackalope.core.task import Error

CRASHED = "Crashed"
OUT_OF_MEMORY = "OutOfMemory"
TIMEOUT = "Timeout"

_VMSTAT = Path("/proc/vmstat")


def exit_error(status: int, *, oom_kills: int = 0, trace: str = "") -> Error:
    """Describe the end of a process that nobody here has ended.

    Args:
        status: the exit code, or the signal that ended it as a negative number.
        oom_kills: how many processes the kernel has killed for memory while it ran.
        trace: the Python stack at its end, where there is one.
    """
    if status == -signal.SIGKILL and oom_kills > 0:
        message = "the process was killed by the kernel because the machine is out of memory"
        return Error(OUT_OF_MEMORY, message, trace)
    if status < 0:
        return Error(CRASHED, f"the process was killed by signal {signal_name(-status)}", trace)
    return Error(CRASHED, f"the process exited with code {status}", trace)


def signal_name(number: int) -> str:
    """Return the name of a signal with its number."""
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def oom_kill_count() -> int:
    """Return how many processes the kernel has killed for memory since it started."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

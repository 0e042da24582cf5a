"""Exit causes: why a process is gone, in words that help.

Owns the reading of exit statuses, and of the kernel's count of processes it has killed for memory.
"""

from __future__ import annotations

import signal
from pathlib import Path

from jackalope.core.task import Error
from jackalope.tasks.serialization import encodable
from jackalope.worker.executors.child_process import Exit

CRASHED = "Crashed"
OUT_OF_MEMORY = "OutOfMemory"
TIMEOUT = "Timeout"

_VMSTAT = Path("/proc/vmstat")


def exit_error(ended: Exit, *, oom_kills: int = 0, trace: str = "") -> Error:
    """Describe the end of a process that the worker has not ended.

    Args:
        ended: how it ended.
        oom_kills: how many processes the kernel has killed for memory while it ran.
        trace: the Python stack at its end, where there is one.
    """
    status, kind = ended.status, CRASHED
    if status == -signal.SIGKILL and oom_kills > 0:
        kind = OUT_OF_MEMORY
        message = "the process was killed by the kernel because the machine is out of memory"
    elif status < 0:
        message = f"the process was killed by signal {signal_name(-status)}"
    else:
        message = f"the process exited with code {status}"
    if ended.peak_rss_bytes:
        message += f"; peak memory {ended.peak_rss_bytes / 2**20:.0f} MiB, CPU {ended.cpu_s:g} s"
    if ended.tail:
        trace = f"{trace.rstrip()}\n\nThe last lines that it wrote:\n{ended.tail}".lstrip()
    return Error(kind, message, encodable(trace))


def signal_name(number: int) -> str:
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

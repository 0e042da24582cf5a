"""Usage: how much memory and processor time a process has in use."""

from __future__ import annotations

import resource
import time
from pathlib import Path

_PAGE_BYTES = resource.getpagesize()


def rss_bytes() -> int:
    """Return how much memory this process has in use."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:  # No such file on this system: the largest it ever was will have to do.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Processor:
    """How busy this process keeps the processor, in per cent of one core."""

    def __init__(self) -> None:
        self._used_s, self._at_s = time.process_time(), time.monotonic()

    def percent(self) -> float:
        """Return how busy it was since this was last asked."""
        used_s, at_s = time.process_time(), time.monotonic()
        before_s, since_s = self._used_s, self._at_s
        self._used_s, self._at_s = used_s, at_s
        return round(100 * (used_s - before_s) / max(at_s - since_s, 1e-6), 1)

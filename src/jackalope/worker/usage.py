"""Usage: how much memory a process has in use."""

from __future__ import annotations

import resource
from pathlib import Path

_PAGE_BYTES = resource.getpagesize()


def rss_bytes() -> int:
    """Return how much memory this process has in use."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:  # No such file on this system: the largest it ever was will have to do.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

"""Floors: what the machine itself can do, measured in the same run."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

_APPENDS = 300
_BODY = bytes(24 * 1024)


def fsyncs_per_s() -> float:
    """Return how many appends of a typical batch, each made durable, a plain file takes."""
    with tempfile.TemporaryDirectory(prefix="jackalope-bench-") as folder:
        descriptor = os.open(Path(folder) / "floor", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            begin = time.perf_counter()
            for _ in range(_APPENDS):
                os.write(descriptor, _BODY)
                os.fdatasync(descriptor)
            return _APPENDS / (time.perf_counter() - begin)
        finally:
            os.close(descriptor)

"""Run a program without what Windows lacks: `python -m tests.platforms.windows FILE [ARGUMENT...]`.

Modules that only POSIX has cannot be imported, and calls and signals that only it has are gone.
What the standard library itself has loaded before stays with it.
"""

import asyncio
import os
import runpy
import signal
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

MISSING = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "uvloop", "syslog")
CALLS = ("fork", "forkpty", "killpg", "getuid", "getpgid", "setsid", "statvfs", "pwrite")
SIGNALS = ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "pthread_sigmask")


class Absent(MetaPathFinder):
    """Finds nothing under the names of modules that are missing."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def take_away() -> None:
    import subprocess  # noqa: F401, PLC0415  it needs some of them for itself
    import tempfile  # noqa: F401, PLC0415  the same

    asyncio.run(asyncio.sleep(0))
    for name in MISSING:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Absent())
    for call in CALLS:
        if hasattr(os, call):
            delattr(os, call)
    for name in SIGNALS:
        if hasattr(signal, name):
            delattr(signal, name)
    loop = asyncio.SelectorEventLoop
    loop.add_signal_handler = _refuse  # type: ignore[method-assign,assignment]


def _refuse(*_: object) -> None:
    raise NotImplementedError


if __name__ == "__main__":
    take_away()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")

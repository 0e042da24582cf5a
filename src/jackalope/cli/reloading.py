"""Reloading: runs a worker in a process of its own, and again whenever its code changes.

Owns which files count as its code, and the life of that process. For development: in production a
worker is replaced by the next one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

import structlog

log = structlog.get_logger(component="reload")

#: How often files are looked at.
_LOOK_S = 0.5
#: How many files are watched at most; a folder with more is no project.
FILES_MAX = 10_000
#: How long a worker may take to stop before it is killed.
_STOP_S = 15.0

Seen = Mapping[str, int]


class Reloader:
    """Keeps one process running that has the newest code."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command = command
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(self) -> int:
        """Run the process, again after each change, until a signal; return its last exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        code = 0
        while not self._is_stopped:
            seen = look(self._folder)
            self._process = subprocess.Popen(self._command)  # noqa: S603  our own command
            changed = self._wait_for_change(seen)
            code = self._end()
            if changed:
                log.info("code changed; the worker starts again", file=changed)
        return code

    def _wait_for_change(self, seen: Seen) -> str:
        """Wait until a file differs, or a signal came; return the file."""
        is_told = False
        while not self._is_stopped:
            if (changed := difference(seen, look(self._folder))) != "":
                return changed
            if self._process is not None and self._process.poll() is not None and not is_told:
                is_told = True
                log.warning("the worker ended; waiting for a change", code=self._process.returncode)
            time.sleep(_LOOK_S)
        return ""

    def _end(self) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.terminate()
        try:
            return process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _stop(self, _: int, __: FrameType | None) -> None:
        self._is_stopped = True


def look(folder: Path) -> Seen:
    """Return when each Python file below a folder was changed."""
    seen: dict[str, int] = {}
    for path in _files(folder):
        try:
            seen[str(path)] = path.stat().st_mtime_ns
        except OSError:
            continue  # Gone meanwhile.
        if len(seen) >= FILES_MAX:
            break
    return seen


def difference(before: Seen, after: Seen) -> str:
    """Return a file that is new, changed or gone; empty for none."""
    for path in before.keys() | after.keys():
        if before.get(path) != after.get(path):
            return path
    return ""


def _files(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, but for hidden folders and environments."""
    for where, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__pycache__", "node_modules"))
            and not (Path(where) / name / "pyvenv.cfg").exists()
        ]
        yield from (Path(where) / name for name in names if name.endswith(".py"))


def run_reloading(arguments: list[str]) -> int:
    """Run the command with these arguments, and again whenever a file below here changes."""
    command = [sys.executable, "-m", "jackalope", *arguments]
    return Reloader(command, Path.cwd()).run()

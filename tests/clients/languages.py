"""The clients in other languages: how the example of each is started, and why one cannot be.

Every example is two programs with the same flags. The worker has the tasks `reverse`, `sleep` and
`fail`, each with bytes as its only argument; the submitter prints `<index> <result>` for each task.
So one suite serves all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.broker import Ports

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "clients"
TYPESCRIPT = ROOT / "clients" / "typescript"


@dataclass(frozen=True)
class Language:
    """The two programs of a language."""

    name: str
    door: str
    worker: tuple[str, ...]
    submit: tuple[str, ...]
    needs: tuple[Path, ...]

    @property
    def why_not(self) -> str:
        """Return why it cannot be tested here; empty if it can."""
        if shutil.which(self.worker[0]) is None:
            return f"{self.name} needs {self.worker[0]}: run `make clients`"
        missing = [path for path in self.needs if not path.exists()]
        return f"{missing[0].relative_to(ROOT)} is missing: run `make clients`" if missing else ""

    def environment(self, ports: Ports, token: str = "", ca: str = "") -> dict[str, str]:
        """Return the variables that let a program find the broker."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("JACKALOPE_")}
        scheme = "jackalopes" if ca else "jackalope"
        address = f"{scheme}://127.0.0.1:{ports.native}"
        return inherited | {
            "JACKALOPE_BROKER": address,
            "JACKALOPE_TOKEN": token,
            "JACKALOPE_CA": ca,
        }


def _node(name: str) -> tuple[tuple[str, ...], Path]:
    path = TYPESCRIPT / "dist" / "examples" / f"{name}.js"
    return ("node", str(path)), path


_WORKER, _SUBMIT = _node("worker"), _node("submit")

LANGUAGES = {
    "typescript": Language("typescript", "native", _WORKER[0], _SUBMIT[0], (_WORKER[1], _SUBMIT[1]))
}


class Program:
    """A worker or a submitter, as a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ended(self, timeout_s: float = 60) -> tuple[int, str, str]:
        """Wait for its end, and return the exit code and both outputs."""
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, err


@contextmanager
def started(
    command: tuple[str, ...], environment: dict[str, str], *flags: str
) -> Iterator[Program]:
    """Start a program, and see that it is gone at the end."""
    process = subprocess.Popen(
        [*command, *flags],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Program(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()

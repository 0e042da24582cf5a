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
    worker: tuple[str, ...]
    submit: tuple[str, ...]
    needs: tuple[Path, ...]

    @property
    def why_not(self) -> str:
        """Return why it cannot be tested here; empty if it can."""
        for path in self.needs:
            if not path.exists():
                return f"{path.relative_to(ROOT)} is missing: run `make clients`"
        return "" if shutil.which(self.worker[0]) else f"{self.worker[0]} is not installed"

    def environment(self, ports: Ports, token: str = "", ca: str = "") -> dict[str, str]:
        """Return the variables that let a program find the broker."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("JACKALOPE_")}
        scheme = "jackalopes" if ca else "jackalope"
        address = f"{scheme}://127.0.0.1:{ports.native}"
        return inherited | {
            "JACKALOPE_BROKER": address,
            "JACKALOPE_GRPC": f"127.0.0.1:{ports.grpc}",
            "JACKALOPE_TOKEN": token,
            "JACKALOPE_CA": ca,
        }


def _typescript() -> Language:
    worker, submit = (TYPESCRIPT / "dist" / "examples" / f"{name}.js" for name in _PROGRAMS)
    return Language("typescript", ("node", str(worker)), ("node", str(submit)), (worker, submit))


def _go() -> Language:
    worker, submit = (BUILT / "go" / "bin" / name for name in _PROGRAMS)
    return Language("go", (str(worker),), (str(submit),), (worker, submit))


def _java() -> Language:
    classpath = BUILT / "java" / "classpath"
    jars = classpath.read_text().strip() if classpath.exists() else ""
    # It lives for seconds: what makes a long-running program fast makes its start slow.
    library = f"-Djava.library.path={BUILT / 'java' / 'lib'}"
    flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", library)
    java = ("java", *flags, "-cp", f"{BUILT / 'java' / 'classes'}:{jars}")
    worker, submit = (f"jackalope.examples.{name.title()}Main" for name in _PROGRAMS)
    return Language("java", (*java, worker), (*java, submit), (classpath,))


_PROGRAMS = ("worker", "submit")

LANGUAGES = {language.name: language for language in (_typescript(), _go(), _java())}


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

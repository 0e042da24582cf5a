"""The lab: AiiDA in an environment of its own, with a profile, a daemon and a broker.

Everything is in one folder, also what AiiDA and Jackalope keep for a user. Calculations wait for a
gate: so a test decides when they end, and no time is tight.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / "build" / "aiida"
PYTHON = ENVIRONMENT / "bin" / "python"
READY = ENVIRONMENT / ".ready"

NEEDS_AIIDA = [
    # A loaded machine of two cores needs ten times as long as an idle one.
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not READY.exists(), reason="AIIDA IS NOT INSTALLED: `make aiida` does it; NOTHING IS TESTED"
    ),
]

#: What has not happened by then never will: a loaded machine of two cores is ten times as slow.
PATIENCE_S = 300.0
_LOOK_S = 0.5
_END_LOOK_S = 0.05


@dataclass(frozen=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.well)

    @property
    def well(self) -> str:
        assert self.code == 0, self.out + self.err
        return self.out


class Lab:
    """A profile of AiiDA, and what belongs to it."""

    def __init__(self, folder: Path, patience_s: float = PATIENCE_S) -> None:
        self.folder = folder
        self._patience_s = patience_s
        self.runs = folder / "runs.log"
        self.runs.touch()
        self._gate = folder / "gate"
        self._lock = folder / "share/jackalope/data/lock"
        others = {name: text for name, text in os.environ.items() if "JACKALOPE" not in name}
        self._environment = others | {
            "PATH": f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "AIIDA_PATH": str(folder),
            "XDG_DATA_HOME": str(folder / "share"),
            "PYTHONWARNINGS": "ignore",
            "COLUMNS": "200",
        }
        self._driver: subprocess.Popen[str] | None = None
        self._access: dict[str, str] = {}

    # AiiDA.

    def open(self, backend: str = "jackalope", config: dict[str, Any] | None = None) -> None:
        """Make the profile, with a computer and a code."""
        self.make_profile(backend, config)
        self.furnish()

    def make_profile(self, backend: str, config: dict[str, Any] | None = None) -> None:
        """Make the profile, and nothing else."""
        self._start_driver()
        self.ask("make_profile", backend, config or {})

    def furnish(self) -> None:
        """Load the profile as it is by now, and give it a computer and a code."""
        self.ask("furnish", str(self.folder))

    def start_daemon(self) -> None:
        """Start the daemon with two workers, without the seconds that `verdi` takes to start."""
        self.ask("start_daemon", 2)

    def ask(self, name: str, *arguments: Any) -> Any:
        """Have the driver do something."""
        self.tell(name, *arguments)
        return self.hear()

    def tell(self, name: str, *arguments: Any) -> None:
        """Have the driver do something, and do not wait for it."""
        driver = self._driver
        assert driver is not None
        assert driver.stdin is not None
        driver.stdin.write(json.dumps([name, *arguments]) + "\n")
        driver.stdin.flush()

    def hear(self) -> Any:
        """Take the driver's answer."""
        assert self._driver is not None
        assert self._driver.stdout is not None
        line = self._driver.stdout.readline()
        assert line, f"the driver is gone: {self._said()}"
        return json.loads(line)

    def verdi(self, *words: str) -> str:
        """Run a command of AiiDA to its good end, and return what it said."""
        ran = self.run("verdi", *words)
        assert ran.returncode == 0, f"verdi {' '.join(words)}: {ran.stdout}{ran.stderr}"
        return ran.stdout + ran.stderr

    def jackalope(self, *words: str) -> str:
        """Run a command of Jackalope to its good end, and return what it said."""
        ran = self.run("jackalope", *words)
        assert ran.returncode == 0, f"jackalope {' '.join(words)}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def quickly(self, *command: str) -> Said:
        """Run a command of AiiDA or Jackalope within the driver, which has loaded AiiDA already."""
        return Said(**self.ask("run", *command))

    def look_at(self, *words: str) -> str:
        """Run a command of Jackalope that looks at the profile."""
        if not self._access:
            self._access = self.ask("access")
        ran = self.run("jackalope", *words, **self._access)
        assert ran.returncode == 0, f"jackalope {' '.join(words)}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """Have a command run beside, whose output can be read; end it as Ctrl-C does."""
        with subprocess.Popen(
            command, env=self._environment, cwd=self.folder, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGINT)

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the environment."""
        return subprocess.run(
            command,
            env=self._environment | more,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=self._patience_s,
            check=False,
        )

    # Calculations.

    def open_gate(self) -> None:
        """Let calculations end."""
        self._gate.touch()

    def close_gate(self) -> None:
        """Let calculations wait."""
        self._gate.unlink(missing_ok=True)

    def wait_until_begun(self, pks: Iterable[int]) -> None:
        """Wait until all calculations run on the other side, and AiiDA knows that."""
        wanted = list(pks)
        self.wait(lambda: all(map(_is_with_scheduler, self.ask("look", wanted))), "they run")

    def wait_until_ended(self, pks: Iterable[int], state: str = "finished") -> None:
        """Wait until processes have ended, and see that they ended well."""
        wanted = list(pks)
        ends = {"finished", "excepted", "killed"}

        def are_over() -> bool:
            return all(state in ends for state in self.ask("states", wanted))

        self.wait(are_over, f"{wanted} end")
        for node in self.ask("look", wanted):
            assert node["state"] == state, node
            assert state != "finished" or node["exit"] == 0, node

    def assert_run_once(self, pks: Iterable[int]) -> None:
        """See that each calculation of these processes was executed exactly once."""
        ran = Counter(self.runs.read_text().split())
        nodes = [leaf for node in self.ask("look", list(pks)) for leaf in _calculations(node)]
        assert nodes
        for node in nodes:
            assert ran[node["remote"]] == 1, node

    # Faults.

    def kill(self, pid: int) -> None:
        """Kill a process without a word."""
        os.kill(pid, signal.SIGKILL)

    def has_own_broker(self) -> bool:
        """Tell whether a broker was started for this lab."""
        return self._lock.exists()

    def broker_pid(self) -> int:
        """Return the process of the lab's own broker."""
        return int(self._lock.read_text().split()[0])

    def daemon_log(self) -> str:
        """Return what the daemon and its workers have logged."""
        logs = self.folder.glob(".aiida/daemon/log/*.log")
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that happens elsewhere."""
        until = time.monotonic() + self._patience_s
        while not condition():
            late = f"not within {self._patience_s:g} s: {what}"
            assert time.monotonic() < until, f"{late}\n{self._said()}"
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """End everything that was started."""
        self.open_gate()
        if self._driver is not None:
            with self._driver as driver:  # It closes the pipes.
                driver.kill()
        # The daemon first: its workers would start the broker again.
        for daemon in self.folder.glob(".aiida/daemon/circus-*.pid"):
            _end(int(daemon.read_text()))
        if self.has_own_broker():
            _end(self.broker_pid())

    def _start_driver(self) -> None:
        command = [str(PYTHON), str(ROOT / "tests" / "aiida" / "driver.py")]
        with (self.folder / "driver.log").open("w") as log:
            self._driver = subprocess.Popen(
                command,
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def _said(self) -> str:
        """Return the end of every log."""
        logs = [self.folder / "driver.log", *self.folder.glob(".aiida/daemon/log/*.log")]
        logs += self.folder.glob("share/jackalope/broker.log")
        return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs)


def _end(pid: int) -> None:
    """End a process that is not our child, and see it gone."""
    until = time.monotonic() + PATIENCE_S
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        while time.monotonic() < until:
            time.sleep(_END_LOOK_S)
            os.kill(pid, 0)


def _calculations(node: dict[str, Any]) -> list[dict[str, Any]]:
    own = [node] if node["remote"] else []
    return own + [leaf for child in node["called"] for leaf in _calculations(child)]


def _is_with_scheduler(node: dict[str, Any]) -> bool:
    leaves = _calculations(node)
    return bool(leaves) and all(leaf["job"] == "withscheduler" for leaf in leaves)

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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / "build" / "aiida"
PYTHON = ENVIRONMENT / "bin" / "python"
READY = ENVIRONMENT / ".ready"

#: What has not happened by then never will: a loaded machine of two cores is ten times as slow.
PATIENCE_S = 300.0
_LOOK_S = 0.5


class Lab:
    """A profile of AiiDA, and what belongs to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs.log"
        self.runs.touch()
        self._gate = folder / "gate"
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
        self._has_daemon = False
        self._access: dict[str, dict[str, str]] = {}

    # AiiDA.

    def open(self, backend: str = "jackalope", config: dict[str, Any] | None = None) -> None:
        """Make the profile."""
        self._start_driver()
        self.ask("set_up", str(self.folder), backend, config or {})

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
        self._has_daemon = self._has_daemon or words[:2] == ("daemon", "start")
        ran = self.run("verdi", *words)
        assert ran.returncode == 0, f"verdi {' '.join(words)}: {ran.stdout}{ran.stderr}"
        return ran.stdout + ran.stderr

    def jackalope(self, *words: str) -> str:
        """Run a command of Jackalope to its good end, and return what it said."""
        ran = self.run("jackalope", *words)
        assert ran.returncode == 0, f"jackalope {' '.join(words)}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def look_at(self, profile: str, *words: str) -> str:
        """Run a command of Jackalope that looks at a profile."""
        if profile not in self._access:
            told = self.jackalope("aiida", "env", profile, "--format", "json")
            self._access[profile] = json.loads(told)
        ran = self.run("jackalope", *words, **self._access[profile])
        assert ran.returncode == 0, f"jackalope {' '.join(words)}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the environment."""
        return subprocess.run(
            command,
            env=self._environment | more,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
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
            return all(node["state"] in ends for node in self.ask("look", wanted))

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

    def broker_pid(self) -> int:
        """Return the process of the broker."""
        return int((self.folder / "share/jackalope/data/lock").read_text().split()[0])

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that happens elsewhere."""
        until = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until, f"not within {PATIENCE_S} s: {what}: {self._said()}"
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """End everything that was started."""
        self.open_gate()
        if self._has_daemon:
            self.run("verdi", "daemon", "stop")
        if self._driver is not None:
            with self._driver as driver:  # It closes the pipes.
                driver.kill()
        if (self.folder / "share/jackalope/data/lock").exists():
            self.run("jackalope", "aiida", "stop")

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


def _calculations(node: dict[str, Any]) -> list[dict[str, Any]]:
    own = [node] if node["remote"] else []
    return own + [leaf for child in node["called"] for leaf in _calculations(child)]


def _is_with_scheduler(node: dict[str, Any]) -> bool:
    leaves = _calculations(node)
    return bool(leaves) and all(leaf["job"] == "withscheduler" for leaf in leaves)

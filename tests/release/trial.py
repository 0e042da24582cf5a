"""A wheel in a new environment, used as by one who has just installed it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60

_SHOP = """
from jackalope import Jackalope

app = Jackalope()


@app.task(queue="letters")
def greet(name: str) -> str:
    return f"Hello, {name}!"
"""


def wheel_of(sdist: Path, folder: Path) -> Path:
    """Make a wheel of an sdist, as an index or a packager does."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    _run([*pip, "--wheel-dir", str(folder), str(sdist)])
    return next(folder.glob("*.whl"))


def install(wheel: Path, place: Path) -> tuple[Path, list[str]]:
    """Install a wheel in a new environment; return its interpreter and what was installed."""
    environment = place / "environment"
    _run([sys.executable, "-m", "venv", str(environment)])
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt"]
    _run([*pip, str(wheel)], cwd=ROOT)
    listed = _run([str(python), "-m", "pip", "list", "--format", "json"])
    names = {each["name"].lower() for each in json.loads(listed)} - {"pip", "setuptools"}
    return python, sorted(names)


def try_wheel(wheel: Path, place: Path) -> Iterator[str]:
    """Install a wheel, serve, fetch the page, submit and run a task; yield what was seen."""
    began = time.monotonic()
    python, names = install(wheel, place)
    took, size = time.monotonic() - began, _megabytes(python)
    yield f"installed in {took:.1f} s: {len(names)} packages, {size} MB"
    home = place / "home"
    home.mkdir()
    (home / "shop.py").write_text(_SHOP)
    jackalope = str(python.parent / "jackalope")
    serve = [jackalope, "serve", "--port", "0", "--http-port", "0"]
    began = time.monotonic()
    with (
        (home / "log").open("w") as log,
        subprocess.Popen(
            serve, cwd=home, env=clean(), stdout=subprocess.PIPE, stderr=log, text=True
        ) as broker,
    ):
        try:
            yield from _use(broker, jackalope, home, began)
        finally:
            broker.terminate()
            broker.wait(WAIT_S)


def _use(broker: subprocess.Popen[str], jackalope: str, home: Path, began: float) -> Iterator[str]:
    assert broker.stdout is not None
    native = _found(r"jackalope://\S+:\d+", broker.stdout.readline())
    first = time.monotonic() - began
    pages = _found(r"https?://[^\s,]+", broker.stdout.readline())
    yield f"serving after {first:.2f} s, with its pages after {time.monotonic() - began:.2f} s"
    page = fetch(pages + "/")
    for asset in re.findall(r'(?:src|href)="(\.?/?assets/[^"]+)"', page):
        fetch(f"{pages}/{asset.removeprefix('.').removeprefix('/')}")
    if "<script" not in page:
        raise SystemExit(f"{pages}/ is no dashboard:\n{page[:500]}")
    for path in ("/health", "/metrics", "/api/v1/stats"):
        fetch(pages + path)
    yield "the dashboard, /health, /metrics and the API answer"
    here = clean() | {"JACKALOPE_BROKER": native}
    command = [jackalope, "worker", "shop:app"]
    with (
        (home / "worker.log").open("w") as log,
        subprocess.Popen(command, cwd=home, env=here, stderr=log) as worker,
    ):
        try:
            submit = [jackalope, "submit", "--queue", "letters", "--name", "shop.greet"]
            said = _run([*submit, "--json", '["Ada"]', "--wait"], cwd=home, env=here)
        finally:
            worker.terminate()
            worker.wait(WAIT_S)
    if "Hello, Ada!" not in said:
        raise SystemExit(f"the task did not run:\n{said}")
    yield "a task was submitted, run by a worker, and its result returned"


def fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=WAIT_S) as answer:  # noqa: S310  our own broker
        text: str = answer.read().decode()
    return text


def clean() -> dict[str, str]:
    """Return an environment in which nothing of this checkout is found."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def _found(pattern: str, line: str) -> str:
    found = re.search(pattern, line)
    if found is None:
        raise SystemExit(f"the broker printed {line!r}")
    return found[0]


def _megabytes(python: Path) -> int:
    """Return what is installed takes on the disk, without pip and setuptools."""
    packages = next(python.parent.parent.glob("lib/python*/site-packages"))
    skipped = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    total = sum(
        file.stat().st_size
        for each in packages.iterdir()
        if not each.name.startswith(skipped)
        for file in (each.rglob("*") if each.is_dir() else [each])
        if file.is_file()
    )
    return round(total / 1e6)


def _run(command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout

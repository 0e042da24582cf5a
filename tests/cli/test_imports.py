"""What each process loads: a command that starts in an instant loads nothing that it does not use.

Times differ from machine to machine, so what is tested is not how long a start takes but what it
would take it for.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cli.conftest import JACKALOPE, Serving, clean_environment

PROFILE = {"PYTHONPROFILEIMPORTTIME": "1"}

#: Slow to load, and of use in no start.
HEAVY = ("obstore", "prometheus_client", "pydantic", "uvicorn")
#: What comes with rich, and colours source and formats Markdown.
COLOURING = ("markdown_it", "pygments", "rich.markdown", "rich.syntax", "rich.traceback")
#: The insides of a broker.
INSIDES = (
    "jackalope.broker",
    "jackalope.core.core",
    "jackalope.doors",
    "jackalope.storage",
    "sqlite3",
)


def loaded(log: str) -> set[str]:
    """Return the modules that a process has loaded, and the packages that they are in."""
    modules = re.findall(r"^import time: .*\| +([\w.]+)$", log, re.MULTILINE)
    assert "typing" in modules
    parts = [module.split(".") for module in modules]
    return {".".join(each[:depth]) for each in parts for depth in range(1, len(each) + 1)}


def ran(*command: str, cwd: Path, more: Mapping[str, str] | None = None) -> set[str]:
    environment = clean_environment() | PROFILE | dict(more or {})
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return loaded(done.stderr)


def commands(modules: set[str]) -> set[str]:
    """Return the modules of commands among those that were loaded."""
    within = "jackalope.cli.commands."
    return {each.removeprefix(within) for each in modules if each.startswith(within)}


def test_serving_natively(tmp_path: Path) -> None:
    serving = Serving("--no-http", cwd=tmp_path, environment=PROFILE)
    code, log = serving.stop()
    assert code == 0
    modules = loaded(log)
    peers = {"jackalope.client", "jackalope.worker", "jackalope.doors.http"}
    # structlog would load rich, and that loads the others.
    for_show = {"rich.console", "attr", "pygments", "jackalope.cli.output"}
    assert modules & {*HEAVY, *peers, *for_show, "yaml", "jackalope.doors.amqp"} == set()
    assert commands(modules) == {"serve"}


def test_serving_with_pages(tmp_path: Path) -> None:
    serving = Serving(cwd=tmp_path, environment=PROFILE)
    assert serving.process.stdout is not None
    assert serving.process.stdout.readline().startswith("HTTP at http://")
    code, log = serving.stop()
    assert code == 0
    modules = loaded(log)
    assert "jackalope.doors.http.app" in modules
    # Metrics are written by what the first scrape loads; configuration was in no file.
    unused = {"prometheus_client", "yaml", "http.server"}
    assert modules & {*unused, *COLOURING, "rich.console", "jackalope.doors.amqp"} == set()


def test_help_of_all_loads_no_command(tmp_path: Path) -> None:
    modules = ran(JACKALOPE, "--help", cwd=tmp_path)
    unused = {"structlog", "msgspec", "asyncio", "uvloop", "jackalope.worker", "jackalope.client"}
    assert modules & {*HEAVY, *INSIDES, *unused, *COLOURING, "jackalope.core"} == set()
    assert commands(modules) == set()


def test_completing_a_command_loads_no_command(tmp_path: Path) -> None:
    words = {"_JACKALOPE_COMPLETE": "bash_complete", "COMP_WORDS": "jackalope q", "COMP_CWORD": "1"}
    modules = ran(JACKALOPE, cwd=tmp_path, more=words)
    assert "jackalope.cli.app" in modules
    assert modules & {"asyncio", "logging", "msgspec", "rich", "ssl"} == set()
    assert commands(modules) == set()


def test_asking(tmp_path: Path) -> None:
    modules = ran(JACKALOPE, "status", "x", "--broker", "127.0.0.1:1", cwd=tmp_path)
    unused = {"structlog", "rich.live", "rich.progress", "jackalope.worker"}
    assert modules & {*HEAVY, *INSIDES, *COLOURING, *unused} == set()
    assert commands(modules) == {"tasks"}


def test_working(tmp_path: Path) -> None:
    modules = ran(JACKALOPE, "worker", "not_there:app", cwd=tmp_path)
    assert "jackalope.worker" in modules
    assert modules & {*HEAVY, *INSIDES, "jackalope.client"} == set()


def test_submitting(tmp_path: Path) -> None:
    script = "from jackalope import Jackalope; Jackalope()"
    modules = ran(sys.executable, "-c", script, cwd=tmp_path)
    assert "jackalope.client" in modules
    assert modules & {*HEAVY, *INSIDES, "rich", "structlog", "click"} == set()


def test_running_an_isolated_task(tmp_path: Path) -> None:
    modules = ran(sys.executable, "-c", "import jackalope.worker.executors.child", cwd=tmp_path)
    assert (
        modules & {*HEAVY, *INSIDES, "rich", "structlog", "click", "jackalope.log_setup"} == set()
    )

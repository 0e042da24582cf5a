"""Windows: the client library works; broker and worker say that they do not."""

import subprocess
import sys
from pathlib import Path

import pytest

from jackalope.cli.base import Exit
from tests.cli.conftest import Serving, clean_environment

ROOT = Path(__file__).resolve().parents[2]

CLIENT = """
import asyncio, sys
from jackalope import Jackalope, State, gather

app = Jackalope(sys.argv[1])

@app.task(queue="q")
def greet(name: str) -> str:
    return name

async def main():
    async with app:
        handle = await greet.submit("Ada")
        print((await handle.status()).state)
        print(await handle.kill())

print(app.sync(greet.submit("Bo")).id != b"")
app.sync.close()
asyncio.run(main())
"""

COMMAND = """
import sys
from jackalope.cli import main

sys.exit(main())
"""


def on_windows(folder: Path, text: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    program = folder / "program.py"
    program.write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "tests.platforms.windows", str(program), *arguments],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_is_taken_away_is_missing(tmp_path: Path) -> None:
    done = on_windows(tmp_path, "import fcntl")
    assert "No module named 'fcntl'" in done.stderr


def test_client_library_imports_connects_and_submits(tmp_path: Path) -> None:
    serving = Serving("--no-http", cwd=tmp_path)
    done = on_windows(tmp_path, CLIENT, str(serving.address))
    serving.stop()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "ready", "True"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["serve"], "broker"),
        (["worker", "shop:app"], "worker"),
        (["backup", "a.tar"], "data folder"),
    ],
)
def test_what_does_not_run_there_is_refused_with_what_to_do(
    tmp_path: Path, arguments: list[str], what: str
) -> None:
    done = on_windows(tmp_path, COMMAND, *arguments)
    assert done.returncode == Exit.USAGE, done.stderr
    assert "Traceback" not in done.stderr
    for text in (what, "Windows", "WSL 2"):
        assert text in done.stderr


def test_commands_of_a_client_run(tmp_path: Path) -> None:
    serving = Serving("--no-http", cwd=tmp_path)
    address = ["-b", str(serving.address)]
    done = on_windows(tmp_path, COMMAND, *address, "submit", "-q", "q", "--name", "work")
    assert done.returncode == 0, done.stderr
    done = on_windows(tmp_path, COMMAND, *address, "list", "-f", "json")
    assert (done.returncode, '"ready"' in done.stdout) == (0, True), done.stderr
    serving.stop()


def test_embedded_broker_is_refused(tmp_path: Path) -> None:
    text = "from jackalope import Jackalope\nJackalope.embedded()"
    done = on_windows(tmp_path, text)
    assert "ConfigError" in done.stderr
    assert "WSL 2" in done.stderr

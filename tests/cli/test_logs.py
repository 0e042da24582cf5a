"""`jackalope logs`, against a broker with a worker of the library."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackalope.transport.address import Address
from tests.cli.conftest import JACKALOPE, Cli, clean_environment
from tests.cli.test_commands import submit

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("address")


@pytest.fixture
def worker(address: Address) -> Iterator[None]:
    broker = f"jackalope://{address.host}:{address.port}/{address.namespace}"
    process = subprocess.Popen(
        [JACKALOPE, "worker", "tests.worker.logs.tasks:app", "-b", broker, "-q", "default"],
        cwd=ROOT,
        env=clean_environment() | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield
    process.terminate()
    process.wait(30)


@pytest.mark.usefixtures("worker")
def test_logs_shows_lines_and_nothing_that_moves_the_cursor(cli: Cli) -> None:
    task = submit(cli, "--name", "odd_text")
    assert cli("wait", task).code == 0
    ran = cli("logs", task)
    assert ran.code == 0, ran.err
    assert "\\x1b[31mred\\x1b[0m <script>alert(1)</script>" in ran.out
    assert "\x1b" not in ran.out
    raw = cli("logs", task, "--raw")
    assert raw.out == "\x1b[31mred\x1b[0m <script>alert(1)</script> \\udcff ünïcödé\n"
    (line,) = cli("logs", task, "--format", "json").out.splitlines()
    assert json.loads(line)["text"].startswith("\x1b[31mred")
    assert cli("logs", task, "--grep", "nothing").out == ""
    assert cli("logs", task, "--since", "1h").out == ran.out
    assert cli("logs", task, "--level", "error").out == ""


@pytest.mark.usefixtures("worker")
def test_logs_follows_to_the_end(cli: Cli, address: Address, tmp_path: Path) -> None:
    release, begun = tmp_path / "release", tmp_path / "begun"
    arguments = json.dumps([str(release), str(begun)])
    task = submit(cli, "--name", "print_and_wait", "--json", arguments)
    process = subprocess.Popen(
        [JACKALOPE, "-b", str(address), "logs", task, "-f"],
        env=clean_environment() | {"JACKALOPE_NAMESPACE": address.namespace},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().rstrip().endswith("before")
    release.touch()
    out, _ = process.communicate(timeout=30)
    assert (out.rstrip().endswith("after"), process.returncode) == (True, 0)


def test_logs_of_a_task_that_is_not_there(cli: Cli) -> None:
    assert cli("logs", "nowhere").code != 0
    task = submit(cli)
    ran = cli("logs", task, "--level", "loud")
    assert ran.code != 0
    assert "level: must be error, warn, info, debug, trace" in ran.err

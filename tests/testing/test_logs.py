"""What tasks print and log, and what they take, in an embedded broker."""

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout

import pytest

from jackalope import Jackalope, Rejected
from jackalope.core.shapes.task_log import LogLineView
from jackalope.testing import embedded
from jackalope.worker.logs.capture import Tap
from tests.testing.talking import app, speak, speak_in_process, speak_in_thread


def shown(lines: list[LogLineView]) -> list[tuple[str, str, str]]:
    return [(line.stream, line.level, line.text) for line in lines]


async def lines_of(app: Jackalope, handle: object) -> list[LogLineView]:
    return [line async for line in handle.logs()]  # type: ignore[attr-defined]


SPOKEN = [
    ("stdout", "info", "printed for Ada"),
    ("log", "warn", "logged for Ada"),
    ("log", "info", "told"),
]


def test_embedded_worker_gives_the_streams_back() -> None:
    out, handlers = sys.stdout, logging.Logger.callHandlers
    assert not isinstance(out, Tap)
    with redirect_stdout(io.StringIO()) as mine, embedded(app) as found:
        handle = found.sync(speak.submit("Ada"))
        assert found.sync(handle.result(timeout=30)) == "spoken"
    assert "printed for Ada" in mine.getvalue()
    assert sys.stdout is out
    assert logging.Logger.callHandlers is handlers


@pytest.fixture(scope="module")
def running() -> Iterator[Jackalope]:
    with embedded(app) as found:
        yield found


@pytest.mark.parametrize("round_", [1, 2])
def test_embedded_broker_keeps_logs_from_one_test_to_the_next(
    running: Jackalope, round_: int, capfd: pytest.CaptureFixture[str]
) -> None:
    # pytest has replaced the streams since the worker started, and again between the rounds.
    handle = running.sync(speak.submit("Ada"))
    assert running.sync(handle.result(timeout=30)) == "spoken"
    assert shown(running.sync(lines_of(running, handle))) == SPOKEN
    assert "printed for Ada" in capfd.readouterr().out
    print("of the test", round_)
    assert capfd.readouterr().out == f"of the test {round_}\n"


def test_embedded_broker_keeps_logs_of_threads_and_processes(running: Jackalope) -> None:
    for task in (speak_in_thread, speak_in_process):
        handle = running.sync(task.submit("Ada"))
        assert running.sync(handle.result(timeout=30)) == "spoken"
        assert shown(running.sync(lines_of(running, handle))) == SPOKEN[:1]


def test_embedded_broker_refuses_a_call_that_does_not_fit(running: Jackalope) -> None:
    assert running.sync(speak.run("Ada")) == "spoken"  # So the worker has declared them.
    with pytest.raises(Rejected, match="argument 'name': expected string, got 7"):
        running.sync(speak.submit(7))  # type: ignore[arg-type]

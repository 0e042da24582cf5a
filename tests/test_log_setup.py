import io
import json
import logging
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from jackalope.broker.config.schema import LogFormat
from jackalope.core.shapes.task_log import LogLevel
from jackalope.log_setup import LINES_WAITING_MAX, LineWriter, set_up, trace


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Stuck(io.StringIO):
    """A pipe that nobody empties, until somebody does."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = threading.Event()

    def write(self, text: str) -> int:
        self.is_open.wait()
        return super().write(text)


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level
    logging.captureWarnings(capture=False)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_line_has_the_published_fields_first() -> None:
    stream = io.StringIO()
    close = set_up("info", "json", stream=stream)
    log = structlog.get_logger(component="broker")
    log.warning("task dead", task_id="t", worker_id="w")
    close()
    (line,) = lines(stream)
    assert list(line) == ["timestamp", "level", "message", "component", "task_id", "worker_id"]
    assert line["timestamp"].endswith("Z")
    assert (line["level"], line["message"], line["component"]) == ("warn", "task dead", "broker")


@pytest.mark.feature("D38")
@pytest.mark.parametrize("form", ["json", "console"])
def test_every_line_has_a_component(form: str) -> None:
    stream = io.StringIO()
    close = set_up("trace", form, stream=stream)
    structlog.get_logger().info("of an application")
    structlog.get_logger(component="broker").info("of the broker")
    logging.getLogger("shop.orders").warning("of a library")
    trace(structlog.get_logger(component="native"), "of all messages")
    close()
    if form == "json":
        shown = [(line["level"], line["component"]) for line in lines(stream)]
        assert shown == [
            ("info", "application"),
            ("info", "broker"),
            ("warn", "shop.orders"),
            ("trace", "native"),
        ]
    else:
        assert stream.getvalue().count("component=") == 4
        assert "trace" in stream.getvalue()


@pytest.mark.parametrize(
    ("level", "said"),
    [
        (LogLevel.ERROR, ["error"]),
        (LogLevel.WARN, ["error", "warn"]),
        (LogLevel.INFO, ["error", "warn", "info"]),
        (LogLevel.DEBUG, ["error", "warn", "info", "debug"]),
        (LogLevel.TRACE, ["error", "warn", "info", "debug"]),
    ],
)
def test_level_includes_those_before_it(level: LogLevel, said: list[str]) -> None:
    stream = io.StringIO()
    close = set_up(level, "json", stream=stream)
    log = structlog.get_logger()
    for say in (log.error, log.warning, log.info, log.debug):
        say("x")
    close()
    assert [line["level"] for line in lines(stream)] == said


def test_libraries_look_the_same() -> None:
    stream = io.StringIO()
    close = set_up("info", "json", stream=stream)
    logging.getLogger("asyncio").error("it took %s", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", stacklevel=1)
    close()
    first, second = lines(stream)
    assert (first["level"], first["message"], first["component"]) == (
        "error",
        "it took 3",
        "asyncio",
    )
    assert second["component"] == "py.warnings"


def test_exception_is_text_in_json() -> None:
    stream = io.StringIO()
    close = set_up("info", "json", stream=stream)
    try:
        raise ValueError("bad")  # noqa: TRY301  something to log
    except ValueError:
        structlog.get_logger().exception("failed")
    close()
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert "ValueError: bad" in line["exception"]


@pytest.mark.parametrize(
    ("form", "stream", "is_json"),
    [
        (LogFormat.AUTO, io.StringIO, True),
        (LogFormat.AUTO, Terminal, False),
        (LogFormat.CONSOLE, io.StringIO, False),
        (LogFormat.JSON, Terminal, True),
    ],
)
def test_format(form: LogFormat, stream: type[io.StringIO], is_json: bool) -> None:
    out = stream()
    close = set_up("info", form, stream=out)
    structlog.get_logger().info("hello", task_id="t")
    close()
    assert out.getvalue().startswith("{") is is_json
    assert "hello" in out.getvalue()


def test_console_traceback_shows_no_variables() -> None:
    stream = Terminal()
    close = set_up("info", "auto", stream=stream)
    payload = "top" + "secret"
    try:
        raise ValueError(len(payload))  # noqa: TRY301  something to log
    except ValueError:
        structlog.get_logger().exception("failed")
    close()
    assert "ValueError" in stream.getvalue()
    assert payload not in stream.getvalue()


def test_every_line_says_what_it_is_about() -> None:
    def about(_: object, __: str, line: Any) -> Any:
        line.setdefault("task_id", "t")
        return line

    stream = io.StringIO()
    close = set_up("info", "json", stream=stream, about=about)
    structlog.get_logger().info("ours")
    structlog.get_logger(task_id="other").info("theirs")
    logging.getLogger("library").info("a library's")
    close()
    assert [line["task_id"] for line in lines(stream)] == ["t", "other", "t"]


def test_line_of_a_process_that_may_be_killed_is_written_at_once() -> None:
    stream = io.StringIO()
    set_up("info", "json", stream=stream, is_patient=False)
    structlog.get_logger().info("ours")
    logging.getLogger("library").info("a library's")
    assert [line["message"] for line in lines(stream)] == ["ours", "a library's"]


def test_log_that_cannot_be_written_stops_nobody() -> None:
    close = set_up("info", "json", stream=Broken())
    structlog.get_logger().error("lost")
    logging.getLogger("library").error("lost")
    close()


def test_log_that_nobody_reads_stops_nobody() -> None:
    stream = Stuck()
    writer = LineWriter(stream, lines_max=3)
    for number in range(10):
        writer.write(f"{number}\n")
    assert 6 <= writer.dropped <= 7
    stream.is_open.set()
    writer.close()
    assert stream.getvalue().startswith("0\n1\n2\n")


def test_dropped_lines_are_told_of() -> None:
    stream = Stuck()
    close = set_up("info", "json", stream=stream)
    log = structlog.get_logger()
    for _ in range(LINES_WAITING_MAX + 5):
        log.info("x")
    stream.is_open.set()
    deadline = time.monotonic() + 20
    while "were dropped" not in stream.getvalue():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    close()
    dropped = int(lines(stream)[-1]["message"].split()[0])
    assert dropped + len(lines(stream)) - 1 == LINES_WAITING_MAX + 5

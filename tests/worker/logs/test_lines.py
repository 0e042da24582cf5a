"""The lines of one attempt: how many are taken at a time."""

import pytest

from jackalope.core.shapes.task_log import LogStream
from jackalope.worker.logs.limits import WAITING_CHARS_MAX
from jackalope.worker.logs.lines import AttemptLines


@pytest.mark.parametrize(("letter", "count"), [("x", 10), ("\ufffd", 4)])
def test_bytes_count_and_not_characters(letter: str, count: int) -> None:
    lines = AttemptLines(lambda: None)
    for _ in range(20):
        lines.write(LogStream.STDOUT, letter * 100 + "\n")
    assert len(lines.take(100, 1_000)) == count
    assert len(lines.take(100, 100_000)) == 20 - count
    assert not lines.is_waiting


def test_newest_line_stays_whatever_waits() -> None:
    lines = AttemptLines(lambda: None)
    lines._chars = 10 * WAITING_CHARS_MAX  # As after updates that were lost between threads.
    lines.write(LogStream.STDOUT, "first\nthe end\n")
    assert lines.take(100, 100_000)[-1].text == "the end"
    lines.write(LogStream.STDOUT, "more\n")
    assert [line.number for line in lines.take(100, 100_000)] == [3]

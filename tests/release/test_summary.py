"""The end of a test run says what was skipped, and why."""

from pathlib import Path

import pytest

from tests.conftest import skipped_lines


def _report(reason: str) -> pytest.TestReport:
    longrepr = ("tests/x.py", 3, f"Skipped: {reason}")
    return pytest.TestReport(
        "x", (str(Path("x")), 1, "x"), {}, "skipped", longrepr, "setup", start=0, stop=0
    )


def test_each_reason_once_the_most_frequent_first() -> None:
    reports = [_report("no Chromium"), _report("no RabbitMQ"), _report("no RabbitMQ")]
    assert skipped_lines(reports) == ["    2  no RabbitMQ", "    1  no Chromium"]
    assert skipped_lines([]) == []

"""The page on gRPC agrees with the code."""

import re
from pathlib import Path

from jackalope.doors.grpc.errors import STATUS

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/grpc.md"


def test_the_statuses_of_refusals_are_listed() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    listed = {
        (status, code) for status, reasons in rows for code in re.findall(r"`([A-Z_]+)`", reasons)
    }
    assert listed == {(status.name, code.name) for code, status in STATUS.items()}

"""The page of the command line agrees with the command line."""

import os
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.cli.page import page

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"


def test_page_follows_from_the_commands() -> None:
    expected = page()
    if os.environ.get("REWRITE"):
        REFERENCE.write_text(expected)
        return
    present = REFERENCE.read_text().splitlines()
    diff = unified_diff(present, expected.splitlines(), "the page", "the code", lineterm="")
    if lines := list(diff):
        told = "\n".join(["run REWRITE=1 pytest tests/cli/test_page.py", *lines])
        pytest.fail(told, pytrace=False)

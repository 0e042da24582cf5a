"""The page of the command line agrees with the command line."""

import os
import re
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import pytest

from jackalope.cli.app import app
from tests.cli.page import page
from tests.cli.test_alone import GROUPS, commands

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


ROOT = Path(__file__).resolve().parents[2]
#: A command as documentation and messages write it: in code, or after a prompt.
MENTIONED = re.compile(r"(?:`|^\$ |^)jackalope ([a-z][a-z-]+)(?: ([a-z][a-z-]+))?", re.MULTILINE)


def mentioned() -> Iterator[tuple[str, str, str]]:
    """Yield every command that a page or a message names, and where."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for path in [*pages, *(ROOT / "src").rglob("*.py")]:
        for first, second in MENTIONED.findall(path.read_text("utf-8")):
            yield str(path.relative_to(ROOT)), first, second


def test_commands_that_are_mentioned_exist() -> None:
    known = set(commands(app))
    wrong = [
        (where, first, second)
        for where, first, second in mentioned()
        if (first,) not in known or (second and (first,) in GROUPS and (first, second) not in known)
    ]
    assert wrong == []
    assert ("config", "check") in known

"""How hard the tests by chance look for trouble.

`steady`, the default, runs the same examples every time, so that a red build is red for everybody.
`thorough` draws new ones, and many more: for a night, or before a release.

    JACKALOPE_TESTS=thorough .venv/bin/pytest tests/core tests/properties
"""

import os

import pytest
from hypothesis import settings

#: How many times as many examples a profile draws.
EFFORT = {"steady": 1, "thorough": 50}

PROFILE = os.environ.get("JACKALOPE_TESTS", "steady")

#: For tests by chance: making a failing example small takes its time.
PATIENCE = pytest.mark.timeout(3_600)


def load() -> None:
    settings.register_profile(
        "steady", derandomize=True, database=None, deadline=None, report_multiple_bugs=False
    )
    settings.register_profile(
        "thorough", deadline=None, print_blob=True, report_multiple_bugs=False
    )
    settings.load_profile(PROFILE)


def examples(steady: int) -> int:
    """Return how many examples a test draws that takes this many in the steady profile."""
    return steady * EFFORT[PROFILE]

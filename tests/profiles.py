"""How hard the tests by chance look for trouble.

`steady`, the default, runs the same examples every time, so that a red build is red for everybody.
`thorough` draws new ones, and many more: for a night, or before a release. `brief` runs a tenth of
the steady ones: for `make coverage`, where the tracer makes every example slow.

    JACKALOPE_TESTS=thorough .venv/bin/pytest tests/core tests/properties
"""

import os

import pytest
from hypothesis import settings

#: How many times as many examples a profile draws.
EFFORT = {"brief": 0.1, "steady": 1, "thorough": 50}

PROFILE = os.environ.get("JACKALOPE_TESTS", "steady")

#: For tests by chance: making a failing example small takes its time.
PATIENCE = pytest.mark.timeout(3_600)


def load() -> None:
    for name in ("brief", "steady"):
        settings.register_profile(
            name, derandomize=True, database=None, deadline=None, report_multiple_bugs=False
        )
    settings.register_profile(
        "thorough", deadline=None, print_blob=True, report_multiple_bugs=False
    )
    settings.load_profile(PROFILE)


def examples(steady: int) -> int:
    """Return how many examples a test draws that takes this many in the steady profile."""
    return max(1, round(steady * EFFORT[PROFILE]))

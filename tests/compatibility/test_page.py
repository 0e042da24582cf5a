"""Every feature of the five designs is accounted for, and the page says what the tests show."""

from __future__ import annotations

import pytest

from tests.compatibility.page import DESIGNS, FIELDS, PAGE, features, render, shown_by

PARTS = {"cluster", "gRPC", "flows", "flow control"}
COUNTS = {"T": 38, "G": 41, "O": 36, "J": 38, "D": 44}


@pytest.mark.parametrize("design", DESIGNS)
def test_no_feature_is_left_out(design: str) -> None:
    assert list(features(design)) == [f"{design}{n}" for n in range(1, COUNTS[design] + 1)]


@pytest.mark.parametrize("design", DESIGNS)
def test_every_feature_is_shown_or_explained(design: str) -> None:
    for key, row in features(design).items():
        assert row["feature"], key
        assert row.keys() <= FIELDS, key
        assert row.get("comes_with") in PARTS | {None}, key
        assert key in shown_by() or {"differs", "comes_with"} & row.keys(), key


def test_tests_name_features_that_exist() -> None:
    known = {key for design in DESIGNS for key in features(design)}
    assert shown_by().keys() <= known


def test_the_page_follows_from_the_tests() -> None:
    assert PAGE.read_text("utf-8") == render(), "run: python -m tests.compatibility"

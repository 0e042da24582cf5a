"""Interests: which broadcasts they mean."""

import re
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackalope.wire.messages import Interest, matches


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "", True),
        ("*", "anything", True),
        ("door", "door", True),
        ("door", "doors", False),
        ("", "", True),
        ("", "door", False),
        ("door.*", "door.open", True),
        ("door.*", "door.", True),
        ("door.*", "door", False),
        ("*.open", "door.open", True),
        ("door.*.wide", "door.open.wide", True),
        ("door.*.wide", "door.wide", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*b*", "abc", True),
        ("*b*b*", "abc", False),
        ("a.c", "abc", False),
    ],
)
def test_a_star_stands_for_any_text(pattern: str, text: str, *, expected: bool) -> None:
    assert matches(pattern, text) is expected


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_patterns_mean_what_regular_expressions_say(pattern: str, text: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert matches(pattern, text) is (re.fullmatch(expression, text, re.DOTALL) is not None)


def test_no_pattern_takes_long() -> None:
    begin = perf_counter()
    assert not matches("*a" * 120 + "*b", "a" * 256)
    assert perf_counter() - begin < 1


def test_both_sender_and_subject_must_fit() -> None:
    interest = Interest(sender="ada", subject="door.*")
    assert interest.is_meant("ada", "door.open")
    assert not interest.is_meant("bob", "door.open")
    assert not interest.is_meant("ada", "window.open")

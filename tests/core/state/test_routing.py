"""Routing, held against matchers that are too simple to be wrong."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackalope.core.shapes.exchange import Kind
from jackalope.core.state.routing import ROUTERS, ByHeaders, Direct, Fanout, Topic, fits, words_of
from tests.profiles import examples

words = st.sampled_from(["a", "b", "", "*", "#"])
keys = st.lists(st.sampled_from(["a", "b", ""]), max_size=5).map(".".join)
patterns = st.lists(words, max_size=5).map(".".join)


def nothing() -> dict[str, Any]:
    return {}


def matches(pattern: list[str], key: list[str]) -> bool:
    """Tell whether a key fits a pattern, word by word."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(matches(pattern[1:], key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and matches(pattern[1:], key[1:])


@given(st.lists(patterns, max_size=6), st.lists(patterns, max_size=3), keys)
@settings(max_examples=examples(200))
def test_topic(bound: list[str], undone: list[str], key: str) -> None:
    router: Topic[int] = Topic()
    left = {}
    for number, pattern in enumerate(bound):
        router.bind(pattern, {}, number)
        left[number] = pattern
    for number in [n for n, pattern in left.items() if pattern in undone]:
        router.unbind(left.pop(number), {}, number)
    expected = {n for n, pattern in left.items() if matches(words_of(pattern), words_of(key))}
    found = list(router.match(key, nothing))
    assert sorted(set(found)) == sorted(expected)


def test_topic_of_many_hashes_is_quick() -> None:
    router: Topic[int] = Topic()
    router.bind(".".join(["#", "a"] * 30), {}, 1)
    assert list(router.match(".".join(["a"] * 60), nothing)) == [1]
    assert list(router.match(".".join(["b"] * 120), nothing)) == []


def test_topic_leaves_nothing_behind() -> None:
    router: Topic[int] = Topic()
    for pattern in ("a.b.c", "a.#", "#"):
        router.bind(pattern, {}, 1)
    for pattern in ("a.b.c", "a.#", "#"):
        router.unbind(pattern, {}, 1)
    assert router._root.below == {}


@pytest.mark.parametrize("kind", [Kind.DIRECT, Kind.FANOUT, Kind.TOPIC])
def test_bindings_that_differ_in_what_does_not_matter_count_apart(kind: Kind) -> None:
    router = ROUTERS[kind]()
    router.bind("k", {"one": 1}, "q")
    router.bind("k", {"two": 2}, "q")
    router.unbind("k", {"one": 1}, "q")
    assert list(router.match("k", nothing)) == ["q"]
    router.unbind("k", {"two": 2}, "q")
    assert list(router.match("k", nothing)) == []


def test_direct_and_fanout() -> None:
    direct: Direct[str] = Direct()
    direct.bind("k", {}, "q1")
    direct.bind("other", {}, "q2")
    assert list(direct.match("k", nothing)) == ["q1"]
    fanout: Fanout[str] = Fanout()
    fanout.bind("k", {}, "q1")
    fanout.bind("", {}, "q2")
    assert list(fanout.match("whatever", nothing)) == ["q1", "q2"]


@pytest.mark.parametrize(
    ("arguments", "headers", "is_fit"),
    [
        ({}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 1}, True),
        ({"x-match": "all", "a": None}, {"a": "anything"}, True),
        ({"x-match": "all", "a": None}, {}, False),
        ({"x-match": "all", "x-secret": 1}, {}, True),
        ({"x-match": "all-with-x", "x-secret": 1}, {}, False),
        ({"x-match": "any-with-x", "x-secret": 1}, {"x-secret": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": b"x"}, {"a": b"x"}, True),
    ],
)
def test_headers(arguments: dict[str, Any], headers: dict[str, Any], is_fit: bool) -> None:
    assert fits(arguments, headers) is is_fit
    router: ByHeaders[str] = ByHeaders()
    router.bind("", arguments, "q")
    assert list(router.match("", lambda: headers)) == (["q"] if is_fit else [])
    router.unbind("", arguments, "q")
    assert list(router.match("", lambda: headers)) == []

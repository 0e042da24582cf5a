"""Properties of messages: read as another codec wrote them, and written as they were."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.decode import field_table

from jackalope.wire import amqp_properties as properties
from jackalope.wire.amqp_properties import (
    NOTHING,
    BadProperties,
    Headline,
    entries,
    field_of,
    headers_of,
    headline,
    join,
    put_headers,
    split,
    to_table,
    value,
)
from tests.profiles import examples

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
tables = st.dictionaries(st.text(max_size=20), plain, max_size=5)


def written(**fields: Any) -> bytes:
    """Return properties as another codec writes them."""
    return Basic.Properties(**fields).marshal()


@given(tables)
@settings(max_examples=examples(200))
def test_a_table_survives(table: dict[str, Any]) -> None:
    raw = to_table({name: field_of(each) for name, each in table.items()})
    assert {name: value(field) for name, field in entries(raw[4:]).items()} == table


@given(st.dictionaries(st.text("abc", min_size=1, max_size=5), st.text(max_size=8), max_size=3))
@settings(max_examples=examples(50))
def test_another_codec_reads_a_table(table: dict[str, Any]) -> None:
    raw = to_table({name: field_of(each) for name, each in table.items()})
    assert field_table(raw)[1] == table


def test_what_the_broker_needs_to_know() -> None:
    raw = written(
        content_type="text/plain",
        headers={"a": 1},
        delivery_mode=2,
        priority=7,
        correlation_id="c",
        reply_to="r",
        expiration="100",
        message_type="t",
        user_id="guest",
    )
    assert headline(raw) == Headline(True, 7, "100", "r", "guest", "t")
    assert headline(NOTHING) == Headline()
    assert headline(written(delivery_mode=1)) == Headline()
    assert headline(written(delivery_mode=2)).is_persistent


def test_every_property_survives() -> None:
    raw = written(
        content_type="a",
        content_encoding="b",
        headers={"byte array": bytearray(b"x"), "short": 1, "nested": {"list": [1, "a", None]}},
        delivery_mode=1,
        priority=0,
        correlation_id="c",
        reply_to="d",
        expiration="1",
        message_id="e",
        message_type="f",
        user_id="g",
        app_id="h",
    )
    assert join(split(raw)) == raw


def test_a_header_is_changed_and_the_others_stay_as_they_are() -> None:
    raw = split(written(headers={"keep": bytearray(b"bytes"), "change": "old"}))
    headers = headers_of(raw)
    kept = headers["keep"]
    headers["change"] = field_of("new")
    put_headers(raw, headers)
    again = headers_of(split(join(raw)))
    assert again["keep"] == kept
    assert kept[:1] == b"x"
    assert value(again["change"]) == "new"


@given(st.binary(max_size=64))
@settings(max_examples=examples(300))
def test_garbage_is_refused_and_nothing_else(raw: bytes) -> None:
    try:
        found = split(raw)
    except BadProperties:
        return
    assert join(found) == raw
    for field in headers_of(found).values():
        try:
            value(field)
        except BadProperties:
            return


def test_tables_may_not_be_nested_for_ever() -> None:
    field = field_of("end")
    for _ in range(70):
        field = properties.table_of({"deeper": field})
    with pytest.raises(BadProperties, match="deep"):
        value(field)

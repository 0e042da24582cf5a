"""What a message says of itself, as workers and people see it among the headers."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from jackalope.core.shapes.envelope import headers_shown
from jackalope.core.task import Envelope
from jackalope.wire import amqp_properties as properties
from jackalope.wire.amqp_properties import BadProperties, long_number, short


def test_a_task_that_is_no_message_has_its_own_headers() -> None:
    headers = {"a": 1}
    assert headers_shown(headers, None) is headers


def test_headers_and_properties_of_a_message() -> None:
    raw = {properties.CONTENT_TYPE: short("text/plain"), properties.PRIORITY: b"\3"}
    properties.put_headers(raw, {"a": long_number(1), "amqp": long_number(2)})
    shown = headers_shown({}, Envelope("logs", "info.web", properties.join(raw)))
    way = {"exchange": "logs", "routing_key": "info.web"}
    assert shown == {"a": 1, "amqp": {**way, "content_type": "text/plain", "priority": 3}}


def test_names_that_are_no_text_can_be_shown() -> None:
    name = b"\xff".decode(errors="surrogateescape")
    raw: properties.Raw = {}
    table = properties.table_of({name: long_number(1)})
    properties.put_headers(raw, {name: properties.array_of([table])})
    shown = headers_shown({}, Envelope("", "q", properties.join(raw)))
    assert msgspec.json.decode(msgspec.json.encode(shown))["\ufffd"] == [{"\ufffd": 1}]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(shown)) == shown


@given(st.binary(max_size=60))
def test_whatever_is_stored_can_be_shown(garbage: bytes) -> None:
    try:
        properties.split(garbage)
    except BadProperties:
        expected: dict[str, object] | None = {}
    else:
        expected = None
    shown = headers_shown({}, Envelope("", "q", garbage))
    assert expected is None or shown == expected
    msgspec.msgpack.encode(shown)

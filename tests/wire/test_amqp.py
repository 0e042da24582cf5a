"""AMQP 0-9-1 on the wire, held against another codec."""

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, frame

from jackalope.wire import amqp
from jackalope.wire.frames import FrameError
from tests.profiles import examples

#: What the other codec calls by another name.
_RENAMED = {
    "nowait": "no_wait",
    "ticket": "reserved_1",
    "exchange_type": "type",
    "globally": "global",
    "known_hosts": "reserved_1",
    "cluster_id": "reserved_1",
    "out_of_band": "reserved_1",
    "capabilities": "reserved_1",
    "channel_id": "reserved_1",
    "insist": "reserved_2",
    "global_": "global",
}
_VALUES: dict[str, Any] = {
    "bit": True,
    "octet": 7,
    "short": 300,
    "long": 70_000,
    "longlong": 2**40,
    "shortstr": "name",
    "longstr": "long text",
    "table": {"text": "value", "flag": True},
}
#: These must have one value alone; and what the other codec does not like to speak.
_FIXED = {"ticket": 0, "known_hosts": "", "cluster_id": "", "out_of_band": "0", "channel_id": "0"}
_UNSPOKEN = {"Connection.UpdateSecret", "Connection.UpdateSecretOk", "Basic.RecoverAsync"}

METHODS: list[Any] = [
    method
    for method in list[Any](commands.INDEX_MAPPING.values())
    if method.name not in _UNSPOKEN and method.frame_id != 60 << 16
]


def filled(method: type[Any]) -> tuple[Any, dict[str, Any]]:
    """Return a method of the other codec with a value in every field, and these by our names."""
    other, ours = method(), {}
    for name in method.attributes():
        value = _FIXED.get(name, _VALUES[method.amqp_type(name)])
        if name in ("capabilities", "insist"):
            value = "" if name == "capabilities" else False
        setattr(other, name, value)
        ours[_RENAMED.get(name, name)] = value
    return other, ours


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_method_reads_as_another_codec_writes_it(method: type[Any]) -> None:
    other, expected = filled(method)
    payload = frame.marshal(other, 3)[7:-1]
    found = amqp.decode_method(payload)
    assert found.class_id << 16 | found.method_id == method.index
    for name, value in expected.items():
        got = found.args[name]
        assert (got.decode() if isinstance(got, bytes) else got) == value, name


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_another_codec_reads_a_method_as_it_is_written(method: type[Any]) -> None:
    other, ours = filled(method)
    name = next(
        shape.name
        for shape in amqp._BY_NAME.values()
        if shape.class_id << 16 | shape.method_id == method.index
    )
    written = amqp.encode_method(3, name, **ours)
    consumed, channel, found = frame.unmarshal(written)
    assert (consumed, channel) == (len(written), 3)
    assert dict(cast("Any", found)) == dict(other)


@given(st.binary(max_size=300), st.integers(1, 5))
@settings(max_examples=examples(100))
def test_a_content_comes_in_pieces(body: bytes, size: int) -> None:
    written = amqp.encode_content(5, b"\0\0", body, 64)
    reader = amqp.FrameReader(64)
    frames = [
        found
        for begin in range(0, len(written), size)
        for found in reader.feed(written[begin : begin + size])
    ]
    kind, channel, header = frames[0]
    assert (kind, channel) == (amqp.CONTENT_HEADER, 5)
    assert amqp.decode_content_header(header) == (amqp.BASIC, len(body), b"\0\0")
    assert b"".join(payload for _, _, payload in frames[1:]) == body
    assert all(len(payload) + amqp.FRAME_OVERHEAD <= 64 for _, _, payload in frames[1:])


@pytest.mark.parametrize("size", [64 - amqp.FRAME_OVERHEAD, 65 - amqp.FRAME_OVERHEAD])
def test_a_frame_has_a_limit(size: int) -> None:
    reader = amqp.FrameReader(64)
    written = amqp.frame(amqp.BODY, 1, bytes(size))
    if size + amqp.FRAME_OVERHEAD <= 64:
        assert list(reader.feed(written)) == [(amqp.BODY, 1, bytes(size))]
    else:
        with pytest.raises(FrameError, match="at most 64"):
            list(reader.feed(written))


def test_a_frame_must_end() -> None:
    written = amqp.frame(amqp.BODY, 1, b"x")[:-1] + b"\0"
    with pytest.raises(FrameError, match="end"):
        list(amqp.FrameReader(64).feed(written))


@given(st.binary(max_size=60))
@settings(max_examples=examples(300))
def test_garbage_is_refused_and_nothing_else(payload: bytes) -> None:
    for read in (amqp.decode_method, amqp.decode_content_header):
        try:
            read(payload)
        except FrameError:
            continue


def test_delivery_is_as_the_table_says() -> None:
    quick = amqp.encode_deliver(
        3,
        amqp.short_string(b"tag"),
        7,
        redelivered=True,
        route=amqp.encode_route("exchange", "key"),
    )
    assert quick == amqp.encode_method(
        3,
        "basic.deliver",
        consumer_tag="tag",
        delivery_tag=7,
        redelivered=True,
        exchange="exchange",
        routing_key="key",
    )


@pytest.mark.parametrize("multiple", [True, False])
def test_confirmation_is_as_the_table_says(multiple: bool) -> None:
    written = amqp.encode_ack(7, 2**40, multiple)
    assert written == amqp.encode_method(7, "basic.ack", delivery_tag=2**40, multiple=multiple)


def test_a_short_string_is_cut_between_characters() -> None:
    assert amqp.short_string(("a" + "é" * 200).encode())[1:].decode() == "a" + "é" * 127

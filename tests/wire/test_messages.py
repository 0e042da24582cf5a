"""Messages: each comes back as it was, and nothing else passes for one."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackalope.core.commands import ClaimTasks, Command, JoinWorker
from jackalope.wire.frames import FrameError, FrameReader, Kind
from jackalope.wire.messages import (
    FROM_BROKER,
    TO_BROKER,
    AnyMessage,
    Codec,
    Hello,
    broker_codec,
    peer_codec,
)
from tests.profiles import examples
from tests.wire.shapes import MESSAGES, anything, fields_of, name_of, values

encode = msgspec.msgpack.encode


def codecs(direction: str) -> tuple[Codec, Codec]:
    """Return the codecs of the sender and of the receiver."""
    ends = peer_codec(), broker_codec()
    return ends if direction == "to" else (ends[1], ends[0])


def through(sender: Codec, receiver: Codec, message: AnyMessage) -> tuple[int, AnyMessage]:
    ((kind, body),) = FrameReader().feed(sender.encode(message))
    return kind, receiver.decode(kind, body)


def fields_in(message: AnyMessage) -> list[Any]:
    return [getattr(message, field.name) for field in fields_of(type(message))]


every_message = pytest.mark.parametrize(("direction", "kind", "shape"), MESSAGES, ids=name_of)


@every_message
@settings(max_examples=examples(25))
@given(data=st.data())
def test_round_trip(
    direction: str, kind: Kind, shape: type[AnyMessage], data: st.DataObject
) -> None:
    message = data.draw(values(shape))
    assert through(*codecs(direction), message) == (kind, message)


@every_message
@settings(max_examples=examples(10))
@given(data=st.data())
def test_body_is_the_fields_in_order(
    direction: str, kind: Kind, shape: type[AnyMessage], data: st.DataObject
) -> None:
    message = data.draw(values(shape))
    ((_, body),) = FrameReader().feed(codecs(direction)[0].encode(message))
    assert msgspec.msgpack.decode(body) == msgspec.msgpack.decode(encode(fields_in(message)))


@every_message
@settings(max_examples=examples(10))
@given(data=st.data())
def test_trailing_fields_may_be_left_out(
    direction: str, kind: Kind, shape: type[AnyMessage], data: st.DataObject
) -> None:
    fields = fields_of(shape)
    required = sum(field.required for field in fields)
    message = data.draw(values(shape))
    sent = data.draw(st.integers(required, len(fields)))
    given_ones = [getattr(message, field.name) for field in fields[:sent]]
    _, receiver = codecs(direction)
    assert receiver.decode(kind, encode(given_ones)) == shape(*given_ones)
    if required:
        with pytest.raises(FrameError, match="invalid body in a frame"):
            receiver.decode(kind, encode(given_ones[: required - 1]))


@every_message
@settings(max_examples=examples(10))
@given(data=st.data())
def test_later_fields_are_passed_over(
    direction: str, kind: Kind, shape: type[AnyMessage], data: st.DataObject
) -> None:
    message = data.draw(values(shape))
    body = msgspec.msgpack.decode(encode(fields_in(message)))
    _, receiver = codecs(direction)
    assert receiver.decode(kind, encode([*body, "later", {"still": "later"}])) == message


COMMANDS = [(kind, shape) for kind, shape in TO_BROKER.items() if issubclass(shape, Command)]


@pytest.mark.parametrize(("kind", "shape"), COMMANDS)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_a_peer_cannot_set_what_the_door_sets(
    kind: Kind, shape: type[Command], data: st.DataObject
) -> None:
    """Neither by more elements nor by a longer form of the array than is needed."""
    message = data.draw(values(shape))
    forged = [7, "ada", "other", ["theirs"], "forged"]
    for more in (forged, ["ada", 7], [None] * 100):
        body = encode([*fields_in(message), *more])
        decoded = broker_codec().decode(kind, body)
        assert decoded == message
        assert broker_codec().decode(kind, _in_long_form(body)) == message
    assert broker_codec().decode(kind, _in_long_form(encode(fields_in(message)))) == message


def _in_long_form(body: bytes) -> bytes:
    """Return an array with its number of elements in four bytes, whatever it has now."""
    if body[0] == 0xDC:
        return b"\xdd\0\0" + body[1:]
    return b"\xdd\0\0\0" + bytes([body[0] & 0x0F]) + body[1:]


def test_defaults_are_not_shared() -> None:
    one, other = JoinWorker(1, "w", ("q",)), JoinWorker(1, "w", ("q",))
    one.labels["gpu"] = "yes"
    assert other.labels == {}
    assert broker_codec().decode(Kind.JOIN, encode([1, "w", ["q"]])) == other


# What is none.


@pytest.mark.parametrize("codec", [broker_codec(), peer_codec()])
@pytest.mark.parametrize("kind", [0, 36, 127, 255])
def test_unknown_kind(codec: Codec, kind: int) -> None:
    with pytest.raises(FrameError, match=f"unexpected frame of kind {kind}"):
        codec.decode(kind, encode([1]))


@pytest.mark.parametrize("kind", sorted(set(Kind) - set(TO_BROKER)))
def test_kind_that_only_the_broker_sends(kind: Kind) -> None:
    with pytest.raises(FrameError, match="unexpected frame of kind"):
        broker_codec().decode(kind, encode([1]))


@pytest.mark.parametrize("kind", sorted(set(Kind) - set(FROM_BROKER)))
def test_kind_that_only_the_peer_sends(kind: Kind) -> None:
    with pytest.raises(FrameError, match="unexpected frame of kind"):
        peer_codec().decode(kind, encode([1]))


def test_a_sender_knows_its_own_messages_only() -> None:
    with pytest.raises(KeyError):
        broker_codec().encode(Hello())


BAD_BODIES = {
    "nothing": b"",
    "no array": encode({"ref": 1}),
    "too short": encode([]),
    "text for a number": encode(["1"]),
    "float for a number": encode([1.5]),
    "nothing for a number": encode([None]),
    "cut off": encode([1, 1, 1_000_000])[:-1],
    "more after the end": encode([1]) + b"\x00",
    "a byte that MessagePack does not use": b"\x93\x01\xc1\x01",
    "an endless array": b"\xdd\xff\xff\xff\xff",
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_bad_body(body: bytes) -> None:
    assert broker_codec().decode(Kind.CLAIM, encode([1])) == ClaimTasks(1)
    with pytest.raises(FrameError, match="invalid body in a frame of kind 2"):
        broker_codec().decode(Kind.CLAIM, body)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.HELLO, b"\x92\x01\xa1\xff"),  # Not UTF-8.
        (Kind.HELLO, encode([1, b"bytes for text"])),
        (Kind.WATCH, encode([1, ["text for bytes"]])),
        (Kind.START, encode([1, [{"task": b"", "fence": 1}]])),
        (Kind.ACT, encode([1, "explode"])),
        (Kind.ACT, encode([1, "kill", [], {"queu": "q"}])),
        (Kind.SIGNAL, encode([1, b"", 1, "perhaps"])),
        (Kind.RESULT, encode([1, [], [[b"", 1, ["Type"], "maybe"]]])),
        (Kind.QUERY, b"\x93\x01\xa1s\x81\xa1a\x81\x80\x01"),  # A map as the key of a map.
    ],
)
def test_bad_field(kind: Kind, body: bytes) -> None:
    with pytest.raises(FrameError, match="invalid body in a frame"):
        broker_codec().decode(kind, body)


def test_body_too_deep() -> None:
    body = b"\x93\x01\xa5stats\x81\xa1a" + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(FrameError, match="invalid body in a frame"):
        broker_codec().decode(Kind.QUERY, body)


@pytest.mark.parametrize("codec", [broker_codec(), peer_codec()], ids=["broker", "peer"])
@settings(max_examples=examples(500))
@given(kind=st.integers(0, 255), body=st.binary(max_size=100) | anything.map(encode))
def test_chance_is_refused_or_a_message(codec: Codec, kind: int, body: bytes) -> None:
    try:
        message: Any = codec.decode(kind, body)
    except FrameError:
        return
    assert isinstance(message, AnyMessage)


@every_message
@settings(max_examples=examples(25))
@given(data=st.data())
def test_damage_is_refused_or_a_message(
    direction: str, kind: Kind, shape: type[AnyMessage], data: st.DataObject
) -> None:
    body = bytearray(encode(fields_in(data.draw(values(shape)))))
    for at, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), max_size=3)
    ):
        body[at] = byte
    try:
        message: Any = codecs(direction)[1].decode(kind, bytes(body))
    except FrameError:
        return
    assert isinstance(message, shape)

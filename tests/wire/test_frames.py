"""Frames: however the bytes are cut on their way, the same frames come out."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackalope.wire.frames import FRAME_BYTES_MAX, FrameError, FrameReader, Kind, frame, ref_in

kinds = st.sampled_from(Kind)
frames = st.lists(st.tuples(kinds, st.binary(max_size=200)), max_size=20)


def test_numbers_are_for_ever() -> None:
    assert [(kind.value, kind.name) for kind in Kind] == [
        (1, "SUBMIT"),
        (2, "CLAIM"),
        (3, "RESULT"),
        (4, "HEARTBEAT"),
        (5, "ACK"),
        (6, "NACK"),
        (7, "QUERY"),
        (8, "HELLO"),
        (9, "JOIN"),
        (10, "LEAVE"),
        (11, "ASSIGN"),
        (12, "START"),
        (13, "PROGRESS"),
        (14, "SIGNAL"),
        (15, "ACT"),
        (16, "WATCH"),
        (17, "ENDED"),
        (18, "MANAGE"),
        (19, "SUBSCRIBE"),
        (20, "EVENTS"),
        (21, "NOTICE"),
        (22, "RPC"),
        (23, "REPLY"),
        (24, "LISTEN"),
        (25, "BROADCAST"),
        (26, "HELPERS"),
        (27, "HELP"),
        (28, "UPLOAD"),
        (29, "FETCH"),
        (30, "MOVED"),
        (31, "STEP"),
        (32, "SUSPEND"),
        (33, "FLOW"),
        (34, "ADD"),
        (35, "LOGS"),
    ]


def test_layout() -> None:
    assert frame(Kind.QUERY, b"body") == b"\x00\x00\x00\x05\x07body"
    assert frame(Kind.LEAVE, b"") == b"\x00\x00\x00\x01\x0a"


@given(frames, st.data())
def test_any_split_gives_the_same_frames(
    sent: list[tuple[Kind, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(frame(kind, body) for kind, body in sent)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=30))
    reader, got = FrameReader(), list[tuple[int, bytes]]()
    for begin, end in pairwise(sorted([0, *cuts, len(stream)])):
        got += reader.feed(stream[begin:end])
    assert got == sent
    assert reader.pending() == 0


@given(frames)
def test_byte_by_byte(sent: list[tuple[Kind, bytes]]) -> None:
    reader, got = FrameReader(), list[tuple[int, bytes]]()
    for kind, body in sent:
        encoded = frame(kind, body)
        for at in range(len(encoded)):
            assert reader.pending() == at
            got += reader.feed(encoded[at : at + 1])
    assert got == sent


@given(frames, kinds, st.binary(max_size=50))
def test_unfinished_frame_is_kept(sent: list[tuple[Kind, bytes]], kind: Kind, body: bytes) -> None:
    stream = b"".join(frame(each, its_body) for each, its_body in sent)
    last = frame(kind, body)
    reader = FrameReader()
    assert list(reader.feed(stream + last[:-1])) == sent
    assert reader.pending() == len(last) - 1
    assert list(reader.feed(last[-1:])) == [(kind, body)]


@pytest.mark.parametrize("length_max", [1, 2, 100, 65_536])
def test_length_at_the_limit_and_one_past(length_max: int) -> None:
    # The length counts the kind as well.
    assert list(FrameReader(length_max).feed(frame(Kind.ACK, b"x" * (length_max - 1)))) == [
        (Kind.ACK, b"x" * (length_max - 1))
    ]
    with pytest.raises(FrameError, match=f"a frame of {length_max + 1} bytes; a frame has 1 to"):
        list(FrameReader(length_max).feed(frame(Kind.ACK, b"x" * length_max)))


def test_default_limit() -> None:
    assert FRAME_BYTES_MAX == 16 * 1024 * 1024
    assert list(FrameReader().feed(FRAME_BYTES_MAX.to_bytes(4, "big") + b"\x05")) == []
    with pytest.raises(FrameError):
        list(FrameReader().feed((FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"\x05"))


def test_length_of_nothing() -> None:
    with pytest.raises(FrameError, match="a frame of 0 bytes"):
        list(FrameReader().feed(b"\x00\x00\x00\x00\x05"))


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_bad_length_is_found_with_its_last_byte(length: bytes) -> None:
    reader = FrameReader(1_000)
    assert list(reader.feed(length[:3])) == []
    with pytest.raises(FrameError):
        list(reader.feed(length[3:]))


@given(st.integers(0, 2**64 - 1), st.binary(max_size=20), st.sampled_from([1, 15, 16, 70_000]))
def test_reference_is_read_whatever_follows(ref: int, rest: bytes, fields: int) -> None:
    header = msgspec.msgpack.encode([None] * fields)[: -fields or None]
    assert ref_in(header + msgspec.msgpack.encode(ref) + rest) == ref


@given(st.binary(max_size=12))
def test_no_reference_in_bytes_by_chance(body: bytes) -> None:
    found = ref_in(body)
    if found is not None:
        assert 0x91 <= body[0] <= 0x9F or body[0] in (0xDC, 0xDD)


def test_frames_before_a_bad_one_count() -> None:
    reader, got = FrameReader(100), list[tuple[int, bytes]]()

    def read() -> None:
        for each in reader.feed(frame(Kind.ACK, b"good") + b"\xff" * 5):
            got.append(each)

    with pytest.raises(FrameError):
        read()
    assert got == [(Kind.ACK, b"good")]


def test_whoever_stops_in_between_finds_the_rest() -> None:
    reader = FrameReader()
    for kind, _ in reader.feed(frame(Kind.ACK, b"1") + frame(Kind.NACK, b"2")):
        assert kind == Kind.ACK
        break
    assert list(reader.feed(b"")) == [(Kind.NACK, b"2")]


def test_kind_is_not_judged_here() -> None:
    assert list(FrameReader().feed(b"\x00\x00\x00\x02\xff!")) == [(255, b"!")]

"""The page on the native protocol: its bytes are real, and it leaves nothing out.

The tables and dumps themselves are compared with the code in `test_reference`. Here the page is
read as somebody reads it who has nothing else.
"""

import re
import struct
from pathlib import Path

import msgspec
import pytest

from jackalope.broker.inbox import INBOX_ITEMS_MAX
from jackalope.core import limits
from jackalope.doors.native.connection import QUERIES_AT_ONCE_MAX
from jackalope.doors.native.outgoing import _NOTICES
from jackalope.wire.frames import FRAME_BYTES_MAX, FrameReader, Kind
from jackalope.wire.messages import (
    FROM_BROKER,
    TO_BROKER,
    AnyMessage,
    broker_codec,
    fields_of,
    peer_codec,
)
from tests.docs.blocks import cells_of, content_of, names_in
from tests.docs.protocol import EXAMPLES, MAPS, MESSAGES, PARTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "protocol.md"
TEXT = PAGE.read_text()

_DUMP_LINE = re.compile(r"^((?:[0-9a-f]{2} )*[0-9a-f]{2}) {2,}(.+)$")


def bytes_of(example: str) -> bytes:
    """Read the bytes of a dump: hex on the left, words on the right."""
    dump = content_of(TEXT, f"example {example}").splitlines()[1:-1]
    lines = [_DUMP_LINE.match(line) for line in dump]
    return b"".join(bytes.fromhex(line[1]) for line in lines if line)


def section(title: str) -> str:
    """Return what stands under a heading, up to the next one of its rank."""
    (rank,) = re.findall(rf"^(#+) {re.escape(title)}$", TEXT, re.MULTILINE)
    begin = TEXT.index(f"{rank} {title}\n")
    end = re.compile(rf"^#{{1,{len(rank)}}} ", re.MULTILINE).search(TEXT, begin + len(rank) + 1)
    return TEXT[begin : end.start() if end else len(TEXT)]


def plain(message: AnyMessage) -> object:
    """Return a message without its shape, as it is on the wire."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message))


# The examples.


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_byte_of_a_dump_is_read(name: str) -> None:
    dump = content_of(TEXT, f"example {name}").splitlines()
    assert (dump[0], dump[-1]) == ("```text", "```")
    assert all(_DUMP_LINE.match(line) for line in dump[1:-1])


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_one_frame(name: str) -> None:
    """By the rules of the page alone: four bytes of length, one of kind, one value."""
    data = bytes_of(name)
    (length,) = struct.unpack(">I", data[:4])
    assert length == len(data) - 4
    assert isinstance(msgspec.msgpack.decode(data[5:]), list)
    assert list(FrameReader().feed(data)) == [(data[4], data[5:])]


@pytest.mark.parametrize(("name", "message"), EXAMPLES.items(), ids=EXAMPLES.keys())
def test_example_decodes_and_encodes(name: str, message: AnyMessage) -> None:
    data = bytes_of(name)
    is_to_broker = type(message) in TO_BROKER.values()
    sender, receiver = peer_codec(), broker_codec()
    if not is_to_broker:
        sender, receiver = receiver, sender
    decoded = receiver.decode(data[4], data[5:])
    assert type(decoded) is type(message)
    assert plain(decoded) == plain(message)
    assert sender.encode(decoded) == sender.encode(message) == data


@pytest.mark.parametrize("kind", Kind)
def test_examples_of_most_kinds(kind: Kind) -> None:
    shown = {bytes_of(name)[4] for name in EXAMPLES}
    too_plain = {Kind.LEAVE, Kind.SUBSCRIBE}
    assert (kind in shown) is (kind not in too_plain)


def test_dump_says_what_the_bytes_are() -> None:
    dump = content_of(TEXT, "example hello")
    assert "08                                   kind: HELLO" in dump
    assert re.search(r'^a7 64 65 66 61 75 6c 74 +namespace: "default"$', dump, re.MULTILINE)


# Completeness.


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_its_sections(kind: Kind) -> None:
    headings = re.findall(rf"^### {kind.name} \({kind.value}\)", TEXT, re.MULTILINE)
    ways = (kind in TO_BROKER) + (kind in FROM_BROKER)
    assert len(headings) == (1 if kind is Kind.HEARTBEAT else ways)
    assert f"| `{kind.name}` | {kind.value} |" in content_of(TEXT, "kinds")


@pytest.mark.parametrize("shape", [*MESSAGES.values(), *PARTS], ids=lambda shape: shape.__name__)
def test_every_field_is_told_in_order(shape: type[msgspec.Struct]) -> None:
    rows = cells_of(content_of(TEXT, shape.__name__))
    assert [row[0] for row in rows] == [f"`{name}`" for name in fields_of(shape)]
    assert [row[1] for row in rows] == [str(place) for place in range(len(rows))]
    required = [field.required for field in msgspec.structs.fields(shape)][: len(rows)]
    assert [row[3] == "required" for row in rows] == required
    assert all(len(row[4]) > 3 for row in rows)


@pytest.mark.parametrize("shape", MAPS, ids=lambda shape: shape.__name__)
def test_every_key_is_told(shape: type[msgspec.Struct]) -> None:
    keys = [row[0].strip("`") for row in cells_of(content_of(TEXT, shape.__name__))]
    assert keys == list(msgspec.msgpack.decode(msgspec.msgpack.encode(_filled(shape))))


def _filled(shape: type[msgspec.Struct]) -> msgspec.Struct:
    """Make a map in which no key is left out: no value of it is the default."""
    return shape(*["something"] * len(shape.__struct_fields__))


def test_every_name_in_a_type_is_explained() -> None:
    tables = [content_of(TEXT, name) for name in names_in(TEXT) if not name.startswith("example")]
    named = {name for table in tables for name in re.findall(r"`([A-Z]\w+[a-z]\w*)`", table)}
    explained = {shape.__name__ for shape in (*MESSAGES.values(), *PARTS, *MAPS)}
    explained |= {row[0].strip("`") for row in cells_of(content_of(TEXT, "words"))}
    # They have pages of their own.
    elsewhere = {"CallContent", "Code", "Parameter", "Policy", "PoolSettings", "ScheduleSettings"}
    assert named - explained == elsewhere | {"LimitSettings", "NamespaceSettings"}


def test_every_notice_is_told() -> None:
    told = {row[0].strip("`") for row in cells_of(section("Notices"))}
    of_doors = {"moved", "goodbye", "error", "refused"}
    assert told == {notice.what for notice in _NOTICES.values()} | of_doors


def test_every_answer_to_a_signal_is_told() -> None:
    title = "SIGNAL (14), the worker's answer"
    (table, *_) = section(title).split("<!-- generated")
    answers = [row[0].strip("`") for row in cells_of(table)]
    assert answers == ["delivered", "acknowledged", "refused", "stopped"]


def test_limits_are_those_of_the_code() -> None:
    text = section("Back-pressure and limits")
    for number in (
        limits.ITEMS_PER_COMMAND_MAX,
        limits.CLAIMS_PER_WORKER_MAX,
        limits.WATCHES_PER_TASK_MAX,
        QUERIES_AT_ONCE_MAX,
        INBOX_ITEMS_MAX,
    ):
        assert f" {number:,} " in text
    assert f" {limits.INLINE_BYTES_MAX // 1024} KiB" in text
    assert f"{FRAME_BYTES_MAX // 1024 // 1024} MiB unless configured" in section("Frames")
    assert f"2^{limits.TIME_US_MAX.bit_length() - 1}" in section("Bodies")


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(#([^)]+)\)", TEXT))))
def test_link_within_the_page(target: str) -> None:
    anchors = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    }
    assert target in anchors

"""Every type of header field comes back as the same bytes, whatever the message went through."""

from __future__ import annotations

import struct
from typing import Any

from pamqp import body, commands, frame

from tests.doors.amqp import fields
from tests.doors.amqp.harness import Broker
from tests.doors.amqp.wire import Content, Wire

BASIC = 60
HEADERS_FLAG = 1 << 13


def field(name: str, kind: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + kind + value


def sized(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


EVERY = b"".join(
    [
        field("bool", b"t", b"\1"),
        field("byte", b"b", b"\xff"),
        field("ubyte", b"B", b"\xff"),
        field("short", b"s", struct.pack(">h", -2)),
        field("ushort", b"u", struct.pack(">H", 65_535)),
        field("int", b"I", struct.pack(">i", -3)),
        field("uint", b"i", struct.pack(">I", 4_000_000_000)),
        field("long", b"l", struct.pack(">q", -4)),
        field("float", b"f", struct.pack(">f", 1.5)),
        field("double", b"d", struct.pack(">d", 0.1)),
        field("decimal", b"D", struct.pack(">Bi", 2, 314)),
        field("text", b"S", sized("wörd".encode())),
        field("not-utf8", b"x", sized(b"\xff\xfe")),
        field("time", b"T", struct.pack(">Q", 1_000_000_000)),
        field("void", b"V", b""),
        field("list", b"A", sized(b"I" + struct.pack(">i", 7) + b"x" + sized(b"\0"))),
        field("table", b"F", sized(field("inner", b"s", struct.pack(">h", 1)))),
    ]
)
PROPERTIES = struct.pack(">H", HEADERS_FLAG) + sized(EVERY)


def publish(wire: Wire, queue: str) -> None:
    """Publish with properties that no codec has touched."""
    payload = struct.pack(">HHQ", BASIC, 0, 1) + PROPERTIES
    header = struct.pack(">BHI", 2, 1, len(payload)) + payload + b"\xce"
    method = frame.marshal(commands.Basic.Publish(routing_key=queue), 1)
    wire.send_bytes(method + header + frame.marshal(body.ContentBody(b"x"), 1))


def taken(wire: Wire, queue: str) -> Content:
    """Wait for a message, and return its content."""
    wire.send(1, commands.Basic.Consume(queue=queue, consumer_tag=queue, no_ack=True))
    assert wire.hear(1).name == "basic.consume-ok"
    content = wire.hear(1).content
    assert content is not None
    return content


def test_every_type_survives(broker: Broker) -> None:
    wire = Wire(broker.port)
    wire.open()
    wire.send(1, commands.Channel.Open())
    wire.hear(1)
    wire.send(1, commands.Queue.Declare(queue="types", exclusive=True))
    wire.hear(1)
    publish(wire, "types")
    content = taken(wire, "types")
    wire.close()
    assert content.raw_properties == PROPERTIES


def test_every_type_survives_death(broker: Broker) -> None:
    wire = Wire(broker.port)
    wire.open()
    wire.send(1, commands.Channel.Open())
    wire.hear(1)
    wire.send(1, commands.Queue.Declare(queue="after", exclusive=True))
    wire.hear(1)
    arguments: dict[str, Any] = {
        "x-message-ttl": 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "after",
    }
    wire.send(1, commands.Queue.Declare(queue="before", exclusive=True, arguments=arguments))
    wire.hear(1)
    publish(wire, "before")
    content = taken(wire, "after")
    wire.close()
    for told in fields.properties(PROPERTIES)["headers"][1:-1].split(", "):
        assert told in fields.properties(content.raw_properties)["headers"]

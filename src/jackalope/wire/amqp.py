"""AMQP 0-9-1 on the wire: frames, methods and contents, and the errors that end a channel.

Owns the bytes. Sans-IO: bytes in, frames out, and back. Properties of messages are passed on as
they are (see `jackalope.wire.amqp_properties`). Methods are read and written by a table of their
fields, in the order of the specification and with the names that it gives them.

Owns the one mapping of refusals to reply codes, too, and RabbitMQ's sentences, which programs and
people look at. They are made of the fields of a refusal; one for which RabbitMQ has no sentence
keeps the core's. The AMQP door and the management API use them.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Any, NamedTuple

from jackalope.core.commands.base import DEFAULT_NAMESPACE
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.problems import AmqpRefusal, Flaw, Problem
from jackalope.wire.amqp_properties import (
    BadProperties,
    entries,
    field_of,
    readable,
    to_table,
    value,
)
from jackalope.wire.frames import FrameError

HEADER = b"AMQP\x00\x00\x09\x01"

METHOD, CONTENT_HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
FRAME_OVERHEAD = 8
FRAME_BYTES_MIN = 4096

BASIC = 60

_FRAME = Struct(">BHI")
_METHOD = Struct(">HH")
_CONTENT = Struct(">HHQ")
_NUMBERS = {"octet": Struct(">B"), "short": Struct(">H"), "long": Struct(">I"), "big": Struct(">Q")}

#: Every method: its numbers, its name, and its fields with their types.
_METHODS = """
10 10 connection.start version_major:octet version_minor:octet server_properties:table \
mechanisms:longstr locales:longstr
10 11 connection.start-ok client_properties:table mechanism:shortstr response:longstr \
locale:shortstr
10 20 connection.secure challenge:longstr
10 21 connection.secure-ok response:longstr
10 30 connection.tune channel_max:short frame_max:long heartbeat:short
10 31 connection.tune-ok channel_max:short frame_max:long heartbeat:short
10 40 connection.open virtual_host:shortstr reserved_1:shortstr reserved_2:bit
10 41 connection.open-ok reserved_1:shortstr
10 50 connection.close reply_code:short reply_text:shortstr class_id:short method_id:short
10 51 connection.close-ok
10 60 connection.blocked reason:shortstr
10 61 connection.unblocked
10 70 connection.update-secret new_secret:longstr reason:shortstr
10 71 connection.update-secret-ok
20 10 channel.open reserved_1:shortstr
20 11 channel.open-ok reserved_1:longstr
20 20 channel.flow active:bit
20 21 channel.flow-ok active:bit
20 40 channel.close reply_code:short reply_text:shortstr class_id:short method_id:short
20 41 channel.close-ok
40 10 exchange.declare reserved_1:short exchange:shortstr type:shortstr passive:bit durable:bit \
auto_delete:bit internal:bit no_wait:bit arguments:table
40 11 exchange.declare-ok
40 20 exchange.delete reserved_1:short exchange:shortstr if_unused:bit no_wait:bit
40 21 exchange.delete-ok
40 30 exchange.bind reserved_1:short destination:shortstr source:shortstr routing_key:shortstr \
no_wait:bit arguments:table
40 31 exchange.bind-ok
40 40 exchange.unbind reserved_1:short destination:shortstr source:shortstr routing_key:shortstr \
no_wait:bit arguments:table
40 51 exchange.unbind-ok
50 10 queue.declare reserved_1:short queue:shortstr passive:bit durable:bit exclusive:bit \
auto_delete:bit no_wait:bit arguments:table
50 11 queue.declare-ok queue:shortstr message_count:long consumer_count:long
50 20 queue.bind reserved_1:short queue:shortstr exchange:shortstr routing_key:shortstr \
no_wait:bit arguments:table
50 21 queue.bind-ok
50 30 queue.purge reserved_1:short queue:shortstr no_wait:bit
50 31 queue.purge-ok message_count:long
50 40 queue.delete reserved_1:short queue:shortstr if_unused:bit if_empty:bit no_wait:bit
50 41 queue.delete-ok message_count:long
50 50 queue.unbind reserved_1:short queue:shortstr exchange:shortstr routing_key:shortstr \
arguments:table
50 51 queue.unbind-ok
60 10 basic.qos prefetch_size:long prefetch_count:short global:bit
60 11 basic.qos-ok
60 20 basic.consume reserved_1:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit \
exclusive:bit no_wait:bit arguments:table
60 21 basic.consume-ok consumer_tag:shortstr
60 30 basic.cancel consumer_tag:shortstr no_wait:bit
60 31 basic.cancel-ok consumer_tag:shortstr
60 40 basic.publish reserved_1:short exchange:shortstr routing_key:shortstr mandatory:bit \
immediate:bit
60 50 basic.return reply_code:short reply_text:shortstr exchange:shortstr routing_key:shortstr
60 60 basic.deliver consumer_tag:shortstr delivery_tag:big redelivered:bit exchange:shortstr \
routing_key:shortstr
60 70 basic.get reserved_1:short queue:shortstr no_ack:bit
60 71 basic.get-ok delivery_tag:big redelivered:bit exchange:shortstr routing_key:shortstr \
message_count:long
60 72 basic.get-empty reserved_1:shortstr
60 80 basic.ack delivery_tag:big multiple:bit
60 90 basic.reject delivery_tag:big requeue:bit
60 100 basic.recover-async requeue:bit
60 110 basic.recover requeue:bit
60 111 basic.recover-ok
60 120 basic.nack delivery_tag:big multiple:bit requeue:bit
85 10 confirm.select no_wait:bit
85 11 confirm.select-ok
90 10 tx.select
90 11 tx.select-ok
90 20 tx.commit
90 21 tx.commit-ok
90 30 tx.rollback
90 31 tx.rollback-ok
"""

Fields = list[tuple[str, str]]


class Shape(NamedTuple):
    """The name and the fields of a method."""

    class_id: int
    method_id: int
    name: str
    fields: Fields


def _shapes() -> Iterator[Shape]:
    for line in _METHODS.strip().splitlines():
        class_id, method_id, name, *fields = line.split()
        pairs = [(each.partition(":")[0], each.partition(":")[2]) for each in fields]
        yield Shape(int(class_id), int(method_id), name, pairs)


_BY_NAME = {shape.name: shape for shape in _shapes()}
_BY_NUMBER = {(shape.class_id, shape.method_id): shape for shape in _BY_NAME.values()}
_ACK = _BY_NAME["basic.ack"]
_ACKED = Struct(">QB")


class Method(NamedTuple):
    """A received method."""

    name: str
    class_id: int
    method_id: int
    args: dict[str, Any]


class BadMethod(FrameError):
    """The arguments of a method cannot be decoded."""

    def __init__(self, class_id: int, method_id: int, problem: str) -> None:
        super().__init__(problem)
        self.class_id, self.method_id = class_id, method_id


class UnknownMethod(BadMethod):
    """There is no such method."""

    def __init__(self, class_id: int, method_id: int) -> None:
        super().__init__(class_id, method_id, f"unknown method {class_id}.{method_id}")


class FrameReader:
    """Splits a byte stream into frames: kind, channel and payload."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        buffer = self._buffer + data if self._buffer else data
        at, size = 0, len(buffer)
        while size - at >= 7:
            kind, channel, length = _FRAME.unpack_from(buffer, at)
            if length + FRAME_OVERHEAD > self.frame_bytes_max:
                self._buffer = b""
                raise FrameError(f"a frame of {length} bytes; at most {self.frame_bytes_max}")
            end = at + 7 + length
            if end >= size:
                break
            if buffer[end] != FRAME_END:
                self._buffer = b""
                raise FrameError("a frame does not end where it should")
            yield kind, channel, buffer[at + 7 : end]
            at = end + 1
        self._buffer = buffer[at:]


def decode_method(payload: bytes) -> Method:
    try:
        class_id, method_id = _METHOD.unpack_from(payload)
    except error as problem:
        raise FrameError(f"a method cannot be read: {problem}") from None
    shape = _BY_NUMBER.get((class_id, method_id))
    if shape is None:
        raise UnknownMethod(class_id, method_id)
    try:
        args = _decode_ack(payload) if shape is _ACK else _decode_fields(shape.fields, payload)
        return Method(shape.name, class_id, method_id, args)
    except UnicodeDecodeError:
        raise FrameError("Malformed UTF-8 in shortstr") from None
    except (error, IndexError, BadProperties) as problem:
        text = f"arguments of {shape.name} cannot be read: {problem}"
        raise BadMethod(class_id, method_id, text) from None


def _decode_fields(fields: Fields, payload: bytes) -> dict[str, Any]:
    args: dict[str, Any] = {}
    at, bit = 4, 8
    for name, kind in fields:
        if kind == "bit":
            if bit == 8:
                bit, at = 0, at + 1
            args[name] = bool(payload[at - 1] >> bit & 1)
            bit += 1
            continue
        bit = 8
        if kind in _NUMBERS:
            args[name] = _NUMBERS[kind].unpack_from(payload, at)[0]
            at += _NUMBERS[kind].size
        elif kind == "shortstr":
            end = at + 1 + payload[at]
            args[name] = _exactly(payload, at + 1, end).decode()
            at = end
        else:
            end = at + 4 + _NUMBERS["long"].unpack_from(payload, at)[0]
            raw = _exactly(payload, at + 4, end)
            args[name] = raw if kind == "longstr" else decode_table(raw)
            at = end
    if at != len(payload):
        raise IndexError(f"{len(payload) - at} more bytes than it has")
    return args


def _decode_ack(payload: bytes) -> dict[str, Any]:
    """Read the arguments of `basic.ack`, of which there is one for each delivery."""
    tag, bits = _ACKED.unpack_from(payload, 4)
    if len(payload) != 4 + _ACKED.size:
        raise IndexError(f"{len(payload) - 4 - _ACKED.size} more bytes than it has")
    return {"delivery_tag": tag, "multiple": bool(bits & 1)}


def _exactly(payload: bytes, begin: int, end: int) -> bytes:
    if end > len(payload):
        raise IndexError(end)
    return payload[begin:end]


def decode_table(raw: bytes) -> dict[str, Any]:
    table: dict[str, Any] = readable({name: value(field) for name, field in entries(raw).items()})
    return table


def encode_method(channel: int, name: str, **args: Any) -> bytes:
    shape = _BY_NAME[name]
    parts = [_METHOD.pack(shape.class_id, shape.method_id)]
    bits: list[bool] = []
    for field, kind in shape.fields:
        given = args.get(field)
        if kind == "bit":
            bits.append(bool(given))
            continue
        if bits:
            parts.append(_pack_bits(bits))
            bits = []
        parts.append(_encode(kind, given))
    if bits:
        parts.append(_pack_bits(bits))
    return frame(METHOD, channel, b"".join(parts))


def _encode(kind: str, given: Any) -> bytes:
    if kind in _NUMBERS:
        return _NUMBERS[kind].pack(given or 0)
    if kind == "table":
        return to_table({name: field_of(each) for name, each in (given or {}).items()})
    raw = given.encode() if isinstance(given, str) else bytes(given or b"")
    return short_string(raw) if kind == "shortstr" else _NUMBERS["long"].pack(len(raw)) + raw


def _pack_bits(bits: list[bool]) -> bytes:
    return bytes((sum(1 << place for place, bit in enumerate(bits) if bit),))


def short_string(raw: bytes) -> bytes:
    """Encode a short string, truncated to its maximum length."""
    if len(raw) > 255:
        raw = raw[:255].decode(errors="ignore").encode()
    return bytes((len(raw),)) + raw


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + b"\xce"


#: The kinds of frames that there are.
KINDS = frozenset({METHOD, CONTENT_HEADER, BODY, HEARTBEAT})
KINDS_OF_CHANNELS = KINDS - {HEARTBEAT}

HEARTBEAT_FRAME = frame(HEARTBEAT, 0, b"")


def decode_content_header(payload: bytes) -> tuple[int, int, bytes]:
    """Return the class, the body size and the properties of a content header."""
    try:
        class_id, _, size = _CONTENT.unpack_from(payload)
    except error as problem:
        raise FrameError(f"a content header cannot be read: {problem}") from None
    return class_id, size, payload[_CONTENT.size :]


def encode_content(channel: int, properties: bytes, body: bytes, frame_bytes_max: int) -> bytes:
    """Encode a content header and body, in as many frames as necessary."""
    header = _CONTENT.pack(BASIC, 0, len(body)) + properties
    room = frame_bytes_max - FRAME_OVERHEAD
    if not body:
        return frame(CONTENT_HEADER, channel, header)
    if len(body) <= room:
        return (
            _FRAME.pack(CONTENT_HEADER, channel, len(header))
            + header
            + b"\xce"
            + _FRAME.pack(BODY, channel, len(body))
            + body
            + b"\xce"
        )
    parts = [frame(CONTENT_HEADER, channel, header)]
    parts += [
        frame(BODY, channel, body[begin : begin + room]) for begin in range(0, len(body), room)
    ]
    return b"".join(parts)


_DELIVER = Struct(">QB")
_ACK_FRAME = Struct(">BHIHHQBB")
_PREFIX = _METHOD.pack(BASIC, 60)


def encode_deliver(
    channel: int, consumer: bytes, tag: int, *, redelivered: bool, route: bytes
) -> bytes:
    """Encode `basic.deliver` from a consumer tag and route that are already encoded."""
    payload = _PREFIX + consumer + _DELIVER.pack(tag, redelivered) + route
    return _FRAME.pack(METHOD, channel, len(payload)) + payload + b"\xce"


def encode_ack(channel: int, tag: int, multiple: bool) -> bytes:
    """Write `basic.ack`, which confirms messages."""
    return _ACK_FRAME.pack(METHOD, channel, 13, BASIC, 80, tag, multiple, FRAME_END)


def encode_route(exchange: str, key: str) -> bytes:
    return short_string(exchange.encode()) + short_string(key.encode())


# Errors: what ends a channel or a connection, with its code and its text.


#: The virtual host that every client asks for by default.
DEFAULT_VHOST = "/"

NAMES = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}

#: Codes whose reply code does not follow from the rule.
_CODES = {
    Code.TOO_LARGE: 311,
    Code.UNAUTHORISED: 403,
    Code.FORBIDDEN: 403,
    Code.LOCKED: 405,
    Code.TOO_MANY: 506,
    Code.OVERLOADED: 506,
    Code.RATE_LIMITED: 506,
    Code.THROTTLED: 506,
    Code.QUOTA_EXCEEDED: 506,
    Code.UNKNOWN_SESSION: 541,
    Code.STORAGE_FAILED: 541,
    Code.INTERNAL: 541,
}


def reply_code(code: Code) -> int:
    is_unknown = code.startswith("unknown_")
    return _CODES.get(code, 404 if is_unknown else 406)


def namespace_of(vhost: str) -> str:
    return DEFAULT_NAMESPACE if vhost == DEFAULT_VHOST else vhost


def vhost_of(namespace: str) -> str:
    return DEFAULT_VHOST if namespace == DEFAULT_NAMESPACE else namespace


_QUEUE = "queue '{name}' in vhost '{vhost}'"
_EXCHANGE = "exchange '{name}' in vhost '{vhost}'"
_DIFFERENT = "inequivalent arg '{argument}' for {where}: received {now} but current is {then}"

_TEXTS = {
    Problem.NO_QUEUE: f"no {_QUEUE}",
    Problem.NO_EXCHANGE: f"no {_EXCHANGE}",
    Problem.NO_RULE: "no rule {name!r} in vhost '{vhost}'; list the rules",
    Problem.LOCKED: f"cannot obtain exclusive access to locked {_QUEUE}. It could be originally"
    " declared on another connection or the exclusive property value does not match that of the"
    " original declaration.",
    Problem.QUEUE_OF_POOL: f"cannot obtain exclusive access to locked {_QUEUE}:"
    " pool '{value}' has it",
    Problem.NO_SINGLE_TASKS: f"cannot obtain access to locked {_QUEUE}. basic.get operations are"
    " not supported by quorum queues with single active consumer",
    Problem.EXCLUSIVE_CONSUMER: f"{_QUEUE} in exclusive use",
    Problem.RESERVED_QUEUE: "queue name '{name}' contains reserved prefix 'amq.*'",
    Problem.RESERVED_EXCHANGE: "exchange name '{name}' contains reserved prefix 'amq.*'",
    Problem.DEFAULT_EXCHANGE: "operation not permitted on the default exchange",
    Problem.SYSTEM_EXCHANGE: f"deletion of system {_EXCHANGE} not allowed",
    Problem.INTERNAL_EXCHANGE: f"cannot publish to internal {_EXCHANGE}",
    Problem.QUEUE_IN_USE: f"{_QUEUE} in use",
    Problem.EXCHANGE_IN_USE: f"{_EXCHANGE} in use",
    Problem.NOT_EMPTY: f"{_QUEUE} not empty",
    Problem.DIFFERENT_QUEUE: _DIFFERENT.replace("{where}", _QUEUE),
    Problem.DIFFERENT_EXCHANGE: _DIFFERENT.replace("{where}", _EXCHANGE),
    Problem.BAD_ARGUMENT: f"invalid arg '{{argument}}' for {_QUEUE}: {{flaw}}",
    Problem.BAD_DEFINITION: "rule {name!r}: invalid arg '{argument}' for definition: {flaw}",
    Problem.BAD_ALTERNATE: f"invalid type '{{kind}}' for arg '{{argument}}' in {_EXCHANGE}",
    Problem.NOT_OF_TYPE: f"invalid arg '{{argument}}' for {_QUEUE} of queue type"
    " rabbit_{value}_queue",
    Problem.NOT_OF_QUORUM: f"invalid property '{{argument}}' for {_QUEUE}",
    Problem.BAD_MATCH: 'Invalid x-match field value <<"{value}">>; expected all, any,'
    " all-with-x, or any-with-x",
    Problem.BAD_COPIES: 'invalid message: {{unacceptable_type_in_header,"{argument}",{kind}}}',
}

_FLAWS = {
    Flaw.NO_NUMBER: '"expected integer, got {kind}"',
    Flaw.NO_TEXT: '"expected string, got {kind}"',
    Flaw.NO_FLAG: '"expected boolean, got {kind}"',
    Flaw.NEGATIVE: "{{value_negative,{value}}}",
    Flaw.ZERO: "{{value_zero,{value}}}",
    Flaw.TOO_LARGE: "{{max_value_exceeded,{value}}}",
    Flaw.OUT_OF_RANGE: "{{value_out_of_range,{value}}}",
    Flaw.UNKNOWN_TYPE: "\"unsupported queue type '{value}'\"",
    Flaw.NO_EXCHANGE: "routing_key_but_no_dlx_defined",
}

#: What RabbitMQ calls an unknown word, by the argument.
_UNKNOWN = {
    "x-overflow": "invalid_overflow",
    "x-queue-mode": "invalid_queue_mode",
    "x-dead-letter-strategy": "invalid_dead_letter_strategy",
    "x-queue-leader-locator": "invalid_queue_locator_arg",
}

_KINDS = {bool: "bool", str: "longstr", float: "double", dict: "table", list: "array"}
_EXCHANGE_TYPES = ("direct", "fanout", "topic", "headers")


def reply_text(refusal: Refusal, vhost: str = "") -> str:
    """Return the reply text of a refusal, with the peer's name of the virtual host."""
    if not isinstance(refusal, AmqpRefusal):
        return refusal.message
    value, flaw = refusal.value, refusal.flaw
    kind = kind_of(value)
    template = "" if flaw is None else _FLAWS.get(flaw) or _UNKNOWN[refusal.argument]
    return _TEXTS[refusal.problem].format(
        name=refusal.name,
        vhost=vhost or vhost_of(refusal.namespace),
        argument=refusal.argument,
        value=value,
        kind=kind,
        flaw=template.format(kind=kind, value=value),
        now=_shown(value),
        then=_shown(refusal.current),
    )


def kind_of(value: object) -> str:
    """Return the AMQP type name of an argument."""
    return _KINDS.get(type(value), "long" if isinstance(value, int) else "binary")


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"'{str(value).lower()}'"
    if isinstance(value, int):
        return f"the value '{value}' of type 'signedint'"
    return f"'{value}'" if value in _EXCHANGE_TYPES else f"the value '{value}' of type 'longstr'"


# Faults.


class AmqpError(Exception):
    """Something that a peer did and that ends its channel, or its connection.

    Attributes:
        code: the reply code.
        text: the reply text.
        class_id: the class of the method that caused it.
        method_id: the number of that method.
    """

    def __init__(self, code: int, message: str, class_id: int = 0, method_id: int = 0) -> None:
        self.code = code
        self.text = f"{NAMES[code]} - {message}"
        self.class_id, self.method_id = class_id, method_id
        super().__init__(self.text)


class ChannelFault(AmqpError):
    """It closes the channel."""


class ConnectionFault(AmqpError):
    """It closes the connection."""


def fault_of(refusal: Refusal, vhost: str = "") -> AmqpError:
    code = reply_code(refusal.code)
    kind = ConnectionFault if code >= 500 else ChannelFault
    return kind(code, reply_text(refusal, vhost))

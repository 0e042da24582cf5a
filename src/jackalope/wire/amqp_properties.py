"""Properties: the basic properties of an AMQP 0-9-1 message, as the bytes that were sent.

Owns the encoding of basic properties and of field tables. The bytes are kept as they came, so that
every type survives: a byte array stays a byte array, a short integer a short one. What is read is
read out of the bytes; what is changed is put in place of the old, and the rest is not touched.

Knows nothing of exchanges, queues or frames.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct, error
from typing import Any

import msgspec

from jackalope.core.limits import DEPTH_MAX

_SHORT = Struct(">H")
_LONG = Struct(">I")
_LONGLONG = Struct(">Q")
_SIGNED_LONGLONG = Struct(">q")

# The flag of each property, in the order in which they are written.
CONTENT_TYPE = 1 << 15
CONTENT_ENCODING = 1 << 14
HEADERS = 1 << 13
DELIVERY_MODE = 1 << 12
PRIORITY = 1 << 11
CORRELATION_ID = 1 << 10
REPLY_TO = 1 << 9
EXPIRATION = 1 << 8
MESSAGE_ID = 1 << 7
TIMESTAMP = 1 << 6
TYPE = 1 << 5
USER_ID = 1 << 4
APP_ID = 1 << 3
CLUSTER_ID = 1 << 2

#: The properties that are short strings, and those that are small numbers, by their names.
TEXTS = {
    "content_type": CONTENT_TYPE,
    "content_encoding": CONTENT_ENCODING,
    "correlation_id": CORRELATION_ID,
    "reply_to": REPLY_TO,
    "expiration": EXPIRATION,
    "message_id": MESSAGE_ID,
    "type": TYPE,
    "user_id": USER_ID,
    "app_id": APP_ID,
    "cluster_id": CLUSTER_ID,
}
OCTETS = {"delivery_mode": DELIVERY_MODE, "priority": PRIORITY}

_IN_ORDER = tuple(1 << bit for bit in range(15, 1, -1))
_OCTETS = DELIVERY_MODE | PRIORITY
_TEXTS = sum(TEXTS.values())
_PERSISTENT = 2

#: No property at all.
NOTHING = b"\0\0"

Raw = dict[int, bytes]


class BadProperties(ValueError):
    """The bytes are not the properties of a message."""


class Headline(msgspec.Struct, gc=False):
    """The properties that the broker itself uses."""

    is_persistent: bool = False  # whether the message must survive a restart
    priority: int = 0  # the priority that was asked for; 0 if none was
    expiration: str = ""  # the time to live in milliseconds, as it was written
    reply_to: str = ""  # where answers go
    user_id: str = ""  # the user that the sender claims to be
    name: str = ""  # the type of the message


_NO_HEADLINE = Headline()
_PERSISTENT_HEADLINE = Headline(is_persistent=True)
_SEEN = PRIORITY | REPLY_TO | EXPIRATION | TYPE | USER_ID


def headline(properties: bytes, *, is_checked: bool = False) -> Headline:
    """Decode the properties that the broker uses; raises `BadProperties`.

    `is_checked` skips the validation of nested tables. Received properties must be validated now:
    later it is too late to refuse them.
    """
    if properties == NOTHING:
        return _NO_HEADLINE
    raw = split(properties, is_checked=is_checked)
    flags = _SHORT.unpack_from(properties)[0]
    is_persistent = DELIVERY_MODE in raw and raw[DELIVERY_MODE][0] == _PERSISTENT
    if not flags & _SEEN:
        return _PERSISTENT_HEADLINE if is_persistent else _NO_HEADLINE
    return Headline(
        is_persistent,
        raw[PRIORITY][0] if PRIORITY in raw else 0,
        text(raw, EXPIRATION),
        text(raw, REPLY_TO),
        text(raw, USER_ID),
        text(raw, TYPE),
    )


def text(raw: Raw, flag: int) -> str:
    """Return a short-string property; empty if it is absent."""
    value = raw.get(flag)
    return value[1:].decode(errors="replace") if value else ""


def split(properties: bytes, *, is_checked: bool = True) -> Raw:
    try:
        (flags,) = _SHORT.unpack_from(properties)
        at, raw = 2, {}
        for flag in _present(flags):
            end = at + (1 + properties[at] if flag & _TEXTS else _size(flag, properties, at))
            raw[flag] = properties[at:end]
            at = end
    except (error, IndexError) as problem:
        raise BadProperties(f"the properties end too early: {problem}") from None
    if at != len(properties) or flags & 0b11:
        raise BadProperties("the properties are not those of class basic")
    if HEADERS in raw:
        fields = entries(raw[HEADERS][4:])
        if not is_checked:
            for field in fields.values():
                if field[:1] in _NESTED:
                    value(field)
    return raw


@lru_cache(1024)
def _present(flags: int) -> tuple[int, ...]:
    """Return the properties that are there, in their order. Clients keep setting the same."""
    return tuple(flag for flag in _IN_ORDER if flags & flag)


def plain(properties: bytes) -> dict[str, Any]:
    """Return properties by name, with the headers as plain values."""
    raw = split(properties)
    shown: dict[str, Any] = {name: text(raw, flag) for name, flag in TEXTS.items() if flag in raw}
    shown |= {name: raw[flag][0] for name, flag in OCTETS.items() if flag in raw}
    if TIMESTAMP in raw:
        shown["timestamp"] = int.from_bytes(raw[TIMESTAMP], "big")
    if HEADERS in raw:
        shown["headers"] = {name: value(each) for name, each in headers_of(raw).items()}
    return shown


def join(raw: Raw) -> bytes:
    flags = 0
    for flag in raw:
        flags |= flag
    return _SHORT.pack(flags) + b"".join(raw[flag] for flag in _IN_ORDER if flag in raw)


def _size(flag: int, properties: bytes, at: int) -> int:
    """Return how many bytes a property has that is no text."""
    if flag == HEADERS:
        return 4 + int(_LONG.unpack_from(properties, at)[0])
    return 1 if flag & _OCTETS else 8


# Field tables.

_FIXED = {
    b"t": 1,
    b"b": 1,
    b"B": 1,
    b"s": 2,
    b"u": 2,
    b"U": 2,
    b"I": 4,
    b"i": 4,
    b"l": 8,
    b"L": 8,
    b"f": 4,
    b"d": 8,
    b"D": 5,
    b"T": 8,
    b"V": 0,
}
_NESTED = (b"F", b"A")
_NUMBERS = {
    b"b": Struct(">b"),
    b"B": Struct(">B"),
    b"s": Struct(">h"),
    b"U": Struct(">h"),
    b"u": Struct(">H"),
    b"I": Struct(">i"),
    b"i": Struct(">I"),
    b"l": _SIGNED_LONGLONG,
    b"L": _SIGNED_LONGLONG,
    b"f": Struct(">f"),
    b"d": Struct(">d"),
    b"T": _LONGLONG,
}


def entries(table: bytes) -> dict[str, bytes]:
    """Split a table, without its length, into its encoded values."""
    found: dict[str, bytes] = {}
    at = 0
    try:
        while at < len(table):
            end = at + 1 + table[at]
            name = table[at + 1 : end].decode(errors="surrogateescape")
            at = end + _value_size(table, end)
            found[name] = table[end:at]
    except (error, IndexError, KeyError) as problem:
        raise BadProperties(f"the table cannot be read: {problem!r}") from None
    if at != len(table):
        raise BadProperties("the table ends too early")
    return found


def _value_size(table: bytes, at: int) -> int:
    """Return the size of an encoded value, including its type."""
    kind = table[at : at + 1]
    if kind in _FIXED:
        return 1 + _FIXED[kind]
    if kind not in (b"S", b"x", b"F", b"A"):
        raise KeyError(kind)
    size = int(_LONG.unpack_from(table, at + 1)[0])
    if at + 5 + size > len(table):
        raise IndexError(size)
    return 5 + size


def value(field: bytes, depth: int = 1) -> Any:
    """Decode one value with its type, at this depth."""
    kind, body = field[:1], field[5:]
    if kind in _NESTED:
        if depth == DEPTH_MAX:
            raise BadProperties(f"tables nested more than {DEPTH_MAX} deep")
        if kind == b"F":
            return {name: value(each, depth + 1) for name, each in entries(body).items()}
        return [value(each, depth + 1) for each in items(body)]
    if kind in (b"S", b"x"):
        return _string(body) if kind == b"S" else body
    try:
        if kind in _NUMBERS:
            return _NUMBERS[kind].unpack_from(field, 1)[0]
        return _OTHERS[kind](field)
    except (error, IndexError, KeyError) as problem:
        raise BadProperties(f"the value cannot be read: {problem}") from None


def _string(body: bytes) -> str | bytes:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


_OTHERS: dict[bytes, Callable[[bytes], Any]] = {
    b"t": lambda field: field[1] != 0,
    b"V": lambda _: None,
    b"D": lambda field: int.from_bytes(field[2:6], "big", signed=True) / 10 ** field[1],
}


def readable(plain: Any) -> Any:
    """Replace names that are not text: AMQP's may be any bytes."""
    if isinstance(plain, dict):
        names = (name.encode(errors="surrogateescape").decode(errors="replace") for name in plain)
        return dict(zip(names, map(readable, plain.values()), strict=True))
    return [readable(each) for each in plain] if isinstance(plain, list) else plain


def items(array: bytes) -> list[bytes]:
    """Split an array, without its length, into its encoded values."""
    found, at = [], 0
    try:
        while at < len(array):
            end = at + _value_size(array, at)
            found.append(array[at:end])
            at = end
    except (error, IndexError, KeyError) as problem:
        raise BadProperties(f"the array cannot be read: {problem!r}") from None
    if at != len(array):
        raise BadProperties("the array ends too early")
    return found


def headers_of(raw: Raw) -> dict[str, bytes]:
    """Return the headers among properties, still encoded."""
    return entries(raw[HEADERS][4:]) if HEADERS in raw else {}


def put_headers(raw: Raw, headers: dict[str, bytes]) -> None:
    raw[HEADERS] = to_table(headers)


def to_table(fields: dict[str, bytes]) -> bytes:
    body = b"".join(_name(name) + field for name, field in fields.items())
    return _LONG.pack(len(body)) + body


def _name(name: str) -> bytes:
    raw = name.encode(errors="surrogateescape")[:255]
    return bytes((len(raw),)) + raw


def short(string: str) -> bytes:
    """Encode a short string, truncated to its maximum length."""
    raw = string.encode(errors="surrogateescape")[:255]
    return bytes((len(raw),)) + raw


def long_string(string: str) -> bytes:
    raw = string.encode(errors="surrogateescape")
    return b"S" + _LONG.pack(len(raw)) + raw


def long_number(number: int) -> bytes:
    return b"l" + _SIGNED_LONGLONG.pack(number)


def timestamp(seconds: int) -> bytes:
    return b"T" + _LONGLONG.pack(seconds)


def array_of(fields: list[bytes]) -> bytes:
    body = b"".join(fields)
    return b"A" + _LONG.pack(len(body)) + body


def table_of(fields: dict[str, bytes]) -> bytes:
    return b"F" + to_table(fields)


def field_of(plain: Any) -> bytes:
    """Encode any JSON or MessagePack value, with the AMQP type that fits it."""
    for kind, write in _WRITERS:
        if isinstance(plain, kind):
            return write(plain)
    return b"V"


def _number(plain: int) -> bytes:
    return long_number(plain) if -(2**63) <= plain < 2**63 else long_string(str(plain))


#: How values are written; a truth value is a whole number to Python, and so comes first.
_WRITERS: tuple[tuple[type, Callable[[Any], bytes]], ...] = (
    (bool, lambda plain: b"t\1" if plain else b"t\0"),
    (int, _number),
    (float, lambda plain: b"d" + Struct(">d").pack(plain)),
    (str, long_string),
    (bytes, lambda plain: b"x" + _LONG.pack(len(plain)) + plain),
    (dict, lambda plain: table_of({str(name): field_of(each) for name, each in plain.items()})),
    (list, lambda plain: array_of([field_of(each) for each in plain])),
    (tuple, lambda plain: array_of([field_of(each) for each in plain])),
)

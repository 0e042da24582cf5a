"""Properties of messages in JSON, as the management API writes them."""

from __future__ import annotations

import struct
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pamqp import commands

from jackalope.doors.http.management.words import bad

#: The codec calls one of them otherwise, because Python has that word.
_TYPE, _TYPE_IN_CODEC = "type", "message_type"


def from_json(wanted: dict[str, Any]) -> bytes:
    """Return properties as AMQP encodes them.

    Raises:
        Problem: one is unknown, or not of its type.
    """
    given = {_TYPE_IN_CODEC if name == _TYPE else name: value for name, value in wanted.items()}
    if isinstance(given.get("timestamp"), int):
        given["timestamp"] = datetime.fromtimestamp(given["timestamp"], UTC)
    try:
        encoded: bytes = commands.Basic.Properties(**given).marshal()
    except (TypeError, ValueError, AttributeError, struct.error, OverflowError) as error:
        raise bad(f"properties: {error}") from None
    return encoded


def to_json(encoded: bytes) -> dict[str, Any]:
    """Return properties as JSON shows them."""
    found = commands.Basic.Properties()
    found.unmarshal(struct.unpack_from(">H", encoded)[0], encoded[2:])
    return {
        _TYPE if name == _TYPE_IN_CODEC else name: _plain(value)
        for name, value in found
        if value not in (None, "")
    }


def _plain(value: Any) -> Any:
    """Return what JSON can show of a value."""
    match value:
        case dict():
            plain: Any = {name: _plain(each) for name, each in value.items()}
        case list():
            plain = [_plain(each) for each in value]
        case datetime():
            plain = int(value.timestamp())
        case Decimal():
            plain = float(value)
        case bytes() | bytearray():
            plain = _text(bytes(value))
        case _:
            plain = value
    return plain


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return b64encode(value).decode()

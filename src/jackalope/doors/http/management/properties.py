"""Properties of messages in JSON, as the management API writes them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from jackalope.core import properties as amqp
from jackalope.doors.http.management.words import bad

_SHORT_BYTES_MAX = 255


def from_json(wanted: dict[str, Any]) -> bytes:
    """Return properties as AMQP encodes them.

    Raises:
        Problem: one is unknown, or not of its type.
    """
    raw: amqp.Raw = {}
    for name, value in wanted.items():
        if (
            name in amqp.TEXTS
            and isinstance(value, str)
            and len(value.encode()) <= _SHORT_BYTES_MAX
        ):
            raw[amqp.TEXTS[name]] = amqp.short(value)
        elif name in amqp.OCTETS and _is_number(value, 255):
            raw[amqp.OCTETS[name]] = bytes((value,))
        elif name == "timestamp" and _is_number(value, 2**63 - 1):
            raw[amqp.TIMESTAMP] = amqp.timestamp(value)[1:]
        elif name == "headers" and isinstance(value, dict):
            amqp.put_headers(raw, {each: amqp.field_of(value[each]) for each in value})
        else:
            raise bad(
                f"properties: {name} is unknown, too long or of a wrong type: {value!r}"[:500]
            )
    return amqp.join(raw)


def to_json(encoded: bytes) -> dict[str, Any]:
    """Return properties as JSON shows them."""
    shown = amqp.plain(encoded)
    if "headers" in shown:
        shown["headers"] = {name: _plain(each) for name, each in shown["headers"].items()}
    return shown


def _is_number(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _plain(value: Any) -> Any:
    """Return what JSON can show of a value."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return b64encode(value).decode()

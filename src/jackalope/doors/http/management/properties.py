"""Properties of messages in JSON, as the management API writes them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from jackalope.core import properties as amqp
from jackalope.doors.http.management.words import bad

#: The properties that are short strings, and those that are small numbers.
_TEXTS = {
    "content_type": amqp.CONTENT_TYPE,
    "content_encoding": amqp.CONTENT_ENCODING,
    "correlation_id": amqp.CORRELATION_ID,
    "reply_to": amqp.REPLY_TO,
    "expiration": amqp.EXPIRATION,
    "message_id": amqp.MESSAGE_ID,
    "type": amqp.TYPE,
    "user_id": amqp.USER_ID,
    "app_id": amqp.APP_ID,
    "cluster_id": amqp.CLUSTER_ID,
}
_OCTETS = {"delivery_mode": amqp.DELIVERY_MODE, "priority": amqp.PRIORITY}

_SHORT_BYTES_MAX = 255


def from_json(wanted: dict[str, Any]) -> bytes:
    """Return properties as AMQP encodes them.

    Raises:
        Problem: one is unknown, or not of its type.
    """
    raw: amqp.Raw = {}
    for name, value in wanted.items():
        if name in _TEXTS and isinstance(value, str) and len(value.encode()) <= _SHORT_BYTES_MAX:
            raw[_TEXTS[name]] = amqp.short(value)
        elif name in _OCTETS and _is_number(value, 255):
            raw[_OCTETS[name]] = bytes((value,))
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
    raw = amqp.split(encoded)
    shown: dict[str, Any] = {
        name: amqp.text(raw, flag) for name, flag in _TEXTS.items() if flag in raw
    }
    shown |= {name: raw[flag][0] for name, flag in _OCTETS.items() if flag in raw}
    if amqp.TIMESTAMP in raw:
        shown["timestamp"] = int.from_bytes(raw[amqp.TIMESTAMP], "big")
    if amqp.HEADERS in raw:
        headers = amqp.headers_of(raw)
        shown["headers"] = {name: _plain(amqp.value(each)) for name, each in headers.items()}
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

"""AMQP envelopes: present a native task to an AMQP consumer, and a message to a native worker.

Owns the mapping. The name of the task is the type, its id the message id, its headers the headers;
its payload is the body as it is. The properties of a message are shown among the headers.

Owns as well what the rules of the core read in the properties of a message and write into them:
routing keys in headers, deaths, delivery counts, replies. Properties are stored as the bytes that
were sent, so the core needs their codec; this is the only module of the core that imports it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jackalope.core.durations import SECOND
from jackalope.core.ids import TaskId
from jackalope.core.limits import COUNT_MAX
from jackalope.core.task import Envelope, Task
from jackalope.wire import amqp_properties as properties
from jackalope.wire.amqp_properties import (
    BadProperties,
    Headline,
    Raw,
    field_of,
    long_number,
    long_string,
    readable,
    short,
)

#: The header that shows the route and the properties of a message.
AMQP = "amqp"

_PERSISTENT = b"\2"


def envelope_of(task: Task) -> Envelope:
    """Return the envelope of a task; one is made for a native task."""
    return make_envelope(task.queue.name, task.id, task.name, task.options.headers)


def envelope_to_send(task: Task) -> Envelope | None:
    """Return the envelope for a redelivery.

    Consumers of a quorum queue receive the number of earlier deliveries, as with RabbitMQ: with
    each delivery but the first, and always with `basic.get`.
    """
    envelope, traits = task.envelope, task.queue.traits
    if envelope is None or traits is None or traits.arguments.get("x-queue-type") != "quorum":
        return envelope
    raw = properties.split(envelope.properties)
    headers = properties.headers_of(raw)
    headers["x-delivery-count"] = long_number(task.attempts - 1)
    properties.put_headers(raw, headers)
    return Envelope(envelope.exchange, envelope.key, properties.join(raw))


def headers_shown(headers: dict[str, Any], envelope: Envelope | None) -> dict[str, Any]:
    """Return the headers of a task as shown to workers and people.

    For a message, `amqp` has its exchange, routing key and properties.
    """
    if envelope is None:
        return headers
    try:
        shown = properties.plain(envelope.properties)
    except BadProperties:
        return headers
    own = shown.pop("headers", {})
    way = {"exchange": envelope.exchange, "routing_key": envelope.key}
    return {**headers, **readable(own), AMQP: {**way, **shown}}


def make_envelope(
    queue: str, task_id: TaskId, name: str, headers: dict[str, Any], reply_to: str = ""
) -> Envelope:
    raw: Raw = {properties.DELIVERY_MODE: _PERSISTENT, properties.MESSAGE_ID: short(task_id.hex())}
    if name:
        raw[properties.TYPE] = short(name)
    if reply_to:
        raw[properties.REPLY_TO] = short(reply_to)
        raw[properties.CORRELATION_ID] = short(task_id.hex())
    if headers:
        properties.put_headers(raw, {each: field_of(value) for each, value in headers.items()})
    return Envelope("", queue, properties.join(raw))


# Headers that routing reads.


def headers_of(raw: bytes) -> dict[str, Any]:
    """Return the headers among properties; none if they cannot be decoded.

    The door validates what it receives; earlier versions stored messages without decoding tables.
    """
    try:
        found = properties.headers_of(properties.split(raw))
        return {name: properties.value(field) for name, field in found.items()}
    except BadProperties:
        return {}


def copies(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def without_blind_copies(raw: bytes) -> bytes:
    """Return properties without the BCC header, which is not sent to consumers."""
    split = properties.split(raw)
    headers = properties.headers_of(split)
    if headers.pop("BCC", None) is not None:
        properties.put_headers(split, headers)
    return properties.join(split)


# Replies.


def reply_address(envelope: Envelope) -> str:
    """Return the reply address of a message; empty if it has none or cannot be decoded."""
    try:
        return properties.text(properties.split(envelope.properties), properties.REPLY_TO)
    except BadProperties:
        return ""


def reply_properties(envelope: Envelope, status: str, *, is_persistent: bool) -> bytes:
    asked = properties.split(envelope.properties)
    raw: Raw = {properties.DELIVERY_MODE: _PERSISTENT} if is_persistent else {}
    if properties.CORRELATION_ID in asked:
        raw[properties.CORRELATION_ID] = asked[properties.CORRELATION_ID]
    properties.put_headers(raw, {"x-status": field_of(status.encode())})
    return properties.join(raw)


# Dead letters.


class Death(NamedTuple):
    """Where a message died, and the reason as RabbitMQ names it."""

    queue: object  # a name, unless a client wrote something else into the header
    reason: object


class DeadLetter(NamedTuple):
    """A message to publish to a dead-letter exchange."""

    envelope: Envelope
    headline: Headline
    deaths: list[Death]  # its own, the latest first


def dead_letter_of(
    envelope: Envelope, death: Death, at_us: int, exchange: str, key: str | None
) -> DeadLetter | None:
    """Return a message with a death added to its headers; None if they cannot be decoded.

    It keeps its routing keys, unless `key` replaces them.
    """
    try:
        raw = properties.split(envelope.properties)
        headers = properties.headers_of(raw)
        tables = _with_death(headers, _new_death(raw, envelope, death, at_us))
        deaths = [Death(*map(_plain, (each.get("queue"), each.get("reason")))) for each in tables]
    except BadProperties:
        return None
    if key is not None:
        headers.pop("CC", None)
    raw.pop(properties.EXPIRATION, None)
    properties.put_headers(raw, dict(sorted(headers.items())))
    joined = properties.join(raw)
    moved = Envelope(exchange, envelope.key if key is None else key, joined)
    return DeadLetter(moved, properties.headline(joined, is_checked=True), deaths)


def _plain(field: bytes | None) -> object:
    return None if field is None else properties.value(field)


def _with_death(headers: dict[str, bytes], new: dict[str, bytes]) -> list[dict[str, bytes]]:
    """Add a death to headers, and return all deaths, the latest first."""
    array = headers.get("x-death", b"")
    tables = properties.items(array[5:]) if array[:1] == b"A" else []
    deaths = [properties.entries(table[5:]) for table in tables if table[:1] == b"F"]
    if not deaths:
        for what in ("reason", "queue", "exchange"):
            headers[f"x-first-death-{what}"] = new[what]
    same = [each for each in deaths if all(each.get(k) == new[k] for k in ("queue", "reason"))]
    others = [each for each in deaths if each not in same]
    death = {**same[0], "count": long_number(_count(same[0]) + 1)} if same else new
    deaths = [death, *others]
    headers["x-death"] = properties.array_of([properties.table_of(each) for each in deaths])
    return deaths


def _new_death(raw: Raw, envelope: Envelope, death: Death, at_us: int) -> dict[str, bytes]:
    headers = properties.headers_of(raw)
    also = copies(_plain(headers.get("CC")))
    new = {
        "count": long_number(1),
        "reason": field_of(death.reason),
        "queue": field_of(death.queue),
        "time": properties.timestamp(at_us // SECOND),
        "exchange": long_string(envelope.exchange),
        "routing-keys": properties.array_of([long_string(key) for key in (envelope.key, *also)]),
    }
    if properties.EXPIRATION in raw:
        new["original-expiration"] = long_string(properties.text(raw, properties.EXPIRATION))
    return new


def _count(death: dict[str, bytes]) -> int:
    count = _plain(death.get("count"))
    return min(count, COUNT_MAX) if isinstance(count, int) else 0

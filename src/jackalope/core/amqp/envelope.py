"""AMQP envelopes: present a native task to an AMQP consumer, and a message to a native worker.

Owns the mapping. The name of the task is the type, its id the message id, its headers the headers;
its payload is the body as it is. The properties of a message are shown among the headers.
"""

from __future__ import annotations

from typing import Any

from jackalope.core.amqp import properties
from jackalope.core.amqp.properties import BadProperties, Raw, field_of, readable, short
from jackalope.core.ids import TaskId
from jackalope.core.task import Envelope, Task

#: The header that shows the route and the properties of a message.
AMQP = "amqp"

_PERSISTENT = b"\2"


def letter_of(task: Task) -> Envelope:
    """Return what a task brings along, made of what it is."""
    return make_letter(task.queue.name, task.id, task.name, task.options.headers)


def letter_to_send(task: Task) -> Envelope | None:
    """Return what a task brings along to a worker that is not the first to have it.

    Consumers of a quorum queue receive how often it was delivered before, as with RabbitMQ: with
    each delivery but the first, and always if it is taken by `basic.get`.
    """
    letter, traits = task.letter, task.queue.traits
    if letter is None or traits is None or traits.arguments.get("x-queue-type") != "quorum":
        return letter
    raw = properties.split(letter.properties)
    headers = properties.headers_of(raw)
    headers["x-delivery-count"] = properties.long_number(task.attempts - 1)
    properties.put_headers(raw, headers)
    return Envelope(letter.exchange, letter.key, properties.join(raw))


def headers_shown(headers: dict[str, Any], letter: Envelope | None) -> dict[str, Any]:
    """Return the headers of a task as workers and people see them.

    Those of a message are its own, and `amqp` has the way that it came and its properties.
    """
    if letter is None:
        return headers
    try:
        shown = properties.plain(letter.properties)
    except BadProperties:
        return headers
    own = shown.pop("headers", {})
    way = {"exchange": letter.exchange, "routing_key": letter.key}
    return {**headers, **readable(own), AMQP: {**way, **shown}}


def make_letter(
    queue: str, task_id: TaskId, name: str, headers: dict[str, Any], reply_to: str = ""
) -> Envelope:
    """Return a letter for a task of this queue, id, name and headers, answered at `reply_to`."""
    raw: Raw = {properties.DELIVERY_MODE: _PERSISTENT, properties.MESSAGE_ID: short(task_id.hex())}
    if name:
        raw[properties.TYPE] = short(name)
    if reply_to:
        raw[properties.REPLY_TO] = short(reply_to)
        raw[properties.CORRELATION_ID] = short(task_id.hex())
    if headers:
        properties.put_headers(raw, {each: field_of(value) for each, value in headers.items()})
    return Envelope("", queue, properties.join(raw))

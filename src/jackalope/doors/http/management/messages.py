"""Messages of the management API: one published, or a few taken to be looked at.

Owns how bodies and properties are written in JSON. For looking, not for work: a message that is
taken is given back or is gone before the answer is sent.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Any

from litestar import post
from litestar.params import FromPath

from jackalope.broker.ids import fresh_task_id
from jackalope.core.access import Permission
from jackalope.core.effects import Assignment, Published
from jackalope.core.letters import make_letter
from jackalope.core.limits import INLINE_BYTES_MAX, NAME_CHARS_MAX
from jackalope.core.messaging import Publication, PublishMessages
from jackalope.core.properties import BadProperties, headline
from jackalope.doors.http.desk import of_kind
from jackalope.doors.http.management.hand import MODES, Hand
from jackalope.doors.http.management.properties import from_json, to_json
from jackalope.doors.http.management.queues import place_of
from jackalope.doors.http.management.room import Item, by, room_of
from jackalope.doors.http.management.words import (
    Answer,
    Asked,
    answer,
    bad,
    exchange_named,
    named,
    namespace_of,
    number,
    read_json,
    require,
    table,
    text,
)

#: How many messages can be looked at with one request.
COUNT_MAX = 1_000

_ENCODINGS = ("auto", "base64")


@post(
    "/exchanges/{vhost:str}/{name:str}/publish",
    opt={"permission": Permission.SUBMIT_TASKS},
    status_code=200,
)
async def publish(request: Asked, vhost: FromPath[str], name: FromPath[str]) -> Answer:
    """Publish a message, and tell whether it led anywhere."""
    room = room_of(request)
    body = await read_json(request)
    require(body, "routing_key", "properties", "payload", "payload_encoding")
    properties = from_json(table(body, "properties"))
    try:
        known = headline(properties)
    except BadProperties as problem:
        raise bad(f"properties: {problem}") from None
    message = Publication(
        fresh_task_id(room.broker.now_us()),
        exchange_named(name),
        text(body, "routing_key"),
        properties,
        _payload(body),
        mandatory=True,
        persistent=known.is_persistent,
        priority=known.priority,
        expires_us=_expires_us(known.expiration),
        name=known.name[:NAME_CHARS_MAX],
    )
    command = PublishMessages(messages=[message], namespace=namespace_of(named(vhost)), by=by())
    told = of_kind(await room.ask(command), Published)
    if told.failed is not None:
        raise bad(f"404 NOT_FOUND - {told.failed[1].message}")
    return answer({"routed": not (told.unrouted or told.refused)})


@post("/queues/{vhost:str}/{name:str}/get", opt={"permission": Permission.WORK}, status_code=200)
async def get_messages(request: Asked, vhost: FromPath[str], name: FromPath[str]) -> Answer:
    """Take messages off a queue, and give them back if wished."""
    room = room_of(request)
    body = await read_json(request)
    where = named(vhost), named(name)
    queue, key = await place_of(room, where, Permission.WORK)
    require(body, "ackmode", "encoding")
    mode, encoding = text(body, "ackmode"), text(body, "encoding")
    if mode not in MODES:
        raise bad(f"ackmode: {mode!r} is none of {', '.join(MODES)}")
    if encoding not in _ENCODINGS:
        raise bad(f"encoding: {encoding!r} is none of {', '.join(_ENCODINGS)}")
    most = number(body, "count", 1)
    if not 0 < most <= COUNT_MAX:
        raise bad(f"count: {most} is not from 1 to {COUNT_MAX}")
    cut = number(body, "truncate", -1) if "truncate" in body else None
    hand = Hand(room.broker, namespace_of(where[0]), queue, key)
    shown: list[Item] = []
    try:
        while len(shown) < most and (given := await hand.take()) is not None:
            taken, left = given
            shown.append(_show(taken, await hand.body_of(taken), left, encoding, cut))
        await hand.answer(mode)
    finally:
        hand.close()
    return answer(shown)


def _payload(body: Item) -> bytes:
    payload, encoding = text(body, "payload"), text(body, "payload_encoding")
    try:
        if encoding == "base64":
            found = b64decode(payload, validate=True)
        elif encoding == "string":
            found = payload.encode()
        else:
            raise bad(f"payload_encoding: {encoding!r} is none of string, base64")
    except (binascii.Error, ValueError) as error:
        raise bad(f"payload: {error}") from None
    if len(found) > INLINE_BYTES_MAX:
        raise bad(f"payload: more than {INLINE_BYTES_MAX} bytes; publish it over AMQP")
    return found


def _expires_us(expiration: str) -> int:
    """Return how long a message may wait; negative for as long as the queue allows."""
    if not expiration:
        return -1
    if not expiration.isdigit() or len(expiration) > 12:
        raise bad(f"expiration: {expiration!r} is no number of milliseconds")
    return int(expiration) * 1_000


def _show(given: Assignment, body: bytes, left: int, encoding: str, cut: int | None) -> Item:
    letter = given.letter or make_letter(given.queue, given.task, given.name, given.options.headers)
    payload, written = _written(body[:cut] if cut is not None and cut >= 0 else body, encoding)
    properties: Any = to_json(letter.properties)
    return {
        "payload_bytes": len(body),
        "redelivered": given.attempt > 1,
        "exchange": letter.exchange,
        "routing_key": letter.key,
        "message_count": left,
        # RabbitMQ writes an empty object as a list.
        "properties": properties or [],
        "payload": payload,
        "payload_encoding": written,
    }


def _written(body: bytes, encoding: str) -> tuple[str, str]:
    """Return a body as text, and how it is to be read."""
    if encoding == "auto":
        try:
            return body.decode(), "string"
        except UnicodeDecodeError:
            pass
    return b64encode(body).decode(), "base64"


ROUTES = [publish, get_messages]

"""Messages of the management API: one published, or a few taken to be looked at.

Owns how bodies and properties are written in JSON. For looking, not for work: a message that is
taken is given back or is gone before the answer is sent.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Any

from jackalope.broker.client_session import of_kind
from jackalope.broker.local_session import LocalSession
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.broker.views.amqp import AmqpQueueView, ready_in
from jackalope.core.api_key import Permission
from jackalope.core.commands import (
    AnyCommand,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Held,
    ReleaseAttempts,
    Verdict,
)
from jackalope.core.commands.amqp import Publication, PublishMessages, TakeTask
from jackalope.core.effects import Accepted, Assignment, Message, Published
from jackalope.core.limits import INLINE_BYTES_MAX, NAME_CHARS_MAX
from jackalope.core.shapes.envelope import make_envelope
from jackalope.core.task import Error
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.management.conventions import (
    Item,
    bad,
    by,
    context_of,
    exchange_named,
    fields,
    problem_of,
    read_json,
    require,
    text,
)
from jackalope.doors.http.management.resources import QUEUES, find
from jackalope.doors.http.request import Request, answer
from jackalope.doors.http.router import Routes
from jackalope.task_ids import fresh_task_id
from jackalope.wire import amqp_properties as amqp
from jackalope.wire.amqp import fault_of, namespace_of
from jackalope.wire.amqp_properties import BadProperties, headline

routes = Routes("/api")


#: How many messages can be looked at with one request.
COUNT_MAX = 1_000

_ENCODINGS = ("auto", "base64")


@routes.post("/exchanges/{vhost}/{name}/publish", Permission.SUBMIT_TASKS)
async def publish(request: Request, vhost: str, name: str) -> Response:
    """Publish a message, and tell whether it led anywhere."""
    context = context_of(request)
    body = await read_json(request)
    require(body, "routing_key", "properties", "payload", "payload_encoding")
    properties = from_json(fields(body, properties={})["properties"])
    try:
        known = headline(properties)
    except BadProperties as problem:
        raise bad(f"properties: {problem}") from None
    message = Publication(
        fresh_task_id(context.broker.now_us()),
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
    command = PublishMessages(messages=[message], namespace=namespace_of(vhost), by=by())
    told = of_kind(await context.ask(command), Published)
    if told.failed is not None:
        fault = fault_of(told.failed[1])
        raise bad(f"{fault.code} {fault.text}")
    return answer({"routed": not (told.unrouted or told.refused)})


@routes.post("/queues/{vhost}/{name}/get", Permission.WORK)
async def get_messages(request: Request, vhost: str, name: str) -> Response:
    """Take messages off a queue, and give them back if wished."""
    context = context_of(request)
    body = await read_json(request)
    found: AmqpQueueView = await context.broker.read(
        lambda engine: find(engine, QUEUES, vhost, name, Permission.WORK)
    )
    require(body, "ackmode", "encoding")
    mode, encoding = text(body, "ackmode"), text(body, "encoding")
    if mode not in MODES:
        raise bad(f"ackmode: {mode!r} is none of {', '.join(MODES)}")
    if encoding not in _ENCODINGS:
        raise bad(f"encoding: {encoding!r} is none of {', '.join(_ENCODINGS)}")
    most, cut = fields(body, count=1, truncate=-1).values()
    if not 0 < most <= COUNT_MAX:
        raise bad(f"count: {most} is not from 1 to {COUNT_MAX}")
    hand = Hand(context.broker, found)
    shown: list[Item] = []
    try:
        while len(shown) < most and (taken := await hand.take()) is not None:
            left = ready_in(context.broker.engine, found.namespace, found.queue)
            shown.append(_show(taken, await hand.body_of(taken), left, encoding, cut))
        await hand.answer(mode)
    except Refused as refused:
        raise problem_of(refused) from None
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


def _show(given: Assignment, body: bytes, left: int, encoding: str, cut: int) -> Item:
    envelope = given.envelope or make_envelope(
        given.queue, given.task, given.name, given.options.headers
    )
    payload, written = _written(body[:cut] if cut >= 0 else body, encoding)
    properties: Any = to_json(envelope.properties)
    return {
        "payload_bytes": len(body),
        "redelivered": given.attempt > 1,
        "exchange": envelope.exchange,
        "routing_key": envelope.key,
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


# The hand: takes messages off a queue for a client that inspects them.

#: Outcomes of messages that were inspected.
MODES = ("ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false")

_REJECTED = Error("Rejected", "it was rejected over the management API")


class Hand(LocalSession):
    """Takes messages of one queue, or of one key of a pool, one by one."""

    def __init__(self, broker: Broker, place: AmqpQueueView) -> None:
        super().__init__(broker)
        self._place = place
        self._held: list[Assignment] = []
        self.open()

    async def take(self) -> Assignment | None:
        there = len(self._held)
        await self.ask(
            TakeTask(
                queue=self._place.queue,
                key=self._place.key,
                consumer=f"management-{self.session}",
                namespace=self._place.namespace,
            )
        )
        return self._held[-1] if len(self._held) > there else None

    def on_message(self, message: Message) -> None:
        """Take a message of the queue: it is the answer."""
        if isinstance(message, Assignment):
            self._held.append(message)
            for ref in self._asked:
                self._resolve(ref, Accepted())

    async def body_of(self, given: Assignment) -> bytes:
        return await self.broker.blobs.load(given.payload)

    async def answer(self, mode: str) -> None:
        """Give back what was taken, or be done with it, and wait until that is so."""
        held, self._held = self._held, []
        if not held:
            return
        command: AnyCommand
        if mode.endswith("requeue_true"):
            command = ReleaseAttempts(attempts=[Held(each.task, each.fence) for each in held])
        elif mode == "ack_requeue_false":
            command = FinishAttempts(attempts=[Finish(each.task, each.fence) for each in held])
        else:
            fails = [Fail(each.task, each.fence, _REJECTED, Verdict.REJECT) for each in held]
            command = FailAttempts(attempts=fails)
        await self.ask(command)


# Properties of messages in JSON, as the management API writes them.

_SHORT_BYTES_MAX = 255


def from_json(wanted: dict[str, Any]) -> bytes:
    """Return properties as AMQP encodes them."""
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
    shown = amqp.plain(encoded)
    if "headers" in shown:
        shown["headers"] = {name: _plain(each) for name, each in shown["headers"].items()}
    return shown


def _is_number(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _plain(value: Any) -> Any:
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

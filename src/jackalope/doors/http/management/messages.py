"""Messages of the management API: one published, or a few taken to be looked at.

Owns how bodies and properties are written in JSON. For looking, not for work: a message that is
taken is given back or is gone before the answer is sent.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode, b64encode
from itertools import count
from typing import Any

from jackalope.broker.access import acting
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.broker.views.amqp import ready_in
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
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment, Effect, NothingToClaim, Published, Reply
from jackalope.core.limits import INLINE_BYTES_MAX, NAME_CHARS_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.envelope import make_envelope
from jackalope.core.task import BlobRef, Error
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.management.conventions import (
    Item,
    bad,
    by,
    exchange_named,
    number,
    problem_of,
    read_json,
    require,
    room_of,
    table,
    text,
)
from jackalope.doors.http.management.queues import place_of
from jackalope.doors.http.request import Request, answer
from jackalope.doors.http.router import Routes
from jackalope.doors.http.session import of_kind
from jackalope.task_ids import fresh_task_id
from jackalope.wire import amqp_properties as amqp
from jackalope.wire.amqp_errors import fault_of, namespace_of
from jackalope.wire.amqp_properties import BadProperties, headline

routes = Routes("/api")


#: How many messages can be looked at with one request.
COUNT_MAX = 1_000

_ENCODINGS = ("auto", "base64")


@routes.post("/exchanges/{vhost}/{name}/publish", Permission.SUBMIT_TASKS)
async def publish(request: Request, vhost: str, name: str) -> Response:
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
    command = PublishMessages(messages=[message], namespace=namespace_of(vhost), by=by())
    told = of_kind(await room.ask(command), Published)
    if told.failed is not None:
        fault = fault_of(told.failed[1])
        raise bad(f"{fault.code} {fault.text}")
    return answer({"routed": not (told.unrouted or told.refused)})


@routes.post("/queues/{vhost}/{name}/get", Permission.WORK)
async def get_messages(request: Request, vhost: str, name: str) -> Response:
    """Take messages off a queue, and give them back if wished."""
    room = room_of(request)
    body = await read_json(request)
    where = vhost, name
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
    envelope = given.letter or make_envelope(
        given.queue, given.task, given.name, given.options.headers
    )
    payload, written = _written(body[:cut] if cut is not None and cut >= 0 else body, encoding)
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


class Hand:
    """Takes messages of one queue, or of one key of a pool, one by one."""

    def __init__(self, broker: Broker, namespace: str, queue: str, key: str | None = None) -> None:
        self._broker = broker
        self._namespace = namespace
        self._queue = queue
        self._key = key
        self._refs = count(1)
        self._told: asyncio.Queue[Assignment | Reply] = asyncio.Queue()
        self._held: list[Assignment] = []
        self._session = broker.open_session(self)

    async def take(self) -> tuple[Assignment, int] | None:
        """Take the next message, and return how many are left; None if there is none.

        Raises:
            Problem: the broker refuses.
        """
        told = await self._ask(
            TakeTask(
                queue=self._queue,
                key=self._key,
                consumer=f"management-{self._session}",
                namespace=self._namespace,
            )
        )
        if not isinstance(told, Assignment):
            return None
        self._held.append(told)
        return told, ready_in(self._broker.engine, self._namespace, self._queue)

    async def body_of(self, given: Assignment) -> bytes:
        """Return the body of a message, wherever it is kept."""
        payload, blobs = given.payload, self._broker.blobs
        if not isinstance(payload, BlobRef):
            return payload
        ref = payload
        return await blobs.off_loop(lambda: b"".join(blobs.read(ref)))

    async def answer(self, mode: str) -> None:
        """Give back what was taken, or be done with it, and wait until that is so.

        Raises:
            Problem: the broker refuses.
        """
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
        await self._ask(command)

    def close(self) -> None:
        """Let go."""
        self._broker.close_session(self._session)

    async def _ask(self, command: AnyCommand) -> Assignment | None:
        """Ask something, and return the message if there is one."""
        ref = next(self._refs)
        command.session, command.ref = self._session, ref
        refusal = self._broker.post(command, acting.get())
        if refusal is not None:
            raise problem_of(Refused(refusal))
        while True:
            told = await self._told.get()
            if isinstance(told, Assignment):
                return told
            if told.ref != ref:
                continue
            if isinstance(told.body, Refusal):
                raise problem_of(Refused(told.body))
            if isinstance(told.body, NothingToClaim) or not isinstance(command, TakeTask):
                return None

    # The broker's side.

    def deliver(self, effects: list[Effect]) -> None:
        """Take what the broker has for this session."""
        for effect in effects:
            if isinstance(effect, Reply):
                self._told.put_nowait(effect)
            elif isinstance(effect.message, Assignment):
                self._told.put_nowait(effect.message)

    def end(self, why: str) -> None:
        """Fail what waits: there will be no answer."""
        refusal = Refusal(Code.STORAGE_FAILED, why, SECOND)
        self._told.put_nowait(Reply(self._session, 0, refusal))


# Properties of messages in JSON, as the management API writes them.

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

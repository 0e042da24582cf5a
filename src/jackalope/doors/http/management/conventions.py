"""Conventions of RabbitMQ's management API: virtual hosts, nodes, keys of bindings, refusals.

Owns the mapping of our names to those of RabbitMQ. Its `/` is the namespace `default`; every other
virtual host is the namespace of its name.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from jackalope.broker.access import acting, sees
from jackalope.broker.client_session import ClientSession
from jackalope.broker.engine import Engine
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.broker.telemetry.meter import Reading
from jackalope.broker.views.amqp import Link, LinkChannel, LinkConsumer, Links
from jackalope.broker.views.amqp import namespaces as namespaces_of
from jackalope.core.api_key import Permission
from jackalope.core.commands.amqp import AnyMessaging
from jackalope.core.commands.base import Scope
from jackalope.core.effects import Answered
from jackalope.core.refusals import Code
from jackalope.core.shapes.exchange import Binding
from jackalope.core.values import shape_problem
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer
from jackalope.wire.amqp import DEFAULT_VHOST, namespace_of, reply_text, vhost_of

#: The version that we emulate.
SPOKEN_VERSION = "3.10.8"

NODE = "jackalope@localhost"

Item = dict[str, Any]

#: How the default exchange, whose name is empty, is called in paths.
DEFAULT_EXCHANGE_IN_PATHS = "amq.default"


class Problem(Exception):
    """A request that cannot be answered, in RabbitMQ's words."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error


def not_found() -> Problem:
    """Return the error for a path that names nothing."""
    return Problem(404, "Object Not Found", "Not Found")


def bad(reason: str) -> Problem:
    """Return the error for a malformed request."""
    return Problem(400, "bad_request", reason)


def problem_of(refused: Refused) -> Problem:
    """Translate a refusal of the core into RabbitMQ's error."""
    code, message = refused.refusal.code, reply_text(refused.refusal)
    if code in (Code.UNKNOWN_QUEUE, Code.UNKNOWN_EXCHANGE):
        return Problem(404, "not_found", message)
    if code in (Code.FORBIDDEN, Code.LOCKED):
        return Problem(401, "not_authorised", message)
    if code is Code.INTERNAL:
        return Problem(500, "internal_error", message)
    if code in (Code.STORAGE_FAILED, Code.OVERLOADED):
        return Problem(503, "unavailable", message)
    return bad(message)


def exchange_named(name: str) -> str:
    return "" if name == DEFAULT_EXCHANGE_IN_PATHS else name


def key_of(binding: Binding) -> str:
    """Return what names a binding among those between the same two ends."""
    if not binding.arguments:
        return quote(binding.key, safe="") or "~"
    digest = hashlib.sha256(msgspec.json.encode(binding.arguments, order="deterministic")).digest()
    return f"{quote(binding.key, safe='')}~{urlsafe_b64encode(digest)[:8].decode()}"


async def read_json(request: Request) -> Item:
    """Read the body of a request, which is an object whatever its content type."""
    body = await request.body()
    if not body:
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise bad("not_json") from None
    if not isinstance(found, dict):
        raise bad("not_json")
    if problem := shape_problem(found):
        raise bad(problem)
    return found


def require(body: Item, *keys: str) -> None:
    missing = [key for key in keys if key not in body]
    if missing:
        raise bad("[" + ",".join(f"{{key_missing,{key}}}" for key in missing) + "]")


#: The text for a field of another type than the one of these.
_WRONG = {
    bool: "not_boolean: {value}",
    int: "not_integer: {key}",
    str: "{key}: must be a string, got {got}",
    dict: "{key}: must be an object, got {got}",
}


def fields(body: Item, **defaults: Any) -> Item:
    """Return fields of a body, each of the type of its default.

    As RabbitMQ does, it takes a yes or no and a whole number as text as well.
    """
    return {key: _field(key, body.get(key, each), type(each)) for key, each in defaults.items()}


def _field(key: str, value: Any, kind: type) -> Any:
    if kind is dict:
        value = value or {}
    elif kind is bool and value in ("true", "false"):
        value = value == "true"
    elif kind is int and isinstance(value, str):
        is_number = value.removeprefix("-").isdecimal() and len(value) < 20
        value = int(value) if is_number else value
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise bad(_WRONG[kind].format(key=key, value=value, got=type(value).__name__))
    return value


def text(body: Item, key: str, default: str = "") -> str:
    found: str = _field(key, body.get(key, default), str)
    return found


# Lists of the management API: pages, columns, order and filters, as its clients ask for them.

PAGE_ROWS_DEFAULT = 100
PAGE_ROWS_MAX = 500


def listed(request: Request, items: list[Item]) -> Response:
    """Answer with a list, or with a page of it if a page is asked for."""
    asked = request.query
    total = len(items)
    items = _filtered(items, asked.get("name", ""), is_pattern=asked.get("use_regex") == "true")
    items = _sorted(items, asked.get("sort", ""), is_reversed=asked.get("sort_reverse") == "true")
    if "page" not in asked:
        return answer([_columns(item, asked.get("columns", "")) for item in items])
    page = _count(asked["page"], "page", 10**9)
    size = _count(asked.get("page_size", str(PAGE_ROWS_DEFAULT)), "page_size", PAGE_ROWS_MAX)
    pages = -(-len(items) // size)
    if page > max(1, pages):
        raise bad(f"page out of range, page: {page} page size: {size}, len: {len(items)}")
    shown = items[(page - 1) * size : page * size]
    return answer(
        {
            "filtered_count": len(items),
            "item_count": len(shown),
            "items": [_columns(item, asked.get("columns", "")) for item in shown],
            "page": page,
            "page_count": pages,
            "page_size": size,
            "total_count": total,
        }
    )


def shown(request: Request, item: Item) -> Response:
    return answer(_columns(item, request.query.get("columns", "")))


def _columns(item: Item, names: str) -> Item:
    """Return what was asked for; a name with dots leads into what is inside."""
    if not names:
        return item
    found: Item = {}
    for name in names.split(","):
        here: Any = item
        into, parts = found, name.split(".")
        for depth, part in enumerate(parts):
            if not isinstance(here, dict) or part not in here:
                break
            here = here[part]
            if depth == len(parts) - 1:
                into[part] = here
            else:
                into = into.setdefault(part, {})
    return found


def _filtered(items: list[Item], name: str, *, is_pattern: bool) -> list[Item]:
    if not name:
        return items
    if not is_pattern:
        return [item for item in items if name.lower() in str(item.get("name", "")).lower()]
    try:
        pattern = re.compile(name, re.IGNORECASE)
    except re.error as error:
        raise bad(f"name: {error}") from None
    return [item for item in items if pattern.search(str(item.get("name", "")))]


def _sorted(items: list[Item], column: str, *, is_reversed: bool) -> list[Item]:
    if not column:
        return items

    def rank(item: Item) -> tuple[bool, Any]:
        value = item.get(column)
        is_number = isinstance(value, int | float)
        return is_number, value if is_number else str(value)

    return sorted(items, key=rank, reverse=is_reversed)


def _count(value: str, name: str, most: int) -> int:
    if not value.isdigit() or not 0 < int(value[:12]) <= most:
        raise bad(f"{name}: must be a number from 1 to {most}, got {value[:20]!r}")
    return int(value)


# The context of the management API: what every route needs.


_BY = "management"


class Context:
    """What the routes share."""

    def __init__(self, broker: Broker, links: Links, amqp_port: int) -> None:
        self.broker = broker  # what they ask
        self.amqp_port = amqp_port  # where AMQP is spoken
        self.port = 0  # where this API is
        self.client_session = ClientSession(broker)
        self._links = links

    async def ask(self, command: AnyMessaging) -> Answered:
        try:
            return await self.client_session.ask(command)
        except Refused as refused:
            raise problem_of(refused) from None

    async def find(self, look: Callable[[Engine], Any]) -> Any:
        try:
            return await self.broker.read(look)
        except Problem as problem:
            if problem.status != 404:
                raise
            return None

    def links(self, vhost: str | None = None) -> list[Link]:
        """Return the connections that a key may see; one that is limited to queues sees none."""
        return [] if acting.get().queues else self._links_to(vhost)

    def _links_to(self, vhost: str | None) -> list[Link]:
        principal = acting.get()
        if vhost is not None and principal.refuse(Permission.READ_TASKS, namespace_of(vhost)):
            raise not_found()
        return [
            link
            for link in self._links.all()
            if vhost in (None, vhost_of(link.namespace))
            and principal.refuse(Permission.READ_TASKS, link.namespace) is None
        ]

    def close_link(self, name: str, why: str) -> bool:
        return any(link.name == name for link in self.links()) and self._links.close(name, why)

    def consumers(self, vhost: str | None = None, queue: str | None = None) -> list[Item]:
        """Show the consumers of a queue, of a virtual host, or all."""
        return [
            _show_consumer(link, channel, consumer)
            for link in self._links_to(vhost)
            for channel in link.channels
            for consumer in channel.consumers
            if queue in (None, consumer.queue) and sees(consumer.queue)
        ]

    def add_numbers(self, items: list[Item]) -> None:
        """Add to queues how much happened in them since the start, and how fast."""
        totals = self.broker.meter.totals()
        rates: dict[str, dict[str, float]] = {}
        for item in items:
            namespace = namespace_of(item["vhost"])
            reading = totals.get((namespace, item["name"]))
            if reading is None:
                continue
            if namespace not in rates:
                rates[namespace] = self.broker.series.rates(
                    namespace, self.broker.now_us(), self.broker.started_us, lambda _: True
                )
            item["message_stats"] = message_stats(reading, rates[namespace].get(item["name"], 0.0))


def namespaces(
    engine: Engine, vhost: str | None = None, needs: Permission = Permission.READ_TASKS
) -> list[str]:
    """Return the namespaces that the client may read: all, or the one of a virtual host.

    A virtual host need not be made: it is empty until something is in it. The default one is
    always among them.
    """
    principal = acting.get()
    if vhost is None:
        names = sorted({*namespaces_of(engine), namespace_of(DEFAULT_VHOST)}, key=vhost_of)
    else:
        names = [namespace_of(vhost)]
    seen = [name for name in names if principal.refuse(needs, name) is None]
    if vhost is not None and not seen:
        raise not_found()
    return seen


def admit_to(namespace: str) -> None:
    """Let only administrators of all of a namespace make or delete it."""
    who = acting.get()
    refusal = who.refuse(Permission.ADMIN, namespace) or who.refuse_scope(Scope.NAMESPACE)
    if refusal is not None:
        raise problem_of(Refused(refusal))


def message_stats(reading: Reading, ack_rate: float) -> Item:
    """Show how much happened, in RabbitMQ's words."""
    return {
        "publish": reading.submitted,
        "deliver_get": reading.queued.number(),
        "ack": reading.succeeded,
        "ack_details": {"rate": ack_rate},
    }


def context_of(request: Request) -> Context:
    context: Context = request.app.owner
    return context


def by() -> str:
    """Return who acts, as histories show it."""
    return acting.get().signed(_BY)


def _show_consumer(link: Link, channel: LinkChannel, consumer: LinkConsumer) -> Item:
    return {
        "arguments": consumer.arguments,
        "ack_required": consumer.is_acknowledging,
        "active": consumer.is_active,
        "activity_status": "up" if consumer.is_active else "waiting",
        "channel_details": {
            "connection_name": link.name,
            "name": f"{link.name} ({channel.number})",
            "node": NODE,
            "number": channel.number,
            "peer_host": link.peer[0],
            "peer_port": link.peer[1],
            "user": link.user,
        },
        "consumer_tag": consumer.tag,
        "exclusive": consumer.is_exclusive,
        "prefetch_count": consumer.prefetch,
        "queue": {"name": consumer.queue, "vhost": vhost_of(link.namespace)},
    }

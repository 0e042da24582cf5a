"""Definitions: everything declared, as one document that another broker can take on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jackalope.broker.engine import Engine
from jackalope.core.commands.amqp import AnyMessaging, Bind, OpenExchange, OpenQueue, SetRule
from jackalope.core.shapes.exchange import Binding, Exchange
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.management import views
from jackalope.doors.http.management.conventions import (
    SPOKEN_VERSION,
    admit_to,
    bad,
    by,
    flag,
    read_json,
    require,
    room_of,
    table,
    text,
)
from jackalope.doors.http.management.exchanges import kind_of
from jackalope.doors.http.management.policies import rule_of
from jackalope.doors.http.request import Request, answer
from jackalope.doors.http.router import Routes
from jackalope.wire.amqp_errors import DEFAULT_VHOST, namespace_of, vhost_of

routes = Routes("/api")


Item = dict[str, Any]


@routes.get("/definitions", "admin")
async def export_all(request: Request) -> Response:
    """Export the definitions of every virtual host. Users are API keys, which stay here."""
    found = await room_of(request).broker.read(lambda engine: _export(engine, None))
    return answer(found)


@routes.get("/definitions/{vhost}", "admin")
async def export_vhost(request: Request, vhost: str) -> Response:
    """Export the definitions of a virtual host, without its name."""
    where = vhost
    found = await room_of(request).broker.read(lambda engine: _export(engine, where))
    for kind in ("queues", "exchanges", "bindings", "policies"):
        found[kind] = [{k: v for k, v in each.items() if k != "vhost"} for each in found[kind]]
    for kind in ("vhosts", "users", "permissions", "topic_permissions", "global_parameters"):
        del found[kind]
    return answer(found)


@routes.post("/definitions", "admin")
async def import_all(request: Request) -> Response:
    """Declare what a document says, in order; what is already there must be the same."""
    return await _import(request, None)


@routes.post("/definitions/{vhost}", "admin")
async def import_vhost(request: Request, vhost: str) -> Response:
    """Declare what a document says in one virtual host."""
    admit_to(namespace_of(vhost))
    return await _import(request, vhost)


def _export(engine: Engine, vhost: str | None) -> Item:
    namespaces = views.namespaces(engine, vhost)
    return {
        "rabbit_version": SPOKEN_VERSION,
        "rabbitmq_version": SPOKEN_VERSION,
        "product_name": "Jackalope",
        "users": [],
        "vhosts": [{"name": vhost_of(namespace.name)} for namespace in namespaces],
        "permissions": [],
        "topic_permissions": [],
        "parameters": [],
        "global_parameters": [],
        "policies": [
            views.show_rule(namespace, rule)
            for namespace in namespaces
            for _, rule in sorted(namespace.topology.rules.items())
        ],
        "queues": [
            _picked(views.show_queue(engine.core, queue, with_numbers=False), _QUEUE)
            for namespace in namespaces
            for queue in views.queues(namespace)
            if not views.owned(queue)
        ],
        "exchanges": [
            _picked(views.show_exchange(namespace, exchange), _EXCHANGE)
            for namespace in namespaces
            for _, exchange in sorted(namespace.topology.exchanges.items())
            if not views.is_given(exchange)
        ],
        "bindings": [
            views.show_binding(namespace, binding, with_key=False)
            for namespace in namespaces
            for binding in views.bindings(namespace)
            if binding.source and (binding.is_to_exchange or not _is_owned(namespace, binding))
        ],
    }


_QUEUE = ("name", "vhost", "durable", "auto_delete", "arguments")
_EXCHANGE = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")


def _picked(item: Item, names: tuple[str, ...]) -> Item:
    return {name: item[name] for name in names}


def _is_owned(namespace: Any, binding: Binding) -> bool:
    return views.owned(namespace.queues[binding.to])


async def _import(request: Request, vhost: str | None) -> Response:
    room = room_of(request)
    body = await read_json(request)
    # All of it is read before any of it is done.
    for command in list(_commands(body, vhost)):
        await room.ask(command)
    return Response(status=204)


def _commands(body: Item, vhost: str | None) -> Iterator[AnyMessaging]:
    """Yield what declares a document: exchanges and queues before what binds them."""
    for each in _each(body, "policies"):
        require(each, "name")
        yield SetRule(
            rule=rule_of(text(each, "name"), each), namespace=_where(each, vhost), by=by()
        )
    for each in _each(body, "exchanges"):
        require(each, "name", "type")
        exchange = Exchange(
            text(each, "name"),
            kind_of(text(each, "type")),
            durable=flag(each, "durable", default=True),
            auto_delete=flag(each, "auto_delete", default=False),
            internal=flag(each, "internal", default=False),
            arguments=table(each, "arguments"),
        )
        yield OpenExchange(exchange=exchange, namespace=_where(each, vhost), by=by())
    for each in _each(body, "queues"):
        require(each, "name")
        yield OpenQueue(
            queue=text(each, "name"),
            durable=flag(each, "durable", default=True),
            auto_delete=flag(each, "auto_delete", default=False),
            arguments=table(each, "arguments"),
            namespace=_where(each, vhost),
            by=by(),
        )
    for each in _each(body, "bindings"):
        require(each, "source", "destination", "destination_type")
        binding = Binding(
            text(each, "source"),
            text(each, "destination"),
            text(each, "destination_type") == "exchange",
            text(each, "routing_key"),
            table(each, "arguments"),
        )
        yield Bind(binding=binding, namespace=_where(each, vhost), by=by())


def _each(body: Item, kind: str) -> list[Item]:
    found = body.get(kind, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise bad(f"{kind}: must be a list of objects")
    return found


def _where(each: Item, vhost: str | None) -> str:
    return namespace_of(vhost or text(each, "vhost", DEFAULT_VHOST))

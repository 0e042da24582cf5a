"""Exchanges of the management API."""

from __future__ import annotations

from jackalope.broker.engine import Engine
from jackalope.core.commands.amqp import OpenExchange, RemoveExchange
from jackalope.core.shapes.exchange import Exchange, Kind
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.management import views
from jackalope.doors.http.management.conventions import (
    bad,
    by,
    exchange_named,
    flag,
    listed,
    read_json,
    room_of,
    shown,
    table,
    text,
)
from jackalope.doors.http.request import Request
from jackalope.doors.http.router import Routes
from jackalope.wire.amqp_errors import namespace_of

routes = Routes("/api")


@routes.get("/exchanges", "read_tasks")
async def list_all_exchanges(request: Request) -> Response:
    """List the exchanges of every virtual host."""
    return await _list(request, None)


@routes.get("/exchanges/{vhost}", "read_tasks")
async def list_exchanges(request: Request, vhost: str) -> Response:
    """List the exchanges of a virtual host."""
    return await _list(request, vhost)


async def _list(request: Request, vhost: str | None) -> Response:
    def look(engine: Engine) -> list[views.Item]:
        return [
            views.show_exchange(namespace, exchange)
            for namespace in views.namespaces(engine, vhost)
            for _, exchange in sorted(namespace.topology.exchanges.items())
        ]

    return listed(request, await room_of(request).broker.read(look))


@routes.get("/exchanges/{vhost}/{name}", "read_tasks")
async def read_exchange(request: Request, vhost: str, name: str) -> Response:
    """Show an exchange."""
    where = vhost, exchange_named(name)

    def look(engine: Engine) -> views.Item:
        exchange = views.exchange_in(engine, *where)
        return views.show_exchange(views.namespaces(engine, where[0])[0], exchange)

    return shown(request, await room_of(request).broker.read(look))


@routes.put("/exchanges/{vhost}/{name}", "admin")
async def declare_exchange(request: Request, vhost: str, name: str) -> Response:
    """Declare an exchange."""
    room = room_of(request)
    body = await read_json(request)
    where = vhost, exchange_named(name)
    is_there = await room.has(lambda engine: views.exchange_in(engine, *where))
    exchange = Exchange(
        where[1],
        kind_of(text(body, "type", "direct")),
        durable=flag(body, "durable", default=True),
        auto_delete=flag(body, "auto_delete", default=False),
        internal=flag(body, "internal", default=False),
        arguments=table(body, "arguments"),
    )
    await room.ask(OpenExchange(exchange=exchange, namespace=namespace_of(where[0]), by=by()))
    return Response(status=204 if is_there else 201)


@routes.delete("/exchanges/{vhost}/{name}", "admin")
async def delete_exchange(request: Request, vhost: str, name: str) -> Response:
    """Delete an exchange and its bindings."""
    room = room_of(request)
    where = vhost, exchange_named(name)
    await room.broker.read(lambda engine: views.exchange_in(engine, *where))
    await room.ask(
        RemoveExchange(
            exchange=where[1],
            if_unused=request.query.get("if-unused") == "true",
            namespace=namespace_of(where[0]),
            by=by(),
        )
    )
    return Response(status=204)


def kind_of(name: str) -> Kind:
    """Return the kind of exchange of a name.

    Raises:
        Problem: there is no such kind.
    """
    try:
        return Kind(name)
    except ValueError:
        raise bad(f"unknown exchange type '{name}'") from None

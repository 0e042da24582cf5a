"""Exchanges of the management API."""

from __future__ import annotations

from litestar import delete, get, put
from litestar.params import FromPath

from jackalope.broker.engine import Engine
from jackalope.core.api_key import Permission
from jackalope.core.commands.amqp import OpenExchange, RemoveExchange
from jackalope.core.shapes.exchange import Exchange, Kind
from jackalope.doors.http.management import views
from jackalope.doors.http.management.conventions import (
    Answer,
    Asked,
    Nothing,
    bad,
    by,
    exchange_named,
    flag,
    listed,
    named,
    nothing,
    read_json,
    room_of,
    shown,
    table,
    text,
)
from jackalope.wire.amqp_errors import namespace_of

_READ = {"permission": Permission.READ_TASKS}
_ADMIN = {"permission": Permission.ADMIN}


@get("/exchanges", opt=_READ)
async def list_all_exchanges(request: Asked) -> Answer:
    """List the exchanges of every virtual host."""
    return await _list(request, None)


@get("/exchanges/{vhost:str}", opt=_READ)
async def list_exchanges(request: Asked, vhost: FromPath[str]) -> Answer:
    """List the exchanges of a virtual host."""
    return await _list(request, named(vhost))


async def _list(request: Asked, vhost: str | None) -> Answer:
    def look(engine: Engine) -> list[views.Item]:
        return [
            views.show_exchange(namespace, exchange)
            for namespace in views.namespaces(engine, vhost)
            for _, exchange in sorted(namespace.topology.exchanges.items())
        ]

    return listed(request, await room_of(request).broker.read(look))


@get("/exchanges/{vhost:str}/{name:str}", opt=_READ)
async def read_exchange(request: Asked, vhost: FromPath[str], name: FromPath[str]) -> Answer:
    """Show an exchange."""
    where = named(vhost), exchange_named(name)

    def look(engine: Engine) -> views.Item:
        exchange = views.exchange_in(engine, *where)
        return views.show_exchange(views.namespaces(engine, where[0])[0], exchange)

    return shown(request, await room_of(request).broker.read(look))


@put("/exchanges/{vhost:str}/{name:str}", opt=_ADMIN)
async def declare_exchange(request: Asked, vhost: FromPath[str], name: FromPath[str]) -> Nothing:
    """Declare an exchange."""
    room = room_of(request)
    body = await read_json(request)
    where = named(vhost), exchange_named(name)
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
    return nothing(204 if is_there else 201)


@delete("/exchanges/{vhost:str}/{name:str}", opt=_ADMIN, status_code=204)
async def delete_exchange(request: Asked, vhost: FromPath[str], name: FromPath[str]) -> Nothing:
    """Delete an exchange and its bindings."""
    room = room_of(request)
    where = named(vhost), exchange_named(name)
    await room.broker.read(lambda engine: views.exchange_in(engine, *where))
    await room.ask(
        RemoveExchange(
            exchange=where[1],
            if_unused=request.query_params.get("if-unused") == "true",
            namespace=namespace_of(where[0]),
            by=by(),
        )
    )
    return nothing()


def kind_of(name: str) -> Kind:
    """Return the kind of exchange of a name.

    Raises:
        Problem: there is no such kind.
    """
    try:
        return Kind(name)
    except ValueError:
        raise bad(f"unknown exchange type '{name}'") from None


ROUTES = [list_all_exchanges, list_exchanges, read_exchange, declare_exchange, delete_exchange]

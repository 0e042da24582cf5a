"""Bindings of the management API: those between two ends, and all of one end."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from jackalope.broker.engine import Engine
from jackalope.core.commands.amqp import Bind, Unbind
from jackalope.core.shapes.exchange import Binding
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.management import views
from jackalope.doors.http.management.conventions import (
    by,
    exchange_named,
    key_of,
    listed,
    not_found,
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


#: The ends of bindings as paths name them: `q` for a queue, `e` for an exchange.
_IS_EXCHANGE = {"q": False, "e": True}

_BETWEEN = "/bindings/{vhost}/e/{source}/{kind}/{target}"


@routes.get("/bindings", "read_tasks")
async def list_all_bindings(request: Request) -> Response:
    """List every binding."""
    return await _list(request, None, lambda _: True)


@routes.get("/bindings/{vhost}", "read_tasks")
async def list_bindings(request: Request, vhost: str) -> Response:
    """List the bindings of a virtual host."""
    return await _list(request, vhost, lambda _: True)


@routes.get("/queues/{vhost}/{name}/bindings", "read_tasks")
async def list_bindings_of_queue(request: Request, vhost: str, name: str) -> Response:
    """List the bindings that lead to a queue."""
    where = vhost, name
    await room_of(request).broker.read(lambda engine: views.queue_in(engine, *where))
    return await _list(
        request, where[0], lambda each: not each.is_to_exchange and each.to == where[1]
    )


@routes.get("/exchanges/{vhost}/{name}/bindings/{end}", "read_tasks")
async def list_bindings_of_exchange(request: Request, vhost: str, name: str, end: str) -> Response:
    """List the bindings whose source, or whose destination, is an exchange."""
    where = vhost, exchange_named(name)
    if end not in ("source", "destination"):
        raise not_found()
    await room_of(request).broker.read(lambda engine: views.exchange_in(engine, *where))
    if end == "source":
        return await _list(request, where[0], lambda each: each.source == where[1])
    return await _list(request, where[0], lambda each: each.is_to_exchange and each.to == where[1])


@routes.get(_BETWEEN, "read_tasks")
async def list_bindings_between(
    request: Request, vhost: str, source: str, kind: str, target: str
) -> Response:
    """List the bindings between two ends."""
    return await _list(request, vhost, _between(source, kind, target))


@routes.post(_BETWEEN, "admin")
async def bind(request: Request, vhost: str, source: str, kind: str, target: str) -> Response:
    """Bind two ends."""
    body = await read_json(request)
    to = exchange_named(target) if _is_exchange(kind) else target
    binding = Binding(
        exchange_named(source),
        to,
        _is_exchange(kind),
        text(body, "routing_key"),
        table(body, "arguments"),
    )
    room = room_of(request)
    await room.ask(Bind(binding=binding, namespace=namespace_of(vhost), by=by()))
    where = f"{quote(target, safe='')}/{quote(key_of(binding))}"
    return Response(status=201, headers={"Location": where})


@routes.get(_BETWEEN + "/{key}", "read_tasks")
async def read_binding(
    request: Request, *, vhost: str, source: str, kind: str, target: str, key: str
) -> Response:
    """Show a binding."""
    found = await _find(request, vhost, _between(source, kind, target), key)
    return shown(request, found[0])


@routes.delete(_BETWEEN + "/{key}", "admin")
async def unbind(
    request: Request, *, vhost: str, source: str, kind: str, target: str, key: str
) -> Response:
    """Undo a binding."""
    _, binding = await _find(request, vhost, _between(source, kind, target), key)
    room = room_of(request)
    await room.ask(Unbind(binding=binding, namespace=namespace_of(vhost), by=by()))
    return Response(status=204)


def _is_exchange(kind: str) -> bool:
    if kind not in _IS_EXCHANGE:
        raise not_found()
    return _IS_EXCHANGE[kind]


def _between(source: str, kind: str, target: str) -> Callable[[Binding], bool]:
    is_exchange = _is_exchange(kind)
    ends = exchange_named(source), exchange_named(target) if is_exchange else target
    return lambda each: (each.source, each.to) == ends and each.is_to_exchange == is_exchange


async def _list(request: Request, vhost: str | None, fits: Callable[[Binding], bool]) -> Response:
    def look(engine: Engine) -> list[views.Item]:
        return [
            views.show_binding(namespace, binding)
            for namespace in views.namespaces(engine, vhost)
            for binding in views.bindings(namespace)
            if fits(binding)
        ]

    return listed(request, await room_of(request).broker.read(look))


async def _find(
    request: Request, vhost: str, fits: Callable[[Binding], bool], key: str
) -> tuple[views.Item, Binding]:
    """Return the binding that a path names, and how it is shown.

    Raises:
        Problem: there is none.
    """

    def look(engine: Engine) -> tuple[views.Item, Binding]:
        namespace = views.namespaces(engine, vhost)[0]
        for binding in views.bindings(namespace):
            # The key may have come as it was told, or encoded once more.
            if fits(binding) and key_of(binding) in (key, quote(key, safe="")):
                return views.show_binding(namespace, binding), binding
        raise not_found()

    return await room_of(request).broker.read(look)

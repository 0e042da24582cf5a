"""Bindings of the management API: those between two ends, and all of one end."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from litestar import delete, get, post
from litestar.params import FromPath

from jackalope.broker.engine import Engine
from jackalope.core.api_key import Permission
from jackalope.core.commands.amqp import Bind, Unbind
from jackalope.core.shapes.exchange import Binding
from jackalope.doors.http.management import views
from jackalope.doors.http.management.conventions import (
    Answer,
    Asked,
    Nothing,
    by,
    exchange_named,
    key_of,
    listed,
    named,
    not_found,
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

#: The ends of bindings as paths name them: `q` for a queue, `e` for an exchange.
_IS_EXCHANGE = {"q": False, "e": True}

_BETWEEN = "/bindings/{vhost:str}/e/{source:str}/{kind:str}/{target:str}"


@get("/bindings", opt=_READ)
async def list_all_bindings(request: Asked) -> Answer:
    """List every binding."""
    return await _list(request, None, lambda _: True)


@get("/bindings/{vhost:str}", opt=_READ)
async def list_bindings(request: Asked, vhost: FromPath[str]) -> Answer:
    """List the bindings of a virtual host."""
    return await _list(request, named(vhost), lambda _: True)


@get("/queues/{vhost:str}/{name:str}/bindings", opt=_READ)
async def list_bindings_of_queue(
    request: Asked, vhost: FromPath[str], name: FromPath[str]
) -> Answer:
    """List the bindings that lead to a queue."""
    where = named(vhost), named(name)
    await room_of(request).broker.read(lambda engine: views.queue_in(engine, *where))
    return await _list(
        request, where[0], lambda each: not each.is_to_exchange and each.to == where[1]
    )


@get("/exchanges/{vhost:str}/{name:str}/bindings/{end:str}", opt=_READ)
async def list_bindings_of_exchange(
    request: Asked, vhost: FromPath[str], name: FromPath[str], end: FromPath[str]
) -> Answer:
    """List the bindings whose source, or whose destination, is an exchange."""
    where = named(vhost), exchange_named(name)
    if end not in ("source", "destination"):
        raise not_found()
    await room_of(request).broker.read(lambda engine: views.exchange_in(engine, *where))
    if end == "source":
        return await _list(request, where[0], lambda each: each.source == where[1])
    return await _list(request, where[0], lambda each: each.is_to_exchange and each.to == where[1])


@get(_BETWEEN, opt=_READ)
async def list_bindings_between(
    request: Asked,
    vhost: FromPath[str],
    source: FromPath[str],
    kind: FromPath[str],
    target: FromPath[str],
) -> Answer:
    """List the bindings between two ends."""
    return await _list(request, named(vhost), _between(source, kind, target))


@post(_BETWEEN, opt=_ADMIN, status_code=201)
async def bind(
    request: Asked,
    vhost: FromPath[str],
    source: FromPath[str],
    kind: FromPath[str],
    target: FromPath[str],
) -> Nothing:
    """Bind two ends."""
    body = await read_json(request)
    to = exchange_named(target) if _is_exchange(kind) else named(target)
    binding = Binding(
        exchange_named(source),
        to,
        _is_exchange(kind),
        text(body, "routing_key"),
        table(body, "arguments"),
    )
    room = room_of(request)
    await room.ask(Bind(binding=binding, namespace=namespace_of(named(vhost)), by=by()))
    return nothing(201, {"Location": f"{target}/{quote(key_of(binding))}"})


@get(_BETWEEN + "/{key:str}", opt=_READ)
async def read_binding(
    request: Asked,
    *,
    vhost: FromPath[str],
    source: FromPath[str],
    kind: FromPath[str],
    target: FromPath[str],
    key: FromPath[str],
) -> Answer:
    """Show a binding."""
    found = await _find(request, named(vhost), _between(source, kind, target), key)
    return shown(request, found[0])


@delete(_BETWEEN + "/{key:str}", opt=_ADMIN, status_code=204)
async def unbind(
    request: Asked,
    *,
    vhost: FromPath[str],
    source: FromPath[str],
    kind: FromPath[str],
    target: FromPath[str],
    key: FromPath[str],
) -> Nothing:
    """Undo a binding."""
    _, binding = await _find(request, named(vhost), _between(source, kind, target), key)
    room = room_of(request)
    await room.ask(Unbind(binding=binding, namespace=namespace_of(named(vhost)), by=by()))
    return nothing()


def _is_exchange(kind: str) -> bool:
    if kind not in _IS_EXCHANGE:
        raise not_found()
    return _IS_EXCHANGE[kind]


def _between(source: str, kind: str, target: str) -> Callable[[Binding], bool]:
    is_exchange = _is_exchange(kind)
    ends = exchange_named(source), exchange_named(target) if is_exchange else named(target)
    return lambda each: (each.source, each.to) == ends and each.is_to_exchange == is_exchange


async def _list(request: Asked, vhost: str | None, fits: Callable[[Binding], bool]) -> Answer:
    def look(engine: Engine) -> list[views.Item]:
        return [
            views.show_binding(namespace, binding)
            for namespace in views.namespaces(engine, vhost)
            for binding in views.bindings(namespace)
            if fits(binding)
        ]

    return listed(request, await room_of(request).broker.read(look))


async def _find(
    request: Asked, vhost: str, fits: Callable[[Binding], bool], key: str
) -> tuple[views.Item, Binding]:
    """Return the binding that a path names, and how it is shown.

    Raises:
        Problem: there is none.
    """

    def look(engine: Engine) -> tuple[views.Item, Binding]:
        namespace = views.namespaces(engine, vhost)[0]
        for binding in views.bindings(namespace):
            # The key may have come as it was told, or encoded once more.
            if fits(binding) and key_of(binding) in (key, named(key)):
                return views.show_binding(namespace, binding), binding
        raise not_found()

    return await room_of(request).broker.read(look)


ROUTES = [
    list_all_bindings,
    list_bindings,
    list_bindings_of_queue,
    list_bindings_of_exchange,
    list_bindings_between,
    bind,
    read_binding,
    unbind,
]

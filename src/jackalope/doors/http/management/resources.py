"""What a virtual host has, in the management API: queues, exchanges, policies and bindings.

Owns how each is shown, declared and removed. They are in one table, from which the routes are made,
and the definitions: everything declared, as one document that another broker can take on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from jackalope.broker.engine import Engine
from jackalope.broker.views import amqp as views
from jackalope.broker.views.amqp import AmqpQueueView
from jackalope.core.api_key import Permission
from jackalope.core.commands.amqp import (
    AnyMessaging,
    Bind,
    ClearRule,
    OpenExchange,
    OpenQueue,
    PurgeQueue,
    RemoveExchange,
    RemoveQueue,
    SetRule,
    Unbind,
)
from jackalope.core.shapes.exchange import GIVEN_NAMES, AppliesTo, Binding, Exchange, Kind, Rule
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.management.conventions import (
    NODE,
    SPOKEN_VERSION,
    Item,
    admit_to,
    bad,
    by,
    context_of,
    exchange_named,
    fields,
    key_of,
    listed,
    namespaces,
    not_found,
    read_json,
    require,
    shown,
    text,
)
from jackalope.doors.http.request import Request, answer
from jackalope.doors.http.router import Routes
from jackalope.wire.amqp import DEFAULT_VHOST, namespace_of, vhost_of

routes = Routes("/api")

Query = dict[str, str]


class Resource(NamedTuple):
    """A kind of thing that has a name in a virtual host."""

    path: str
    all: Callable[[Engine, str], list[Any]]  # those of a namespace
    find: Callable[[Engine, str, str], Any]  # the one of a name; None if there is none
    show: Callable[[str, Any], Item]
    # the command that declares it, with what is there of that name already
    declare: Callable[[str, str, Item, Any], AnyMessaging]
    remove: Callable[[str, Any, Query], AnyMessaging]
    # adds what is not in the book to those that are listed, or to the one that is shown
    complete: Callable[[Request, list[Item], bool], None] = lambda *_: None
    named: Callable[[str], str] = str  # the name that a part of a path stands for
    required: tuple[str, ...] = ("name",)  # the fields of one in a document of definitions
    is_removable: Callable[[Any], bool] = lambda _: True  # whether it goes with its virtual host
    # what belongs into a document of definitions, and which fields of it; none for all
    is_defined: Callable[[Any], bool] = lambda _: True
    defined: tuple[str, ...] = ()


# Queues.

#: What is left out of a list without numbers.
_NUMBERS = (
    "consumers",
    "effective_policy_definition",
    "messages",
    "messages_ready",
    "messages_unacknowledged",
    "operator_policy",
    "policy",
)


def _show_queue(namespace: str, queue: AmqpQueueView) -> Item:
    return {
        "arguments": queue.arguments,
        "auto_delete": queue.auto_delete,
        "durable": queue.durable,
        "exclusive": queue.is_owned,
        "name": queue.name,
        "node": NODE,
        "state": "running",
        "type": queue.kind,
        "vhost": vhost_of(namespace),
        "consumers": queue.consumers,
        "effective_policy_definition": queue.definition,
        "messages": queue.unfinished,
        "messages_ready": queue.unfinished - queue.leased,
        "messages_unacknowledged": queue.leased,
        "operator_policy": None,
        "policy": queue.rule or None,
    }


def _declare_queue(namespace: str, name: str, body: Item, found: AmqpQueueView | None) -> OpenQueue:
    queue, key = (name, None) if found is None else (found.queue, found.key)
    given = fields(body, durable=False, auto_delete=False, arguments={})
    return OpenQueue(queue=queue, key=key, namespace=namespace, by=by(), **given)


def _remove_queue(namespace: str, found: AmqpQueueView, query: Query) -> RemoveQueue:
    return RemoveQueue(
        queue=found.queue,
        key=found.key,
        if_unused=query.get("if-unused") == "true",
        if_empty=query.get("if-empty") == "true",
        namespace=namespace,
        by=by(),
    )


def _add_numbers(request: Request, items: list[Item], is_list: bool) -> None:
    context = context_of(request)
    if is_list and request.query.get("disable_stats") == "true":
        for item in items:
            item["state"] = "live"
            for name in _NUMBERS:
                del item[name]
        return
    context.add_numbers(items)
    if not is_list:
        items[0]["consumer_details"] = context.consumers(items[0]["vhost"], items[0]["name"])


QUEUES = Resource(
    "queues",
    views.queues_in,
    views.queue_in,
    _show_queue,
    _declare_queue,
    _remove_queue,
    _add_numbers,
    is_removable=lambda queue: queue.key is None,
    is_defined=lambda queue: queue.key is None and not queue.is_owned,
    defined=("name", "vhost", "durable", "auto_delete", "arguments"),
)


@routes.delete("/queues/{vhost}/{name}/contents", "admin")
async def purge_queue(request: Request, vhost: str, name: str) -> Response:
    """Drop what is ready in a queue."""
    context = context_of(request)
    found: AmqpQueueView = await context.broker.read(
        lambda engine: find(engine, QUEUES, vhost, name)
    )
    namespace = namespace_of(vhost)
    await context.ask(PurgeQueue(queue=found.queue, key=found.key, namespace=namespace, by=by()))
    return Response(status=204)


# Exchanges.


def _named(things: list[Any], name: str) -> Any:
    return next((each for each in things if each.name == name), None)


def _show_exchange(namespace: str, exchange: Exchange) -> Item:
    item = {
        "arguments": exchange.arguments,
        "auto_delete": exchange.auto_delete,
        "durable": exchange.durable,
        "internal": exchange.internal,
        "name": exchange.name,
        "type": str(exchange.kind),
        "vhost": vhost_of(namespace),
    }
    return item | ({"policy": exchange.rule} if exchange.rule else {})


def _declare_exchange(namespace: str, name: str, body: Item, _: Exchange | None) -> OpenExchange:
    wanted = text(body, "type", Kind.DIRECT)
    if wanted not in tuple(Kind):
        raise bad(f"unknown exchange type '{wanted}'")
    given = fields(body, durable=True, auto_delete=False, internal=False, arguments={})
    exchange = Exchange(name, Kind(wanted), **given)
    return OpenExchange(exchange=exchange, namespace=namespace, by=by())


def _remove_exchange(namespace: str, found: Exchange, query: Query) -> RemoveExchange:
    if_unused = query.get("if-unused") == "true"
    return RemoveExchange(exchange=found.name, if_unused=if_unused, namespace=namespace, by=by())


def _is_made(exchange: Exchange) -> bool:
    """Return whether an exchange is not one of those that are always there."""
    return exchange.name not in GIVEN_NAMES


EXCHANGES = Resource(
    "exchanges",
    views.exchanges_in,
    lambda engine, namespace, name: _named(views.exchanges_in(engine, namespace), name),
    _show_exchange,
    _declare_exchange,
    _remove_exchange,
    named=exchange_named,
    required=("name", "type"),
    is_removable=_is_made,
    is_defined=_is_made,
    defined=("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments"),
)


# Policies, which the core calls rules.

#: What a policy may say, and is heeded.
HEEDED = frozenset(
    {
        "alternate-exchange",
        "consumer-timeout",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "delivery-limit",
        "expires",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        "overflow",
    }
)

#: What it may say, and means nothing here: where RabbitMQ keeps queues, and on how many nodes.
WITHOUT_EFFECT = frozenset(
    {
        "dead-letter-strategy",
        "ha-mode",
        "ha-params",
        "ha-promote-on-failure",
        "ha-promote-on-shutdown",
        "ha-sync-batch-size",
        "ha-sync-mode",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "queue-master-locator",
        "queue-mode",
        "queue-version",
    }
)


def _show_policy(namespace: str, rule: Rule) -> Item:
    return {
        "vhost": vhost_of(namespace),
        "name": rule.name,
        "pattern": rule.pattern,
        "apply-to": str(rule.applies_to),
        "definition": rule.definition,
        "priority": rule.priority,
    }


def _set_policy(namespace: str, name: str, body: Item, _: Rule | None) -> SetRule:
    """Read a policy. What it applies to may be written with a hyphen or an underscore."""
    require(body, "pattern", "definition")
    wanted = text(body, "apply-to", text(body, "apply_to", AppliesTo.ALL))
    if wanted not in tuple(AppliesTo):
        raise bad(f"apply-to: {wanted!r} is none of {', '.join(AppliesTo)}")
    given = fields(body, definition={})
    if unknown := sorted(given["definition"].keys() - HEEDED - WITHOUT_EFFECT):
        raise bad(f"Validation failed\n\n{', '.join(unknown)} are not recognised policy settings\n")
    given |= fields(body, pattern="", priority=0)
    rule = Rule(name, applies_to=AppliesTo(wanted), **given)
    return SetRule(rule=rule, namespace=namespace, by=by())


POLICIES = Resource(
    "policies",
    views.rules_in,
    lambda engine, namespace, name: _named(views.rules_in(engine, namespace), name),
    _show_policy,
    _set_policy,
    lambda namespace, rule, _: ClearRule(rule=rule.name, namespace=namespace, by=by()),
)


# The routes that all of them have.


def find(
    engine: Engine,
    resource: Resource,
    vhost: str,
    name: str,
    needs: Permission = Permission.READ_TASKS,
) -> Any:
    namespace = namespaces(engine, vhost, needs)[0]
    found = resource.find(engine, namespace, resource.named(name))
    if found is None:
        raise not_found()
    return found


def _all(engine: Engine, resource: Resource, vhost: str | None) -> list[Item]:
    return [
        resource.show(namespace, each)
        for namespace in namespaces(engine, vhost)
        for each in resource.all(engine, namespace)
    ]


def _add_routes(resource: Resource) -> None:
    path = f"/{resource.path}"
    one = f"{path}/{{vhost}}/{{name}}"

    @routes.get(path, "read_tasks")
    @routes.get(f"{path}/{{vhost}}", "read_tasks")
    async def list_all(request: Request, vhost: str | None = None) -> Response:
        """List those of a virtual host, or of all."""
        broker = context_of(request).broker
        items = await broker.read(lambda engine: _all(engine, resource, vhost))
        resource.complete(request, items, True)
        return listed(request, items)

    @routes.get(one, "read_tasks")
    async def read(request: Request, vhost: str, name: str) -> Response:
        """Show one."""
        broker = context_of(request).broker
        found = await broker.read(lambda engine: find(engine, resource, vhost, name))
        item = resource.show(namespace_of(vhost), found)
        resource.complete(request, [item], False)
        return shown(request, item)

    @routes.put(one, "admin")
    async def declare(request: Request, vhost: str, name: str) -> Response:
        """Declare one."""
        context, body = context_of(request), await read_json(request)
        found = await context.find(lambda engine: find(engine, resource, vhost, name))
        await context.ask(resource.declare(namespace_of(vhost), resource.named(name), body, found))
        return Response(status=201 if found is None else 204)

    @routes.delete(one, "admin")
    async def remove(request: Request, vhost: str, name: str) -> Response:
        """Remove one."""
        context = context_of(request)
        found = await context.broker.read(lambda engine: find(engine, resource, vhost, name))
        await context.ask(resource.remove(namespace_of(vhost), found, request.query))
        return Response(status=204)


for _resource in (QUEUES, EXCHANGES, POLICIES):
    _add_routes(_resource)


# Bindings: those between two ends, and all of one end.

#: The ends of bindings as paths name them: `q` for a queue, `e` for an exchange.
_IS_EXCHANGE = {"q": False, "e": True}

_BETWEEN = "/bindings/{vhost}/e/{source}/{kind}/{target}"

Fits = Callable[[Binding], bool]


@routes.get("/bindings", "read_tasks")
@routes.get("/bindings/{vhost}", "read_tasks")
async def list_bindings(request: Request, vhost: str | None = None) -> Response:
    """List the bindings of a virtual host, or of all."""
    return await _list_bindings(request, vhost, lambda _: True)


@routes.get("/queues/{vhost}/{name}/bindings", "read_tasks")
async def list_bindings_of_queue(request: Request, vhost: str, name: str) -> Response:
    """List the bindings that lead to a queue."""
    await context_of(request).broker.read(lambda engine: find(engine, QUEUES, vhost, name))
    return await _list_bindings(
        request, vhost, lambda each: not each.is_to_exchange and each.to == name
    )


@routes.get("/exchanges/{vhost}/{name}/bindings/{end}", "read_tasks")
async def list_bindings_of_exchange(request: Request, vhost: str, name: str, end: str) -> Response:
    """List the bindings whose source, or whose destination, is an exchange."""
    if end not in ("source", "destination"):
        raise not_found()
    await context_of(request).broker.read(lambda engine: find(engine, EXCHANGES, vhost, name))
    exchange = exchange_named(name)
    if end == "source":
        return await _list_bindings(request, vhost, lambda each: each.source == exchange)
    return await _list_bindings(
        request, vhost, lambda each: each.is_to_exchange and each.to == exchange
    )


@routes.get(_BETWEEN, "read_tasks")
async def list_bindings_between(
    request: Request, vhost: str, source: str, kind: str, target: str
) -> Response:
    """List the bindings between two ends."""
    return await _list_bindings(request, vhost, _between(source, kind, target))


@routes.post(_BETWEEN, "admin")
async def bind(request: Request, vhost: str, source: str, kind: str, target: str) -> Response:
    """Bind two ends."""
    body = await read_json(request)
    end = {"destination_type": "exchange" if _is_exchange(kind) else "queue"}
    to = exchange_named(target) if _is_exchange(kind) else target
    ends = {"source": exchange_named(source), "destination": to, **end}
    command = _bind(namespace_of(vhost), body | ends)
    await context_of(request).ask(command)
    where = f"{quote(target, safe='')}/{quote(key_of(command.binding))}"
    return Response(status=201, headers={"Location": where})


@routes.get(_BETWEEN + "/{key}", "read_tasks")
async def read_binding(
    request: Request, *, vhost: str, source: str, kind: str, target: str, key: str
) -> Response:
    """Show a binding."""
    binding = await _find_binding(request, vhost, _between(source, kind, target), key)
    return shown(request, _show_binding(namespace_of(vhost), binding))


@routes.delete(_BETWEEN + "/{key}", "admin")
async def unbind(
    request: Request, *, vhost: str, source: str, kind: str, target: str, key: str
) -> Response:
    """Undo a binding."""
    binding = await _find_binding(request, vhost, _between(source, kind, target), key)
    await context_of(request).ask(Unbind(binding=binding, namespace=namespace_of(vhost), by=by()))
    return Response(status=204)


def _show_binding(namespace: str, binding: Binding) -> Item:
    return {
        "source": binding.source,
        "vhost": vhost_of(namespace),
        "destination": binding.to,
        "destination_type": "exchange" if binding.is_to_exchange else "queue",
        "routing_key": binding.key,
        "arguments": binding.arguments,
        "properties_key": key_of(binding),
    }


def _bind(namespace: str, body: Item) -> Bind:
    given = fields(
        body, source="", destination="", destination_type="", routing_key="", arguments={}
    )
    source, to, kind, key, arguments = given.values()
    binding = Binding(source, to, kind == "exchange", key, arguments)
    return Bind(binding=binding, namespace=namespace, by=by())


def _is_exchange(kind: str) -> bool:
    if kind not in _IS_EXCHANGE:
        raise not_found()
    return _IS_EXCHANGE[kind]


def _between(source: str, kind: str, target: str) -> Fits:
    is_exchange = _is_exchange(kind)
    ends = exchange_named(source), exchange_named(target) if is_exchange else target
    return lambda each: (each.source, each.to) == ends and each.is_to_exchange == is_exchange


async def _list_bindings(request: Request, vhost: str | None, fits: Fits) -> Response:
    def look(engine: Engine) -> list[Item]:
        return [
            _show_binding(namespace, binding)
            for namespace in namespaces(engine, vhost)
            for binding in views.bindings_in(engine, namespace)
            if fits(binding)
        ]

    return listed(request, await context_of(request).broker.read(look))


async def _find_binding(request: Request, vhost: str, fits: Fits, key: str) -> Binding:

    def look(engine: Engine) -> Binding:
        for binding in views.bindings_in(engine, namespaces(engine, vhost)[0]):
            # The key may have come as it was told, or encoded once more.
            if fits(binding) and key_of(binding) in (key, quote(key, safe="")):
                return binding
        raise not_found()

    return await context_of(request).broker.read(look)


# Definitions.

#: In the order in which they are declared: exchanges and queues before what binds them.
_DEFINED = (POLICIES, EXCHANGES, QUEUES)


@routes.get("/definitions", "admin")
async def export_all(request: Request) -> Response:
    """Export the definitions of every virtual host. Users are API keys, which stay here."""
    found = await context_of(request).broker.read(lambda engine: _export(engine, None))
    return answer(found)


@routes.get("/definitions/{vhost}", "admin")
async def export_vhost(request: Request, vhost: str) -> Response:
    """Export the definitions of a virtual host, without its name."""
    found = await context_of(request).broker.read(lambda engine: _export(engine, vhost))
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
    where = namespaces(engine, vhost)
    document: Item = {
        "rabbit_version": SPOKEN_VERSION,
        "rabbitmq_version": SPOKEN_VERSION,
        "product_name": "Jackalope",
        "users": [],
        "vhosts": [{"name": vhost_of(namespace)} for namespace in where],
        "permissions": [],
        "topic_permissions": [],
        "parameters": [],
        "global_parameters": [],
        "policies": [],
        "queues": [],
        "exchanges": [],
        "bindings": [],
    }
    for namespace in where:
        for resource in _DEFINED:
            things = filter(resource.is_defined, resource.all(engine, namespace))
            items = [resource.show(namespace, each) for each in things]
            document[resource.path] += [
                {name: item[name] for name in resource.defined or item} for item in items
            ]
        owned = {queue.name for queue in views.queues_in(engine, namespace) if queue.is_owned}
        for binding in views.bindings_in(engine, namespace):
            if binding.source and (binding.is_to_exchange or binding.to not in owned):
                item = _show_binding(namespace, binding)
                del item["properties_key"]
                document["bindings"].append(item)
    return document


async def _import(request: Request, vhost: str | None) -> Response:
    context, body = context_of(request), await read_json(request)
    # All of it is read before any of it is done.
    for command in list(_commands(body, vhost)):
        await context.ask(command)
    return Response(status=204)


def _commands(body: Item, vhost: str | None) -> Iterator[AnyMessaging]:
    for resource in _DEFINED:
        for each in _each(body, resource.path):
            require(each, *resource.required)
            # What a document leaves out is durable, unlike what a request declares.
            terms = {"durable": True, **each}
            yield resource.declare(_where(each, vhost), text(each, "name"), terms, None)
    for each in _each(body, "bindings"):
        require(each, "source", "destination", "destination_type")
        yield _bind(_where(each, vhost), each)


def _each(body: Item, kind: str) -> list[Item]:
    found = body.get(kind, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise bad(f"{kind}: must be a list of objects")
    return found


def _where(each: Item, vhost: str | None) -> str:
    return namespace_of(vhost or text(each, "vhost", DEFAULT_VHOST))

"""Policies of the management API, which the core calls rules."""

from __future__ import annotations

from typing import Any

from jackalope.broker.engine import Engine
from jackalope.core.commands.amqp import ClearRule, SetRule
from jackalope.core.shapes.exchange import AppliesTo, Rule
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.management import views
from jackalope.doors.http.management.conventions import (
    bad,
    by,
    listed,
    not_found,
    number,
    read_json,
    require,
    room_of,
    shown,
    table,
    text,
)
from jackalope.doors.http.request import Request
from jackalope.doors.http.router import Routes
from jackalope.wire.amqp_errors import namespace_of

routes = Routes("/api")


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


@routes.get("/policies", "read_tasks")
async def list_all_policies(request: Request) -> Response:
    """List the policies of every virtual host."""
    return await _list(request, None)


@routes.get("/policies/{vhost}", "read_tasks")
async def list_policies(request: Request, vhost: str) -> Response:
    """List the policies of a virtual host."""
    return await _list(request, vhost)


async def _list(request: Request, vhost: str | None) -> Response:
    def look(engine: Engine) -> list[views.Item]:
        return [
            views.show_rule(namespace, rule)
            for namespace in views.namespaces(engine, vhost)
            for _, rule in sorted(namespace.topology.rules.items())
        ]

    return listed(request, await room_of(request).broker.read(look))


@routes.get("/policies/{vhost}/{name}", "read_tasks")
async def read_policy(request: Request, vhost: str, name: str) -> Response:
    """Show a policy."""
    where = vhost, name
    return shown(request, await room_of(request).broker.read(lambda e: _rule(e, *where)))


@routes.put("/policies/{vhost}/{name}", "admin")
async def set_policy(request: Request, vhost: str, name: str) -> Response:
    """Set a policy."""
    room = room_of(request)
    body = await read_json(request)
    where = vhost, name
    is_there = await room.has(lambda engine: _rule(engine, *where))
    rule = rule_of(where[1], body)
    await room.ask(SetRule(rule=rule, namespace=namespace_of(where[0]), by=by()))
    return Response(status=204 if is_there else 201)


@routes.delete("/policies/{vhost}/{name}", "admin")
async def clear_policy(request: Request, vhost: str, name: str) -> Response:
    """Take a policy back."""
    room = room_of(request)
    where = vhost, name
    await room.broker.read(lambda engine: _rule(engine, *where))
    await room.ask(ClearRule(rule=where[1], namespace=namespace_of(where[0]), by=by()))
    return Response(status=204)


def rule_of(name: str, body: dict[str, Any]) -> Rule:
    """Read a policy. What it applies to may be written with a hyphen or an underscore.

    Raises:
        Problem: it is not well formed.
    """
    require(body, "pattern", "definition")
    wanted = text(body, "apply-to", text(body, "apply_to", AppliesTo.ALL))
    try:
        applies_to = AppliesTo(wanted)
    except ValueError:
        raise bad(f"apply-to: {wanted!r} is none of {', '.join(AppliesTo)}") from None
    definition = table(body, "definition")
    if unknown := sorted(definition.keys() - HEEDED - WITHOUT_EFFECT):
        raise bad(f"Validation failed\n\n{', '.join(unknown)} are not recognised policy settings\n")
    return Rule(name, text(body, "pattern"), definition, number(body, "priority"), applies_to)


def _rule(engine: Engine, vhost: str, name: str) -> views.Item:
    namespace = views.namespaces(engine, vhost)[0]
    rule = namespace.topology.rules.get(name)
    if rule is None:
        raise not_found()
    return views.show_rule(namespace, rule)

"""The broker as a whole, in the management API: overview, nodes, vhosts, health, connections."""

from __future__ import annotations

import os

from jackalope import __version__
from jackalope.broker.access import acting
from jackalope.broker.engine import Engine
from jackalope.broker.views import amqp as views
from jackalope.broker.views.amqp import Link, LinkChannel, Totals
from jackalope.core.api_key import Permission
from jackalope.core.commands.amqp import AnyMessaging
from jackalope.core.durations import MILLISECOND
from jackalope.core.shapes.exchange import Kind
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.management.conventions import (
    NODE,
    SPOKEN_VERSION,
    Context,
    Item,
    admit_to,
    context_of,
    listed,
    namespaces,
    not_found,
    shown,
)
from jackalope.doors.http.management.resources import EXCHANGES, POLICIES, QUEUES
from jackalope.doors.http.request import Request, answer
from jackalope.doors.http.router import Routes
from jackalope.wire.amqp import namespace_of, vhost_of

routes = Routes("/api")


@routes.get("/overview", "read_tasks")
async def read_overview(request: Request) -> Response:
    """Show how much there is of everything."""
    context = context_of(request)
    totals = await context.broker.read(_totals)
    links = context.links()
    channels = [channel for link in links for channel in link.channels]
    object_totals = {
        "exchanges": sum(each.exchanges for each in totals),
        "queues": sum(each.queues for each in totals),
        "channels": len(channels),
        "connections": len(links),
        "consumers": sum(len(channel.consumers) for channel in channels),
    }
    return shown(
        request,
        {
            "management_version": SPOKEN_VERSION,
            "rates_mode": "basic",
            "exchange_types": _exchange_types(),
            "product_version": __version__,
            "product_name": "Jackalope",
            "rabbitmq_version": SPOKEN_VERSION,
            "cluster_name": NODE,
            "object_totals": object_totals,
            "node": NODE,
            "listeners": _listeners(context),
            "contexts": [],
            "queue_totals": _messages(totals),
        },
    )


@routes.get("/whoami", "")
async def read_whoami(_: Request) -> Response:
    """Show who asks."""
    principal = acting.get()
    if principal.key is None:
        return answer({"name": "guest", "tags": ["administrator"]})
    is_admin = principal.may(Permission.ADMIN)
    tags = ["administrator"] if is_admin else ["management"]
    return answer({"name": principal.key.name, "tags": tags})


@routes.get("/nodes", "read_tasks")
async def list_nodes(request: Request) -> Response:
    """List the nodes: this one."""
    return listed(request, [_show_node(context_of(request))])


@routes.get("/nodes/{name}", "read_tasks")
async def read_node(request: Request, name: str) -> Response:
    """Show a node."""
    if name != NODE:
        raise not_found()
    return shown(request, _show_node(context_of(request)))


@routes.get("/cluster-name", "read_tasks")
async def read_cluster_name(_: Request) -> Response:
    """Show the name of the cluster."""
    return answer({"name": NODE})


@routes.get("/extensions", "read_tasks")
async def list_extensions(_: Request) -> Response:
    """List what extends this API: nothing."""
    return answer([])


@routes.get("/aliveness-test/{vhost}", "read_tasks")
async def test_aliveness(request: Request, vhost: str) -> Response:
    """Tell whether messages can be written and read."""
    context = context_of(request)
    await context.broker.read(lambda engine: namespaces(engine, vhost))
    return _health(context)


@routes.get("/health/checks/{check}", "read_tasks")
async def check_health(request: Request, check: str) -> Response:
    """Answer one of the checks: whether the broker can write."""
    if check not in ("alarms", "local-alarms", "virtual-hosts", "node-is-quorum-critical"):
        raise not_found()
    return _health(context_of(request))


def _health(context: Context) -> Response:
    trouble = context.broker.health.shortage()
    if trouble:
        return answer({"status": "failed", "reason": trouble}, 503)
    return answer({"status": "ok"})


# Virtual hosts.


@routes.get("/vhosts", "read_tasks")
async def list_vhosts(request: Request) -> Response:
    """List the virtual hosts."""

    def look(engine: Engine) -> list[Item]:
        return [_show_vhost(engine, namespace) for namespace in namespaces(engine)]

    return listed(request, await context_of(request).broker.read(look))


@routes.get("/vhosts/{vhost}", "read_tasks")
async def read_vhost(request: Request, vhost: str) -> Response:
    """Show a virtual host."""
    found = await context_of(request).broker.read(
        lambda engine: _show_vhost(engine, namespaces(engine, vhost)[0])
    )
    return shown(request, found)


@routes.put("/vhosts/{vhost}", "admin")
async def make_vhost(request: Request, vhost: str) -> Response:
    """Make a virtual host. Every name is one already: it comes into being with what is in it."""
    name = namespace_of(vhost)
    admit_to(name)
    is_there = await context_of(request).broker.read(
        lambda engine: name in views.namespaces(engine)
    )
    return Response(status=204 if is_there else 201)


@routes.delete("/vhosts/{vhost}", "admin")
async def delete_vhost(request: Request, vhost: str) -> Response:
    """Delete all that is in a virtual host."""
    context = context_of(request)
    admit_to(namespace_of(vhost))
    for command in await context.broker.read(lambda engine: _removals(engine, vhost)):
        await context.ask(command)
    return Response(status=204)


def _removals(engine: Engine, vhost: str) -> list[AnyMessaging]:
    """Return what removes everything from a virtual host."""
    namespace = namespaces(engine, vhost)[0]
    removals = [
        resource.remove(namespace, each, {})
        for resource in (QUEUES, EXCHANGES, POLICIES)
        for each in resource.all(engine, namespace)
        if resource.is_removable(each)
    ]
    if not removals:
        raise not_found()
    return removals


def _totals(engine: Engine) -> list[Totals]:
    return [views.totals(engine, namespace) for namespace in namespaces(engine)]


def _messages(totals: list[Totals]) -> Item:
    total = sum(each.unfinished for each in totals)
    leased = sum(each.leased for each in totals)
    return {"messages": total, "messages_ready": total - leased, "messages_unacknowledged": leased}


def _show_vhost(engine: Engine, namespace: str) -> Item:
    return {
        "cluster_state": {NODE: "running"},
        "description": "",
        **_messages([views.totals(engine, namespace)]),
        "name": vhost_of(namespace),
        "tags": [],
        "tracing": False,
    }


def _show_node(context: Context) -> Item:
    return {
        "name": NODE,
        "type": "disc",
        "running": True,
        "os_pid": str(os.getpid()),
        "uptime": (context.broker.now_us() - context.broker.started_us) // MILLISECOND,
        "processors": os.cpu_count(),
        "mem_alarm": False,
        "disk_free_alarm": bool(context.broker.health.shortage()),
        "partitions": [],
        "exchange_types": _exchange_types(),
    }


def _exchange_types() -> list[Item]:
    return [
        {
            "name": str(kind),
            "description": f"AMQP {kind} exchange, as per the AMQP specification",
            "enabled": True,
        }
        for kind in sorted(Kind)
    ]


def _listeners(context: Context) -> list[Item]:
    ports = {"amqp": context.amqp_port, "http": context.port}
    return [{"node": NODE, "protocol": name, "port": port} for name, port in ports.items()]


# Connections, channels and consumers.

#: The header in which a client gives the reason to close a connection.
_REASON_HEADER = "x-reason"
_REASON_CHARS_MAX = 200


@routes.get("/connections", "read_tasks")
@routes.get("/vhosts/{vhost}/connections", "read_tasks")
async def list_connections(request: Request, vhost: str | None = None) -> Response:
    """List the connections over AMQP to a virtual host, or to all."""
    return listed(request, [_show_link(link) for link in context_of(request).links(vhost)])


@routes.get("/connections/{name}", "read_tasks")
async def read_connection(request: Request, name: str) -> Response:
    """Show a connection."""
    return shown(request, _show_link(_link(request, name)))


@routes.delete("/connections/{name}", "admin")
async def close_connection(request: Request, name: str) -> Response:
    """Close a connection."""
    told = request.header(_REASON_HEADER, "Closed via management plugin")
    if not context_of(request).close_link(name, told[:_REASON_CHARS_MAX]):
        raise not_found()
    return Response(status=204)


@routes.get("/connections/{name}/channels", "read_tasks")
async def list_channels_of_connection(request: Request, name: str) -> Response:
    """List the channels of a connection."""
    link = _link(request, name)
    return listed(request, [_show_channel(link, channel) for channel in link.channels])


@routes.get("/channels", "read_tasks")
@routes.get("/vhosts/{vhost}/channels", "read_tasks")
async def list_channels(request: Request, vhost: str | None = None) -> Response:
    """List the channels of a virtual host, or of all."""
    return listed(request, _channels(request, vhost))


@routes.get("/channels/{name}", "read_tasks")
async def read_channel(request: Request, name: str) -> Response:
    """Show a channel and its consumers."""
    for item in _channels(request):
        if item["name"] == name:
            consumers = [
                each
                for each in context_of(request).consumers()
                if each["channel_details"]["name"] == item["name"]
            ]
            return shown(request, item | {"consumer_details": consumers})
    raise not_found()


@routes.get("/consumers", "read_tasks")
@routes.get("/consumers/{vhost}", "read_tasks")
async def list_consumers(request: Request, vhost: str | None = None) -> Response:
    """List the consumers over AMQP of a virtual host, or of all."""
    return listed(request, context_of(request).consumers(vhost))


def _link(request: Request, name: str) -> Link:
    for link in context_of(request).links():
        if link.name == name:
            return link
    raise not_found()


def _channels(request: Request, vhost: str | None = None) -> list[Item]:
    return [
        _show_channel(link, channel)
        for link in context_of(request).links(vhost)
        for channel in link.channels
    ]


def _show_link(link: Link) -> Item:
    return {
        "auth_mechanism": "PLAIN",
        "channel_max": link.channel_max,
        "channels": len(link.channels),
        "client_properties": link.properties,
        "connected_at": link.since_us // MILLISECOND,
        "frame_max": link.frame_bytes_max,
        "host": link.here[0],
        "name": link.name,
        "node": NODE,
        "peer_host": link.peer[0],
        "peer_port": link.peer[1],
        "port": link.here[1],
        "protocol": link.protocol,
        "ssl": link.is_encrypted,
        "state": "running",
        "timeout": link.heartbeat_s,
        "type": "network",
        "user": link.user,
        "user_who_performed_action": link.user,
        "vhost": vhost_of(link.namespace),
    }


def _show_channel(link: Link, channel: LinkChannel) -> Item:
    return {
        "confirm": channel.is_confirming,
        "connection_details": {
            "name": link.name,
            "peer_host": link.peer[0],
            "peer_port": link.peer[1],
        },
        "consumer_count": len(channel.consumers),
        "global_prefetch_count": channel.prefetch_of_all,
        "messages_unacknowledged": channel.unanswered,
        "name": f"{link.name} ({channel.number})",
        "node": NODE,
        "number": channel.number,
        "prefetch_count": channel.prefetch,
        "state": "running",
        "transactional": channel.is_transactional,
        "user": link.user,
        "user_who_performed_action": link.user,
        "vhost": vhost_of(link.namespace),
    }

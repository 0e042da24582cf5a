"""Connections, channels and consumers of the management API."""

from __future__ import annotations

from jackalope.broker.connection_info import Link, LinkChannel
from jackalope.core.durations import MILLISECOND
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.management.conventions import (
    NODE,
    Item,
    context_of,
    listed,
    not_found,
    shown,
)
from jackalope.doors.http.request import Request
from jackalope.doors.http.router import Routes
from jackalope.wire.amqp_errors import vhost_of

routes = Routes("/api")


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

"""Connections, channels and consumers of the management API."""

from __future__ import annotations

from litestar import delete, get
from litestar.params import FromPath

from jackalope.broker.connection_info import Link, LinkChannel
from jackalope.core.api_key import Permission
from jackalope.core.durations import MILLISECOND
from jackalope.doors.http.management.conventions import (
    NODE,
    Answer,
    Asked,
    Item,
    Nothing,
    listed,
    named,
    not_found,
    nothing,
    room_of,
    shown,
)
from jackalope.wire.amqp_errors import vhost_of

_READ = {"permission": Permission.READ_TASKS}
_ADMIN = {"permission": Permission.ADMIN}

#: The header in which a client gives the reason to close a connection.
_REASON_HEADER = "X-Reason"
_REASON_CHARS_MAX = 200


@get("/connections", opt=_READ)
async def list_connections(request: Asked) -> Answer:
    """List every connection over AMQP."""
    return listed(request, [_show_link(link) for link in room_of(request).links()])


@get("/vhosts/{vhost:str}/connections", opt=_READ)
async def list_connections_of_vhost(request: Asked, vhost: FromPath[str]) -> Answer:
    """List the connections to a virtual host."""
    links = room_of(request).links(named(vhost))
    return listed(request, [_show_link(link) for link in links])


@get("/connections/{name:str}", opt=_READ)
async def read_connection(request: Asked, name: FromPath[str]) -> Answer:
    """Show a connection."""
    return shown(request, _show_link(_link(request, named(name))))


@delete("/connections/{name:str}", opt=_ADMIN, status_code=204)
async def close_connection(request: Asked, name: FromPath[str]) -> Nothing:
    """Close a connection."""
    told = request.headers.get(_REASON_HEADER, "Closed via management plugin")
    if not room_of(request).close_link(named(name), told[:_REASON_CHARS_MAX]):
        raise not_found()
    return nothing()


@get("/connections/{name:str}/channels", opt=_READ)
async def list_channels_of_connection(request: Asked, name: FromPath[str]) -> Answer:
    """List the channels of a connection."""
    link = _link(request, named(name))
    return listed(request, [_show_channel(link, channel) for channel in link.channels])


@get("/channels", opt=_READ)
async def list_channels(request: Asked) -> Answer:
    """List every channel."""
    return listed(request, _channels(request, None))


@get("/vhosts/{vhost:str}/channels", opt=_READ)
async def list_channels_of_vhost(request: Asked, vhost: FromPath[str]) -> Answer:
    """List the channels of a virtual host."""
    return listed(request, _channels(request, named(vhost)))


@get("/channels/{name:str}", opt=_READ)
async def read_channel(request: Asked, name: FromPath[str]) -> Answer:
    """Show a channel and its consumers."""
    for item in _channels(request, None):
        if item["name"] == named(name):
            consumers = [
                each
                for each in room_of(request).consumers()
                if each["channel_details"]["name"] == item["name"]
            ]
            return shown(request, item | {"consumer_details": consumers})
    raise not_found()


@get("/consumers", opt=_READ)
async def list_consumers(request: Asked) -> Answer:
    """List every consumer over AMQP."""
    return listed(request, room_of(request).consumers())


@get("/consumers/{vhost:str}", opt=_READ)
async def list_consumers_of_vhost(request: Asked, vhost: FromPath[str]) -> Answer:
    """List the consumers of a virtual host."""
    return listed(request, room_of(request).consumers(named(vhost)))


def _link(request: Asked, name: str) -> Link:
    for link in room_of(request).links():
        if link.name == name:
            return link
    raise not_found()


def _channels(request: Asked, vhost: str | None) -> list[Item]:
    return [
        _show_channel(link, channel)
        for link in room_of(request).links(vhost)
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


ROUTES = [
    list_connections,
    list_connections_of_vhost,
    read_connection,
    close_connection,
    list_channels_of_connection,
    list_channels,
    list_channels_of_vhost,
    read_channel,
    list_consumers,
    list_consumers_of_vhost,
]

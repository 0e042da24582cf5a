"""Queues of the management API."""

from __future__ import annotations

from litestar import delete, get, put
from litestar.params import FromPath

from jackalope.broker.engine import Engine
from jackalope.core.access import Permission
from jackalope.core.messaging import OpenQueue, PurgeQueue, RemoveQueue
from jackalope.doors.http.management import views
from jackalope.doors.http.management.lists import listed, shown
from jackalope.doors.http.management.room import by, room_of
from jackalope.doors.http.management.words import (
    Answer,
    Asked,
    Nothing,
    flag,
    named,
    namespace_of,
    nothing,
    read_json,
    table,
)

_READ = {"permission": Permission.READ_TASKS}
_ADMIN = {"permission": Permission.ADMIN}


@get("/queues", opt=_READ)
async def list_all_queues(request: Asked) -> Answer:
    """List the queues of every virtual host."""
    return await _list(request, None)


@get("/queues/{vhost:str}", opt=_READ)
async def list_queues(request: Asked, vhost: FromPath[str]) -> Answer:
    """List the queues of a virtual host."""
    return await _list(request, named(vhost))


async def _list(request: Asked, vhost: str | None) -> Answer:
    with_numbers = request.query_params.get("disable_stats") != "true"

    def look(engine: Engine) -> list[views.Item]:
        return [
            views.show_queue(engine.core, queue, with_numbers=with_numbers)
            for world in views.worlds(engine, vhost)
            for queue in views.queues(world)
        ]

    room = room_of(request)
    items = await room.broker.read(look)
    if with_numbers:
        room.add_numbers(items)
    return listed(request, items)


@get("/queues/{vhost:str}/{name:str}", opt=_READ)
async def read_queue(request: Asked, vhost: FromPath[str], name: FromPath[str]) -> Answer:
    """Show a queue and its consumers."""
    room = room_of(request)
    where = named(vhost), named(name)
    item = await room.broker.read(
        lambda engine: views.show_queue(engine.core, views.queue_in(engine, *where))
    )
    room.add_numbers([item])
    item["consumer_details"] = room.consumers(*where)
    return shown(request, item)


@put("/queues/{vhost:str}/{name:str}", opt=_ADMIN)
async def declare_queue(request: Asked, vhost: FromPath[str], name: FromPath[str]) -> Nothing:
    """Declare a queue."""
    room = room_of(request)
    body = await read_json(request)
    where = named(vhost), named(name)
    is_there = await room.has(lambda engine: views.queue_in(engine, *where))
    await room.ask(
        OpenQueue(
            queue=where[1],
            durable=flag(body, "durable", default=False),
            auto_delete=flag(body, "auto_delete", default=False),
            arguments=table(body, "arguments"),
            namespace=namespace_of(where[0]),
            by=by(),
        )
    )
    return nothing(204 if is_there else 201)


@delete("/queues/{vhost:str}/{name:str}", opt=_ADMIN, status_code=204)
async def delete_queue(request: Asked, vhost: FromPath[str], name: FromPath[str]) -> Nothing:
    """Delete a queue with all that is in it."""
    room = room_of(request)
    where = named(vhost), named(name)
    await room.broker.read(lambda engine: views.queue_in(engine, *where))
    asked = request.query_params
    await room.ask(
        RemoveQueue(
            queue=where[1],
            if_unused=asked.get("if-unused") == "true",
            if_empty=asked.get("if-empty") == "true",
            namespace=namespace_of(where[0]),
            by=by(),
        )
    )
    return nothing()


@delete("/queues/{vhost:str}/{name:str}/contents", opt=_ADMIN, status_code=204)
async def purge_queue(request: Asked, vhost: FromPath[str], name: FromPath[str]) -> Nothing:
    """Drop what is ready in a queue."""
    room = room_of(request)
    where = named(vhost), named(name)
    await room.broker.read(lambda engine: views.queue_in(engine, *where))
    await room.ask(PurgeQueue(queue=where[1], namespace=namespace_of(where[0]), by=by()))
    return nothing()


ROUTES = [
    list_all_queues,
    list_queues,
    read_queue,
    declare_queue,
    delete_queue,
    purge_queue,
]

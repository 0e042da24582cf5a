"""Queues of the management API."""

from __future__ import annotations

from jackalope.broker.engine import Engine
from jackalope.core.api_key import Permission
from jackalope.core.commands.amqp import OpenQueue, PurgeQueue, RemoveQueue
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.management import views
from jackalope.doors.http.management.conventions import (
    Room,
    by,
    flag,
    listed,
    read_json,
    room_of,
    shown,
    table,
)
from jackalope.doors.http.request import Request
from jackalope.doors.http.router import Routes
from jackalope.wire.amqp_errors import namespace_of

routes = Routes("/api")


@routes.get("/queues", "read_tasks")
async def list_all_queues(request: Request) -> Response:
    """List the queues of every virtual host."""
    return await _list(request, None)


@routes.get("/queues/{vhost}", "read_tasks")
async def list_queues(request: Request, vhost: str) -> Response:
    """List the queues of a virtual host."""
    return await _list(request, vhost)


async def _list(request: Request, vhost: str | None) -> Response:
    with_numbers = request.query.get("disable_stats") != "true"

    def look(engine: Engine) -> list[views.Item]:
        core, items = engine.core, []
        for namespace in views.namespaces(engine, vhost):
            for queue in views.queues(namespace):
                items.append(views.show_queue(core, queue, with_numbers=with_numbers))
                items += [
                    views.show_requests(core, queue, key, with_numbers=with_numbers)
                    for key in views.keys_of(core, queue)
                ]
        return items

    room = room_of(request)
    items = await room.broker.read(look)
    if with_numbers:
        room.add_numbers(items)
    return listed(request, items)


@routes.get("/queues/{vhost}/{name}", "read_tasks")
async def read_queue(request: Request, vhost: str, name: str) -> Response:
    """Show a queue and its consumers."""
    room = room_of(request)
    where = vhost, name

    def look(engine: Engine) -> views.Item:
        queue, key = views.place_in(engine, *where)
        if key is None:
            return views.show_queue(engine.core, queue)
        return views.show_requests(engine.core, queue, key)

    item = await room.broker.read(look)
    room.add_numbers([item])
    item["consumer_details"] = room.consumers(*where)
    return shown(request, item)


@routes.put("/queues/{vhost}/{name}", "admin")
async def declare_queue(request: Request, vhost: str, name: str) -> Response:
    """Declare a queue."""
    room = room_of(request)
    body = await read_json(request)
    where = vhost, name
    is_there = await room.has(lambda engine: views.queue_in(engine, *where))
    queue, key = await place_of(room, where) if is_there else (where[1], None)
    await room.ask(
        OpenQueue(
            queue=queue,
            key=key,
            durable=flag(body, "durable", default=False),
            auto_delete=flag(body, "auto_delete", default=False),
            arguments=table(body, "arguments"),
            namespace=namespace_of(where[0]),
            by=by(),
        )
    )
    return Response(status=204 if is_there else 201)


@routes.delete("/queues/{vhost}/{name}", "admin")
async def delete_queue(request: Request, vhost: str, name: str) -> Response:
    """Delete a queue with all that is in it."""
    room = room_of(request)
    where = vhost, name
    queue, key = await place_of(room, where)
    asked = request.query
    await room.ask(
        RemoveQueue(
            queue=queue,
            key=key,
            if_unused=asked.get("if-unused") == "true",
            if_empty=asked.get("if-empty") == "true",
            namespace=namespace_of(where[0]),
            by=by(),
        )
    )
    return Response(status=204)


@routes.delete("/queues/{vhost}/{name}/contents", "admin")
async def purge_queue(request: Request, vhost: str, name: str) -> Response:
    """Drop what is ready in a queue."""
    room = room_of(request)
    where = vhost, name
    queue, key = await place_of(room, where)
    namespace = namespace_of(where[0])
    await room.ask(PurgeQueue(queue=queue, key=key, namespace=namespace, by=by()))
    return Response(status=204)


async def place_of(
    room: Room, where: tuple[str, str], needs: Permission = Permission.READ_TASKS
) -> tuple[str, str | None]:
    """Return the queue that a name means, and the key if it means the requests to a pool."""

    def look(engine: Engine) -> tuple[str, str | None]:
        queue, key = views.place_in(engine, *where, needs)
        return queue.name, key

    return await room.broker.read(look)

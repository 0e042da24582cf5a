"""The pulse: the current state of a namespace, sent to a page as often as it changes.

Owns how often that is. It costs the same whether a task a second is done or a hundred thousand: the
events of single tasks have an endpoint of their own (`rest/events`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
from uvicorn.protocols.utils import ClientDisconnected

from jackalope.broker import queries
from jackalope.broker.access import sees
from jackalope.broker.queries import Refused
from jackalope.doors.http.request import WebSocket, door_of, namespace_of
from jackalope.doors.http.rest.queues import QueueShown, show_queue
from jackalope.doors.http.rest.stats import StatsShown, show_stats
from jackalope.doors.http.rest.workers import WorkerShown, show_worker
from jackalope.doors.http.router import Routes

routes = Routes()


#: How often a page is sent what has changed, and how often that nothing has.
BEAT_S = 1.0
QUIET_BEATS = 5

_POLICY_VIOLATION = 1008
_GOING_AWAY = 1001

_encode = msgspec.json.Encoder().encode


class Pulse(msgspec.Struct, tag_field="type", tag="pulse"):
    """A namespace as it is now."""

    sequence: int  # grows whenever anything durable happens
    stats: StatsShown  # the namespace in numbers
    queues: list[QueueShown]  # all that the client may see
    rates: dict[str, float]  # how many tasks a second recently succeeded in each queue
    workers: list[WorkerShown]  # those that are there, and those that left a while ago
    trouble: str  # why no new task is taken in, or nothing written; empty if that is not so


class Quiet(msgspec.Struct, tag_field="type", tag="quiet"):
    """Nothing has changed."""


_QUIET = _encode(Quiet()).decode()


@routes.websocket("/api/v1/pulse", "read_tasks")
async def pulse_socket(socket: WebSocket) -> None:
    """Tell how the namespace is, whenever that has changed, until one side has had enough."""
    first = await take_pulse(socket)
    await socket.accept()
    closing = asyncio.create_task(door_of(socket).closing.wait())
    reading = asyncio.create_task(_until_gone(socket))
    beating = asyncio.create_task(_beat(socket, first))
    tasks = (closing, reading, beating)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    refused = next((end for end in ends if isinstance(end, Refused)), None)
    with suppress(Exception):  # The page may be gone already.
        await socket.close(_POLICY_VIOLATION if refused else _GOING_AWAY, str(refused or "")[:100])


async def take_pulse(socket: WebSocket) -> Pulse:
    """Return the namespace as it is now.

    Raises:
        Refused: the client may not read it.
        Rejected: it cannot be the name of a namespace.
    """
    broker, namespace = door_of(socket).broker, namespace_of(socket)
    stats = await queries.stats(broker, namespace)
    queues = await queries.queues(broker, namespace)
    workers = await queries.workers(broker, namespace)
    return Pulse(
        sequence=stats.sequence,
        stats=show_stats(stats),
        queues=[show_queue(view) for view in queues],
        rates=broker.series.rates(namespace, broker.now_us(), broker.started_us, sees),
        workers=[show_worker(view) for view in workers],
        trouble=broker.health.shortage(),
    )


async def _beat(socket: WebSocket, pulse: Pulse) -> None:
    """Send what has changed."""
    told, quiet = b"", 0
    while True:
        text = _encode(pulse)
        pulse.stats.now = None  # It always changes.
        bare = _encode(pulse)
        quiet = quiet + 1 if bare == told else 0
        if not quiet:
            await socket.send_text(text.decode())
        elif quiet % QUIET_BEATS == 0:
            await socket.send_text(_QUIET)
        told = bare
        await asyncio.sleep(BEAT_S)
        pulse = await take_pulse(socket)


async def _until_gone(socket: WebSocket) -> None:
    """Return when the page is gone; it sends nothing."""
    with suppress(ClientDisconnected):
        while True:
            await socket.next()

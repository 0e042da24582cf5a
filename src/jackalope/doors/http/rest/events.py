"""Events over HTTP: what happens to tasks, as it happens, by WebSocket and server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import msgspec
from uvicorn.protocols.utils import ClientDisconnected

from jackalope.broker.client_session import Feed, Wanted
from jackalope.broker.config.schema import Names
from jackalope.broker.queries import Refused
from jackalope.core.ids import NO_TASK, as_task_id, id_text
from jackalope.core.lifecycle import State
from jackalope.doors.http import vocabulary
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import ErrorBody, Rejected, refusal_body
from jackalope.doors.http.request import Request, WebSocket, door_of, namespace_of, read_query
from jackalope.doors.http.rest.schemas import Id, MaybeName, Time, about, status_of, to_time
from jackalope.doors.http.router import Routes, Spec
from jackalope.doors.http.vocabulary import alias
from jackalope.wire.messages import Happened

routes = Routes("/api/v1", has_namespace=True)
updates = Routes()


#: How often an idle stream sends a sign of life.
_QUIET_S = 15.0

_GOING_AWAY = 1001

_encode_plain = msgspec.json.Encoder().encode


class EventQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What to listen to; all of the namespace if nothing is named."""

    task: Annotated[Id | None, about("Only this task.")] = None
    queue: Annotated[MaybeName, about("Only this queue.")] = ""


class EventShown(msgspec.Struct, tag_field="type", tag="event", kw_only=True):
    """Something that happened to a task, and where that has led it."""

    at: Time | None
    what: str
    task: Id
    queue: str
    state: State
    by: str
    detail: str
    name: str


class Missed(msgspec.Struct, tag_field="type", tag="missed"):
    """How many events are missing here, because they were not read in time."""

    count: int


class Listening(msgspec.Struct, tag_field="type", tag="subscribed"):
    """What is listened to from now on."""

    task: Id | None
    queue: str


class Problem(msgspec.Struct, tag_field="type", tag="error"):
    """A word that was not understood."""

    error: ErrorBody


class WordAction(StrEnum):
    """What a reader may ask for."""

    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"


class Word(msgspec.Struct, forbid_unknown_fields=True):
    """What a reader says: listen to a task, to a queue, or to everything."""

    action: WordAction
    task: Id | None = None
    queue: MaybeName = ""


for _shape in (EventQuery, Listening, Word):
    alias(_shape, names={"task": "task_id"})
alias(EventShown, names={"task": "task_id"}, added={"status": status_of}, without=("state",))


def _encode(message: msgspec.Struct) -> bytes:
    return _encode_plain(vocabulary.translated(message))


def _read_word(text: str) -> Word:
    given = vocabulary.in_our_words(msgspec.json.decode(text), Word, may_choose=False)
    return msgspec.convert(given, Word)


def _show(event: Happened) -> EventShown:
    return EventShown(
        at=to_time(event.at_us),
        what=event.what,
        task=id_text(event.task),
        queue=event.queue,
        state=State(event.state),
        by=event.by,
        detail=event.detail,
        name=event.name,
    )


def _wanted(task: str | None, queue: str) -> Wanted:
    return queue, (task and as_task_id(task)) or NO_TASK


# Server-sent events.


@routes.get("/events", "read_tasks", Spec(bytes, query=EventQuery, media_type="text/event-stream"))
async def stream_events(request: Request) -> Response:
    """Stream what happens to tasks, as server-sent events; also a WebSocket, at the same path.

    Each is an `event` with the task and what happened. A reader that is too slow gets `missed`
    with the number of events that it did not get.
    """
    query = read_query(request, EventQuery)
    door = door_of(request)
    feed = Feed(door.broker, door.feeds, namespace_of(request))
    chunks = _chunks(feed, _wanted(query.task, query.queue))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Response(chunks, headers=headers, media_type="text/event-stream; charset=utf-8")


async def _chunks(feed: Feed, wanted: Wanted) -> AsyncIterator[bytes]:
    with feed:
        feed.listen(wanted)
        yield b": listening\n\n"
        while not feed.is_over:
            events, missed = await feed.next(_QUIET_S)
            parts = [b"event: event\ndata: %b\n\n" % _encode(_show(event)) for event in events]
            if missed:
                parts.append(b"event: missed\ndata: %b\n\n" % _encode(Missed(missed)))
            yield b"".join(parts) or b": nothing new\n\n"


# WebSocket.


@routes.websocket("/events", "read_tasks")
async def events_socket(socket: WebSocket) -> None:
    """Tell what happens to what the query names, or to everything."""
    query = read_query(socket, EventQuery)
    await _serve(socket, _wanted(query.task, query.queue))


@updates.websocket("/ws/updates", "read_tasks")
async def updates_socket(socket: WebSocket) -> None:
    """Tell what happens to the tasks that the reader asks for, one word each.

    It is a route of the published task queue design, and has its names.
    """
    vocabulary.use(Names.TASK_QUEUE)
    await _serve(socket, None)


async def _serve(socket: WebSocket, wanted: Wanted | None) -> None:
    """Write what happens, and read what to listen to, until one side has had enough."""
    door = door_of(socket)
    with Feed(door.broker, door.feeds, namespace_of(socket)) as feed:
        if wanted is not None:
            feed.listen(wanted)
        await socket.accept()
        if wanted is not None:
            await _say(socket, _listening(wanted))
        tasks = {
            asyncio.create_task(_write(socket, feed)),
            asyncio.create_task(_read(socket, feed)),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
    for error in results:
        if isinstance(error, Exception) and not isinstance(error, ClientDisconnected):
            raise error
    with suppress(Exception):  # The reader may be gone already.
        await socket.close(_GOING_AWAY)


async def _write(socket: WebSocket, feed: Feed) -> None:
    while not feed.is_over:
        events, missed = await feed.next(_QUIET_S)
        for event in events:
            await _say(socket, _show(event))
        if missed:
            await _say(socket, Missed(missed))


async def _read(socket: WebSocket, feed: Feed) -> None:
    while True:
        text = (await socket.next()).get("text") or ""
        try:
            word = _read_word(text)
            wanted = _wanted(word.task, word.queue)
            if word.action is WordAction.SUBSCRIBE:
                feed.listen(wanted)
                await _say(socket, _listening(wanted))
            else:
                feed.drop(wanted)
        except (msgspec.DecodeError, UnicodeError, RecursionError, Rejected) as error:
            await _say(socket, Problem(ErrorBody(f"word: {error}", 400, "invalid")))
        except Refused as refused:
            await _say(socket, Problem(refusal_body(refused.refusal)))


def _listening(wanted: Wanted) -> Listening:
    queue, task = wanted
    return Listening(id_text(task) if task else None, queue)


async def _say(socket: WebSocket, message: msgspec.Struct) -> None:
    await socket.send_text(_encode(message).decode())

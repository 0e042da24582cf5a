"""Task logs over REST: read them, follow them, and send them as a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from jackalope.broker import queries
from jackalope.broker.client_session import follow_logs
from jackalope.broker.queries import About, Refused
from jackalope.core.commands import Held
from jackalope.core.ids import id_text
from jackalope.core.limits import (
    COUNT_MAX,
    LOG_LINE_BYTES_MAX,
    LOG_LINES_PER_FRAME_MAX,
    LOG_LINES_READ_MAX,
    NAME_CHARS_MAX,
)
from jackalope.core.shapes.task_log import (
    AttemptLogView,
    LogLevel,
    LogLine,
    LogLineView,
    LogPage,
    LogStream,
)
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import refusal_body
from jackalope.doors.http.request import (
    Request,
    answer,
    door_of,
    namespace_of,
    read_body,
    read_query,
    task_id_of,
)
from jackalope.doors.http.rest.schemas import Id, MaybeName, Time, about, from_time, to_time
from jackalope.doors.http.rest.worker_api import AttemptQuery
from jackalope.doors.http.router import Routes, Spec
from jackalope.terminal import visible

routes = Routes("/api/v1", has_namespace=True)

_LINES_DEFAULT = 1_000

_encode = msgspec.json.Encoder().encode


class LogFormat(StrEnum):
    """How lines are written."""

    JSON = "json"
    TEXT = "text"


_LineId = Annotated[str, Meta(pattern=r"^([0-9]{1,19}-[0-9]{1,19})?$")]


class LogQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which lines of a task."""

    attempt: Annotated[int, about("Of this attempt, from 1; 0 for all.", ge=0, le=COUNT_MAX)] = 0
    level: Annotated[LogLevel, about("At least as grave.")] = LogLevel.TRACE
    text: Annotated[MaybeName, about("That contain this text, in upper or lower case.")] = ""
    since: Annotated[Time | None, about("Written then or later.")] = None
    after: Annotated[_LineId, about("Behind the line with this id.")] = ""
    before: Annotated[_LineId, about("Before the line with this id.")] = ""
    limit: Annotated[int, about("The maximum number of lines.", ge=1, le=LOG_LINES_READ_MAX)] = (
        _LINES_DEFAULT
    )
    tail: Annotated[bool, about("The last lines and not the first, if there are more.")] = False
    follow: Annotated[bool, about("Go on with new lines as they come, until the task ends.")] = (
        False
    )
    format: Annotated[LogFormat, about("`json`, or `text`: lines without control characters.")] = (
        LogFormat.JSON
    )


class LogLineShown(msgspec.Struct):
    """A line that a task has printed or logged."""

    id: str
    attempt: int
    number: int
    at: Time | None
    level: LogLevel
    stream: LogStream
    logger: str
    text: str


class AttemptLogShown(msgspec.Struct):
    """What is kept of an attempt, and how many lines are not."""

    attempt: int
    lines: int
    dropped: int
    size: int
    last_at: Time | None


class LogShown(msgspec.Struct):
    """Lines of a task in their order, and what is kept of each attempt."""

    task: Id
    lines: list[LogLineShown]
    attempts: list[AttemptLogShown]
    has_more: bool
    ended: bool
    missing: str


_READ = Spec(
    LogShown, query=LogQuery, errors=(404,), other_types=("text/event-stream", "text/plain")
)


@routes.get("/tasks/{task_id}/logs", "read_tasks", _READ)
async def read_logs(request: Request, task_id: str) -> Response:
    """Return what a task has printed and logged, or follow it.

    With `follow` the answer is a stream that ends with the task: server-sent events `line`,
    `attempts` and `end`, or plain text. A reader that comes back sends `Last-Event-ID`.
    """
    query, namespace, door = read_query(request, LogQuery), namespace_of(request), door_of(request)
    asked = About(
        id=task_id_of(task_id),
        attempt=query.attempt,
        level=query.level,
        text=query.text,
        since_us=from_time(query.since),
        after_line=query.after or request.header("last-event-id"),
        before_line=query.before,
        limit=query.limit,
        is_tail=query.tail,
    )
    is_text = query.format is LogFormat.TEXT
    if not query.follow:
        page = await queries.logs(door.broker, namespace, asked)
        return _text(_lines(page)) if is_text else answer(_show(page))
    pages = follow_logs(door.broker, door.feeds, namespace, asked)
    first = await anext(pages)  # A refusal is an error, and no stream.
    if is_text:
        return _text(_text_chunks(first, pages))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    media_type = "text/event-stream; charset=utf-8"
    return Response(_event_chunks(first, pages), headers=headers, media_type=media_type)


def _text(body: bytes | AsyncIterator[bytes]) -> Response:
    # Whatever a task prints: no browser takes it for a page.
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Response(body, headers=headers, media_type="text/plain; charset=utf-8")


def _lines(page: LogPage) -> bytes:
    # For terminals, which obey what a task prints; JSON has it as it was written.
    return "".join(f"{visible(line.text)}\n" for line in page.lines).encode()


async def _text_chunks(first: LogPage, pages: AsyncIterator[LogPage]) -> AsyncIterator[bytes]:
    yield _lines(first)
    async for page in pages:
        yield _lines(page)


async def _event_chunks(first: LogPage, pages: AsyncIterator[LogPage]) -> AsyncIterator[bytes]:
    yield _events(first)
    try:
        async for page in pages:
            first = page
            yield _events(page)
    except Refused as refused:  # It was purged, or may no longer be seen.
        yield b"event: error\ndata: %b\n\n" % _encode(refusal_body(refused.refusal))
        return
    yield b"event: end\ndata: %b\n\n" % _encode({"ended": first.ended})


def _events(page: LogPage) -> bytes:
    parts = [
        b"event: line\nid: %b\ndata: %b\n\n" % (line.id.encode(), _encode(_show_line(line)))
        for line in page.lines
    ]
    shown = _show(page)
    if page.lines or page.missing:
        told = {"attempts": shown.attempts, "has_more": shown.has_more, "missing": shown.missing}
        parts.append(b"event: attempts\ndata: %b\n\n" % _encode(told))
    return b"".join(parts) or b": nothing new\n\n"


def _show(page: LogPage) -> LogShown:
    return LogShown(
        id_text(page.task),
        [_show_line(line) for line in page.lines],
        [
            AttemptLogShown(
                each.attempt, each.lines, each.dropped, each.size, to_time(each.last_us)
            )
            for each in page.attempts
        ],
        page.has_more,
        page.ended,
        page.missing,
    )


def _show_attempt(each: AttemptLogView) -> AttemptLogShown:
    last_at = to_time(each.last_us)
    return AttemptLogShown(each.attempt, each.lines, each.dropped, each.size, last_at)


def _show_line(line: LogLineView) -> LogLineShown:
    at = to_time(line.at_us)
    return LogLineShown(
        line.id, line.attempt, line.number, at, line.level, line.stream, line.logger, line.text
    )


# Workers.


class LineGiven(msgspec.Struct, forbid_unknown_fields=True):
    """A line of an attempt."""

    text: Annotated[str, about("The line, without its end.", max_length=LOG_LINE_BYTES_MAX)]
    at: Annotated[Time | None, about("When it was written; by default now.")] = None
    level: LogLevel = LogLevel.INFO
    stream: LogStream = LogStream.LOG
    logger: Annotated[str, about("The name of the logger.", max_length=NAME_CHARS_MAX)] = ""
    number: Annotated[
        int,
        about(
            "Counts the lines of the attempt from 1, so that one that is sent again is not stored "
            "again; 0 for the next number.",
            ge=0,
            le=COUNT_MAX,
        ),
    ] = 0


class LogsGiven(msgspec.Struct, forbid_unknown_fields=True):
    """Lines of an attempt, oldest first."""

    lines: Annotated[list[LineGiven], Meta(max_length=LOG_LINES_PER_FRAME_MAX)]
    last: Annotated[
        int, about("The number of the last line so far, if some are not sent.", ge=0, le=COUNT_MAX)
    ] = 0


class LogsTaken(msgspec.Struct):
    """What became of the lines."""

    kept: int
    dropped: int


@routes.post(
    "/attempts/{task_id}/logs",
    "work",
    Spec(LogsTaken, body=LogsGiven, query=AttemptQuery, errors=(404, 409)),
)
async def send_logs(request: Request, task_id: str) -> Response:
    """Keep lines that an attempt has printed or logged. They are stored when the answer comes.

    An attempt that sends too many, or too much, has the oldest dropped and counted.
    """
    query, door = read_query(request, AttemptQuery), door_of(request)
    given = await read_body(request, LogsGiven)
    known = await door.fleet.worker(namespace_of(request), query.worker)
    now_us = door.broker.now_us()
    lines = [
        LogLine(
            line.number, _at_us(line.at, now_us), line.text, line.level, line.stream, line.logger
        )
        for line in given.lines
    ]
    kept = await known.keep_logs(Held(task_id_of(task_id), query.fence), lines, given.last)
    return answer(LogsTaken(kept.kept, kept.dropped))


def _at_us(at: datetime | None, now_us: int) -> int:
    return now_us if at is None else from_time(at)

"""Task logs over gRPC: what is read, and lines that a worker sends."""

from __future__ import annotations

from jackalope.broker import queries
from jackalope.broker.client_session import follow_logs
from jackalope.broker.queries import About, Refused
from jackalope.core.durations import SECOND
from jackalope.core.limits import COUNT_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.task_log import LogLevel, LogLine, LogPage, LogStream
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.values import Words, from_time, maybe_id, to_time

_LINES_DEFAULT = 1_000

_LEVELS = Words(pb.LogLevel, LogLevel)
_STREAMS = Words(pb.LogStream, LogStream)

_SHUTTING_DOWN = Refusal(Code.OVERLOADED, "the broker is shutting down; connect again", SECOND)


async def read_logs(call: Call, request: pb.ReadLogsRequest) -> None:
    """Send the lines that are asked for, and go on with new ones if that is asked too."""
    if request.WhichOneof("which") is None:
        raise BadField("id", "set id or alias")
    about = About(
        id=maybe_id(request.id, "id"),
        alias=request.alias,
        attempt=request.attempt,
        level=_LEVELS.word(request.level, "level") or "",
        text=request.text,
        since_us=from_time(request, "since"),
        after_line=request.after,
        before_line=request.before,
        limit=request.limit or _LINES_DEFAULT,
        is_tail=request.tail,
    )
    if not request.follow:
        await call.send(_page_shown(await queries.logs(call.broker, call.namespace, about)))
        return
    page: LogPage | None = None
    async for page in follow_logs(call.broker, call.door.feeds, call.namespace, about):
        await call.send(_page_shown(page))
    if page is None or not page.ended:
        raise Refused(_SHUTTING_DOWN)


def _page_shown(page: LogPage) -> pb.ReadLogsResponse:
    return pb.ReadLogsResponse(
        lines=[
            pb.LogLine(
                id=line.id,
                attempt=line.attempt,
                number=line.number,
                at=to_time(line.at_us),
                level=_LEVELS.number(line.level),
                stream=_STREAMS.number(line.stream),
                text=line.text,
                logger=line.logger,
            )
            for line in page.lines
        ],
        attempts=[
            pb.AttemptLog(
                attempt=each.attempt,
                fence=each.fence,
                lines=each.lines,
                dropped=each.dropped,
                size=each.size,
                last_at=to_time(each.last_us),
            )
            for each in page.attempts
        ],
        has_more=page.has_more,
        ended=page.ended,
        missing=page.missing,
    )


def lines_of(written: pb.WriteLogs, now_us: int) -> list[LogLine]:
    """Return the lines that a worker sends."""
    lines = []
    for index, line in enumerate(written.lines):
        path = f"logs.lines[{index}]"
        if line.number > COUNT_MAX:
            raise BadField(f"{path}.number", f"must be at most {COUNT_MAX}")
        lines.append(
            LogLine(
                line.number,
                from_time(line, "at") or now_us,
                line.text,
                _LEVELS.word(line.level, f"{path}.level") or LogLevel.INFO,
                _STREAMS.word(line.stream, f"{path}.stream") or LogStream.LOG,
                line.logger,
            )
        )
    return lines

"""The audit log over REST: what administrators did, for administrators."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from jackalope.broker import queries
from jackalope.broker.queries import PAGE_ROWS_MAX, About
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, door_of, own_namespace, read_query
from jackalope.doors.http.rest.schemas import MaybeName, Time, about, from_time, shape_of
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import ActPage, ActView

routes = Routes("/api/v1")

_encode = msgspec.json.Encoder().encode

_show = shape_of(
    ActView, "ActShown", "An administrative act; `outcome` is `done` or the code of a refusal."
)

ActShown: Any = _show.shown


class ActList(msgspec.Struct):
    """Acts, the latest first; `cursor` requests the next page."""

    acts: list[ActShown]
    cursor: str | None


class ActFormat(StrEnum):
    """How acts are written."""

    JSON = "json"
    JSONL = "jsonl"


class ActQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which acts."""

    text: Annotated[MaybeName, about("Only with this text in any field.")] = ""
    by: Annotated[MaybeName, about("Only with this text in who did it.")] = ""
    what: Annotated[MaybeName, about("Only with this text in what was done.")] = ""
    newer_than: Annotated[Time | None, about("Done then or later.")] = None
    older_than: Annotated[Time | None, about("Done before.")] = None
    limit: Annotated[int, about("The maximum number of items.", ge=1, le=PAGE_ROWS_MAX)] = 100
    cursor: Annotated[str, about("The cursor of the previous page.", max_length=20)] = ""
    format: Annotated[
        ActFormat, about("`json`, or `jsonl`: a file with all of them, the oldest first.")
    ] = ActFormat.JSON


_READ = Spec(ActList, query=ActQuery, other_types=("application/jsonl",))


@routes.get("/audit", "admin", _READ)
async def list_acts(request: Request) -> Response:
    """List what administrators did, or tried to, the latest first.

    As `jsonl` the answer has a line for each act; `limit` and `cursor` do not count then.
    """
    query = read_query(request, ActQuery)
    asked = About(
        text=query.text,
        by=query.by,
        name=query.what,
        newer_than_us=from_time(query.newer_than),
        older_than_us=from_time(query.older_than),
        limit=query.limit,
        cursor=query.cursor,
    )
    if query.format is ActFormat.JSONL:
        return await _file(request, replace(asked, limit=PAGE_ROWS_MAX, cursor=""))
    page = await _page(request, asked)
    return answer(ActList([_show(each) for each in page.acts], page.cursor or None))


async def _file(request: Request, asked: About) -> Response:
    """Return all acts, page by page, as a file. The log is bounded."""
    lines: list[bytes] = []
    while True:
        page = await _page(request, asked)
        lines += [_encode(_show(each)) + b"\n" for each in page.acts]
        if not page.cursor:
            break
        asked = replace(asked, cursor=page.cursor)
    headers = {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": 'attachment; filename="audit.jsonl"',
    }
    return Response(b"".join(reversed(lines)), headers=headers, media_type="application/jsonl")


async def _page(request: Request, asked: About) -> ActPage:
    return await queries.audit(door_of(request).broker, own_namespace(), asked)

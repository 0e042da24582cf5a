"""The audit log over REST: what administrators did, for administrators."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from jackalope.broker import queries
from jackalope.broker.queries import About
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, door_of, own_namespace, read_query
from jackalope.doors.http.rest.schemas import about, shape_of
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import ActView

routes = Routes("/api/v1")

_show = shape_of(
    ActView, "ActShown", "An administrative act; `outcome` is `done` or the code of a refusal."
)

ActShown: Any = _show.shown


class ActList(msgspec.Struct):
    """Acts, the latest first; `cursor` requests the next page."""

    acts: list[ActShown]
    cursor: str | None


class ActQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which acts."""

    text: Annotated[str, about("Only with this text in any field.", max_length=NAME_CHARS_MAX)] = ""
    limit: Annotated[int, about("The maximum number of items.", ge=1, le=1_000)] = 100
    cursor: Annotated[str, about("The cursor of the previous page.", max_length=20)] = ""


@routes.get("/audit", "admin", Spec(ActList, query=ActQuery))
async def list_acts(request: Request) -> Response:
    """List what administrators did, or tried to, the latest first."""
    query = read_query(request, ActQuery)
    asked = About(text=query.text, limit=query.limit, cursor=query.cursor)
    page = await queries.audit(door_of(request).broker, own_namespace(), asked)
    return answer(ActList([_show(each) for each in page.acts], page.cursor or None))

"""Requests over REST: asking once, and the answers that are kept."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from jackalope.broker import queries
from jackalope.broker.client_session import of_kind
from jackalope.broker.queries import About, Refused
from jackalope.core.commands import ActOnAnswers, AnswerAction
from jackalope.core.effects import Acted, Served
from jackalope.core.ids import id_text
from jackalope.core.limits import ITEMS_PER_COMMAND_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.request import IDENTITY_BYTES, How, Same
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, ask, read_body, read_query, view_of
from jackalope.doors.http.rest.schemas import (
    TASK_ALIASES,
    AnswerShown,
    Id,
    Identity,
    MaybeName,
    TaskToSubmit,
    Time,
    about,
    from_time,
    show_answer,
    to_time,
)
from jackalope.doors.http.rest.tasks import submit_one, to_keep
from jackalope.doors.http.router import Routes, Spec
from jackalope.doors.http.vocabulary import alias

routes = Routes("/api/v1", has_namespace=True)


_LIMIT_DEFAULT = 100
_LIMIT_MAX = 1_000


class RequestServed(msgspec.Struct):
    """How a request is served, and the task that has the answer or will have it."""

    task: Id
    how: How
    identity: Identity | None
    made_at: Time | None
    worker: str | None


class AnswerList(msgspec.Struct):
    """Answers that are kept, by queue, the most recently used first."""

    answers: list[AnswerShown]


class AnswersQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which answers, and how many of them."""

    queue: Annotated[MaybeName, about("Of this queue.")] = ""
    name: Annotated[MaybeName, about("Of tasks of exactly this name.")] = ""
    version: Annotated[MaybeName, about("Of this version of the code.")] = ""
    limit: Annotated[int, about("The maximum number of items.", ge=1, le=_LIMIT_MAX)] = (
        _LIMIT_DEFAULT
    )


class AnswersMeant(msgspec.Struct, forbid_unknown_fields=True):
    """Which answers: those named, or else all that match; what is left out matches all."""

    identities: Annotated[tuple[Identity, ...], Meta(max_length=ITEMS_PER_COMMAND_MAX)] = ()
    queue: MaybeName = ""
    name: MaybeName = ""
    version: MaybeName = ""
    older_than: Annotated[Time | None, about("Made before.")] = None


for _shape in (RequestServed, AnswersQuery, AnswersMeant):
    alias(_shape, names=TASK_ALIASES)


class AnswersChanged(msgspec.Struct):
    """How many answers are now what was asked for, which are unknown, and whether more match."""

    changed: int
    unknown: list[Identity]
    more: bool


@routes.post(
    "/requests",
    "submit_tasks",
    Spec(RequestServed, status=201, body=TaskToSubmit, errors=(404, 409)),
)
async def send_request(request: Request) -> Response:
    """Ask for what a task returns: run at most once for all who ask for the same.

    `GET /tasks/{task_id}/result?wait=60` with the `task` of the answer has the result.
    """
    task = await read_body(request, TaskToSubmit)
    asked = msgspec.structs.replace(task, same=task.same or Same.CACHED)
    kept = await to_keep(request, asked)
    served = await submit_one(request, kept) or Served(How.BYPASS, kept.id)
    shown = RequestServed(
        id_text(served.task),
        served.how,
        served.identity.hex() or None,
        to_time(served.made_us),
        served.worker or None,
    )
    return answer(shown, 201)


@routes.get("/requests/{identity}", "read_tasks", Spec(AnswerShown, errors=(404,)))
async def read_request(request: Request, identity: str) -> Response:
    """Return a request by its identity: the task that is under way, or whose answer is kept."""
    view = await view_of(request, queries.answer, About(identity=_identity_of(identity)))
    return answer(show_answer(view))


@routes.get("/cache", "read_tasks", Spec(AnswerList, query=AnswersQuery))
async def list_answers(request: Request) -> Response:
    """List the answers that are kept."""
    query = read_query(request, AnswersQuery)
    asked = About(queue=query.queue, name=query.name, version=query.version, limit=query.limit)
    views = await view_of(request, queries.answers, asked)
    return answer(AnswerList([show_answer(view) for view in views]))


@routes.post("/cache/pin", "cancel_tasks", Spec(AnswersChanged, body=AnswersMeant))
async def pin_answers(request: Request) -> Response:
    """Keep answers from being evicted and from growing too old."""
    return await _act(request, AnswerAction.PIN)


@routes.post("/cache/unpin", "cancel_tasks", Spec(AnswersChanged, body=AnswersMeant))
async def unpin_answers(request: Request) -> Response:
    """Let answers be like all others again."""
    return await _act(request, AnswerAction.UNPIN)


@routes.post("/cache/purge", "cancel_tasks", Spec(AnswersChanged, body=AnswersMeant))
async def purge_answers(request: Request) -> Response:
    """Drop answers. The next request runs again."""
    return await _act(request, AnswerAction.PURGE)


async def _act(request: Request, action: AnswerAction) -> Response:
    meant = await read_body(request, AnswersMeant)
    command = ActOnAnswers(
        action=action,
        identities=tuple(bytes.fromhex(each) for each in meant.identities),
        queue=meant.queue,
        name=meant.name,
        version=meant.version,
        older_than_us=from_time(meant.older_than),
    )
    acted = of_kind(await ask(request, command), Acted)
    unknown = [identity.hex() for identity, _ in acted.refused]
    return answer(AnswersChanged(acted.changed, unknown, acted.more))


def _identity_of(text: str) -> bytes:
    try:
        identity = bytes.fromhex(text)
    except ValueError:
        identity = b""
    if len(identity) != IDENTITY_BYTES:
        message = f"no request {text!r}: an identity is {2 * IDENTITY_BYTES} hexadecimal digits"
        raise Refused(Refusal(Code.UNKNOWN_REQUEST, message))
    return identity

"""Signing in to the dashboard: a key's token once, then a cookie; and what a visitor may do."""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import Annotated

import msgspec

from jackalope import __version__
from jackalope.broker import queries
from jackalope.broker.access import Principal, acting
from jackalope.broker.queries import Refused
from jackalope.core.api_key import Permission
from jackalope.core.commands import DEFAULT_NAMESPACE
from jackalope.core.durations import SECOND
from jackalope.core.refusals import Refusal
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.dashboard.login_sessions import VISIT_US_MAX
from jackalope.doors.http.middleware.auth import Stranger
from jackalope.doors.http.request import Request, answer, door_of, read_body
from jackalope.doors.http.rest.schemas import Time, about, to_time
from jackalope.doors.http.router import Routes, Spec

routes = Routes()


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """The token of an API key."""

    token: Annotated[str, about("What `jackalope keys create` printed.", max_length=1_024)]


class Visitor(msgspec.Struct):
    """Who asks, and what they may do."""

    needs_key: bool  # a key is required, and none was sent
    name: str | None  # what the key is called; None where no key is needed
    permissions: list[Permission]  # what is permitted
    queues: tuple[str, ...]  # the queues that is limited to; none means all
    namespaces: list[str]  # those that there are, and that the key covers
    expires_at: Time | None  # when the visit ends
    version: str  # that of the broker


@routes.get("/api/v1/session", "", Spec(Visitor))
async def read_visitor(request: Request) -> Response:
    """Tell who asks, and what they may do."""
    door = door_of(request)
    visit = door.visits.find(dict(request.scope["headers"]), door.broker.now_us())
    return answer(await _visitor(request, acting.get(), visit.expires_us if visit else 0))


@routes.post("/api/v1/session", "", Spec(Visitor, body=SignIn))
async def sign_in(request: Request) -> Response:
    """Sign in with the token of a key. The cookie that comes back stands for it, for a while.

    With the cookie, whatever changes something needs the header `X-Jackalope-Client` as well.
    """
    token = (await read_body(request, SignIn)).token.strip()
    door = door_of(request)
    now_us = door.broker.now_us()
    found = door.broker.access.admit(token, now_us)
    if isinstance(found, Refusal):
        raise Refused(found)
    acting.set(found)
    if found.key is None:
        return answer(await _visitor(request, found, 0))
    value, visit = door.visits.open(found, now_us)
    headers = {"Set-Cookie": _cookie(request, value, VISIT_US_MAX // SECOND)}
    return answer(await _visitor(request, found, visit.expires_us), headers=headers)


@routes.delete("/api/v1/session", "", Spec(status=204))
async def sign_out(request: Request) -> Response:
    """End the visit of this browser."""
    door_of(request).visits.close(dict(request.scope["headers"]))
    headers = {"Set-Cookie": _cookie(request, "", 0)}
    return Response(status=204, headers=headers)


def _cookie(request: Request, value: str, seconds: int) -> str:
    door = door_of(request)
    cookie = SimpleCookie({door.visits.cookie: value})[door.visits.cookie]
    cookie.update(
        {
            "max-age": seconds,
            "path": door.settings.prefix.rstrip("/") or "/",
            "httponly": True,
            "samesite": "strict",
            "secure": request.scope["scheme"] == "https",
        }
    )
    return cookie.OutputString()


async def _visitor(request: Request, principal: Principal, expires_us: int) -> Visitor:
    key = principal.key
    is_stranger = isinstance(principal, Stranger)
    return Visitor(
        needs_key=is_stranger,
        name=key.name if key is not None and not is_stranger else None,
        permissions=[each for each in Permission if principal.may(each)],
        queues=principal.queues,
        namespaces=await _namespaces(request, principal),
        expires_at=to_time(expires_us),
        version="" if is_stranger else __version__,
    )


async def _namespaces(request: Request, principal: Principal) -> list[str]:
    if not principal.may(Permission.READ_TASKS):
        return []
    own = principal.key.namespace if principal.key else ""
    found = await queries.namespaces(door_of(request).broker, own or DEFAULT_NAMESPACE)
    return [own] if own else sorted({DEFAULT_NAMESPACE, *found})

"""API keys over REST: made, listed and revoked by administrators."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jackalope.broker import queries
from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.core.api_key import ROLES, ApiKey, Permission, Role
from jackalope.core.commands import CreateApiKey, RevokeApiKey
from jackalope.core.limits import QUEUES_PER_API_KEY_MAX
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.request import (
    Request,
    answer,
    by_of,
    door_of,
    nothing,
    own_namespace,
    read_body,
)
from jackalope.doors.http.rest.schemas import MaybeName, Name, Time, from_time, shape_of
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import ApiKeyView

routes = Routes("/api/v1")


_show = shape_of(
    ApiKeyView,
    "KeyShown",
    "A key, without anything that would let anybody in.",
    nullable=("namespace", "role"),
)

KeyShown: Any = _show.shown


class KeyList(msgspec.Struct):
    """The keys of the broker: those of its configuration, then those that were made."""

    keys: list[KeyShown]


class KeyWanted(msgspec.Struct, forbid_unknown_fields=True):
    """A key to make."""

    name: Name
    permissions: Annotated[tuple[Permission, ...], Meta(max_length=len(Permission))] = ()
    role: Annotated[Role | None, Meta(description="A role, in place of permissions.")] = None
    queues: Annotated[tuple[Name, ...], Meta(max_length=QUEUES_PER_API_KEY_MAX)] = ()
    namespace: MaybeName = ""
    expires_at: Time | None = None


class KeyMade(msgspec.Struct):
    """A key that was just made. Its token is shown this once, and stored nowhere."""

    id: str
    name: str
    token: str


@routes.get("/keys", "admin", Spec(KeyList))
async def list_keys(request: Request) -> Response:
    """List API keys: whose they are and what they permit."""
    return answer(KeyList([_show(view) for view in await _views(request)]))


@routes.post("/keys", "admin", Spec(KeyMade, status=201, body=KeyWanted, errors=(409,)))
async def create_key(request: Request) -> Response:
    """Make an API key. From the first one on everybody needs one."""
    wanted = await read_body(request, KeyWanted)
    if bool(wanted.permissions) == (wanted.role is not None):
        message = f"give permissions or a role, one of {', '.join(ROLES)}"
        raise Rejected(409, message, "invalid")
    permissions = wanted.permissions if wanted.role is None else ROLES[wanted.role]
    token, expires_us = new_token(), from_time(wanted.expires_at)
    if 0 < expires_us <= door_of(request).broker.now_us():
        raise Rejected(409, "expires_at is in the past; use a future time, or omit it", "invalid")
    key = ApiKey(
        id=id_of(token),
        hash=hash_of(token),
        name=wanted.name,
        permissions=tuple(dict.fromkeys(permissions)),
        queues=tuple(dict.fromkeys(wanted.queues)),
        namespace=wanted.namespace,
        expires_us=expires_us,
    )
    await door_of(request).client_session.ask(CreateApiKey(key=key, by=by_of(request)))
    return answer(KeyMade(key.id, key.name, token), 201)


@routes.delete("/keys/{key_id}", "admin", Spec(status=204, errors=(404, 409)))
async def revoke_key(request: Request, key_id: str) -> Response:
    """Let the bearers of a key in no more."""
    if any(view.configured and view.id == key_id for view in await _views(request)):
        message = f"key {key_id!r} is configured: remove it from auth.keys and restart the broker"
        raise Rejected(409, message, "configured")
    await door_of(request).client_session.ask(RevokeApiKey(key=key_id, by=by_of(request)))
    return nothing()


async def _views(request: Request) -> list[ApiKeyView]:
    return await queries.api_keys(door_of(request).broker, own_namespace())

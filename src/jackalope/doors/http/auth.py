"""Access over HTTP: authentication, permissions of routes, and rate limits.

Owns the gate that every request passes first, and the guard that checks each route. The gate
authenticates the client and counts its requests; the guard compares its permissions with the one
that the route needs.

Browsers send requests that their user did not mean to send: a page of another site can make them
post a form to this machine, or open a WebSocket. While no key is needed, a request must therefore
come from a page of the door itself, or from none, and its host must be a name of the door.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from jackalope.broker.access import ANYONE, Access, Principal, acting, present
from jackalope.broker.config.exposure import is_loopback
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.http import gridlike
from jackalope.doors.http.asgi import WEBSOCKET, ASGIApp, Message, Receive, Scope, Send
from jackalope.doors.http.errors import Rejected, rejection
from jackalope.doors.http.router import routable
from jackalope.doors.http.visits import is_meant
from jackalope.doors.rates import Rates, Share

if TYPE_CHECKING:
    from jackalope.doors.http.app import HttpDoor

Headers = list[tuple[bytes, bytes]]

#: Names by which the door is called are looked at once; there are few.
_HOSTS_REMEMBERED = 100

_CHALLENGE = 'Bearer realm="jackalope"'

_KEY_IS_OVER = "the API key expired or was revoked, or one is now required; sign in again"

_NOT_MEANT = (
    "a cookie alone is not accepted for changes, because any page could make a browser send it: "
    "also send the header X-Jackalope-Client, and open WebSockets from a page of this door"
)

#: Security headers of every response, unless it sets them itself.
_SECURITY: dict[bytes, bytes] = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


def _owns_none(_: str) -> bool:
    return False


class Stranger(Principal):
    """A client that was not authenticated, and sees only what needs no key."""

    __slots__ = ("refusal",)

    def __init__(self, refusal: Refusal, address: str) -> None:
        super().__init__(ApiKey(id="", hash="", name="anonymous", permissions=()), address)
        self.refusal = refusal


class Gate:
    """The application behind a gate."""

    def __init__(self, app: ASGIApp, door: HttpDoor) -> None:
        settings = door.settings
        self._app = app
        self._broker = door.broker
        self._visits = door.visits
        self._rates = Rates(settings.rate_per_s, settings.rate_burst)
        self._prefix = settings.prefix.rstrip("/").replace("%", "%25")
        self._is_gridlike = gridlike.owns if door.gridlike.enabled else _owns_none
        self._origins = frozenset(settings.cors_origins)
        self._names = frozenset(settings.hosts)
        self._is_own_name = lru_cache(_HOSTS_REMEMBERED)(self._find_own_name)
        self._is_local = is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or turn it away."""
        if b"%" in scope["raw_path"]:
            scope["path"] = routable(scope["raw_path"])
        self._strip_prefix(scope)
        headers = dict(scope["headers"])  # Of doubled ones the last counts; we look at few.
        access = self._broker.access
        share: Share | None = None
        principal = ANYONE
        rejected: Rejected | None
        if access.is_open:
            rejected = self._foreign(headers)
        else:
            principal, is_visit = self._who(headers, _address(scope))
            acting.set(principal)
            # GridLike knows no such limit, so its clients would not know what to do about it.
            if isinstance(principal, Stranger) or not self._is_gridlike(scope["path"]):
                share = self._rates.take(_bearer(principal, scope), time.monotonic())
            rejected = _too_often(share)
            if rejected is None and is_visit and not is_meant(scope, headers):
                rejected = Rejected(403, _NOT_MEANT)
        if rejected is not None:
            say = gridlike.problem if self._is_gridlike(scope["path"]) else rejection
            await say(rejected).send(scope, receive, _with_headers(send, share))
        elif isinstance(principal, Stranger):
            await self._app(scope, receive, _with_headers(send, share))
        else:
            send = _with_headers(send, share)
            await admitted(self._app, scope, receive, send, access=access, principal=principal)

    def _who(self, headers: dict[bytes, bytes], address: str) -> tuple[Principal, bool]:
        """Find out who is there, and whether they are known by nothing but a cookie."""
        token, now_us = _token(headers), self._broker.now_us()
        visit = None if token else self._visits.find(headers, now_us)
        if visit is not None:
            return Principal(visit.principal.key, address), True
        found = self._broker.access.admit(token, now_us, address)
        return Stranger(found, address) if isinstance(found, Refusal) else found, False

    def _strip_prefix(self, scope: Scope) -> None:
        """Take the prefix off that a proxy has left on."""
        path = scope["path"]
        if self._prefix and path.startswith(f"{self._prefix}/"):
            scope["path"] = path.removeprefix(self._prefix)
            scope["raw_path"] = scope["raw_path"].removeprefix(self._prefix.encode())

    def _foreign(self, headers: dict[bytes, bytes]) -> Rejected | None:
        """Reject what a page of somewhere else made a browser send to a broker without keys."""
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if self._is_local and not self._is_own_name(host):
            message = (
                f"unexpected host {host[:100]!r} for a broker without API keys: use the name of "
                "this machine, create an API key, or add the name to http.hosts"
            )
            return Rejected(403, message)
        is_from_here = not origin or origin in self._origins or "*" in self._origins
        if not is_from_here and urlsplit(origin).netloc.lower() != host.lower():
            message = (
                f"origin {origin[:100]!r} is not allowed for a broker without API keys: create "
                "an API key, or add the origin to http.cors_origins"
            )
            return Rejected(403, message)
        return None

    def _find_own_name(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return not host or is_loopback(name) or name in self._names


async def admitted(
    app: ASGIApp,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    access: Access,
    principal: Principal,
) -> None:
    """Serve a client for as long as it is let in: whatever it waits for ends with its key."""
    serving = asyncio.current_task()
    if serving is None:
        raise BrokenInvariant("a request is served by a task")
    has_begun = False

    async def sending(message: Message) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    stay = access.stay(principal, serving.cancel)
    present.set(stay)
    try:
        await app(scope, receive, sending)
    except asyncio.CancelledError:
        if not stay.is_over:
            raise
        serving.uncancel()
        await _send_away(scope, receive, send, has_begun=has_begun)
    finally:
        access.leave(stay)


async def _send_away(scope: Scope, receive: Receive, send: Send, *, has_begun: bool) -> None:
    """End what a client waits for, whose key is over."""
    if not has_begun:
        headers = {"WWW-Authenticate": _CHALLENGE, "Connection": "close"}
        rejected = Rejected(401, _KEY_IS_OVER, str(Code.UNAUTHORISED), headers)
        await rejection(rejected).send(scope, receive, send)
        return
    end: Message = {"type": "http.response.body", "body": b"", "more_body": False}
    if scope["type"] == WEBSOCKET:
        end = {"type": "websocket.close", "code": 1008, "reason": _KEY_IS_OVER}
    # The client may be gone; and an answer that announced its length can only be cut off.
    with suppress(RuntimeError):
        await send(end)


def guard(needed: Permission | None) -> None:
    """Refuse a request that lacks the permission of its route."""
    principal = acting.get()
    if needed is None or principal.key is None:
        return
    if isinstance(principal, Stranger):
        refusal = principal.refusal
        raise Rejected(401, refusal.message, str(refusal.code), {"WWW-Authenticate": _CHALLENGE})
    forbidden = principal.refuse(needed)
    if forbidden is not None:
        raise Rejected(403, forbidden.message, str(forbidden.code))


def _token(headers: dict[bytes, bytes]) -> str:
    """Return the token that a request brings: as a bearer, or as GridLike's clients do."""
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return headers.get(b"x-api-key", b"").decode("latin-1").strip()


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope["client"] else ""


def _bearer(principal: Principal, scope: Scope) -> str:
    """Name the bucket of a request: that of its key, or of its address if it has none."""
    if principal.key is not None and principal.key.id:
        return principal.key.id
    address = _address(scope)
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    # A client with one IPv6 address has 2^64 of them.
    return address if parsed.version == 4 else str(int(parsed) >> 64)


def _too_often(share: Share | None) -> Rejected | None:
    refusal = None if share is None else share.refusal
    if share is None or refusal is None:
        return None
    wait_s = math.ceil(share.wait_s * 1_000) / 1_000
    return Rejected(429, refusal.message, str(refusal.code), retry_after_s=wait_s)


def _headers_of(share: Share) -> Headers:
    """Return a share as the usual rate-limit headers."""
    return [
        (b"x-ratelimit-limit", str(share.limit).encode()),
        (b"x-ratelimit-remaining", str(share.remaining).encode()),
        (b"x-ratelimit-reset", str(math.ceil(share.reset_s)).encode()),
    ]


def _with_headers(send: Send, share: Share | None) -> Send:

    async def sending(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            said = [name.lower() for name, _ in message["headers"]]
            added = _SECURITY
            if not added.keys().isdisjoint(said):
                added = {name: text for name, text in added.items() if name not in said}
            counted = _headers_of(share) if share is not None else ()
            message["headers"] = [*message["headers"], *added.items(), *counted]
        await send(message)

    return sending

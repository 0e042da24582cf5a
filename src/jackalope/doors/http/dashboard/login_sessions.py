"""Login sessions of browsers ("visits"), and the cookies that identify them.

Owns the table of visits. It is kept in memory alone and is bounded: a restart, or too many others,
signs a browser out. The cookie is opaque, and cannot be made from a copy of the table, because the
table has only hashes. A visit ends with its key.

A browser sends a cookie with whatever any page makes it send. So a visit alone changes nothing: a
request that is not a mere question must bring a header that other pages cannot make it send, and a
WebSocket must come from a page of the door itself.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

import msgspec

from jackalope.broker.access import Access, Principal
from jackalope.core.durations import HOUR
from jackalope.doors.http.asgi import WEBSOCKET, Scope

VISITS_MAX = 1_000
VISIT_US_MAX = 12 * HOUR

#: The header that a request with a cookie must have unless it only asks something.
PROOF_HEADER = b"x-jackalope-client"

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Visit(msgspec.Struct, frozen=True):
    """A browser that has signed in, until when, and with whose rights."""

    principal: Principal
    expires_us: int


class Visits:
    """All browsers that have signed in."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._visits: OrderedDict[bytes, Visit] = OrderedDict()
        # where the door listens. Cookies do not know ports: two doors of one machine would
        # otherwise sign each other's visitors out.
        self.port = 0

    @property
    def cookie(self) -> str:
        """Return what the cookie is called."""
        return f"jackalope_visit_{self.port}"

    def __len__(self) -> int:
        return len(self._visits)

    def open(self, principal: Principal, now_us: int) -> tuple[str, Visit]:
        """Begin a visit; return the value of its cookie. The oldest ends if there are too many."""
        value = secrets.token_urlsafe(32)
        visit = Visit(principal, now_us + VISIT_US_MAX)
        self._visits[_hash(value)] = visit
        if len(self._visits) > VISITS_MAX:
            self._visits.popitem(last=False)
        return value, visit

    def find(self, headers: dict[bytes, bytes], now_us: int) -> Visit | None:
        """Return the visit that a request belongs to, if it is not over."""
        value = self._value(headers)
        visit = self._visits.get(_hash(value)) if value else None
        if visit is None:
            return None
        if visit.expires_us <= now_us or not self._access.is_current(visit.principal, now_us):
            self.close(headers)
            return None
        return visit

    def close(self, headers: dict[bytes, bytes]) -> None:
        """End the visit that a request belongs to."""
        value = self._value(headers)
        if value:
            self._visits.pop(_hash(value), None)

    def _value(self, headers: dict[bytes, bytes]) -> str:
        try:
            found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(self.cookie)
        except CookieError:
            return ""
        return found.value if found else ""


def is_meant(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Return whether a request with a cookie was made by a page of the door itself."""
    if scope["type"] == WEBSOCKET:
        origin = urlsplit(headers.get(b"origin", b"").decode("latin-1")).netloc
        return origin.lower() == headers.get(b"host", b"").decode("latin-1").lower()
    return scope["method"] in _SAFE_METHODS or PROOF_HEADER in headers


def _hash(value: str) -> bytes:
    return sha256(value.encode()).digest()

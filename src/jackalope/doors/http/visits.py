"""Visits: login sessions of browsers, and the cookies that identify them.

Owns what a cookie says and until when it counts. A visit ends with its key, after a while, and when
its browser signs out.

A broker that is alone keeps a table in memory, which is bounded: a restart, or too many others,
signs a browser out. The cookie is opaque, and cannot be made from a copy of the table, because the
table has only hashes.

In a cluster the next request may be answered by another node. There a cookie says itself whose
visit it is and until when, signed with the secret of the cluster, so that every node reads what any
node has given out, and no other program can make one. What was signed out is remembered until it
would have ended anyway; nodes tell each other (`Access.withdrawn`).

A browser sends a cookie with whatever any page makes it send. So a visit alone changes nothing: a
request that is not a mere question must bring a header that other pages cannot make it send, and
a WebSocket must come from a page of the door itself.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
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

#: What is signed with the cluster's secret has no zero byte elsewhere.
_SIGNING = b"jackalope\0visits"
_NAMING = b"jackalope\0name of the cookie"
_MAC_BYTES = 32
_NONCE_BYTES = 16
#: The longest cookie that is looked at.
_VALUE_CHARS_MAX = 512


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
        visit = self._visit_of(value) if value else None
        if visit is None:
            return None
        if visit.expires_us <= now_us or not self._access.is_current(visit.principal, now_us):
            self._forget(value)
            return None
        return visit

    def close(self, headers: dict[bytes, bytes], now_us: int) -> None:
        """End the visit that a request belongs to."""
        del now_us
        self._forget(self._value(headers))

    def _visit_of(self, value: str) -> Visit | None:
        return self._visits.get(_hash(value))

    def _forget(self, value: str) -> None:
        self._visits.pop(_hash(value), None)

    def _value(self, headers: dict[bytes, bytes]) -> str:
        try:
            found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(self.cookie)
        except CookieError:
            return ""
        return found.value if found else ""


class _Ticket(msgspec.Struct, array_like=True, frozen=True):
    """What a cookie says in a cluster."""

    key: str  # the id of the API key
    expires_us: int
    nonce: bytes  # two visits with one key end by themselves


class SignedVisits(Visits):
    """Visits of a cluster: nothing is kept but what was signed out."""

    def __init__(self, access: Access, secret: bytes) -> None:
        super().__init__(access)
        self._secret = hmac.digest(secret, _SIGNING, sha256)
        # Doors of all nodes give it the same name, whatever their ports.
        self._name = f"jackalope_visit_{hmac.digest(secret, _NAMING, sha256)[:4].hex()}"

    @property
    def cookie(self) -> str:
        return self._name

    def __len__(self) -> int:
        return 0

    def open(self, principal: Principal, now_us: int) -> tuple[str, Visit]:
        """Begin a visit; return the value of its cookie."""
        key = principal.key
        if key is None:
            raise ValueError("a visit needs a key")
        visit = Visit(principal, now_us + VISIT_US_MAX)
        ticket = _Ticket(key.id, visit.expires_us, secrets.token_bytes(_NONCE_BYTES))
        body = msgspec.msgpack.encode(ticket)
        return urlsafe_b64encode(self._sign(body, key.hash) + body).decode(), visit

    def close(self, headers: dict[bytes, bytes], now_us: int) -> None:
        """End the visit that a request belongs to, on every node."""
        value = self._value(headers)
        visit = self._visit_of(value)
        if visit is not None:
            self._access.withdrawn.add(_hash(value), visit.expires_us, now_us)

    def _visit_of(self, value: str) -> Visit | None:
        if len(value) > _VALUE_CHARS_MAX or _hash(value) in self._access.withdrawn:
            return None
        try:
            signed = urlsafe_b64decode(value.encode())
            mac, body = signed[:_MAC_BYTES], signed[_MAC_BYTES:]
            ticket = msgspec.msgpack.decode(body, type=_Ticket)
        except (ValueError, msgspec.MsgspecError):
            return None
        key = self._access.key_of(ticket.key)
        # Only the way in which it was written counts: it could be signed out under another.
        is_own = urlsafe_b64encode(signed).decode() == value
        if key is None or not is_own or not hmac.compare_digest(mac, self._sign(body, key.hash)):
            return None
        return Visit(Principal(key), ticket.expires_us)

    def _forget(self, value: str) -> None:
        """Keep nothing: what has ended says so itself."""

    def _sign(self, body: bytes, key_hash: str) -> bytes:
        """Sign what a cookie says; another key with the same id makes it worthless."""
        return hmac.digest(self._secret, key_hash.encode() + body, sha256)


def is_meant(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Return whether a request with a cookie was made by a page of the door itself."""
    if scope["type"] == WEBSOCKET:
        origin = urlsplit(headers.get(b"origin", b"").decode("latin-1")).netloc
        return origin.lower() == headers.get(b"host", b"").decode("latin-1").lower()
    return scope["method"] in _SAFE_METHODS or PROOF_HEADER in headers


def _hash(value: str) -> bytes:
    return sha256(value.encode()).digest()

"""Access: authenticate clients, and check what they may do.

Owns the decision, for every door: a door presents a token and gets a principal, and hands each
command and question to the broker together with it. The permission that a command needs is declared
on the command (`core.commands`), that of a question next to the question (`broker.queries`); here
both are compared with the key. The keys are those of the book, which commands create and revoke,
and those of the configuration, which only a restart changes.

A broker without any key is open, if it may be: every client that reaches it can do everything. From
the first key on every client needs one.

A refusal does not reveal what exists: a task in a queue that a key does not cover is answered like
one that never existed.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING

from jackalope.core.api_key import ApiKey, Permission, is_lasting_admin
from jackalope.core.commands.base import Command, Scope
from jackalope.core.durations import NEVER
from jackalope.core.refusals import Code, Refusal

if TYPE_CHECKING:
    from jackalope.core.state.book import Book

#: The hash that a token of an unknown key is compared with, so that it takes as long.
_NO_HASH = "0" * 64

#: How much is remembered that was ended before its time.
WITHDRAWN_MAX = 1_000

_NEEDS_NO_LIMITS = "this requires an API key that is not limited to queues or a namespace"
_NEEDS_ALL_QUEUES = "this requires an API key for all queues"


class Principal:
    """An authenticated client, with the rights of a key, or with all where none is needed."""

    __slots__ = ("address", "key", "queues")

    def __init__(self, key: ApiKey | None = None, address: str = "") -> None:
        self.key = key  # the key; None for a client of an open broker
        self.address = address  # where it comes from, for the audit log
        # the queues that it is limited to; none means all
        self.queues = () if key is None else key.queues

    def signed(self, name: str) -> str:
        """Return the actor for histories: the key, then the name that the client claims."""
        if self.key is None:
            return name
        return f"{self.key.name}/{name}" if name else self.key.name

    def may(self, permission: Permission) -> bool:
        if self.key is None:
            return True
        return permission in self.key.permissions or Permission.ADMIN in self.key.permissions

    def is_limited(self) -> bool:
        """Return whether the key is limited to queues or a namespace."""
        return self.key is not None and bool(self.key.queues or self.key.namespace)

    def refuse(self, permission: Permission, namespace: str | None = None) -> Refusal | None:
        """Refuse a missing permission or another namespace."""
        if self.key is None:
            return None
        if not self.may(permission):
            message = f"API key {self.key.id} ({self.key.name}) lacks the permission {permission}"
            return Refusal(Code.FORBIDDEN, message)
        if namespace is not None and self.key.namespace not in ("", namespace):
            message = f"API key {self.key.id} ({self.key.name}) is for another namespace"
            return Refusal(Code.FORBIDDEN, message)
        return None

    def admit(self, command: Command) -> Refusal | None:
        """Refuse a command that is not permitted; narrow one that is to what the key covers."""
        key = self.key
        if key is None:
            return None
        refusal = self.refuse_any(command.needs, getattr(command, "namespace", None))
        refusal = refusal or self.refuse_scope(command.scope)
        if refusal is None and self.queues and command.scope is Scope.QUEUES:
            refusal = self.refuse_queues(command.touches())
        if refusal is None:
            command.narrow(key)
        return refusal

    def refuse_any(
        self, permissions: tuple[Permission, ...], namespace: str | None = None
    ) -> Refusal | None:
        """Refuse if none of several permissions is granted, or for another namespace."""
        if self.key is None:
            return None
        first = next(filter(self.may, permissions), None)
        if first is not None:
            return self.refuse(first, namespace)
        lacking = " or ".join(permissions) or "for what the broker alone does"
        message = f"API key {self.key.id} ({self.key.name}) lacks the permission {lacking}"
        return Refusal(Code.FORBIDDEN, message)

    def refuse_scope(self, scope: Scope) -> Refusal | None:
        """Refuse a scope wider than the key's."""
        if scope is Scope.BROKER and self.is_limited():
            return Refusal(Code.FORBIDDEN, _NEEDS_NO_LIMITS)
        if scope is Scope.NAMESPACE and self.queues:
            return Refusal(Code.FORBIDDEN, _NEEDS_ALL_QUEUES)
        return None

    def refuse_queues(self, queues: Iterable[str]) -> Refusal | None:
        if not self.queues or self.key is None:
            return None
        others = sorted(set(queues) - set(self.queues))
        if not others:
            return None
        message = f"API key {self.key.id} ({self.key.name}) does not cover queue {others[0]!r}"
        return Refusal(Code.FORBIDDEN, message)


#: Everyone who comes into an open broker.
ANYONE = Principal()

#: The broker itself, and what follows from a command that was admitted: a consumer that was let in
#: answers its deliveries, a session that closes hands back.
THE_BROKER = Principal()

#: Who is behind what this coroutine does. Doors set it before they ask anything of the broker.
acting: ContextVar[Principal] = ContextVar("acting", default=ANYONE)


def sees(queue: str) -> bool:
    """Return whether a queue is visible to the acting client."""
    queues = acting.get().queues
    return not queues or queue in queues


def own_namespace() -> str:
    """Return the namespace that the acting client is limited to; empty for none."""
    key = acting.get().key
    return key.namespace if key else ""


class Stay:
    """Something that goes on for a client, and ends when the client would no longer be accepted."""

    __slots__ = ("_on_over", "is_over", "may_finish", "principal")

    def __init__(self, principal: Principal, on_over: Callable[[], object]) -> None:
        self.principal = principal
        self._on_over = on_over
        self.is_over = self.may_finish = False

    def end(self) -> None:
        if not (self.is_over or self.may_finish):
            self.is_over = True
            self._on_over()


#: The request that this coroutine serves, if it is one of a client.
present: ContextVar[Stay | None] = ContextVar("present", default=None)


class Withdrawn:
    """What was ended before its time: digests, and until when each would have counted.

    Nodes of a cluster tell each other. It is bounded: of too many, those are forgotten that would
    have ended first.
    """

    def __init__(self) -> None:
        self._until: dict[bytes, int] = {}

    def add(self, digest: bytes, until_us: int, now_us: int) -> None:
        self.take([(digest, until_us)], now_us)

    def take(self, told: Iterable[tuple[bytes, int]], now_us: int) -> None:
        """Note what another node tells as well."""
        new = {digest: until_us for digest, until_us in told if digest not in self._until}
        if new:
            known = sorted({**new, **self._until}.items(), key=lambda each: -each[1])
            self._until = dict([each for each in known if each[1] > now_us][:WITHDRAWN_MAX])

    def told(self) -> tuple[tuple[bytes, int], ...]:
        """Return all of it."""
        return tuple(self._until.items())

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._until


class Access:
    """The keys, and the clients that use them."""

    def __init__(self, configured: Iterable[ApiKey] = (), *, may_be_open: bool = True) -> None:
        self._configured = {key.id: key for key in configured}
        self._has_admin = any(map(is_lasting_admin, self._configured.values()))
        self._stored: dict[str, ApiKey] = {}
        self._may_be_open = may_be_open
        self.changed: list[Callable[[], None]] = []  # called after keys came, went or expired
        self.is_open = may_be_open and not self._configured  # no key is needed
        self._stays: dict[Stay, None] = {}
        self.withdrawn = Withdrawn()
        self._now_us = 0
        self.next_end_us = 0  # when the next key expires

    def follow(self, book: Book) -> None:
        """Adopt the keys of the book; free if they are unchanged."""
        if book.api_keys is self._stored:
            return
        self._stored = book.api_keys
        self.is_open = self._may_be_open and not (self._configured or self._stored)
        self._change()

    def look(self, now_us: int) -> None:
        """Disconnect clients whose keys have expired."""
        if now_us < self.next_end_us:
            return
        self._now_us = now_us
        self._change()

    def stay(self, principal: Principal, on_over: Callable[[], object]) -> Stay:
        """Call `on_over` as soon as a client would no longer be accepted, until `leave`."""
        stay = Stay(principal, on_over)
        self._stays[stay] = None
        return stay

    def leave(self, stay: Stay) -> None:
        self._stays.pop(stay, None)

    def _change(self) -> None:
        ends = [key.expires_us for key in self.all_keys() if key.expires_us > self._now_us]
        self.next_end_us = min(ends, default=NEVER)
        for call in list(self.changed):
            call()
        for stay in list(self._stays):
            if not self.is_current(stay.principal, self._now_us):
                stay.end()

    def all_keys(self) -> list[ApiKey]:
        return [*self._configured.values(), *self._stored.values()]

    def has_lasting_admin(self) -> bool:
        """Return whether the configuration has a key that can always create others."""
        return self._has_admin

    def is_configured(self, key_id: str) -> bool:
        """Return whether a key is in the configuration, and cannot be revoked here."""
        return key_id in self._configured

    def admit(self, token: str, now_us: int, address: str = "") -> Principal | Refusal:
        """Authenticate a token. An open broker ignores it."""
        if self.is_open:
            return Principal(None, address) if address else ANYONE
        if not token:
            return Refusal(Code.UNAUTHORISED, "an API key is required; send its token")
        key_id = id_of(token)
        key = self.key_of(key_id)
        is_bearer = is_token_of(token, key.hash if key else _NO_HASH) if key_id else False
        if key is not None and is_bearer and not _is_over(key, now_us):
            return Principal(key, address)
        return Refusal(
            Code.UNAUTHORISED, "invalid token: no such API key, or it has expired or was revoked"
        )

    def admit_certified(self, names: Collection[str], now_us: int) -> Principal | Refusal:
        """Authenticate a client certificate with these names, as the key with one of them."""
        if self.is_open:
            return ANYONE
        if not names:
            message = "no trusted client certificate was presented; use the token of an API key"
            return Refusal(Code.UNAUTHORISED, message)
        named = [key for key in self.all_keys() if key.name in names and not _is_over(key, now_us)]
        if len(named) == 1:
            return Principal(named[0])
        told = ", ".join(map(repr, names))
        which = "more than one API key has" if named else "no valid API key has"
        return Refusal(Code.UNAUTHORISED, f"{which} the name of the certificate: {told}")

    def is_current(self, principal: Principal, now_us: int) -> bool:
        """Return whether an authenticated client would be accepted again."""
        key = principal.key
        if key is None:
            return self.is_open
        return self.key_of(key.id) is key and not _is_over(key, now_us)

    def key_of(self, key_id: str) -> ApiKey | None:
        """Return a key, which may have expired."""
        return self._configured.get(key_id) or self._stored.get(key_id)


def _is_over(key: ApiKey, now_us: int) -> bool:
    return 0 < key.expires_us <= now_us


# Tokens: the secret texts by which the bearer of an API key proves to be one.

_ID_BYTES = 6
_SECRET_BYTES = 32
_FORM = re.compile(r"jk_([0-9a-f]{1,32})_[A-Za-z0-9_-]{43}")

#: No token is longer; no client can make the broker hash more.
TOKEN_CHARS_MAX = 128


def new_token() -> str:
    return f"jk_{secrets.token_hex(_ID_BYTES)}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def id_of(token: str) -> str:
    """Return the key id in a token; empty if it is malformed."""
    if len(token) > TOKEN_CHARS_MAX:
        return ""
    found = _FORM.fullmatch(token)
    return found[1] if found else ""


def hash_of(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def is_token_of(token: str, stored: str) -> bool:
    """Return whether a token has this hash; compares in constant time."""
    return hmac.compare_digest(hash_of(token), stored)

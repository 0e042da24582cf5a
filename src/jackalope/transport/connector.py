"""The connector: gets a peer from one connection to the next.

Owns which address is tried when, the waits between the tries, and which failures pass. What a
connection is for, and what is to be done over a new one, is the matter of its user:

    while True:
        connection = await connector.connect()
        ...
        await connection.ended()

Theory of operation. The members of an address are tried in turn, each at once after the one
before, and a wait comes when all of them have been tried. A connection that held for long and was
lost begins a new round, in which its member counts as tried: the others are tried at once. One that
was lost soon does not, so that members which answer and then hang up are not tried without waits.
Where a member says that another leads, that one is asked at once, and it counts as one try; so is
one that a connection named when it ended. Waits are short at first: a cluster that has lost its
leader has another one soon.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import msgspec

from jackalope.core.assertions import must
from jackalope.core.refusals import Code
from jackalope.errors import ConfigError, ConnectionLost, JackalopeError, ProtocolError, Rejected
from jackalope.transport.address import Address
from jackalope.transport.connection import CONNECT_TIMEOUT_S, Connection, Redirected
from jackalope.wire.messages import AnyMessage, Hello

#: Refusals of a session after which asking again may help.
PASSING = frozenset({Code.TOO_MANY, Code.OVERLOADED, Code.STORAGE_FAILED, Code.STALE_SESSION})

#: A connection that held for this long was a good one: the next loss begins with short waits.
STEADY_S = 5.0

#: The longest wait for a single broker; and for a cluster, in which another member takes over soon.
_WAIT_S_MAX = 5.0
_CLUSTER_WAIT_S_MAX = 1.0

#: How long a cluster has for that, and the longest wait meanwhile.
_TAKEOVER_S = 4.0
_TAKEOVER_WAIT_S_MAX = 0.25

#: How long a member may take to answer when there are others to ask.
_MEMBER_TIMEOUT_S = 3.0

#: How often one may be sent elsewhere in a row. More is a cluster that has no leader for now.
_REDIRECTS_MAX = 5


class Dial(Protocol):
    """Opens a connection, as `Connection.open` does."""

    async def __call__(
        self,
        address: Address,
        hello: Hello,
        *,
        heard: Callable[[AnyMessage], None],
        lost: Callable[[ConnectionLost], None],
        timeout_s: float,
    ) -> Connection:
        """Connect and send HELLO."""


class Connector:
    """Opens one connection after the other to the same broker or cluster."""

    def __init__(
        self,
        address: Address,
        hello: Hello,
        *,
        heard: Callable[[AnyMessage], None],
        troubled: Callable[[JackalopeError], None],
        lost: Callable[[ConnectionLost], None] = lambda _: None,
        dial: Dial = Connection.open,
    ) -> None:
        """Prepare to connect.

        `troubled` is called with the reason when no member could be reached, before the wait. It
        may raise that, or something else: then `connect` does.
        """
        self._hello = msgspec.structs.replace(hello, follows=True)
        self._heard = heard
        self._troubled = troubled
        self._lost = lost
        self._dial = dial
        self._given = address.members
        self._members = list(self._given)
        self._next = 0  # the index of the member to try next
        self._tried = 0  # how many were tried since the last wait
        self._failures: list[tuple[Address, JackalopeError]] = []  # of those
        self._connected_at: float | None = None
        self._looking_since: float | None = None  # for a connection that holds
        self._last: Connection | None = None
        self._backoff = Backoff(cap_s=_WAIT_S_MAX)

    async def connect(self) -> Connection:
        """Return a new connection, however often that takes."""
        now = asyncio.get_running_loop().time()
        if self._connected_at is not None:
            if now - self._connected_at > STEADY_S:
                self._backoff.reset()
                self._tried, self._looking_since = 1, None
            self._connected_at = None
        if self._looking_since is None:
            self._looking_since = now
        pointed_to = _moved_to(self._last)
        while True:
            member, pointed_to = pointed_to or await self._next_member(), None
            try:
                connection = await self._open(member)
            except (ConnectionLost, ProtocolError, Rejected) as error:
                if isinstance(error, Rejected) and error.code not in PASSING:
                    raise
                self._failures.append((member, error))
            else:
                self._failures.clear()
                self._connected_at = asyncio.get_running_loop().time()
                self._last = connection
                return connection

    def begin_again(self) -> None:
        """Let the next try come at once: no connection was wanted since the last was lost."""
        self._tried, self._connected_at, self._looking_since = 0, None, None

    def address_of(self, connection: Connection) -> Address:
        """Return the address of a connection, with the other members after it."""
        here = connection.address
        places = dict.fromkeys((member.host, member.port) for member in self._members)
        places.pop((here.host, here.port), None)
        return replace(here, others=tuple(places))

    async def _open(self, member: Address) -> Connection:
        """Connect to a member, or to where it says that the broker is."""
        timeout_s = CONNECT_TIMEOUT_S if len(self._members) == 1 else _MEMBER_TIMEOUT_S
        asked: list[Address] = []
        leads = ""
        while len(asked) <= _REDIRECTS_MAX:
            asked.append(member)
            try:
                connection = await self._dial(
                    member, self._hello, heard=self._heard, lost=self._lost, timeout_s=timeout_s
                )
            except Redirected as redirected:
                leads = f"; {redirected}"
                try:
                    member = member.at(redirected.place)
                except ConfigError as error:
                    raise ProtocolError(f"{redirected}: {error}") from None
            except (ConnectionLost, ProtocolError) as error:
                if not leads:
                    raise
                raise type(error)(f"{error}{leads}") from error
            else:
                self._learn(connection)
                return connection
        raise ConnectionLost(f"redirected too often: {' to '.join(map(str, asked))}{leads}")

    def _learn(self, connection: Connection) -> None:
        """Remember the other members of a cluster, after those that were given."""
        if connection.welcome.members:
            learned = []
            for place in connection.welcome.members:
                with suppress(ConfigError):  # It can be written in a way that is not known here.
                    learned.append(connection.address.at(place))
            self._members = list(dict.fromkeys((*self._given, *learned)))
            self._next %= len(self._members)

    async def _next_member(self) -> Address:
        """Return the member to try next, after a wait if all have been tried."""
        if self._tried >= len(self._members):
            await self._rest()
        member = self._members[self._next]
        self._next = (self._next + 1) % len(self._members)
        self._tried += 1
        return member

    async def _rest(self) -> None:
        failures, self._failures, self._tried = self._failures, [], 0
        if failures:
            self._troubled(_summary(failures))
        self._backoff.cap_s = self._wait_s_max()
        await asyncio.sleep(self._backoff.next_s())

    def _wait_s_max(self) -> float:
        if len(self._members) == 1:
            return _WAIT_S_MAX
        now = asyncio.get_running_loop().time()
        is_soon = self._looking_since is not None and now - self._looking_since < _TAKEOVER_S
        return _TAKEOVER_WAIT_S_MAX if is_soon else _CLUSTER_WAIT_S_MAX


def _moved_to(last: Connection | None) -> Address | None:
    """Return where the broker is by now, if the last connection has told that."""
    with suppress(ConfigError):
        return last.address.at(last.moved_to) if last is not None and last.moved_to else None
    return None


def _summary(failures: list[tuple[Address, JackalopeError]]) -> JackalopeError:
    """Make one error of those of all members."""
    if len(failures) == 1:
        return failures[0][1]
    reasons = [f"{at}: {why}" if isinstance(why, Rejected) else str(why) for at, why in failures]
    text = f"no broker can be reached: {'; '.join(reasons)}"
    if all(isinstance(why, ProtocolError) for _, why in failures):
        return ProtocolError(text)
    return ConnectionLost(text)


class Backoff:
    """Waits that grow up to a cap, each spread by chance so that many peers do not come at once."""

    def __init__(self, base_s: float = 0.05, factor: float = 2.0, cap_s: float = 5.0) -> None:
        must(0 < base_s <= cap_s and factor >= 1, "waits grow", base_s, factor, cap_s)
        self._base_s = base_s
        self._factor = factor
        self._wait_s = base_s
        self.cap_s = cap_s

    def next_s(self) -> float:
        """Return the next wait in seconds: half of it certain, half of it chance."""
        wait_s = min(self._wait_s, self.cap_s)
        self._wait_s = wait_s * self._factor
        return wait_s * (0.5 + random.random() / 2)  # noqa: S311  spreads load, guards nothing

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._wait_s = self._base_s

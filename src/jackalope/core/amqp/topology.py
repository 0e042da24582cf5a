"""Topology: exchanges, bindings and rules of a namespace, and the way of a message through them.

Owns their shapes and the indexes over them. Only `apply` changes them. A message that is published
to an exchange goes to the queues that the bindings lead to, through other exchanges if need be, and
to each queue once; the exchange of a pool leads to the pool, where its routing key is the key.

The exchanges that every namespace has are not stored: they always exist; nor are those of a pool,
which come and go with it. A rule gives arguments to the queues and exchanges whose names
match a pattern (RabbitMQ calls it a policy).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from jackalope.core.amqp.routing import ROUTERS, Headers, Kind, Router

if TYPE_CHECKING:
    from jackalope.core.state.queue import Queue
    from jackalope.core.task import Envelope

_encoder = msgspec.json.Encoder(order="deterministic")


class Overflow(StrEnum):
    """What a queue that is full does."""

    DROP_HEAD = "drop-head"
    REJECT = "reject-publish"
    REJECT_DEAD_LETTER = "reject-publish-dlx"


class AmqpTraits(msgspec.Struct, frozen=True, array_like=True):
    """What a queue that was declared over AMQP is, beyond its policy."""

    durable: bool = True  # whether it survives a restart
    auto_delete: bool = False  # whether it goes with its last consumer
    owner: int = 0  # the session whose alone it is, and with which it goes; 0 for a shared queue
    arguments: dict[str, Any] = {}  # what it was declared with
    rule: str = ""  # the rule that applies to it
    dead_letter_exchange: str | None = None  # where dead tasks go; None for nowhere
    # with which routing key; None for the one that they came with
    dead_letter_key: str | None = None
    overflow: Overflow = Overflow.DROP_HEAD  # what happens when it is full
    bytes_max: int = 0  # how many bytes of bodies may wait; 0 for any number
    expires_us: int = 0  # how long it may be without use; 0 for ever
    priority_max: int = 0  # the highest priority; 0 for a queue without priorities
    single_active: bool = False  # whether one consumer at a time is served
    length_max: int | None = None  # how many tasks may be ready; None for any number

    def is_volatile(self) -> bool:
        """Return whether nothing of the queue is ever written to disk."""
        return not self.durable or self.owner > 0


class Exchange(msgspec.Struct, frozen=True, array_like=True, tag="exchange"):
    """Where messages are published to."""

    name: str
    kind: Kind
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}
    alternate: str | None = None  # the exchange of messages that lead nowhere here; None for none
    rule: str = ""  # the rule that applies to it


class Binding(msgspec.Struct, frozen=True, array_like=True, tag="binding"):
    """A way from an exchange to a queue, or to another exchange."""

    source: str
    to: str
    is_to_exchange: bool = False
    key: str = ""
    arguments: dict[str, Any] = {}

    def name(self) -> str:
        return _encoder.encode(self).decode()


class AppliesTo(StrEnum):
    """What a rule is for."""

    QUEUES = "queues"
    EXCHANGES = "exchanges"
    ALL = "all"


class Rule(msgspec.Struct, frozen=True, array_like=True, tag="rule"):
    """Arguments for all queues and exchanges whose names match; the greatest priority wins."""

    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    applies_to: AppliesTo = AppliesTo.ALL


DEFAULT_EXCHANGE = ""

#: The exchanges that are always there.
GIVEN = (
    Exchange(DEFAULT_EXCHANGE, Kind.DIRECT),
    Exchange("amq.direct", Kind.DIRECT),
    Exchange("amq.fanout", Kind.FANOUT),
    Exchange("amq.topic", Kind.TOPIC),
    Exchange("amq.headers", Kind.HEADERS),
    Exchange("amq.match", Kind.HEADERS),
)
GIVEN_NAMES = frozenset(exchange.name for exchange in GIVEN)

#: Where direct replies are waited for: an address begins so.
REPLY_TO = "amq.rabbitmq.reply-to"

#: How the name of a queue begins that the broker has made up for its owner.
GENERATED = "amq.gen-"

#: A destination: the name of a queue, or of an exchange.
Destination = tuple[bool, str]

#: Where a message becomes a task: a queue, and the key of the task there.
Place = tuple[str, str]


class Topology:
    """The exchanges, bindings and rules of a namespace."""

    __slots__ = (
        "_by_source",
        "_by_target",
        "_routers",
        "activities",
        "bindings",
        "exchanges",
        "requests",
        "reserved",
        "rules",
    )

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}  # all of them, by name
        self.rules: dict[str, Rule] = {}  # all of them, by name
        self.bindings: dict[str, Binding] = {}  # all of them, by their own names
        # the pools, by the exchange that takes requests for each
        self.requests: dict[str, str] = {}
        # the pools, by the exchange that takes reports of the workers of each
        self.activities: dict[str, str] = {}
        # the pools, by each exchange and queue that is theirs alone
        self.reserved: dict[str, str] = {}
        self._routers: dict[str, Router[Destination]] = {}
        self._by_source: dict[str, dict[str, Binding]] = {}
        self._by_target: dict[Destination, dict[str, Binding]] = {}
        for exchange in GIVEN:
            self.put_exchange(exchange)

    # For `apply` alone.

    def put_exchange(self, exchange: Exchange) -> None:
        """Add an exchange, or change what rules set for it."""
        self.exchanges[exchange.name] = exchange
        if exchange.name not in self._routers:
            self._routers[exchange.name] = ROUTERS[exchange.kind]()

    def drop_exchange(self, name: str) -> None:
        """Remove an exchange without bindings."""
        del self.exchanges[name]
        del self._routers[name]

    def put_pool(self, pool: str) -> None:
        """Add what a pool is reached by; it is safe to repeat."""
        self.requests[requests_exchange(pool)] = pool
        self.activities[activity_exchange(pool)] = pool
        for name, kind in exchanges_of(pool).items():
            self.reserved[name] = pool
            if name not in self.exchanges:
                self.put_exchange(Exchange(name, kind, durable=False))
                if name == dead_letter_exchange(pool):
                    on = (True, second_dead_letter_exchange(pool))
                    self._routers[name].bind("", {}, on)
        self.reserved.update(dict.fromkeys(own_queues(pool), pool))

    def drop_pool(self, pool: str) -> None:
        """Remove what a pool was reached by, which has no bindings any more."""
        del self.requests[requests_exchange(pool)]
        del self.activities[activity_exchange(pool)]
        for name in exchanges_of(pool):
            if not self.exchanges[name].durable:
                self.drop_exchange(name)
        self.reserved = {name: each for name, each in self.reserved.items() if each != pool}

    def bind(self, binding: Binding) -> None:
        name, to = binding.name(), (binding.is_to_exchange, binding.to)
        self.bindings[name] = binding
        self._by_source.setdefault(binding.source, {})[name] = binding
        self._by_target.setdefault(to, {})[name] = binding
        self._routers[binding.source].bind(binding.key, binding.arguments, to)

    def unbind(self, binding: Binding) -> None:
        name, to = binding.name(), (binding.is_to_exchange, binding.to)
        del self.bindings[name]
        leading_away = self._by_source[binding.source]
        del leading_away[name]
        if not leading_away:
            del self._by_source[binding.source]
        leading_there = self._by_target[to]
        del leading_there[name]
        if not leading_there:
            del self._by_target[to]
        self._routers[binding.source].unbind(binding.key, binding.arguments, to)

    # Reading.

    def from_source(self, exchange: str) -> Iterator[Binding]:
        """Yield the bindings that lead away from an exchange."""
        yield from list(self._by_source.get(exchange, {}).values())

    def to_target(self, name: str, *, is_exchange: bool) -> Iterator[Binding]:
        """Yield the bindings that lead to a queue or an exchange."""
        yield from list(self._by_target.get((is_exchange, name), {}).values())

    def route(
        self, exchange: str, key: str, headers: Headers, known: Container[str]
    ) -> dict[Place, None]:
        """Return the places that a message goes to.

        Args:
            exchange: where it is published.
            key: its routing key.
            headers: returns its headers.
            known: the queues that there are: the default exchange leads to each by its name.
        """
        places: dict[Place, None] = {}
        seen = {exchange}
        open_exchanges = [exchange]
        while open_exchanges:
            name = open_exchanges.pop()
            found = self.exchanges.get(name)
            if found is None:
                continue
            pool = self.requests.get(name)
            leads_on = pool is not None
            if pool is not None:
                places[pool, key] = None
            for is_exchange, to in self._matching(name, key, headers, known):
                leads_on = True
                if not is_exchange:
                    places[to, ""] = None
                elif to not in seen:
                    seen.add(to)
                    open_exchanges.append(to)
            if not leads_on and found.alternate is not None and found.alternate not in seen:
                seen.add(found.alternate)
                open_exchanges.append(found.alternate)
        return places

    def _matching(
        self, exchange: str, key: str, headers: Headers, known: Container[str]
    ) -> Iterable[Destination]:
        if exchange == DEFAULT_EXCHANGE:
            return ((False, key),) if key in known else ()
        return self._routers[exchange].match(key, headers)


# The names of pools over AMQP: osrdyne's, so that its clients and workers find what they know.

_BEFORE_KEY = "-req-"

QUEUE_NAME_BYTES_MAX = 255

#: Exchanges that lead to nothing but what others bind to them.
_ORPHANS = "-orphan-xchg"

#: Queues reserved for osrdyne: a client that opens them takes itself for another manager.
_OWN_QUEUES = ("-orphan", "-dl", "-deadletter", "-activity", "-poison")


def requests_exchange(pool: str) -> str:
    """Name the exchange that takes requests; the routing key is the key."""
    return f"{pool}-req-xchg"


def activity_exchange(pool: str) -> str:
    """Name the exchange that takes reports of workers; the routing key is the key."""
    return f"{pool}-activity-xchg"


def requests_queue(pool: str, key: str) -> str:
    """Name the queue that the workers of a key consume."""
    return f"{pool}{_BEFORE_KEY}{key}"


def can_be_queue(pool: str, key: str) -> bool:
    """Return whether workers can consume the requests of a key: AMQP's names are short strings."""
    return len(requests_queue(pool, key).encode()) <= QUEUE_NAME_BYTES_MAX


def dead_letter_exchange(pool: str) -> str:
    """Return the name of the exchange for requests that no worker could answer."""
    return f"{pool}-dl-xchg"


def second_dead_letter_exchange(pool: str) -> str:
    """Return the name of the next exchange: `dl` in osrdyne's design, `deadletter` in its code."""
    return f"{pool}-deadletter-xchg"


def exchanges_of(pool: str) -> dict[str, Kind]:
    return {
        requests_exchange(pool): Kind.DIRECT,
        activity_exchange(pool): Kind.FANOUT,
        f"{pool}{_ORPHANS}": Kind.FANOUT,
        second_dead_letter_exchange(pool): Kind.FANOUT,
        dead_letter_exchange(pool): Kind.FANOUT,
    }


def own_queues(pool: str) -> tuple[str, ...]:
    """Return the names of the queues that are reserved for the broker."""
    return tuple(f"{pool}{suffix}" for suffix in _OWN_QUEUES)


def lane_of(queues: Mapping[str, Queue], name: str) -> tuple[str, str] | None:
    """Return the pool and the key whose requests a queue of this name stands for, if it does.

    Names are not quoted, so that one may be read in several ways; the shortest pool wins.
    """
    at = name.find(_BEFORE_KEY)
    while at >= 0:
        queue = queues.get(name[:at])
        if queue is not None and queue.pool is not None:
            return name[:at], name[at + len(_BEFORE_KEY) :]
        at = name.find(_BEFORE_KEY, at + 1)
    return None


def is_request(queue: str, letter: Envelope | None) -> bool:
    """Return whether a task of a queue came as a request to its pool, which is always answered."""
    return letter is not None and letter.exchange == requests_exchange(queue)

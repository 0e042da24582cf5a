"""Exchanges, bindings and rules, what AMQP adds to a queue, and the names of pools over AMQP.

Owns the shapes. A rule gives arguments to the queues and exchanges whose names match a pattern
(RabbitMQ calls it a policy).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from jackalope.core.task import Envelope

_encoder = msgspec.json.Encoder(order="deterministic")


class Kind(StrEnum):
    """The types of exchanges."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"


class Overflow(StrEnum):
    """What a full queue does with a new message."""

    DROP_HEAD = "drop-head"
    REJECT = "reject-publish"
    REJECT_DEAD_LETTER = "reject-publish-dlx"


class AmqpTraits(msgspec.Struct, frozen=True, array_like=True):
    """The AMQP properties of a queue, in addition to its policy."""

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
        """Return whether the queue is never written to disk."""
        return not self.durable or self.owner > 0


class Exchange(msgspec.Struct, frozen=True, array_like=True, tag="exchange"):
    """An exchange that messages are published to."""

    name: str
    kind: Kind
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}
    alternate: str | None = None  # the exchange of messages that lead nowhere here; None for none
    rule: str = ""  # the rule that applies to it


class Binding(msgspec.Struct, frozen=True, array_like=True, tag="binding"):
    """A binding from an exchange to a queue, or to another exchange."""

    source: str
    to: str
    is_to_exchange: bool = False
    key: str = ""
    arguments: dict[str, Any] = {}

    def name(self) -> str:
        return _encoder.encode(self).decode()


class AppliesTo(StrEnum):
    """What a rule applies to."""

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


# The names of pools over AMQP: osrdyne's, so that its clients and workers find what they know.

BEFORE_KEY = "-req-"


QUEUE_NAME_BYTES_MAX = 255


#: Exchanges that lead to nothing but what others bind to them.
_ORPHANS = "-orphan-xchg"


#: Queues reserved for osrdyne: a client that opens them takes itself for another manager.
_OWN_QUEUES = ("-orphan", "-dl", "-deadletter", "-activity", "-poison")


def requests_exchange(pool: str) -> str:
    """Return the name of the exchange for requests; the routing key is the key."""
    return f"{pool}-req-xchg"


def activity_exchange(pool: str) -> str:
    """Return the name of the exchange for worker reports; the routing key is the key."""
    return f"{pool}-activity-xchg"


def requests_queue(pool: str, key: str) -> str:
    """Return the name of the queue that the workers of a key consume."""
    return f"{pool}{BEFORE_KEY}{key}"


def can_be_queue(pool: str, key: str) -> bool:
    """Return whether the queue name of a key fits AMQP's short strings."""
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


def is_request(queue: str, envelope: Envelope | None) -> bool:
    """Return whether a task is a request to the pool of its queue, which is always answered."""
    return envelope is not None and envelope.exchange == requests_exchange(queue)

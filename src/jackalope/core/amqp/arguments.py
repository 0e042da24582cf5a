"""Arguments: what the arguments of AMQP declarations and rules mean for a queue or an exchange.

Owns the names, the checks and how arguments and rules come together: of two numbers the lesser
counts, of two names the one that the queue itself was declared with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from jackalope.core.durations import MILLISECOND
from jackalope.core.limits import COUNT_MAX, NAME_CHARS_MAX, TIME_US_MAX
from jackalope.core.policy import PRESETS, Policy
from jackalope.core.shapes.exchange import AmqpTraits, AppliesTo, Exchange, Overflow, Rule
from jackalope.core.shapes.problems import Flaw

#: RabbitMQ counts priorities up to this, and ours are as many.
PRIORITY_MAX = 255

_MILLISECONDS_MAX = TIME_US_MAX // MILLISECOND

#: Arguments that are numbers, with the greatest.
_NUMBERS = {
    "x-message-ttl": _MILLISECONDS_MAX,
    "x-expires": _MILLISECONDS_MAX,
    "x-max-length": COUNT_MAX,
    "x-max-length-bytes": TIME_US_MAX,
    "x-delivery-limit": COUNT_MAX,
    "x-consumer-timeout": _MILLISECONDS_MAX,
    "x-max-priority": PRIORITY_MAX,
}
_TEXTS = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow", "x-queue-type")

#: What makes two declarations of one queue different.
COMPARED = (*_NUMBERS, *_TEXTS, "x-single-active-consumer", "x-queue-mode")

CLASSIC, QUORUM = "classic", "quorum"
_TYPES = (CLASSIC, QUORUM)

#: Arguments that are one of some words.
_WORDS = {
    "x-overflow": tuple(Overflow),
    "x-queue-mode": ("default", "lazy"),
    "x-dead-letter-strategy": ("at-most-once", "at-least-once"),
    "x-queue-leader-locator": ("client-local", "balanced", "random", "least-leaders"),
}

#: Numbers that mean nothing here, with the least and the greatest.
_UNUSED_NUMBERS = {
    "x-queue-version": (1, 2),
    "x-max-in-memory-length": (0, TIME_US_MAX),
    "x-max-in-memory-bytes": (0, TIME_US_MAX),
    "x-quorum-initial-group-size": (1, COUNT_MAX),
}
_CHECKED = frozenset({*COMPARED, *_WORDS, *_UNUSED_NUMBERS})

_OF_STREAMS = ("x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size")

#: Arguments that RabbitMQ knows, and queues of a type cannot have.
_NOT_OF = {
    CLASSIC: frozenset(
        {
            "x-delivery-limit",
            "x-max-in-memory-length",
            "x-max-in-memory-bytes",
            "x-quorum-initial-group-size",
            "x-dead-letter-strategy",
            *_OF_STREAMS,
        }
    ),
    QUORUM: frozenset(
        {
            "x-max-priority",
            "x-queue-mode",
            "x-queue-master-locator",
            "x-queue-version",
            *_OF_STREAMS,
        }
    ),
}


def type_of(arguments: dict[str, Any]) -> str:
    return str(arguments.get("x-queue-type") or CLASSIC)


def unfit_argument(arguments: dict[str, Any]) -> str:
    """Return the argument that the queue's type does not support; empty if it supports all."""
    unfit = _NOT_OF.get(type_of(arguments), ())
    return next((name for name in arguments if name in unfit), "")


class BadArgument(NamedTuple):
    """An argument that is invalid for every queue."""

    argument: str
    value: Any
    flaw: Flaw


def bad_argument(arguments: dict[str, Any]) -> BadArgument | None:
    """Return the first invalid argument of a queue."""
    for name, value in arguments.items():
        if name in _CHECKED and value is not None and (flaw := _flaw(name, value)):
            return BadArgument(name, value, flaw)
    name = "x-dead-letter-routing-key"
    if name in arguments and "x-dead-letter-exchange" not in arguments:
        return BadArgument(name, arguments[name], Flaw.NO_EXCHANGE)
    return None


def _flaw(name: str, value: Any) -> Flaw | None:
    wanted: type[Any] = str
    flaw = Flaw.NO_TEXT
    if name in _NUMBERS or name in _UNUSED_NUMBERS:
        wanted, flaw = int, Flaw.NO_NUMBER
    elif name == "x-single-active-consumer":
        wanted, flaw = bool, Flaw.NO_FLAG
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        return flaw
    if name in _NUMBERS:
        return _number_flaw(name, value)
    if name in _UNUSED_NUMBERS:
        least, most = _UNUSED_NUMBERS[name]
        return None if least <= value <= most else Flaw.OUT_OF_RANGE
    if name in _WORDS and value not in _WORDS[name]:
        return Flaw.UNKNOWN
    return Flaw.UNKNOWN_TYPE if name == "x-queue-type" and value not in _TYPES else None


def _number_flaw(name: str, value: int) -> Flaw | None:
    if value < 0:
        return Flaw.NEGATIVE
    if not value and name == "x-expires":
        return Flaw.ZERO
    return Flaw.TOO_LARGE if value > _NUMBERS[name] else None


def rule_problem(rule: Rule) -> str | BadArgument | None:
    """Return what is wrong with a rule: a message, or an argument that no queue can have."""
    if not 0 < len(rule.name) <= NAME_CHARS_MAX or len(rule.pattern) > NAME_CHARS_MAX:
        return f"name and pattern have at most {NAME_CHARS_MAX} characters"
    try:
        re.compile(rule.pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"pattern: {error}"
    if not rule.definition:
        return "definition: must not be empty"
    return bad_argument(
        {f"x-{name}": value for name, value in rule.definition.items()}
        | {"x-dead-letter-exchange": rule.definition.get("dead-letter-exchange", "")}
    )


def rule_of(rules: Iterable[Rule], name: str, applies_to: AppliesTo) -> Rule | None:
    """Return the rule with the highest priority that applies to a queue or an exchange."""
    fitting = [
        rule
        for rule in rules
        if rule.applies_to in (applies_to, AppliesTo.ALL) and re.search(rule.pattern, name)
    ]
    # Of equals the one whose name comes first, so that it does not depend on who came first.
    return min(fitting, key=lambda rule: (-rule.priority, rule.name), default=None)


def queue_terms(traits: AmqpTraits, rule: Rule | None) -> tuple[Policy, AmqpTraits]:
    """Return the policy and the traits of a queue, from its arguments and its rule."""
    own, given = traits.arguments, {} if rule is None else rule.definition

    def number(name: str) -> int | None:
        values = [own.get(f"x-{name}"), given.get(name)]
        return min((value for value in values if isinstance(value, int)), default=None)

    def text(name: str) -> str | None:
        value = own.get(f"x-{name}", given.get(name))
        return value if isinstance(value, str) else None

    lives_ms, length, tries = number("message-ttl"), number("max-length"), number("delivery-limit")
    policy = msgspec.structs.replace(
        PRESETS["amqp"],
        # The policy's 0 is for ever; a message with no time at all still goes to who waits for it.
        time_to_live_us=0 if lives_ms is None else max(1, lives_ms * MILLISECOND),
        depth_limit=0 if length is None else length,
        interruption_limit=0 if tries is None else tries + 1,
        timeout_us=(number("consumer-timeout") or 0) * MILLISECOND,
    )
    changed = msgspec.structs.replace(
        traits,
        rule="" if rule is None else rule.name,
        dead_letter_exchange=text("dead-letter-exchange"),
        dead_letter_key=text("dead-letter-routing-key"),
        overflow=Overflow(text("overflow") or Overflow.DROP_HEAD),
        bytes_max=number("max-length-bytes") or 0,
        expires_us=(number("expires") or 0) * MILLISECOND,
        priority_max=own.get("x-max-priority") or 0,
        single_active=bool(own.get("x-single-active-consumer")),
        length_max=length,
    )
    return policy, changed


def changed_policy(policy: Policy, then: Policy, now: Policy) -> Policy:
    """Apply to a policy the differences between two other policies."""
    changes = {
        name: getattr(now, name)
        for name in Policy.__struct_fields__
        if getattr(then, name) != getattr(now, name)
    }
    return msgspec.structs.replace(policy, **changes)


def exchange_terms(exchange: Exchange, rule: Rule | None) -> Exchange:
    given = {} if rule is None else rule.definition
    alternate = exchange.arguments.get("alternate-exchange", given.get("alternate-exchange"))
    return msgspec.structs.replace(
        exchange,
        alternate=alternate if isinstance(alternate, str) else None,
        rule="" if rule is None else rule.name,
    )


def different_argument(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return the first argument in which two declarations differ; empty if there is none."""
    for name in COMPARED:
        if before.get(name) != now.get(name):
            if name == "x-queue-type" and type_of(before) == type_of(now):
                continue
            return name
    return ""

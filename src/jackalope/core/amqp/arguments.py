"""Arguments: what the arguments of AMQP declarations and rules mean for a queue or an exchange.

Owns the names, the checks and how arguments and rules come together: of two numbers the lesser
counts, of two names the one that the queue itself was declared with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from jackalope.core.durations import MILLISECOND
from jackalope.core.limits import COUNT_MAX, NAME_CHARS_MAX, TIME_US_MAX
from jackalope.core.policy import PRESETS, Policy
from jackalope.core.shapes.exchange import AmqpTraits, AppliesTo, Exchange, Overflow, Rule

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

#: Arguments that are one of some words, with what RabbitMQ calls another one.
_WORDS = {
    "x-overflow": (tuple(Overflow), "invalid_overflow"),
    "x-queue-mode": (("default", "lazy"), "invalid_queue_mode"),
    "x-dead-letter-strategy": (("at-most-once", "at-least-once"), "invalid_dead_letter_strategy"),
    "x-queue-leader-locator": (
        ("client-local", "balanced", "random", "least-leaders"),
        "invalid_queue_locator_arg",
    ),
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
    """Return the type of a queue that was declared with these arguments."""
    return str(arguments.get("x-queue-type") or CLASSIC)


def type_problem(arguments: dict[str, Any], where: str) -> str:
    """Return which argument a queue of its type cannot have; empty if it can have all."""
    kind = type_of(arguments)
    for name in arguments:
        if name in _NOT_OF.get(kind, ()):
            return f"invalid arg '{name}' for {where} of queue type rabbit_{kind}_queue"
    return ""


def argument_problem(arguments: dict[str, Any], where: str) -> str:
    """Return what is wrong with the arguments of a queue; empty if nothing is."""
    problems = [
        (name, _problem(name, value))
        for name, value in arguments.items()
        if name in _CHECKED and value is not None
    ]
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        problems.append(("x-dead-letter-routing-key", "routing_key_but_no_dlx_defined"))
    told = (f"invalid arg '{name}' for {where}: {problem}" for name, problem in problems if problem)
    return next(told, "")


def _problem(name: str, value: Any) -> str:
    """Return what is wrong with one argument; empty if nothing is."""
    wanted: type[Any] = str
    if name in _NUMBERS or name in _UNUSED_NUMBERS:
        wanted = int
    elif name == "x-single-active-consumer":
        wanted = bool
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        return f'"expected {_TOLD[wanted]}, got {kind_of(value)}"'
    if name in _NUMBERS:
        return _number_problem(name, value)
    if name in _UNUSED_NUMBERS:
        least, most = _UNUSED_NUMBERS[name]
        return "" if least <= value <= most else f"{{value_out_of_range,{value}}}"
    words, problem = _WORDS.get(name, (None, ""))
    if words is not None and value not in words:
        return problem
    if name == "x-queue-type" and value not in _TYPES:
        return f"\"unsupported queue type '{value}'\""
    return ""


_TOLD = {int: "integer", str: "string", bool: "boolean"}


def _number_problem(name: str, value: int) -> str:
    if value < 0:
        return f"{{value_negative,{value}}}"
    if not value and name == "x-expires":
        return "{value_zero,0}"
    return f"{{max_value_exceeded,{value}}}" if value > _NUMBERS[name] else ""


def rule_problem(rule: Rule) -> str:
    """Return what is wrong with a rule, in a few words; empty if nothing is."""
    if not 0 < len(rule.name) <= NAME_CHARS_MAX or len(rule.pattern) > NAME_CHARS_MAX:
        return f"name and pattern have at most {NAME_CHARS_MAX} characters"
    try:
        re.compile(rule.pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"pattern: {error}"
    if not rule.definition:
        return "definition: it says nothing"
    return argument_problem(
        {f"x-{name}": value for name, value in rule.definition.items()}
        | {"x-dead-letter-exchange": rule.definition.get("dead-letter-exchange", "")},
        "definition",
    )


def rule_of(rules: Iterable[Rule], name: str, applies_to: AppliesTo) -> Rule | None:
    """Return the rule for a queue or an exchange."""
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
    """Return a policy with those fields changed in which two others differ."""
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
    """Return the first argument in which two declarations of a queue differ; empty if in none."""
    for name in COMPARED:
        if before.get(name) != now.get(name):
            if name == "x-queue-type" and type_of(before) == type_of(now):
                continue
            return name
    return ""


def kind_of(value: object) -> str:
    """Return the name of the type of an argument."""
    kinds = {bool: "bool", str: "longstr", float: "double", dict: "table", list: "array"}
    return kinds.get(type(value), "long" if isinstance(value, int) else "binary")

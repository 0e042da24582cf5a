"""Problems: why the core refuses a command in the manner of AMQP, as fields.

Owns the kinds of problems, each with its code and a plain sentence. RabbitMQ's clients expect
RabbitMQ's sentence; the doors that speak to them write it from the fields, and never from the
message.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Any

from jackalope.core.refusals import Code, Refusal


class Flaw(StrEnum):
    """What is wrong with the value of an argument."""

    NO_NUMBER = "must be a whole number"
    NO_TEXT = "must be text"
    NO_FLAG = "must be true or false"
    NEGATIVE = "must not be negative"
    ZERO = "must not be 0"
    TOO_LARGE = "is too large"
    OUT_OF_RANGE = "is out of range"
    UNKNOWN = "is not one of its values"
    UNKNOWN_TYPE = "is not a supported queue type"
    NO_EXCHANGE = "needs x-dead-letter-exchange as well"


class Problem(Enum):
    """What is wrong, with the code of the refusal and its message."""

    NO_QUEUE = Code.UNKNOWN_QUEUE, "no queue {name!r} in namespace {namespace!r}"
    NO_EXCHANGE = Code.UNKNOWN_EXCHANGE, "no exchange {name!r} in namespace {namespace!r}"
    NO_RULE = Code.UNKNOWN_RULE, "no rule {name!r} in namespace {namespace!r}; list the rules"
    LOCKED = Code.LOCKED, "queue {name!r} is exclusive to another connection, or is not exclusive"
    QUEUE_OF_POOL = Code.LOCKED, "queue {name!r} belongs to pool {value!r}"
    NO_SINGLE_TASKS = Code.LOCKED, "queue {name!r} is a quorum queue with a single active consumer"
    EXCLUSIVE_CONSUMER = (Code.FORBIDDEN, "queue {name!r}: a consumer is, or would be, exclusive")
    RESERVED_QUEUE = Code.FORBIDDEN, "queue {name!r}: names that begin with 'amq.' are reserved"
    RESERVED_EXCHANGE = (
        Code.FORBIDDEN,
        "exchange {name!r}: names that begin with 'amq.' are reserved",
    )
    DEFAULT_EXCHANGE = Code.FORBIDDEN, "the default exchange cannot be changed"
    SYSTEM_EXCHANGE = Code.FORBIDDEN, "exchange {name!r} is predefined and cannot be deleted"
    INTERNAL_EXCHANGE = Code.FORBIDDEN, "exchange {name!r} is internal; publish to another"
    QUEUE_IN_USE = Code.IN_USE, "queue {name!r} has consumers"
    EXCHANGE_IN_USE = Code.IN_USE, "exchange {name!r} has bindings"
    NOT_EMPTY = Code.QUEUE_NOT_EMPTY, "queue {name!r} has ready tasks"
    DIFFERENT_QUEUE = (
        Code.NOT_EQUIVALENT,
        "queue {name!r} was declared with {argument} {current!r}, not {value!r}",
    )
    DIFFERENT_EXCHANGE = (
        Code.NOT_EQUIVALENT,
        "exchange {name!r} was declared with {argument} {current!r}, not {value!r}",
    )
    BAD_ARGUMENT = Code.NOT_EQUIVALENT, "queue {name!r}: {argument} {flaw}, got {value!r}"
    BAD_DEFINITION = Code.INVALID, "rule {name!r}: {argument} {flaw}, got {value!r}"
    BAD_ALTERNATE = Code.NOT_EQUIVALENT, "exchange {name!r}: {argument} must be text, got {value!r}"
    NOT_OF_TYPE = Code.NOT_EQUIVALENT, "queue {name!r}: a {value} queue cannot have {argument}"
    NOT_OF_QUORUM = Code.NOT_EQUIVALENT, "queue {name!r}: a quorum queue cannot be {argument}"
    BAD_MATCH = (
        Code.NOT_EQUIVALENT,
        "x-match must be all, any, all-with-x or any-with-x, got {value!r}",
    )
    BAD_COPIES = Code.INVALID, "header {argument} must be a list of routing keys, got {value!r}"


class AmqpRefusal(Refusal, frozen=True, kw_only=True):
    """A refusal for which RabbitMQ has its own text."""

    problem: Problem
    name: str  # of the queue, the exchange or the rule
    namespace: str
    argument: str = ""  # the argument, the property or the header that is wrong
    value: Any = None  # what it was to be
    current: Any = None  # what it is
    flaw: Flaw | None = None  # what is wrong with the value


def refuse(problem: Problem, name: str, namespace: str, **fields: Any) -> AmqpRefusal:
    """Make a refusal about a queue, an exchange or a rule."""
    code, sentence = problem.value
    message = sentence.format(name=name, namespace=namespace, **fields)
    return AmqpRefusal(code, message, problem=problem, name=name, namespace=namespace, **fields)

"""AMQP errors on the wire: what ends a channel or a connection, with its code and its text.

Owns the one mapping of refusals to reply codes, and RabbitMQ's sentences, which programs and people
look at. They are made of the fields of a refusal. One for which RabbitMQ has no sentence keeps the
core's. Used by the AMQP door and by the management API.
"""

from __future__ import annotations

from jackalope.core.commands.base import DEFAULT_NAMESPACE
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.problems import AmqpRefusal, Flaw, Problem

#: The virtual host that every client asks for by default.
DEFAULT_VHOST = "/"

NAMES = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}

#: Codes whose reply code does not follow from the rule.
_CODES = {
    Code.TOO_LARGE: 311,
    Code.UNAUTHORISED: 403,
    Code.FORBIDDEN: 403,
    Code.LOCKED: 405,
    Code.TOO_MANY: 506,
    Code.OVERLOADED: 506,
    Code.RATE_LIMITED: 506,
    Code.UNKNOWN_SESSION: 541,
    Code.STORAGE_FAILED: 541,
    Code.INTERNAL: 541,
}


def reply_code(code: Code) -> int:
    """Return the AMQP reply code of a refusal."""
    is_unknown = code.startswith("unknown_")
    return _CODES.get(code, 404 if is_unknown else 406)


def namespace_of(vhost: str) -> str:
    return DEFAULT_NAMESPACE if vhost == DEFAULT_VHOST else vhost


def vhost_of(namespace: str) -> str:
    return DEFAULT_VHOST if namespace == DEFAULT_NAMESPACE else namespace


_QUEUE = "queue '{name}' in vhost '{vhost}'"
_EXCHANGE = "exchange '{name}' in vhost '{vhost}'"
_DIFFERENT = "inequivalent arg '{argument}' for {where}: received {now} but current is {then}"

_TEXTS = {
    Problem.NO_QUEUE: f"no {_QUEUE}",
    Problem.NO_EXCHANGE: f"no {_EXCHANGE}",
    Problem.NO_RULE: "no rule {name!r} in vhost '{vhost}'; list the rules",
    Problem.LOCKED: f"cannot obtain exclusive access to locked {_QUEUE}. It could be originally"
    " declared on another connection or the exclusive property value does not match that of the"
    " original declaration.",
    Problem.QUEUE_OF_POOL: f"cannot obtain exclusive access to locked {_QUEUE}:"
    " pool '{value}' has it",
    Problem.NO_SINGLE_TASKS: f"cannot obtain access to locked {_QUEUE}. basic.get operations are"
    " not supported by quorum queues with single active consumer",
    Problem.EXCLUSIVE_CONSUMER: f"{_QUEUE} in exclusive use",
    Problem.RESERVED_QUEUE: "queue name '{name}' contains reserved prefix 'amq.*'",
    Problem.RESERVED_EXCHANGE: "exchange name '{name}' contains reserved prefix 'amq.*'",
    Problem.DEFAULT_EXCHANGE: "operation not permitted on the default exchange",
    Problem.SYSTEM_EXCHANGE: f"deletion of system {_EXCHANGE} not allowed",
    Problem.INTERNAL_EXCHANGE: f"cannot publish to internal {_EXCHANGE}",
    Problem.QUEUE_IN_USE: f"{_QUEUE} in use",
    Problem.EXCHANGE_IN_USE: f"{_EXCHANGE} in use",
    Problem.NOT_EMPTY: f"{_QUEUE} not empty",
    Problem.DIFFERENT_QUEUE: _DIFFERENT.replace("{where}", _QUEUE),
    Problem.DIFFERENT_EXCHANGE: _DIFFERENT.replace("{where}", _EXCHANGE),
    Problem.BAD_ARGUMENT: f"invalid arg '{{argument}}' for {_QUEUE}: {{flaw}}",
    Problem.BAD_DEFINITION: "rule {name!r}: invalid arg '{argument}' for definition: {flaw}",
    Problem.BAD_ALTERNATE: f"invalid type '{{kind}}' for arg '{{argument}}' in {_EXCHANGE}",
    Problem.NOT_OF_TYPE: f"invalid arg '{{argument}}' for {_QUEUE} of queue type"
    " rabbit_{value}_queue",
    Problem.NOT_OF_QUORUM: f"invalid property '{{argument}}' for {_QUEUE}",
    Problem.BAD_MATCH: 'Invalid x-match field value <<"{value}">>; expected all, any,'
    " all-with-x, or any-with-x",
    Problem.BAD_COPIES: 'invalid message: {{unacceptable_type_in_header,"{argument}",{kind}}}',
}

_FLAWS = {
    Flaw.NO_NUMBER: '"expected integer, got {kind}"',
    Flaw.NO_TEXT: '"expected string, got {kind}"',
    Flaw.NO_FLAG: '"expected boolean, got {kind}"',
    Flaw.NEGATIVE: "{{value_negative,{value}}}",
    Flaw.ZERO: "{{value_zero,{value}}}",
    Flaw.TOO_LARGE: "{{max_value_exceeded,{value}}}",
    Flaw.OUT_OF_RANGE: "{{value_out_of_range,{value}}}",
    Flaw.UNKNOWN_TYPE: "\"unsupported queue type '{value}'\"",
    Flaw.NO_EXCHANGE: "routing_key_but_no_dlx_defined",
}

#: What RabbitMQ calls an unknown word, by the argument.
_UNKNOWN = {
    "x-overflow": "invalid_overflow",
    "x-queue-mode": "invalid_queue_mode",
    "x-dead-letter-strategy": "invalid_dead_letter_strategy",
    "x-queue-leader-locator": "invalid_queue_locator_arg",
}

_KINDS = {bool: "bool", str: "longstr", float: "double", dict: "table", list: "array"}
_EXCHANGE_TYPES = ("direct", "fanout", "topic", "headers")


def reply_text(refusal: Refusal, vhost: str = "") -> str:
    """Return the reply text of a refusal, with the peer's name of the virtual host."""
    if not isinstance(refusal, AmqpRefusal):
        return refusal.message
    value, flaw = refusal.value, refusal.flaw
    kind = kind_of(value)
    template = "" if flaw is None else _FLAWS.get(flaw) or _UNKNOWN[refusal.argument]
    return _TEXTS[refusal.problem].format(
        name=refusal.name,
        vhost=vhost or vhost_of(refusal.namespace),
        argument=refusal.argument,
        value=value,
        kind=kind,
        flaw=template.format(kind=kind, value=value),
        now=_shown(value),
        then=_shown(refusal.current),
    )


def kind_of(value: object) -> str:
    """Return the AMQP type name of an argument."""
    return _KINDS.get(type(value), "long" if isinstance(value, int) else "binary")


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"'{str(value).lower()}'"
    if isinstance(value, int):
        return f"the value '{value}' of type 'signedint'"
    return f"'{value}'" if value in _EXCHANGE_TYPES else f"the value '{value}' of type 'longstr'"


# Faults.


class AmqpError(Exception):
    """Something that a peer did and that ends its channel, or its connection.

    Attributes:
        code: the reply code.
        text: the reply text.
        class_id: the class of the method that caused it.
        method_id: the number of that method.
    """

    def __init__(self, code: int, message: str, class_id: int = 0, method_id: int = 0) -> None:
        self.code = code
        self.text = f"{NAMES[code]} - {message}"
        self.class_id, self.method_id = class_id, method_id
        super().__init__(self.text)


class ChannelFault(AmqpError):
    """It closes the channel."""


class ConnectionFault(AmqpError):
    """It closes the connection."""


def fault_of(refusal: Refusal, vhost: str = "") -> AmqpError:
    code = reply_code(refusal.code)
    kind = ConnectionFault if code >= 500 else ChannelFault
    return kind(code, reply_text(refusal, vhost))

"""Errors of AMQP: the code and the words for everything that is refused.

Owns the one mapping of refusals to reply codes, and whether a code ends a channel or the whole
connection. The words are RabbitMQ's, as far as programs look at them.
"""

from __future__ import annotations

from jackalope.core.refusals import Code, Refusal

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

#: What each refusal of the broker is in AMQP.
CODES: dict[Code, int] = {
    Code.INVALID: 406,
    Code.TOO_LARGE: 311,
    Code.UNKNOWN_TASK: 404,
    Code.UNKNOWN_QUEUE: 404,
    Code.UNKNOWN_EXCHANGE: 404,
    Code.UNKNOWN_RULE: 404,
    Code.UNKNOWN_REQUEST: 404,
    Code.UNKNOWN_POOL: 404,
    Code.UNKNOWN_BLOB: 404,
    Code.UNKNOWN_WORKER: 404,
    Code.UNKNOWN_SESSION: 541,
    Code.UNKNOWN_API_KEY: 404,
    Code.UNKNOWN_RECIPIENT: 404,
    Code.UNKNOWN_DEPENDENCY: 404,
    Code.ID_CONFLICT: 406,
    Code.DUPLICATE_ALIAS: 406,
    Code.PARENT_ENDED: 406,
    Code.QUEUE_FULL: 406,
    Code.QUEUE_NOT_EMPTY: 406,
    Code.NOT_EQUIVALENT: 406,
    Code.LOCKED: 405,
    Code.IN_USE: 406,
    Code.TOO_MANY: 506,
    Code.POLICY_CYCLE: 406,
    Code.WRONG_STATE: 406,
    Code.STALE_FENCE: 406,
    Code.STALE_SESSION: 406,
    Code.STORAGE_FAILED: 541,
    Code.OVERLOADED: 506,
    Code.RATE_LIMITED: 506,
    Code.UNAUTHORISED: 403,
    Code.FORBIDDEN: 403,
    Code.INTERNAL: 541,
}


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
    """It ends the channel."""


class ConnectionFault(AmqpError):
    """It ends the connection."""


def fault_of(refusal: Refusal, namespace: str, vhost: str) -> AmqpError:
    text = refusal.message.replace(f"in namespace '{namespace}'", f"in vhost '{vhost}'")
    code = CODES[refusal.code]
    kind = ConnectionFault if code >= 500 else ChannelFault
    return kind(code, text)

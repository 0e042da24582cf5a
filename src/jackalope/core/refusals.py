"""Refusals: the replies to commands that are rejected.

A refusal is a value, not an exception: it has a stable code that every door maps once to its own
errors, a sentence that names what is wrong and what to do, and, where waiting helps, how long.
"""

from enum import StrEnum

import msgspec


class Code(StrEnum):
    """Stable codes. Never renamed; a new meaning gets a new code."""

    INVALID = "invalid"
    TOO_LARGE = "too_large"
    UNKNOWN_TASK = "unknown_task"
    UNKNOWN_QUEUE = "unknown_queue"
    UNKNOWN_WORKER = "unknown_worker"
    UNKNOWN_SESSION = "unknown_session"
    UNKNOWN_API_KEY = "unknown_api_key"
    UNKNOWN_RECIPIENT = "unknown_recipient"
    UNKNOWN_REQUEST = "unknown_request"
    UNKNOWN_DEPENDENCY = "unknown_dependency"
    ID_CONFLICT = "id_conflict"
    DUPLICATE_ALIAS = "duplicate_alias"
    PARENT_ENDED = "parent_ended"
    QUEUE_FULL = "queue_full"
    QUEUE_NOT_EMPTY = "queue_not_empty"
    TOO_MANY = "too_many"
    POLICY_CYCLE = "policy_cycle"
    WRONG_STATE = "wrong_state"
    STALE_FENCE = "stale_fence"
    STALE_SESSION = "stale_session"
    UNKNOWN_EXCHANGE = "unknown_exchange"
    UNKNOWN_RULE = "unknown_rule"
    NOT_EQUIVALENT = "not_equivalent"
    LOCKED = "locked"
    IN_USE = "in_use"
    STORAGE_FAILED = "storage_failed"
    OVERLOADED = "overloaded"
    RATE_LIMITED = "rate_limited"
    UNAUTHORISED = "unauthorised"
    FORBIDDEN = "forbidden"
    UNKNOWN_POOL = "unknown_pool"
    UNKNOWN_BLOB = "unknown_blob"
    UNKNOWN_SCHEDULE = "unknown_schedule"
    THROTTLED = "throttled"
    INTERNAL = "internal"
    UNKNOWN_NAMESPACE = "unknown_namespace"
    NAMESPACE_NOT_EMPTY = "namespace_not_empty"
    QUOTA_EXCEEDED = "quota_exceeded"


class Refusal(msgspec.Struct, frozen=True, tag="refused"):
    """One refusal."""

    code: Code  # what kind of no this is, for programs
    message: str  # what happened, to what, and what to do, for people
    retry_after_us: int = 0  # when asking again may help; 0 when it will not


class QuotaRefusal(Refusal, frozen=True, kw_only=True):
    """A refusal because a quota of the namespace is used up."""

    quota: str  # which one: a field of the settings of namespaces
    limit: int  # what it allows
    used: int  # what is used of it now

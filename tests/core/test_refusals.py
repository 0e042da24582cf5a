"""Refusals: their codes are a promise to every program that reads them."""

import msgspec
import pytest

from jackalope.core.refusals import Code, Refusal

#: Frozen. A new code is added; none is renamed or taken away.
CODES = {
    "INVALID": "invalid",
    "TOO_LARGE": "too_large",
    "UNKNOWN_TASK": "unknown_task",
    "UNKNOWN_QUEUE": "unknown_queue",
    "UNKNOWN_WORKER": "unknown_worker",
    "UNKNOWN_SESSION": "unknown_session",
    "UNKNOWN_API_KEY": "unknown_api_key",
    "UNKNOWN_RECIPIENT": "unknown_recipient",
    "UNKNOWN_REQUEST": "unknown_request",
    "UNKNOWN_DEPENDENCY": "unknown_dependency",
    "ID_CONFLICT": "id_conflict",
    "DUPLICATE_ALIAS": "duplicate_alias",
    "PARENT_ENDED": "parent_ended",
    "QUEUE_FULL": "queue_full",
    "QUEUE_NOT_EMPTY": "queue_not_empty",
    "TOO_MANY": "too_many",
    "POLICY_CYCLE": "policy_cycle",
    "WRONG_STATE": "wrong_state",
    "STALE_FENCE": "stale_fence",
    "STALE_SESSION": "stale_session",
    "UNKNOWN_EXCHANGE": "unknown_exchange",
    "UNKNOWN_RULE": "unknown_rule",
    "NOT_EQUIVALENT": "not_equivalent",
    "LOCKED": "locked",
    "IN_USE": "in_use",
    "STORAGE_FAILED": "storage_failed",
    "OVERLOADED": "overloaded",
    "RATE_LIMITED": "rate_limited",
    "THROTTLED": "throttled",
    "UNKNOWN_NAMESPACE": "unknown_namespace",
    "NAMESPACE_NOT_EMPTY": "namespace_not_empty",
    "QUOTA_EXCEEDED": "quota_exceeded",
    "UNAUTHORISED": "unauthorised",
    "FORBIDDEN": "forbidden",
    "UNKNOWN_POOL": "unknown_pool",
    "UNKNOWN_BLOB": "unknown_blob",
    "UNKNOWN_SCHEDULE": "unknown_schedule",
    "INTERNAL": "internal",
}


def test_codes_are_frozen() -> None:
    assert {code.name: code.value for code in Code} == CODES


@pytest.mark.parametrize("code", Code)
def test_a_refusal_survives_encoding(code: Code) -> None:
    refusal = Refusal(code, "what happened, and what to do", 5)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(refusal), type=Refusal) == refusal
    encoded = msgspec.json.decode(msgspec.json.encode(refusal))
    assert encoded == {
        "type": "refused",
        "code": CODES[code.name],
        "message": "what happened, and what to do",
        "retry_after_us": 5,
    }


def test_a_refusal_is_a_value() -> None:
    refusal = Refusal(Code.INVALID, "no")
    assert refusal == Refusal(Code.INVALID, "no")
    assert refusal.retry_after_us == 0
    with pytest.raises(AttributeError):
        refusal.code = Code.TOO_MANY  # type: ignore[misc]

"""Reply codes and reply texts of refusals. The transcripts hold the texts against RabbitMQ's."""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.problems import Flaw, Problem, refuse
from jackalope.wire.amqp import namespace_of, reply_code, reply_text, vhost_of

REPLY_CODES = {
    Code.INVALID: 406,
    Code.TOO_LARGE: 311,
    Code.UNKNOWN_TASK: 404,
    Code.UNKNOWN_QUEUE: 404,
    Code.UNKNOWN_EXCHANGE: 404,
    Code.UNKNOWN_RULE: 404,
    Code.UNKNOWN_REQUEST: 404,
    Code.UNKNOWN_POOL: 404,
    Code.UNKNOWN_BLOB: 404,
    Code.UNKNOWN_SCHEDULE: 404,
    Code.UNKNOWN_WORKER: 404,
    Code.UNKNOWN_NAMESPACE: 404,
    Code.NAMESPACE_NOT_EMPTY: 406,
    Code.QUOTA_EXCEEDED: 506,
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
    Code.THROTTLED: 506,
    Code.QUOTA_EXCEEDED: 506,
    Code.UNAUTHORISED: 403,
    Code.FORBIDDEN: 403,
    Code.INTERNAL: 541,
}

ALL_FIELDS: dict[str, Any] = {
    "argument": "x-overflow",
    "value": "odd",
    "current": None,
    "flaw": Flaw.UNKNOWN,
}


def test_every_refusal_has_a_reply_code() -> None:
    assert {code: reply_code(code) for code in Code} == REPLY_CODES


@pytest.mark.parametrize("problem", Problem)
def test_every_problem_has_a_reply_text_and_a_message(problem: Problem) -> None:
    refusal = refuse(problem, "here", "default", **ALL_FIELDS)
    assert refusal.code is problem.value[0]
    assert refusal.message
    assert "{" not in reply_text(refusal).replace("{unacceptable_type_in_header", "")
    assert "in namespace" not in reply_text(refusal)


@pytest.mark.parametrize(
    ("flaw", "value", "text"),
    [
        (Flaw.NO_NUMBER, "five", '"expected integer, got longstr"'),
        (Flaw.NO_TEXT, 5, '"expected string, got long"'),
        (Flaw.NO_FLAG, 1.5, '"expected boolean, got double"'),
        (Flaw.NEGATIVE, -1, "{value_negative,-1}"),
        (Flaw.ZERO, 0, "{value_zero,0}"),
        (Flaw.TOO_LARGE, 256, "{max_value_exceeded,256}"),
        (Flaw.OUT_OF_RANGE, 3, "{value_out_of_range,3}"),
        (Flaw.UNKNOWN, "odd", "invalid_overflow"),
        (Flaw.UNKNOWN_TYPE, "stream", "\"unsupported queue type 'stream'\""),
        (Flaw.NO_EXCHANGE, "key", "routing_key_but_no_dlx_defined"),
    ],
)
def test_every_flaw_of_an_argument_has_a_text(flaw: Flaw, value: object, text: str) -> None:
    fields = {"argument": "x-overflow", "value": value, "flaw": flaw}
    refusal = refuse(Problem.BAD_ARGUMENT, "q", "default", **fields)
    assert reply_text(refusal) == f"invalid arg 'x-overflow' for queue 'q' in vhost '/': {text}"


def test_a_name_with_braces_is_written_as_it_is() -> None:
    refusal = refuse(Problem.NO_QUEUE, "{name} {0}", "other")
    assert reply_text(refusal) == "no queue '{name} {0}' in vhost 'other'"
    assert refusal.message == "no queue '{name} {0}' in namespace 'other'"


def test_a_refusal_without_a_text_of_rabbitmqs_keeps_its_message() -> None:
    assert reply_text(Refusal(Code.TOO_MANY, "there are 10; remove one")) == (
        "there are 10; remove one"
    )


def test_the_text_names_the_virtual_host_as_the_peer_does() -> None:
    refusal = refuse(Problem.NO_EXCHANGE, "e", "default")
    assert reply_text(refusal) == "no exchange 'e' in vhost '/'"
    assert reply_text(refusal, "default") == "no exchange 'e' in vhost 'default'"


def test_the_default_namespace_is_the_root_virtual_host() -> None:
    assert (namespace_of("/"), vhost_of("default")) == ("default", "/")
    assert (namespace_of("other"), vhost_of("other")) == ("other", "other")

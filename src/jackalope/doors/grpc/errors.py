"""Errors of the gRPC door: one map from refusals to status codes, and one form for all.

Owns that map, and what the details of a status say: `ErrorInfo` with the code of the refusal,
`RetryInfo` where waiting helps, `BadRequest` with the fields that are wrong. A method that refuses
raises `Refused` with a refusal of the core, or `BadField` for what only gRPC knows.
"""

from __future__ import annotations

from typing import Any

import structlog
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

from jackalope.broker.queries import Refused
from jackalope.core.durations import SECOND
from jackalope.core.refusals import Code, QuotaRefusal, Refusal
from jackalope.storage import StorageFault

log = structlog.get_logger(component="grpc")

DOMAIN = "jackalope"

#: Where clients look for the details of a status.
DETAILS = "grpc-status-details-bin"

#: Names the address of the node that leads, if this one does not.
LEADER = "jackalope-leader"

#: The status of each refusal of the core: what is unknown is not found, nearly all else fails
#: because of what is there, and these differ.
_OTHERS: dict[Code, StatusCode] = {
    Code.INVALID: StatusCode.INVALID_ARGUMENT,
    Code.TOO_LARGE: StatusCode.INVALID_ARGUMENT,
    Code.UNAUTHORISED: StatusCode.UNAUTHENTICATED,
    Code.FORBIDDEN: StatusCode.PERMISSION_DENIED,
    Code.ID_CONFLICT: StatusCode.ALREADY_EXISTS,
    Code.DUPLICATE_ALIAS: StatusCode.ALREADY_EXISTS,
    Code.UNKNOWN_SESSION: StatusCode.ABORTED,
    Code.STALE_SESSION: StatusCode.ABORTED,
    Code.STALE_FENCE: StatusCode.ABORTED,
    Code.UNKNOWN_DEPENDENCY: StatusCode.FAILED_PRECONDITION,
    Code.TOO_MANY: StatusCode.RESOURCE_EXHAUSTED,
    Code.RATE_LIMITED: StatusCode.RESOURCE_EXHAUSTED,
    Code.THROTTLED: StatusCode.RESOURCE_EXHAUSTED,
    Code.QUOTA_EXCEEDED: StatusCode.RESOURCE_EXHAUSTED,
    Code.QUEUE_FULL: StatusCode.RESOURCE_EXHAUSTED,
    Code.STORAGE_FAILED: StatusCode.UNAVAILABLE,
    Code.OVERLOADED: StatusCode.UNAVAILABLE,
    Code.INTERNAL: StatusCode.INTERNAL,
}
STATUS: dict[Code, StatusCode] = {
    code: _OTHERS.get(
        code,
        StatusCode.NOT_FOUND if code.startswith("unknown_") else StatusCode.FAILED_PRECONDITION,
    )
    for code in Code
}


class BadField(Exception):
    """A field whose value cannot be meant. `field` is its path in the message."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem

    def below(self, path: str) -> BadField:
        """Return the same problem of a message that is a field itself."""
        return BadField(f"{path}.{self.field}" if self.field else path, self.problem)


class Elsewhere(Exception):
    """Another node leads: `address` is where its gRPC door is, empty if none is known."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"this node does not lead; the leader is at {address}"
            if address
            else "no node leads just now; try again a little later"
        )
        self.address = address


async def abort(context: Any, error: Exception, method: str) -> None:
    """End a call with the status of an error; log it if it is a bug."""
    refusal, fields, more = _refusal_of(error, method)
    code = STATUS[refusal.code]
    status = Status(code=code.value[0], message=refusal.message)
    status.details.extend(_details(refusal, fields, more))
    metadata = [(DETAILS, status.SerializeToString())]
    if LEADER in more:
        metadata.append((LEADER, more[LEADER]))
    await context.abort(code, refusal.message, tuple(metadata))


def _refusal_of(
    error: Exception, method: str
) -> tuple[Refusal, list[tuple[str, str]], dict[str, str]]:
    """Return the refusal, the fields that are wrong, and what else is known."""
    if isinstance(error, Refused):
        return error.refusal, [], _quota_of(error.refusal)
    if isinstance(error, BadField):
        return refusal_of(error), [(error.field, error.problem)], {}
    if isinstance(error, StorageFault):
        return Refusal(Code.STORAGE_FAILED, str(error), SECOND), [], {}
    if isinstance(error, Elsewhere):
        more = {LEADER: error.address} if error.address else {}
        return Refusal(Code.OVERLOADED, str(error), SECOND), [], more
    log.error("bug", method=method, exc_info=error)
    return Refusal(Code.INTERNAL, "internal error; see the broker's log"), [], {}


def _quota_of(refusal: Refusal) -> dict[str, str]:
    """Return the quota that is used up, if that is why."""
    if not isinstance(refusal, QuotaRefusal):
        return {}
    return {"quota": refusal.quota, "limit": str(refusal.limit), "used": str(refusal.used)}


def refusal_of(error: BadField) -> Refusal:
    return Refusal(Code.INVALID, str(error))


def _details(
    refusal: Refusal, fields: list[tuple[str, str]], more: dict[str, str]
) -> list[AnyMessage]:
    info = ErrorInfo(reason=refusal.code.name, domain=DOMAIN, metadata=more)
    details: list[Any] = [info]
    if refusal.retry_after_us:
        wait = Duration(
            seconds=refusal.retry_after_us // SECOND, nanos=refusal.retry_after_us % SECOND * 1_000
        )
        details.append(RetryInfo(retry_delay=wait))
    if fields:
        violations = [
            BadRequest.FieldViolation(field=field, description=problem) for field, problem in fields
        ]
        details.append(BadRequest(field_violations=violations))
    packed = []
    for each in details:
        one = AnyMessage()
        one.Pack(each)
        packed.append(one)
    return packed

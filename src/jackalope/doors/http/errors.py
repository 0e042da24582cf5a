"""Errors of the HTTP door: one body for every refusal, and one map to status codes.

Owns the map from refusals to status codes. A handler that refuses raises `Refused` with a refusal
of the core, or `Rejected` for what only HTTP knows; no other module writes an error body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from jackalope.broker.queries import Refused
from jackalope.core.durations import SECOND
from jackalope.core.refusals import Code, QuotaRefusal, Refusal
from jackalope.doors.http.asgi import Response
from jackalope.storage import StorageFault

if TYPE_CHECKING:
    from jackalope.doors.http.request import Connection

log = structlog.get_logger(component="http")

#: The status of each refusal of the core: what is unknown is not found, nearly all else conflicts
#: with what is there, and these differ.
_OTHERS: dict[Code, int] = {
    Code.INVALID: 400,
    Code.UNAUTHORISED: 401,
    Code.FORBIDDEN: 403,
    Code.UNKNOWN_SESSION: 409,
    Code.UNKNOWN_DEPENDENCY: 409,
    Code.TOO_LARGE: 413,
    Code.TOO_MANY: 429,
    Code.RATE_LIMITED: 429,
    Code.THROTTLED: 429,
    Code.QUOTA_EXCEEDED: 429,
    Code.INTERNAL: 500,
    Code.QUEUE_FULL: 503,
    Code.STORAGE_FAILED: 503,
    Code.OVERLOADED: 503,
}
STATUS: dict[Code, int] = {
    code: _OTHERS.get(code, 404 if code.startswith("unknown_") else 409) for code in Code
}

#: The reason of each status that no refusal of the core stands behind.
REASONS: dict[int, str] = {
    400: "invalid",
    401: "unauthorised",
    403: "forbidden",
    404: "unknown_path",
    405: "wrong_method",
    408: "too_slow",
    413: "too_large",
    415: "wrong_media_type",
    416: "wrong_range",
    429: "rate_limited",
    431: "too_large",
    500: "internal",
    503: "unavailable",
}

_RETRY_SECONDS_DEFAULT = 1


class ErrorBody(msgspec.Struct, omit_defaults=True):
    """Why something was not done."""

    error: str  # what is wrong, with what, and what to do
    code: int  # the status of the answer
    reason: str  # what kind of no this is, for programs
    retry_after_s: float | None = None  # when asking again may help
    quota: str | None = None  # the quota of the namespace that is used up, if that is why
    limit: int | None = None  # what it allows
    used: int | None = None  # what is used of it


class Rejected(Exception):
    """A request that the door itself turns down."""

    def __init__(
        self,
        status: int,
        message: str,
        reason: str = "",
        headers: dict[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.body: ErrorBody | None = None  # what is said, if it is more than the rest
        self.status = status  # the status of the answer
        # what kind of no this is; by default the usual one of the status
        self.reason = reason or REASONS.get(status, "invalid")
        self.headers = dict(headers or {})  # what the answer says beside its body
        self.retry_after_s = retry_after_s
        if status in (429, 503):
            # Whole seconds, at least one: a client that waits for nothing would come right back.
            seconds = max(1, -(-retry_after_s // 1)) if retry_after_s else _RETRY_SECONDS_DEFAULT
            self.headers.setdefault("Retry-After", str(int(seconds)))


def rejection(rejected: Rejected) -> Response:
    body = rejected.body or ErrorBody(
        str(rejected), rejected.status, rejected.reason, rejected.retry_after_s
    )
    return Response(msgspec.json.encode(body), rejected.status, rejected.headers)


def refusal_body(refusal: Refusal) -> ErrorBody:
    """Put a refusal into the body of an error; for lists, where each item has its own answer."""
    wait_s = refusal.retry_after_us / SECOND if refusal.retry_after_us else None
    body = ErrorBody(refusal.message, STATUS[refusal.code], str(refusal.code), wait_s)
    if isinstance(refusal, QuotaRefusal):
        body.quota, body.limit, body.used = refusal.quota, refusal.limit, refusal.used
    return body


def as_rejected(connection: Connection, error: Exception) -> Rejected:
    """Return what to reject a request with that has raised an error; log it if it is a bug."""
    if isinstance(error, Rejected):
        return error
    if isinstance(error, StorageFault):
        error = Refused(Refusal(Code.STORAGE_FAILED, str(error), SECOND))
    if isinstance(error, Refused):
        body = refusal_body(error.refusal)
        wait_s = body.retry_after_s
        rejected = Rejected(body.code, body.error, body.reason, retry_after_s=wait_s)
        rejected.body = body
        return rejected
    log.error("bug", method=connection.method, path=connection.path, exc_info=error)
    return Rejected(500, "internal error; see the broker's log")


def error_response(connection: Connection, error: Exception) -> Response:
    """Answer an error in the words of the door."""
    return rejection(as_rejected(connection, error))


#: What each status means in the description of the API.
MEANINGS = {
    400: "The request is malformed or has invalid values.",
    401: "An API key is required.",
    403: "The API key does not permit this.",
    404: "The resource does not exist.",
    405: "The method is not allowed for this path.",
    408: "The body was sent too slowly.",
    409: "Conflict with the current state: the task's state does not allow it, the id or alias "
    "is taken, or the fence is stale; `reason` says which.",
    413: "The body or an item in it is too large.",
    415: "The content type of the body is not supported.",
    416: "The range is outside the body.",
    429: "Too many requests, or too many of something; see `Retry-After`.",
    431: "The request line and headers are too large.",
    500: "Internal error.",
    501: "The blob store of this broker does not support this.",
    503: "The queue is full, or the broker cannot write; see `Retry-After`.",
}

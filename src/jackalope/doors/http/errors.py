"""Errors of the HTTP door: one body for every refusal, and one map to status codes.

Owns the map from refusals to status codes. A handler that refuses raises `Refused` with a refusal
of the core, or `Rejected` for what only HTTP knows; no other module writes an error body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import Scope, Send

from jackalope.broker.queries import Refused
from jackalope.core.durations import SECOND
from jackalope.core.refusals import Code, Refusal
from jackalope.storage import StorageFault

log = structlog.get_logger(component="http")

#: The status of each refusal of the core.
STATUS: dict[Code, int] = {
    Code.INVALID: 400,
    Code.TOO_LARGE: 413,
    Code.UNKNOWN_TASK: 404,
    Code.UNKNOWN_QUEUE: 404,
    Code.UNKNOWN_WORKER: 404,
    Code.UNKNOWN_SESSION: 409,
    Code.UNKNOWN_API_KEY: 404,
    Code.UNKNOWN_POOL: 404,
    Code.UNKNOWN_BLOB: 404,
    Code.UNKNOWN_RECIPIENT: 404,
    Code.UNKNOWN_REQUEST: 404,
    Code.UNKNOWN_DEPENDENCY: 409,
    Code.ID_CONFLICT: 409,
    Code.DUPLICATE_ALIAS: 409,
    Code.PARENT_ENDED: 409,
    Code.QUEUE_FULL: 503,
    Code.QUEUE_NOT_EMPTY: 409,
    Code.TOO_MANY: 429,
    Code.POLICY_CYCLE: 409,
    Code.WRONG_STATE: 409,
    Code.STALE_FENCE: 409,
    Code.STALE_SESSION: 409,
    Code.UNKNOWN_EXCHANGE: 404,
    Code.UNKNOWN_RULE: 404,
    Code.NOT_EQUIVALENT: 409,
    Code.LOCKED: 409,
    Code.IN_USE: 409,
    Code.STORAGE_FAILED: 503,
    Code.OVERLOADED: 503,
    Code.RATE_LIMITED: 429,
    Code.UNAUTHORISED: 401,
    Code.FORBIDDEN: 403,
    Code.INTERNAL: 500,
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
        self.status = status  # the status of the answer
        # what kind of no this is; by default the usual one of the status
        self.reason = reason or REASONS.get(status, "invalid")
        self.headers = headers or {}  # what the answer says beside its body
        self.retry_after_s = retry_after_s


def error_body(rejected: Rejected) -> bytes:
    """Write the body of an answer that the application has no part in."""
    body = ErrorBody(str(rejected), rejected.status, rejected.reason, rejected.retry_after_s)
    return msgspec.json.encode(body)


async def turn_away(
    rejected: Rejected, scope: Scope, send: Send, say: Callable[[Rejected], bytes] = error_body
) -> None:
    """Answer without the application; in place of a WebSocket, too, before it is accepted."""
    body = say(rejected)
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **rejected.headers,
    }
    if rejected.retry_after_s is not None:
        headers["retry-after"] = str(int(max(1, -(-rejected.retry_after_s // 1))))
    is_socket = scope["type"] == ScopeType.WEBSOCKET
    kind = "websocket.http.response" if is_socket else "http.response"
    encoded = [(name.lower().encode(), text.encode()) for name, text in headers.items()]
    start: Any = {"type": f"{kind}.start", "status": rejected.status, "headers": encoded}
    await send(start)
    end: Any = {"type": f"{kind}.body", "body": body, "more_body": False}
    await send(end)


def as_rejected(error: Rejected | Refused) -> Rejected:
    """Return what a door rejects a request with that the core refuses."""
    if isinstance(error, Rejected):
        return error
    body = refusal_body(error.refusal)
    return Rejected(body.code, body.error, body.reason, retry_after_s=body.retry_after_s)


def error_response(
    status: int,
    message: str,
    reason: str = "",
    retry_after_s: float | None = None,
    headers: dict[str, str] | None = None,
) -> Response[ErrorBody]:
    """Make the response of a refusal."""
    sent = dict(headers or {})
    if status in (429, 503):
        # Whole seconds, at least one: a client that waits for nothing would come right back.
        seconds = max(1, -(-retry_after_s // 1)) if retry_after_s else _RETRY_SECONDS_DEFAULT
        sent.setdefault("Retry-After", str(int(seconds)))
    body = ErrorBody(message, status, reason or REASONS.get(status, "invalid"), retry_after_s)
    return Response(body, status_code=status, headers=sent)


def refusal_body(refusal: Refusal) -> ErrorBody:
    """Put a refusal into the body of an error; for lists, where each item has its own answer."""
    wait_s = refusal.retry_after_us / SECOND if refusal.retry_after_us else None
    return ErrorBody(refusal.message, STATUS[refusal.code], str(refusal.code), wait_s)


def refused_response(refusal: Refusal) -> Response[ErrorBody]:
    """Answer with a refusal of the core."""
    body = refusal_body(refusal)
    return error_response(body.code, body.error, body.reason, body.retry_after_s)


# The handlers that the application installs.


def _on_refused(_: Request[Any, Any, Any], error: Refused) -> Response[ErrorBody]:
    return refused_response(error.refusal)


def _on_rejected(_: Request[Any, Any, Any], error: Rejected) -> Response[ErrorBody]:
    return error_response(
        error.status, str(error), error.reason, error.retry_after_s, error.headers
    )


def _on_storage_fault(_: Request[Any, Any, Any], fault: StorageFault) -> Response[ErrorBody]:
    return refused_response(Refusal(Code.STORAGE_FAILED, str(fault), SECOND))


def _on_http(request: Request[Any, Any, Any], error: HTTPException) -> Response[ErrorBody]:
    """Answer what the framework found wrong, in our words."""
    status = error.status_code
    headers = dict(error.headers or {})
    if status == 404:
        message = f"nothing is at {request.url.path}; see /api/docs"
    elif status == 405:
        message = f"{request.method} means nothing at {request.url.path}; see /api/docs"
    elif isinstance(error, ValidationException):
        message = _problems(error)
    else:
        message = error.detail or REASONS.get(status, "the request cannot be answered")
    return error_response(status, message, headers=headers)


def _problems(error: ValidationException) -> str:
    """List what is wrong with the parameters and the body."""
    extra = error.extra if isinstance(error.extra, list) else []
    problems = [
        f"{each.get('key') or each.get('source') or 'request'}: {each.get('message', '')}"
        for each in extra
        if isinstance(each, dict)
    ]
    return "; ".join(problems) or error.detail


def _on_bug(request: Request[Any, Any, Any], error: Exception) -> Response[ErrorBody]:
    log.error("bug", method=request.method, path=request.url.path, exc_info=error)
    return error_response(500, "an error in the broker; see its log")


HANDLERS: dict[int | type[Exception], Any] = {
    Refused: _on_refused,
    Rejected: _on_rejected,
    StorageFault: _on_storage_fault,
    HTTPException: _on_http,
    Exception: _on_bug,
}


#: What each status means in the description of the API.
MEANINGS = {
    400: "The request is not well formed, or names something that cannot be.",
    401: "A key is needed.",
    403: "The key does not allow this.",
    404: "What the path names is not there.",
    405: "The path does not know this method.",
    408: "The body came too slowly.",
    409: "It conflicts with what is there: a state that does not allow it, an id or an alias that "
    "is taken, a fence that is no longer the task's; `reason` tells which.",
    413: "The body or an item in it is too large.",
    415: "The body is of a type that is not taken here.",
    416: "The range lies outside.",
    429: "Too many requests, or too many of something; see `Retry-After`.",
    431: "The head of the request is too long.",
    500: "An error in the broker.",
    501: "The store of this broker cannot do that.",
    503: "The queue is full, or the broker cannot write just now; see `Retry-After`.",
}

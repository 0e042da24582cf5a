"""Problems: how GridLike says no.

Owns the bodies of errors of GridLike's paths. Its clients look for `problem`; a form without a
needed field gets the list of them, as its framework wrote it; who is not let in gets no body.
"""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from jackalope.broker.queries import Refused
from jackalope.core.refusals import Refusal
from jackalope.doors.http.errors import STATUS, Rejected, error_response
from jackalope.storage import StorageFault

AnyRequest = Request[Any, Any, Any]

_JSON = "application/json"
_PROBLEM_JSON = "application/problem+json"


class Problem(Exception):
    """What is wrong with a request, in a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Incomplete(Exception):
    """A form lacks fields that it must have."""

    def __init__(self, fields: list[str]) -> None:
        super().__init__(", ".join(fields))
        self.fields = fields


def _say(status: int, message: str, headers: dict[str, str] | None = None) -> Response[Any]:
    if status == 401:
        return Response(b"", status_code=401, headers=headers)
    # The headers of an error are the same at every path.
    headers = dict(error_response(status, message, headers=headers).headers)
    body = msgspec.json.encode({"problem": message})
    return Response(body, status_code=status, media_type=_JSON, headers=headers)


def _on_problem(_: AnyRequest, error: Problem) -> Response[Any]:
    return _say(error.status, str(error))


def _on_incomplete(_: AnyRequest, error: Incomplete) -> Response[Any]:
    body = {
        "title": "One or more validation errors occurred.",
        "status": 400,
        "errors": {name: [f"The {name} field is required."] for name in error.fields},
    }
    return Response(msgspec.json.encode(body), status_code=400, media_type=_PROBLEM_JSON)


def _on_refused(_: AnyRequest, error: Refused) -> Response[Any]:
    refusal: Refusal = error.refusal
    return _say(STATUS[refusal.code], refusal.message)


def _on_rejected(_: AnyRequest, error: Rejected) -> Response[Any]:
    return _say(error.status, str(error), error.headers)


def _on_http(_: AnyRequest, error: HTTPException) -> Response[Any]:
    return _say(error.status_code, error.detail, dict(error.headers or {}))


def _on_storage_fault(_: AnyRequest, fault: StorageFault) -> Response[Any]:
    body = {"title": "The storage failed.", "status": 500, "detail": str(fault)}
    return Response(msgspec.json.encode(body), status_code=500, media_type=_PROBLEM_JSON)


PROBLEM_HANDLERS: dict[int | type[Exception], Any] = {
    Problem: _on_problem,
    Incomplete: _on_incomplete,
    Refused: _on_refused,
    Rejected: _on_rejected,
    HTTPException: _on_http,
    StorageFault: _on_storage_fault,
}

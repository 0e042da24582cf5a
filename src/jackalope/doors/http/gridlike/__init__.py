"""GridLike at the HTTP door: its jobs, its batches, and its workers over WebSockets.

A client or a worker that was written for GridLike works with it unchanged.
"""

from __future__ import annotations

import msgspec

from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import Rejected

#: How all of its paths begin.
_OWN = ("/api/jobs", "/api/batches", "/api/worker")


def owns(path: str) -> bool:
    """Return whether a path is one of GridLike's."""
    return path.startswith(_OWN)


def problem(rejected: Rejected) -> Response:
    """Answer a rejection in GridLike's words."""
    body = msgspec.json.encode({"problem": str(rejected)})
    return Response(body, rejected.status, rejected.headers)

"""Traffic: how many requests come through the HTTP door, and how long they take.

Owns the counters of the door and the line that each request leaves in the log, at level `debug`. It
stands outside of everything else, so that it also sees what is turned away. What it counts is
bounded: paths as the routes write them, methods that HTTP knows, and `other`.

A line names the path and never the query, because tokens travel in queries. Headers and bodies are
not looked at.
"""

from __future__ import annotations

from collections import Counter
from time import perf_counter_ns

import structlog

from jackalope.broker.telemetry.meter import Histogram
from jackalope.doors.http.asgi import HTTP, ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger(component="http")

Line = structlog.typing.FilteringBoundLogger

OTHER = "other"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

#: What a request is counted as that ended without an answer: the peer went away.
_NO_STATUS = 499

_LOGGED_PATH_CHARS_MAX = 200


class Traffic:
    """Counts requests and WebSockets."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # by method, path and status
        self.times: dict[str, Histogram] = {}  # how long requests took, by path
        self.in_flight = 0  # requests that are under way
        self.sockets = 0  # WebSockets that are open

    def over(self, app: ASGIApp) -> ASGIApp:
        """Return an application that does the same, and is counted."""
        # Bound once: a logger that is looked up for a line costs more than one that is not written.
        line = log.bind()

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == HTTP:
                await self._count_request(app, line, scope, receive, send)
            else:
                await self._count_socket(app, line, scope, receive, send)

        return counted

    async def _count_request(
        self, app: ASGIApp, line: Line, scope: Scope, receive: Receive, send: Send
    ) -> None:
        begin_ns, status, asked = perf_counter_ns(), _NO_STATUS, str(scope["path"])

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.in_flight += 1
        try:
            await app(scope, receive, send_counted)
        finally:
            self.in_flight -= 1
            took_us = (perf_counter_ns() - begin_ns) // 1_000
            method, path = scope["method"], _template(scope)
            self.requests[method if method in _METHODS else OTHER, path, status] += 1
            times = self.times.get(path)
            if times is None:
                times = self.times[path] = Histogram()
            times.count(took_us)
            line.debug(
                "request",
                method=method[:16],
                path=asked[:_LOGGED_PATH_CHARS_MAX],
                status=status,
                seconds=took_us / 1e6,
            )

    async def _count_socket(
        self, app: ASGIApp, line: Line, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.sockets += 1
        asked = str(scope["path"])
        try:
            await app(scope, receive, send)
        finally:
            self.sockets -= 1
            line.debug("websocket closed", path=asked[:_LOGGED_PATH_CHARS_MAX])


def _template(scope: Scope) -> str:
    """Return the path as its route writes it."""
    return str(scope.get("path_template") or OTHER)

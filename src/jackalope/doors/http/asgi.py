"""ASGI as this door uses it: its types, and how an answer is sent.

Owns the way from a `Response` to messages of the server. It must not know routes, errors or the
broker. An answer in pieces ends when the client is gone, which only the server's `receive` reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

T = TypeVar("T")

HTTP = "http"
WEBSOCKET = "websocket"

JSON = "application/json"

#: Statuses of answers that have no body, nor headers that describe one.
_WITHOUT_BODY = frozenset({204, 304})


class Response:
    """An answer, whole or in pieces that are sent as they come."""

    __slots__ = ("body", "headers", "media_type", "status")

    def __init__(
        self,
        body: bytes | AsyncIterator[bytes] = b"",
        status: int = 200,
        headers: dict[str, str] | None = None,
        media_type: str = JSON,
    ) -> None:
        self.body = body
        self.status = status
        self.headers = headers or {}
        self.media_type = media_type

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; in place of a WebSocket, too, before that is accepted."""
        kind = "http.response" if scope["type"] == HTTP else "websocket.http.response"
        body = self.body
        await send({"type": f"{kind}.start", "status": self.status, "headers": self._encoded()})
        if isinstance(body, bytes):
            await send({"type": f"{kind}.body", "body": body, "more_body": False})
        else:
            await while_there(receive, _send_pieces(body, send))

    def _encoded(self) -> list[tuple[bytes, bytes]]:
        headers = [(name.lower().encode(), text.encode()) for name, text in self.headers.items()]
        if self.status in _WITHOUT_BODY:
            return headers
        headers.append((b"content-type", self.media_type.encode()))
        if isinstance(self.body, bytes) and all(name != b"content-length" for name, _ in headers):
            headers.append((b"content-length", b"%d" % len(self.body)))
        return headers


async def _send_pieces(pieces: AsyncIterator[bytes], send: Send) -> None:
    async for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def gone(receive: Receive) -> None:
    """Return when the client is gone, before it has its answer. Its body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_there(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Do something for as long as the client is there; None if it goes first."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(gone(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)

"""Answers that stay open, as those of a watch do. All of them can be ended, or broken off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

Event = dict[str, Any]


class Streams:
    def __init__(self) -> None:
        #: In each: events; at last, whether it ends in order.
        self._queues: set[asyncio.Queue[Event | bool]] = set()

    async def serve(
        self, request: web.Request, fits: Callable[[Event], bool], past: Iterable[Event] = ()
    ) -> web.StreamResponse:
        """Answer with events, one a line, those of the past first."""
        queue: asyncio.Queue[Event | bool] = asyncio.Queue()
        for event in past:
            queue.put_nowait(event)
        self._queues.add(queue)
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await answer.prepare(request)
            while not isinstance(said := await queue.get(), bool):
                if fits(said):
                    await answer.write(json.dumps(said).encode() + b"\n")
            if not said and request.transport is not None:
                request.transport.abort()
        finally:
            self._queues.discard(queue)
        return answer

    def send(self, event: Event) -> None:
        """Send an event to all whom it fits."""
        self._send(json.loads(json.dumps(event)))

    def end(self) -> None:
        """End all, as a server does when their time is over."""
        self._send(True)

    def break_off(self) -> None:
        """End all without a word."""
        self._send(False)

    def _send(self, said: Event | bool) -> None:
        for queue in self._queues:
            queue.put_nowait(said)

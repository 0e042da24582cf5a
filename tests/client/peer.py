"""A scripted broker: the other end of a connection, which does what the test tells it to.

It says WELCOME and accepts everything, until the test gives it another answer. What it must never
do is stand in for the broker's rules: those are tested against the real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from jackalope.client.app import Jackalope
from jackalope.core.commands import Command, Heartbeat, SubmitTasks, WatchTasks
from jackalope.wire.frames import FrameReader
from jackalope.wire.messages import Ack, AnyMessage, Hello, Nack, Request, Welcome, broker_codec

T = TypeVar("T")
M = TypeVar("M", bound=AnyMessage)

PATIENCE_S = 10.0
FRAME_BYTES_MAX = 16 * 1024 * 1024

#: Returns the answers to a message, or None for what the scripted broker does by itself.
Script = Callable[[AnyMessage], list[AnyMessage] | None]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; one that waits for what never comes fails soon."""

    async def bounded() -> T:
        async with asyncio.timeout(2 * PATIENCE_S):
            return await work

    return asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  it may be about anything
            await asyncio.sleep(0.001)


class ScriptedBroker:
    """A server that records what it hears.

    Attributes:
        heard: every message, over all connections.
        hellos: how many connections were made.
        script: what to answer.
        port: where it listens.
    """

    def __init__(self, script: Script | None = None, *, heartbeat_us: int = 10_000_000) -> None:
        self.script = script
        self.heard: list[AnyMessage] = []
        self.hellos = 0
        self.port = 0
        self.heartbeat_us = heartbeat_us
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.is_mute = False
        self._codec = broker_codec()
        self._server: asyncio.Server | None = None
        self._ends: list[_End] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _End(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, and cut every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.drop()
        await asyncio.sleep(0)

    def drop(self) -> None:
        """Cut every connection."""
        for end in list(self._ends):
            end.transport.abort()

    def close_soon(self) -> None:
        """Close every connection, once what was said has been sent."""
        for end in list(self._ends):
            end.transport.close()

    def push(self, message: AnyMessage) -> None:
        """Say something to every connection."""
        for end in self._ends:
            end.say(message)

    def push_bytes(self, data: bytes) -> None:
        for end in self._ends:
            end.transport.write(data)

    def of(self, kind: type[M]) -> list[M]:
        """Return what was heard of one kind."""
        return [message for message in self.heard if isinstance(message, kind)]

    def app(self, **settings: Any) -> Jackalope:
        return Jackalope(f"jackalope://127.0.0.1:{self.port}", **settings)

    @property
    def connections(self) -> int:
        return len(self._ends)

    def take(self, end: _End, message: AnyMessage) -> None:
        self.heard.append(message)
        if isinstance(message, Hello):
            self.hellos += 1
        if self.is_mute:
            return
        answers = self.script(message) if self.script is not None else None
        for answer in self._usual(message) if answers is None else answers:
            end.say(answer)

    def _usual(self, message: AnyMessage) -> list[AnyMessage]:
        if isinstance(message, Hello):
            return [Welcome(1, 1, "pulse", self.heartbeat_us, self.frame_bytes_max, "scripted")]
        if isinstance(message, SubmitTasks | WatchTasks):
            return [Ack(message.ref, {"count": len(message.tasks), "refused": []})]
        if isinstance(message, Heartbeat) or not isinstance(message, Request | Command):
            return []
        return [Ack(message.ref, {"count": 1, "refused": []})]


class _End(asyncio.Protocol):
    """The broker's end of one connection."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._codec = broker_codec()
        self._reader = FrameReader()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._broker._ends.append(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._broker._ends.remove(self)

    def data_received(self, data: bytes) -> None:
        for kind, body in self._reader.feed(data):
            self._broker.take(self, self._codec.decode(kind, body))

    def say(self, message: AnyMessage) -> None:
        self.transport.write(self._codec.encode(message))


def refuse_tasks(code: str, *, retry_after_us: int = 0, times: int | None = None) -> Script:
    """Return a script that refuses every task, so many times."""
    left = times

    def script(message: AnyMessage) -> list[AnyMessage] | None:
        nonlocal left
        if not isinstance(message, SubmitTasks) or left == 0:
            return None
        if left is not None:
            left -= 1
        refusal = {"code": code, "message": "no room", "retry_after_us": retry_after_us}
        refused = [[index, refusal] for index in range(len(message.tasks))]
        return [Ack(message.ref, {"count": 0, "refused": refused})]

    return script


def refuse(kind: type[AnyMessage], code: str, *, retry_after_us: int = 0) -> Script:
    """Return a script that answers one kind of message with NACK."""

    def script(message: AnyMessage) -> list[AnyMessage] | None:
        if not isinstance(message, kind):
            return None
        return [Nack(getattr(message, "ref", 0), code, "said no", retry_after_us)]

    return script

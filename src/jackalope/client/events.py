"""Events: what happens in the broker, as it happens.

Owns a connection of its own for each stream: nobody else waits behind a slow reader, and leaving
the stream is closing the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from jackalope.client.line import Dial
from jackalope.core.ids import TaskId
from jackalope.link.address import Address
from jackalope.link.backoff import Backoff
from jackalope.link.connection import Connection
from jackalope.link.errors import ConnectionLost
from jackalope.wire.messages import Events, Happened, Hello, Message, Subscribe

#: How many events wait for a reader before further ones are left out.
EVENTS_MAX = 10_000


class EventStream:
    """An endless iterator of what happens. Comes back by itself after a lost connection.

    Attributes:
        missed: how many events were left out because the reader was too slow.
        gaps: how often the connection was lost; what happened meanwhile is not told.
    """

    def __init__(
        self,
        address: Address,
        hello: Hello,
        queue: str,
        task: TaskId,
        dial: Dial = Connection.open,
    ) -> None:
        self._dial = dial
        self._address = address
        self._hello = hello
        self._queue = queue
        self._task = task
        self._connection: Connection | None = None
        self._events: deque[Happened] = deque()
        self._news = asyncio.Event()
        self._loss: ConnectionLost | None = None
        self._backoff = Backoff()
        self.missed = 0
        self.gaps = 0

    async def __aenter__(self) -> Self:
        """Subscribe: what happens from now on will be told.

        Raises:
            ConnectionLost: the broker cannot be reached.
            Rejected: it does not want us.
        """
        await self._subscribe()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Happened:
        if self._connection is None and self._loss is None:
            await self._subscribe()
        while not self._events:
            if self._loss is not None:
                await self._come_back()
                continue
            self._news.clear()
            await self._news.wait()
        return self._events.popleft()

    async def close(self) -> None:
        """Hear no more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _subscribe(self) -> None:
        connection = await self._dial(
            self._address, self._hello, heard=self._heard, lost=self._lost
        )
        try:
            await connection.request(Subscribe(0, self._queue, self._task))
        except BaseException:
            connection.abort("not subscribed")
            raise
        self._connection, self._loss = connection, None

    async def _come_back(self) -> None:
        self.gaps += 1
        while self._loss is not None:
            await asyncio.sleep(self._backoff.next_s())
            try:
                await self._subscribe()
            except ConnectionLost as error:
                self._loss = error
        self._backoff.reset()

    def _heard(self, message: Message) -> None:
        if not isinstance(message, Events):
            return
        room = EVENTS_MAX - len(self._events)
        self._events.extend(message.events[:room])
        self.missed += message.missed + max(0, len(message.events) - room)
        self._news.set()

    def _lost(self, error: ConnectionLost) -> None:
        self._connection = None
        self._loss = error
        self._news.set()

"""A worker in a thread, which does with each task what its name says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from jackalope.core.commands import (
    Answer,
    AnswerSignal,
    Fail,
    Finish,
    Held,
    JoinWorker,
    LeaveWorker,
    ReportProgress,
    StartAttempts,
)
from jackalope.core.effects import Assignment, SignalAsked
from jackalope.core.task import Error
from jackalope.transport.address import Address
from jackalope.transport.connection import Connection
from jackalope.wire.messages import AnyMessage, Assign, Hello, Notice, Result


class StubWorker:
    """`finish` ends well, `fail` ends badly, `stay` runs until it is killed."""

    def __init__(
        self, address: Address, name: str, queues: tuple[str, ...], **joining: Any
    ) -> None:
        self._address = address
        self._name = name
        self._queues = queues
        self._joining = joining
        self._gone = asyncio.Event()
        self._connection: Connection

    async def run(self, ready: threading.Event) -> None:
        hello = Hello(namespace=self._address.namespace, name=self._name)
        self._connection = await Connection.open(
            self._address, hello, heard=self._heard, lost=lambda _: self._gone.set()
        )
        await self._connection.request(
            JoinWorker(0, self._name, self._queues, slots=4, **self._joining)
        )
        ready.set()
        await self._gone.wait()
        if self._connection.is_open:
            await self._connection.request(LeaveWorker())
        await self._connection.close()

    def leave(self) -> None:
        self._gone.set()

    def _heard(self, message: AnyMessage) -> None:
        if isinstance(message, Assign):
            for assignment in message.assignments:
                self._work(assignment)
        elif isinstance(message, SignalAsked):
            answer = AnswerSignal(0, message.task, message.fence, Answer.STOPPED)
            self._connection.send(answer)
        elif isinstance(message, Notice) and message.what == "drain":
            self.leave()

    def _work(self, given: Assignment) -> None:
        self._connection.send(StartAttempts(0, [Held(given.task, given.fence)]))
        if given.name == "finish":
            result = msgspec.json.encode({"echo": given.payload.decode()})  # type: ignore[union-attr]
            self._connection.send(Result(0, finished=[Finish(given.task, given.fence, result)]))
        elif given.name == "fail":
            payload = bytes(given.payload)  # type: ignore[arg-type]
            said = payload.decode() if b"\x1b" in payload else "no cat in it"
            error = Error("ValueError", said, "Traceback: in resize")
            self._connection.send(Result(0, failed=[Fail(given.task, given.fence, error)]))
        else:
            self._connection.send(ReportProgress(0, given.task, given.fence, 42.0, "tile 21 of 50"))


@contextmanager
def working(address: Address, name: str, *queues: str, **joining: Any) -> Iterator[None]:
    """Have a worker for the time of a block, that joins with these fields more."""
    ready = threading.Event()
    started: list[tuple[asyncio.AbstractEventLoop, StubWorker]] = []

    async def main() -> None:
        worker = StubWorker(address, name, queues, **joining)
        started.append((asyncio.get_running_loop(), worker))
        await worker.run(ready)

    thread = threading.Thread(target=lambda: asyncio.run(main()), name=name)
    thread.start()
    assert ready.wait(20), "the worker did not join"
    try:
        yield
    finally:
        loop, worker = started[0]
        if not loop.is_closed():
            loop.call_soon_threadsafe(worker.leave)
        thread.join(20)

"""A real broker to talk to, and a worker just good enough to run the tests' functions."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import uvloop

from jackalope.broker.config.schema import NativeConfig
from jackalope.broker.service import Broker
from jackalope.client.app import Jackalope
from jackalope.core.commands import Fail, Finish, JoinWorker, ReportProgress
from jackalope.core.effects import Assignment
from jackalope.doors.native import NativeDoor
from jackalope.errors import ConnectionLost
from jackalope.storage import Level, Storage
from jackalope.tasks.serialization import error_of
from jackalope.transport.connection import Connection
from jackalope.wire.messages import AnyMessage, Assign, Hello, Result
from tests.client.peer import PATIENCE_S

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], *, on_uvloop: bool = True) -> T:
    """Run a test; one that waits for what never comes fails soon."""

    async def bounded() -> T:
        async with asyncio.timeout(6 * PATIENCE_S):
            return await work

    factory = uvloop.new_event_loop if on_uvloop else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(bounded())


class House:
    """A broker and its door, which can be stopped and started again on the same folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._broker: Broker | None = None
        self._door: NativeDoor | None = None
        self.port = 0

    async def start(self) -> None:
        level = Level.FSYNC if self._folder else Level.MEMORY
        self._broker = Broker(Storage.open(self._folder, level))
        await self._broker.start()
        self._door = NativeDoor(self._broker, NativeConfig(port=self.port))
        await self._door.start()
        self.port = self._door.port

    async def stop(self) -> None:
        if self._door is not None and self._broker is not None:
            await self._door.stop()
            await self._broker.stop()
            self._door = self._broker = None

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    def app(self, **settings: Any) -> Jackalope:
        return Jackalope(f"jackalope://127.0.0.1:{self.port}", name="tester", **settings)


@asynccontextmanager
async def open_house(folder: Path | None = None) -> AsyncIterator[House]:
    house = House(folder)
    await house.start()
    try:
        yield house
    finally:
        await house.stop()


class Hand:
    """A worker that runs functions at once, and comes back whenever the connection is lost.

    Attributes:
        ran: the name and arguments of every attempt, in order.
        progress: what to report before each end.
        is_slow: report ends only when `finish` is called.
    """

    def __init__(self, app: Jackalope, *queues: str) -> None:
        self._app = app
        self._queues = queues or ("default",)
        self._connection: Connection | None = None
        self._generation = 0
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.ran: list[bytes] = []
        self.progress: list[float] = []
        self.is_slow = False
        self._ends: list[Finish | Fail] = []

    async def __aenter__(self) -> Self:
        await self._join()
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
        if self._connection is not None:
            await self._connection.close()

    async def _keep(self) -> None:
        while True:
            await self._lost.wait()
            try:
                await self._join()
            except ConnectionLost:
                await asyncio.sleep(0.01)

    async def _join(self) -> None:
        connection = await Connection.open(
            self._app.address, Hello(name="hand"), heard=self._heard, lost=self._on_lost
        )
        self._connection = connection
        self._generation += 1
        self._lost.clear()
        join = JoinWorker(0, "hand", self._queues, slots=500, generation=self._generation)
        await connection.request(join)

    def _on_lost(self, _: ConnectionLost) -> None:
        self._lost.set()

    def _heard(self, message: AnyMessage) -> None:
        if isinstance(message, Assign) and self._connection is not None:
            self._ends += [self._work(self._connection, one) for one in message.assignments]
            if not self.is_slow:
                self.finish()

    def finish(self) -> None:
        """Report the ends that have gathered."""
        ends, self._ends = self._ends, []
        finished = [end for end in ends if isinstance(end, Finish)]
        failed = [end for end in ends if isinstance(end, Fail)]
        if self._connection is not None:
            self._connection.ask(Result(0, finished, failed), lambda *_: None)

    def _work(self, connection: Connection, one: Assignment) -> Finish | Fail:
        self.ran.append(one.task)
        definition = self._app.functions[one.name]
        content = one.options.headers.get("content", "")
        for percent in self.progress:
            connection.send(ReportProgress(0, one.task, one.fence, percent))
        try:
            assert isinstance(one.payload, bytes)
            value = definition.call(one.payload, content)
            return Finish(one.task, one.fence, definition.encode_result(value, content))
        except Exception as error:  # noqa: BLE001  whatever a task raises
            return Fail(one.task, one.fence, error_of(error))


class BrokerProcess:
    """A broker in a process of its own, which can be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.client.harness", str(self._folder), str(self.port)]
        root = Path(__file__).resolve().parent.parent.parent
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
        assert self._process.stdout is not None
        # Lines of the log may come before.
        told = next(line for line in self._process.stdout if line.startswith("{"))
        self.port = json.loads(told)["port"]

    def kill(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def app(self, **settings: Any) -> Jackalope:
        return Jackalope(f"jackalope://127.0.0.1:{self.port}", name="tester", **settings)


async def _serve(folder: Path, port: int) -> None:
    house = House(folder)
    house.port = port
    await house.start()
    print(json.dumps({"port": house.port}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))

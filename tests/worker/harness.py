"""A real broker with its door open, workers in processes of their own, and a client made of links.

The broker runs in the test's own process, so that a test can stop it and start another in its
place.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from jackalope.broker.config.schema import NativeConfig
from jackalope.broker.service import Broker
from jackalope.core.commands import Action, ActOnTasks, SubmitTasks, WatchTasks
from jackalope.core.commands.flows import SubmitFlow
from jackalope.core.effects import TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.shapes.flow import node_id
from jackalope.core.task import Options, Retry, TaskSpec
from jackalope.doors.native import NativeDoor
from jackalope.storage import Level, Storage
from jackalope.task_ids import new_task_id
from jackalope.transport.address import Address
from jackalope.transport.connection import Connection, new_event_loop
from jackalope.wire.messages import AnyMessage, Ended, Hello, Manage, Query
from jackalope.wire.views import ExplanationView, HistoryEntryView, TaskView, WorkerView
from tests.worker.application import app

WAIT_S = 30.0
ROOT = Path(__file__).parents[2]

NO_RETRY = Retry(retries=0, base_us=0, factor=1.0, cap_us=0)
AT_ONCE = Retry(retries=3, base_us=0, factor=1.0, cap_us=0)


class House:
    """One broker and whoever talks to it."""

    def __init__(self, folder: Path, heartbeat_s: float = 10.0) -> None:
        self.folder = folder
        self._config = NativeConfig(port=0, heartbeat_us=int(heartbeat_s * 1e6))
        self._workers: list[subprocess.Popen[bytes]] = []
        self._ends: dict[TaskId, asyncio.Future[TaskEnded]] = {}

    # The broker.

    async def open(self) -> None:
        self.broker = Broker(Storage.open(self.folder, Level.FSYNC))
        await self.broker.start()
        self.door = NativeDoor(self.broker, self._config)
        await self.door.start()
        self._config = msgspec.structs.replace(self._config, port=self.door.port)
        self.client = await Connection.open(
            Address("127.0.0.1", self._config.port),
            Hello(name="tester"),
            heard=self._heard,
            lost=lambda _: None,
        )

    async def shut(self) -> None:
        await self.client.close()
        await self.door.stop()
        await self.broker.stop()

    async def close(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()
        await self.shut()

    # Workers.

    def worker(self, **settings: Any) -> subprocess.Popen[bytes]:
        told = {"port": self._config.port, "queues": ["default"], "concurrency": 10, **settings}
        command = [sys.executable, "-m", "tests.worker.process", msgspec.json.encode(told).decode()]
        process = subprocess.Popen(command, cwd=ROOT)
        self._workers.append(process)
        return process

    async def exit_code(self, worker: subprocess.Popen[bytes]) -> int:
        await self.until(lambda: worker.poll() is not None)
        return worker.wait()

    async def workers(self) -> list[WorkerView]:
        return msgspec.convert(await self._ask(Query(0, "workers")), list[WorkerView])

    async def joined(self, count: int = 1) -> None:
        async def are_there() -> bool:
            views = await self.workers()
            return sum(view.state in ("active", "idle") for view in views) >= count

        await self.until(are_there)

    # Tasks.

    async def submit(
        self, name: str, *args: Any, queue: str = "default", options: Options | None = None
    ) -> TaskId:
        return (await self.submit_many([(name, args)], queue, options))[0]

    async def submit_many(
        self,
        calls: list[tuple[str, tuple[Any, ...]]],
        queue: str = "default",
        options: Options | None = None,
    ) -> list[TaskId]:
        """Submit tasks and watch them."""
        specs = []
        for name, args in calls:
            definition = app.functions.get(name)
            payload = definition.payload(args, {}) if definition else b""
            specs.append(
                TaskSpec(new_task_id(), queue, name=name, payload=payload, options=options)
            )
        ids = [spec.id for spec in specs]
        loop = asyncio.get_running_loop()
        self._ends |= {task: loop.create_future() for task in ids}
        await self._ask(SubmitTasks(0, specs))
        await self._ask(WatchTasks(0, tuple(ids)))
        return ids

    async def submit_flow(self, command: SubmitFlow, *nodes: str) -> None:
        """Submit a flow, and watch it and some of its nodes."""
        ids = [command.flow.id, *(node_id(command.flow.id, name) for name in nodes)]
        loop = asyncio.get_running_loop()
        self._ends |= {task: loop.create_future() for task in ids}
        await self._ask(command)
        await self._ask(WatchTasks(0, tuple(ids)))

    async def watch(self, *tasks: TaskId) -> None:
        """Watch tasks again, as after a restart."""
        await self._ask(WatchTasks(0, tasks))

    async def end(self, task: TaskId) -> TaskEnded:
        async with asyncio.timeout(WAIT_S):
            return await self._ends[task]

    async def value(self, task: TaskId) -> Any:
        ended = await self.end(task)
        assert ended.state is State.SUCCEEDED, ended
        assert isinstance(ended.result, bytes)
        return msgspec.msgpack.decode(ended.result) if ended.result else None

    async def act(self, action: Action, task: TaskId) -> None:
        await self._ask(ActOnTasks(0, action, (task,)))

    async def manage(self, what: str, **about: Any) -> None:
        await self._ask(Manage(0, what, about))

    async def view(self, task: TaskId) -> TaskView:
        return msgspec.convert(await self._ask(Query(0, "task", {"id": task})), TaskView)

    async def history(self, task: TaskId) -> list[HistoryEntryView]:
        lines = await self._ask(Query(0, "history", {"id": task}))
        return msgspec.convert(lines, list[HistoryEntryView])

    async def explain(self, task: TaskId) -> list[str]:
        """Return the kinds of reasons why a task is as it is, with their sentences."""
        body = await self._ask(Query(0, "explain", {"id": task}))
        causes = msgspec.convert(body, ExplanationView).causes
        return [f"{cause.why}: {cause.text}" for cause in causes]

    async def state_is(self, task: TaskId, state: State) -> None:
        async def is_it() -> bool:
            return (await self.view(task)).state is state

        await self.until(is_it)

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(WAIT_S):
            while True:
                found = condition()
                if isinstance(found, Awaitable):
                    found = await found
                if found:
                    return
                await asyncio.sleep(0.01)

    async def _ask(self, message: Any) -> Any:
        async with asyncio.timeout(WAIT_S):
            return await self.client.request(message)

    def _heard(self, message: AnyMessage) -> None:
        if isinstance(message, Ended):
            for ended in message.tasks:
                future = self._ends.get(ended.task)
                if future is not None and not future.done():
                    future.set_result(ended)


def in_house(story: Callable[[House], Awaitable[None]], folder: Path, **terms: Any) -> None:
    """Play a story in a house."""

    async def play() -> None:
        house = House(folder, **terms)
        await house.open()
        try:
            await story(house)
        finally:
            await house.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(play())

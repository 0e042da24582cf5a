"""The broker inside a process: for tests, notebooks and programs that need no other machine.

The same broker, door and worker as anywhere else, on threads of their own and a port that only this
machine can reach. Owns those threads. In memory everything ends with the process; on a folder it
is all there the next time. They log what is wrong and nothing else, unless the program has set up
its log.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog
from structlog.typing import EventDict

from jackalope.broker.config.callbacks import CallbacksConfig
from jackalope.broker.config.schema import NativeConfig
from jackalope.broker.service import Broker
from jackalope.callbacks import CallbackService
from jackalope.doors.native import NativeDoor
from jackalope.storage import Level, Storage
from jackalope.tasks.definition import TaskSource
from jackalope.worker.logs.capture import capturing, take_line
from jackalope.worker.runtime import Runtime
from jackalope.worker.settings import WorkerSettings

_START_S = 30.0
_STOP_S = 30.0

#: What the name of an application is that no other process can import.
_NOWHERE = ":embedded"


class EmbeddedBroker:
    """A broker on a thread of this process."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Start it, and return when it can be used.

        Args:
            folder: where it keeps its data; None for memory.

        Raises:
            StorageFault: the folder cannot be used.
        """
        _hush()
        self._folder = None if folder is None else Path(folder)
        self._stopped: asyncio.Event | None = None
        self._ready: Future[str] = Future()
        self._thread = _start_thread("jackalope-broker", self._serve())
        self.address = self._ready.result(_START_S)  # where clients and workers reach it
        self._workers: list[EmbeddedWorker] = []

    def work(self, source: TaskSource, concurrency: int = 0) -> None:
        """Let a worker on another thread run the tasks of an application."""
        self._workers.append(EmbeddedWorker(source, concurrency))

    def stop(self) -> None:
        """Stop the workers, then the broker; safe to repeat."""
        for worker in self._workers:
            worker.stop()
        self._workers.clear()
        stopped, loop = self._stopped, self._thread.loop
        if stopped is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stopped.set)
        self._thread.join(_STOP_S)

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        try:
            level = Level.MEMORY if self._folder is None else Level.FSYNC
            broker = Broker(Storage.open(self._folder, level))
            await broker.start()
            door = NativeDoor(broker, NativeConfig(port=0))
            await door.start()
            callbacks = CallbackService(broker, CallbacksConfig())
            callbacks.start()
        except BaseException as error:  # noqa: BLE001  it is raised to the caller
            self._ready.set_exception(error)
            return
        self._ready.set_result(f"jackalope://127.0.0.1:{door.port}")
        await self._stopped.wait()
        await callbacks.stop()
        await door.stop()
        await broker.stop()


class EmbeddedWorker:
    """A worker on a thread of this process."""

    def __init__(self, source: TaskSource, concurrency: int) -> None:
        settings = WorkerSettings(
            application=_place_of(source),
            address=source.address,
            name=f"embedded-{id(self):x}",
            concurrency=concurrency,
        )
        self._runtime: Runtime | None = None
        self._is_stopped = False
        self._thread = _start_thread("jackalope-worker", self._run(settings, source))

    def stop(self) -> None:
        """Let it finish what it has, and end; safe to repeat."""
        loop = self._thread.loop
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(self._stop)
        self._thread.join(_STOP_S)

    def _stop(self) -> None:
        self._is_stopped = True
        if self._runtime is not None:
            self._runtime.stop("its application stops")

    async def _run(self, settings: WorkerSettings, source: TaskSource) -> None:
        if not self._is_stopped:  # Before it had begun.
            with capturing() as tap:
                self._runtime = Runtime(settings, source)
                self._runtime.call_before_tasks(tap)
                await self._runtime.run()


class _LoopThread(threading.Thread):
    """A thread with an event loop that runs one coroutine."""

    def __init__(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        super().__init__(name=name, daemon=True)
        self.loop = asyncio.new_event_loop()
        self._work = work

    def run(self) -> None:
        """Run the coroutine to its end."""
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._work)


def _place_of(source: TaskSource) -> str:
    """Return where other processes find an application, for tasks that run in one."""
    for name, module in list(sys.modules.items()):
        if name != "__main__":
            for variable, value in list(getattr(module, "__dict__", {}).items()):
                if value is source:
                    return f"{name}:{variable}"
    return _NOWHERE


def _hush() -> None:
    """Log problems only, in a program that has not configured its log."""
    if not structlog.is_configured():
        processors = structlog.get_config()["processors"]
        structlog.configure(processors=[_only_trouble, *processors])


def _only_trouble(_: object, method: str, line: EventDict) -> EventDict:
    if "component" in line and method in ("debug", "info"):
        take_line({**line, "level": method})  # In the log of its task it is kept.
        raise structlog.DropEvent
    return line


def _start_thread(name: str, work: Coroutine[Any, Any, None]) -> _LoopThread:
    thread = _LoopThread(name, work)
    thread.start()
    return thread

"""The runtime: a worker from its start to its exit code.

Owns the connection and its renewal, and puts the parts together. Its loop runs nothing but this;
user code lives on another loop, in threads and in processes.

Theory of operation: whatever happens to the connection, the worker comes back. Each new connection
begins with JOIN, which names everything the worker holds; the broker says what is no longer the
worker's; then everything that is still open is told again. The same happens when the broker says
that the lease is lost. A worker that is connected has therefore always joined, with the slots that
it has now.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog

from jackalope import __version__
from jackalope.core.commands import Held
from jackalope.core.durations import SECOND
from jackalope.core.refusals import Code
from jackalope.link.address import Address
from jackalope.link.backoff import Backoff
from jackalope.link.connection import Connection
from jackalope.link.errors import ConnectionLost, JackalopeError, ProtocolError, Rejected
from jackalope.tasks.definition import TaskSource
from jackalope.wire.messages import (
    Assign,
    Heartbeat,
    Hello,
    Join,
    Leave,
    Message,
    Notice,
    SignalAsk,
)
from jackalope.worker.application import CannotLoad, load_application
from jackalope.worker.drain import Drain
from jackalope.worker.loop import new_event_loop
from jackalope.worker.loop_executor import LoopExecutor
from jackalope.worker.process_executor import ProcessExecutor
from jackalope.worker.pulse_keeper import PulseKeeper
from jackalope.worker.settings import WorkerSettings, fitting_concurrency
from jackalope.worker.thread_executor import ThreadExecutor
from jackalope.worker.usage import rss_bytes
from jackalope.worker.workload import Workload

log = structlog.get_logger(component="worker")

#: Exit codes.
DONE = 0
UNTOLD = 1
UNUSABLE = 2
UNWANTED = 3

#: A JOIN without an answer for so long means that the connection is no good.
_JOIN_S = 30.0
_LEAVE_S = 2.0
#: A loop that does not answer for so long is reported with its stack.
_BLOCKED_S = 5.0
#: Slots that change often are told together.
_SLOTS_S = 0.1
#: Refusals of HELLO or JOIN that may pass.
_PASSING = frozenset({Code.TOO_MANY, Code.STORAGE_FAILED, Code.OVERLOADED, Code.STALE_SESSION})


def run_worker(settings: WorkerSettings) -> int:
    """Run a worker until it is told to stop, and return the exit code of its process.

    0: it stopped as asked, and the broker knows everything. 1: it stopped, but could not reach the
    broker to say so. 2: its settings or its application cannot be used. 3: the broker does not
    want it.
    """
    source, problem = _load(settings)
    if source is None:
        log.error("cannot start", reason=problem)
        return UNUSABLE
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_run(settings, source))


def _load(settings: WorkerSettings) -> tuple[TaskSource | None, str]:
    problems = settings.problems()
    if problems:
        return None, "; ".join(problems)
    try:
        return load_application(settings.application), ""
    except CannotLoad as error:
        return None, str(error)


async def _run(settings: WorkerSettings, source: TaskSource) -> int:
    return await Runtime(settings, source).run()


class Runtime:
    """One worker."""

    def __init__(self, settings: WorkerSettings, source: TaskSource) -> None:
        self._settings = settings
        self._address: Address = settings.address or source.address
        served = [
            definition
            for definition in source.functions.values()
            if not settings.queues or definition.queue in settings.queues
        ]
        self._queues = settings.queues or tuple(sorted({d.queue for d in served})) or ("default",)
        self._loop_executor = LoopExecutor()
        self._threads = ThreadExecutor()
        self._processes = ProcessExecutor(
            settings.application,
            memory_bytes_max=settings.memory_bytes_max,
            recycling=settings.recycling,
            command=settings.child_command,
        )
        self._concurrency = settings.concurrency or fitting_concurrency(served)
        self._workload = Workload(
            source,
            {
                "async": self._loop_executor,
                "thread": self._threads,
                "process": self._processes,
            },
            concurrency=self._concurrency,
            prefetch=settings.prefetch,
            stop_s=settings.stop_s,
        )
        self._workload.on_forgotten = self._rejoin
        self._workload.on_slots_changed = self._tell_slots_later
        self._drain = Drain(settings.drain_s, settings.stop_s)
        self._pulse = PulseKeeper()
        self._connection: Connection | None = None
        self._backoff = Backoff()
        self._has_joined = False
        self._generation = 0
        self._slots_told = 0
        self._slots_timer: asyncio.TimerHandle | None = None
        self._code = DONE
        self._is_blocked = False

    async def run(self) -> int:
        """Work until told to stop, and return the exit code."""
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop, number.name)
        self._loop_executor.start()
        self._pulse.start()
        log.info(
            "worker starts",
            worker_id=self._settings.name,
            broker=str(self._address),
            queues=self._queues,
            concurrency=self._concurrency,
        )
        connecting = asyncio.create_task(self._stay_connected(), name="jackalope-connection")
        try:
            await self._drain.asked.wait()
            self._workload.close()
            self._join()  # With no slots: nothing more comes.
            is_told = await self._drain.finish(self._workload)
            await self._leave()
            self._code = self._code or (DONE if is_told else UNTOLD)
        finally:
            connecting.cancel()
            with suppress(asyncio.CancelledError):
                await connecting
            await self._close()
        log.info("worker ends", worker_id=self._settings.name, code=self._code)
        return self._code

    def stop(self, why: str) -> None:
        """Drain, and end; asked again, faster. From the loop's own thread."""
        self._drain.ask(why)

    async def _close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
        self._loop_executor.close()
        self._threads.close()
        await self._processes.close()
        await self._pulse.close()

    # The connection.

    async def _stay_connected(self) -> None:
        while True:
            try:
                await self._serve_connection()
            except Rejected as error:
                if error.code not in _PASSING:
                    self._give_up(str(error))
                    return
                log.warning("the broker has no room", why=str(error))
            except (ConnectionLost, ProtocolError) as error:
                log.warning("not connected", why=str(error))
            await asyncio.sleep(self._backoff.next_s())

    async def _serve_connection(self) -> None:
        """Open a connection, join, and return when it is over."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def lost(error: ConnectionLost) -> None:
            if not over.done():
                over.set_exception(error)

        settings = self._settings
        hello = Hello(
            namespace=self._address.namespace,
            token=self._address.token,
            name=settings.name,
            agent=f"jackalope-worker {__version__}",
        )
        connection = await Connection.open(self._address, hello, heard=self._heard, lost=lost)
        self._connection = connection
        try:
            welcome = connection.welcome
            beat_s = min(welcome.heartbeat_us / SECOND, settings.lease_s / 3)
            self._workload.limit_results(welcome.frame_bytes_max)
            hello.pulse = welcome.pulse
            self._pulse.beat_for(self._address, hello, beat_s)
            self._join()
            beating = asyncio.create_task(self._beat(connection, beat_s, lost))
            try:
                await over
            finally:
                beating.cancel()
        finally:
            self._connection = None
            self._has_joined = False
            self._workload.reports.suspend()
            await connection.close()

    async def _beat(
        self, connection: Connection, every_s: float, lost: Callable[[ConnectionLost], None]
    ) -> None:
        """Tell the broker how the worker is; give up a connection that lets nobody join."""
        join_by = time.monotonic() + _JOIN_S
        while True:
            await asyncio.sleep(every_s)
            self._look_at_loop()
            if self._has_joined:
                join_by = time.monotonic() + _JOIN_S
                connection.send(Heartbeat(stats=self._stats()))
            elif time.monotonic() > join_by:
                connection.abort("no answer to JOIN")
                lost(ConnectionLost(f"{self._address} does not answer to JOIN"))

    def _stats(self) -> dict[str, float]:
        workload = self._workload
        return {
            "running": workload.running,
            "waiting": workload.waiting,
            "finished": workload.finished,
            "failed": workload.failed,
            "processes": len(self._processes.processes()),
            "rss_bytes": rss_bytes(),
        }

    def _look_at_loop(self) -> None:
        """Say so, once, when a task blocks the loop that all coroutines share."""
        blocked_s = self._loop_executor.blocked_s()
        if blocked_s < _BLOCKED_S:
            self._is_blocked = False
        elif not self._is_blocked:
            self._is_blocked = True
            stack = self._loop_executor.stack()
            log.warning("a task blocks the loop", for_s=round(blocked_s, 1), stack=stack)

    # Joining.

    def _join(self) -> None:
        """Tell the broker that the worker is there, what it holds and how much it wants."""
        connection = self._connection
        if connection is None or self._code == UNWANTED:
            return  # If it is the former: the next connection begins with this.
        settings, workload = self._settings, self._workload
        if not self._has_joined:
            workload.reports.suspend()
        self._slots_told = workload.slots
        is_new = not self._has_joined

        def answered(body: Any, error: JackalopeError | None) -> None:
            if connection is self._connection:
                self._on_joined(connection, body, error, is_new=is_new)

        connection.ask(
            Join(
                0,
                worker=settings.name,
                queues=self._queues,
                keys=settings.keys,
                slots=workload.slots,
                labels=dict(settings.labels),
                holding=workload.holding,
                lease_us=int(settings.lease_s * SECOND),
                grace_us=int(settings.grace_s * SECOND),
                generation=self._next_generation(),
            ),
            answered,
        )

    def _next_generation(self) -> int:
        """Return a number that grows even where the clock is set back."""
        self._generation = max(self._generation + 1, time.time_ns() // 1000)
        return self._generation

    def _on_joined(
        self, connection: Connection, body: Any, error: JackalopeError | None, *, is_new: bool
    ) -> None:
        if isinstance(error, Rejected) and error.code in _PASSING:
            wait_s = max(error.retry_after_s, self._backoff.next_s())
            asyncio.get_running_loop().call_later(wait_s, self._join)
        elif isinstance(error, Rejected):
            self._give_up(str(error))
        elif error is None:
            self._workload.drop(Held(task, fence) for task, fence in body["drop"])
            if is_new:
                self._has_joined = True
                self._backoff.reset()
                log.info("joined", worker_id=self._settings.name, slots=self._slots_told)
                self._workload.reports.resume(connection, self._workload.attempts)

    def _rejoin(self) -> None:
        """Join from scratch: the broker does not know this worker any more."""
        if self._has_joined:
            self._has_joined = False
            self._join()

    def _tell_slots_later(self) -> None:
        if self._slots_timer is None:
            loop = asyncio.get_running_loop()
            self._slots_timer = loop.call_later(_SLOTS_S, self._tell_slots)

    def _tell_slots(self) -> None:
        self._slots_timer = None
        if self._has_joined and self._workload.slots != self._slots_told:
            self._join()

    async def _leave(self) -> None:
        if self._connection is not None and self._has_joined:
            self._has_joined = False
            with suppress(JackalopeError, TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await self._connection.request(Leave())

    # What the broker says.

    def _heard(self, message: Message) -> None:
        if type(message) is Assign:
            self._workload.assign(message.assignments)
        elif type(message) is SignalAsk:
            self._workload.signal(message)
        elif type(message) is Notice:
            self._on_notice(message)

    def _on_notice(self, notice: Notice) -> None:
        if notice.what == "drain":
            self._drain.ask_first("the broker asks for it")
        elif notice.what == "lease_lost":
            self._rejoin()
        elif notice.what == "replaced":
            self._give_up(f"another worker has joined as {self._settings.name!r}")
        else:
            log.info("the broker says", what=notice.what, detail=notice.detail)

    def _give_up(self, why: str) -> None:
        """Stop without more ado: the broker does not want this worker."""
        log.error("the broker does not want this worker", why=why)
        self._code = UNWANTED
        self._drain.abandon()

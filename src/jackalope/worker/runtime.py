"""The runtime: a worker from its start to its exit code.

Owns the executors, the drain and the one helper session in which this worker computes items of
another's task, and puts the parts together. Its loop runs nothing but this; user code runs on
another loop, in threads and in processes.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from jackalope.core.effects import HelpAsked
from jackalope.tasks.definition import TaskDefinition, TaskSource, known_names
from jackalope.transport.address import Address
from jackalope.transport.connection import new_event_loop
from jackalope.worker.attempt import (
    Attempt,
    CannotLoad,
    Cause,
    Failed,
    Listener,
    Outcome,
    Surroundings,
    load_application,
)
from jackalope.worker.executors.asyncio_loop import LoopExecutor
from jackalope.worker.executors.child_process import Processor, rss_bytes
from jackalope.worker.executors.processes import ProcessExecutor
from jackalope.worker.executors.threads import ThreadExecutor
from jackalope.worker.fanout.helper_session import HelpDefinition, help_assignment
from jackalope.worker.logs.capture import install
from jackalope.worker.session import JoinTerms, Membership
from jackalope.worker.settings import WorkerSettings, fitting_concurrency
from jackalope.worker.workload import Executor, Workload

log = structlog.get_logger(component="worker")

#: Exit codes.
DONE = 0
UNTOLD = 1
UNUSABLE = 2
UNWANTED = 3

#: A loop that does not answer for so long is reported with its stack.
_BLOCKED_S = 5.0

#: How many of its tasks a worker logs when it starts.
_NAMES_LOGGED_MAX = 50

#: Of chance in the secret by which other connections of the worker prove that they are its own.
_SECRET_BYTES = 24


def run_worker(settings: WorkerSettings) -> int:
    """Run a worker until it is asked to stop, and return the exit code of its process.

    0: it stopped as asked, and the broker knows everything. 1: it stopped, but could not reach the
    broker to say so. 2: its settings or its application cannot be used. 3: the broker does not
    want it.
    """
    install(settings.task_logs)  # Before the application keeps the streams for its own log.
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


def _address(settings: WorkerSettings, source: TaskSource) -> Address:
    """Return where the broker is, and who the worker is there."""
    address = settings.address or source.address
    return replace(
        address,
        token=settings.token or address.token,
        namespace=settings.namespace or address.namespace,
    )


def _surroundings(settings: WorkerSettings, address: Address, secret: str) -> Surroundings:
    return Surroundings(
        address=address,
        worker=settings.name,
        application=settings.application,
        child_command=settings.child_command,
        log=settings.log,
        fanout_host=settings.fanout_host,
        fanout_advertise=settings.fanout_advertise,
        fanout_cert=settings.fanout_cert,
        fanout_key=settings.fanout_key,
        secret=secret,
        task_logs=settings.task_logs,
    )


def _terms(
    settings: WorkerSettings, address: Address, queues: tuple[str, ...], secret: str, slots: int
) -> JoinTerms:
    return JoinTerms(
        address=address,
        worker=settings.name,
        queues=queues,
        keys=settings.keys,
        labels={"host": socket.gethostname(), "pid": str(os.getpid()), **settings.labels},
        lease_s=settings.lease_s,
        grace_s=settings.grace_s,
        secret=secret,
        resources=settings.resources,
        share=settings.share,
        share_slots=slots if settings.share else 0,
    )


def _served(settings: WorkerSettings, source: TaskSource) -> list[TaskDefinition]:
    """Return the tasks that the worker is for, and warn of settings that mean nothing to them."""
    served = [
        definition
        for definition in source.functions.values()
        if not settings.queues or definition.queue in settings.queues
    ]
    for warning in settings.warnings(served):
        log.warning("setting without effect", detail=warning)
    return served


def _names(served: list[TaskDefinition]) -> list[str]:
    """Return the names of tasks as the log shows them."""
    names = sorted(definition.name for definition in served)
    return names[:_NAMES_LOGGED_MAX] + (["..."] if names[_NAMES_LOGGED_MAX:] else [])


class Runtime:
    """One worker."""

    def __init__(self, settings: WorkerSettings, source: TaskSource) -> None:
        self._settings = settings
        # What its tasks submit goes to where they came from.
        source.address = self._address = _address(settings, source)
        served = _served(settings, source)
        self._queues = settings.queues or tuple(sorted({d.queue for d in served})) or ("default",)
        self._names = _names(served)
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        surroundings = _surroundings(settings, self._address, secret)
        self._loop_executor = LoopExecutor()
        self._threads = ThreadExecutor()
        self._processes = ProcessExecutor(
            settings.application,
            memory_bytes_max=settings.memory_bytes_max,
            recycling=settings.recycling,
            command=settings.child_command,
            log=settings.log,
            surroundings=surroundings,
        )
        self._concurrency = settings.concurrency or fitting_concurrency(served)
        executors: dict[str, Executor] = {
            "async": self._loop_executor,
            "thread": self._threads,
            "process": self._processes,
        }
        self._workload = Workload(
            source,
            executors,
            concurrency=self._concurrency,
            prefetch=settings.prefetch,
            tasks_max=settings.tasks,
            stop_s=settings.stop_s,
            surroundings=surroundings,
        )
        self._helping = Helping(
            source, executors, self._workload, worker=settings.name, stop_s=settings.stop_s
        )
        slots = self._concurrency + settings.prefetch
        standing = _terms(settings, self._address, self._queues, secret, slots)
        self._membership = Membership(standing, self._workload, settings.application, source)
        self._workload.on_enough = self._wind_up
        self._membership.on_drain = lambda: self._drain.ask_first("the broker requested it")
        self._membership.on_unwanted = self._give_up
        self._membership.stats = self._stats
        self._startups = tuple(getattr(source, "startups", ()))
        self._membership.on_help = self._helping.asked
        self._membership.names = lambda: known_names(source.functions, self._queues)
        self._membership.helps = lambda: self._helping.fence
        self._helping.on_free = self._membership.free
        self._processor = Processor()
        self._drain = Drain(settings.drain_s, settings.stop_s)
        self._code, self._is_blocked = DONE, False

    async def run(self) -> int:
        """Work until asked to stop, and return the exit code."""
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop, number.name)
        self._loop_executor.start()
        log.info(
            "worker starts",
            worker_id=self._settings.name,
            broker=str(self._address),
            queues=self._queues,
            concurrency=self._concurrency,
            tasks=self._names,
        )
        self._membership.is_ready = not self._startups
        self._membership.start()
        loading = asyncio.create_task(self._load(), name="jackalope-loading")
        try:
            await self._drain.asked.wait()
            loading.cancel()
            self._workload.close()
            self._helping.close()
            self._membership.join()  # With no slots: nothing more comes.
            is_told = await self._drain.finish(self._workload)
            await self._membership.leave()
            self._code = self._code or (DONE if is_told else UNTOLD)
        finally:
            await self._close()
        log.info("worker ends", worker_id=self._settings.name, code=self._code)
        return self._code

    def call_before_tasks(self, call: Callable[[], None]) -> None:
        """Have something called each time when tasks are about to run."""
        self._workload.on_begin = call

    def stop(self, why: str) -> None:
        """Drain, and end; asked again, faster. From the loop's own thread."""
        self._drain.ask(why)

    def _wind_up(self) -> None:
        """Take nothing more, and end when what runs has ended, however long that takes."""
        self._workload.close()
        self._membership.join()  # With no slots, before the last result makes room.
        self._workload.hand_back_waiting()
        self._ending = asyncio.create_task(self._end_when_empty(), name="jackalope-ending")

    async def _end_when_empty(self) -> None:
        await self._workload.emptied.wait()
        self._drain.ask_first(f"it has run {self._settings.tasks} tasks")

    async def _load(self) -> None:
        """Let the application prepare itself; the broker sees the worker load meanwhile."""
        for function in self._startups:
            try:
                if inspect.iscoroutinefunction(function):
                    await self._loop_executor.finish(function(self._settings.keys))
                else:
                    await asyncio.to_thread(function, self._settings.keys)
            except Exception:
                log.exception("the application cannot be prepared", function=str(function))
                self._code = UNUSABLE
                self._drain.abandon()
                return
        if self._startups:
            self._membership.is_ready = True
            self._membership.join()

    async def _close(self) -> None:
        await self._membership.disconnect()
        self._loop_executor.close()
        self._threads.close()
        await self._processes.close()
        await self._membership.close()

    def _stats(self) -> dict[str, float]:
        self._look_at_loop()
        workload = self._workload
        return {
            "running": workload.running,
            "waiting": workload.waiting,
            "finished": workload.finished,
            "failed": workload.failed,
            "processes": len(self._processes.processes()),
            "rss_bytes": rss_bytes(),
            "cpu_percent": self._processor.percent(),
        }

    def _look_at_loop(self) -> None:
        """Log once when a task blocks the loop that all coroutines share."""
        blocked_s = self._loop_executor.blocked_s()
        if blocked_s < _BLOCKED_S:
            self._is_blocked = False
        elif not self._is_blocked:
            self._is_blocked = True
            stack = self._loop_executor.stack()
            log.warning("a task blocks the loop", for_s=round(blocked_s, 1), stack=stack)

    def _give_up(self, why: str) -> None:
        """Stop without more ado: the broker does not want this worker."""
        log.error("the broker refused this worker", why=why)
        self._code = UNWANTED
        self._drain.abandon()


# The drain: how a worker comes to its end.


#: How long tasks may take to stop once the deadline is over, after a second request.
_HURRY_STOP_S = 0.5
#: How long the means beyond asking may take to work.
_FORCE_S = 1.0
#: How long the broker may take to acknowledge the last reports.
_ACKNOWLEDGE_S = 5.0


class Drain:
    """Brings a worker to its end."""

    def __init__(self, deadline_s: float, stop_s: float) -> None:
        self._deadline_s = deadline_s
        self._stop_s = stop_s
        self.asked = asyncio.Event()  # set when the worker must stop
        self._hurried = asyncio.Event()
        self._abandoned = asyncio.Event()

    def ask(self, why: str) -> None:
        """Ask for the end; again, and it comes faster."""
        if not self.asked.is_set():
            log.info("draining", why=why, deadline_s=self._deadline_s)
            self.asked.set()
        elif not self._hurried.is_set():
            log.info("releasing tasks immediately", why=why)
            self._hurried.set()
        else:
            log.warning("leaving without notifying the broker", why=why)
            self._abandoned.set()

    def abandon(self) -> None:
        """End at once: there is no broker to report to."""
        for event in (self.asked, self._hurried, self._abandoned):
            event.set()

    def ask_first(self, why: str) -> None:
        """Ask for the end, unless that has been asked: the broker may repeat itself."""
        if not self.asked.is_set():
            self.ask(why)

    async def finish(self, workload: Workload) -> bool:
        """Bring the work to its end, and return whether the broker knows all of it."""
        workload.hand_back_waiting()
        if await self._emptied(workload, self._deadline_s, self._hurried):
            return True
        stop_s = _HURRY_STOP_S if self._hurried.is_set() else self._stop_s
        log.warning("stopping what still runs", running=workload.running)
        workload.hand_back_running(stop_s)
        if await self._emptied(workload, stop_s + _FORCE_S, self._abandoned):
            return True
        workload.give_up()
        return await self._emptied(workload, _ACKNOWLEDGE_S, self._abandoned)

    async def _emptied(self, workload: Workload, within_s: float, unless: asyncio.Event) -> bool:
        """Wait until nothing is held, for a time or until an event."""
        waits = [asyncio.ensure_future(e.wait()) for e in (workload.emptied, unless)]
        try:
            await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return workload.emptied.is_set()


# Lending: the one helper session that the worker may have, for the task of another worker.


class Helping:
    """What this worker does for others."""

    def __init__(
        self,
        source: TaskSource,
        executors: Mapping[str, Executor],
        workload: Workload,
        *,
        worker: str,
        stop_s: float,
    ) -> None:
        self._source = source
        self._executors = executors
        self._workload = workload
        self._worker = worker
        self._stop_s = stop_s
        self._loop = asyncio.get_running_loop()
        self._attempt: Attempt | None = None
        self._is_closed = False
        self.fence = 0  # the attempt that it helps; 0 for none
        self.ended = asyncio.Event()
        self.ended.set()
        # called with the fence and, if it could not help, the reason
        self.on_free: Callable[[int, str], None] = lambda *_: None

    def asked(self, ask: HelpAsked) -> None:
        """Take the broker's word to help, or to help no more."""
        if not ask.where:
            if ask.fence == self.fence:
                self.stop(Cause.DRAIN)
            return
        definition = self._source.functions.get(ask.function)
        if self._attempt is not None:
            if ask.fence != self.fence:
                self.on_free(ask.fence, f"helps another task, with fence {self.fence}")
        elif definition is None:
            self.on_free(ask.fence, f"this worker has no task {ask.function!r}")
        elif self._is_closed:
            self.on_free(ask.fence, "this worker stops")
        else:
            helping = HelpDefinition(definition, self._source.functions)
            assignment = help_assignment(ask, self._worker)
            attempt = self._attempt = Attempt(
                assignment, helping, _EndListener(self._loop, self._end)
            )
            self.fence = ask.fence
            self.ended.clear()
            self._workload.lent = 1
            log.info("helps", task_id=attempt.shown, name=ask.function, at=ask.where)
            self._executors[helping.isolation].run([attempt])

    def close(self) -> None:
        """End the helper session, and accept no other."""
        self._is_closed = True
        self.stop(Cause.DRAIN)

    def stop(self, cause: Cause) -> None:
        """End the helper session. Items in hand are computed by other peers."""
        attempt = self._attempt
        if attempt is not None and attempt.cause is None:
            attempt.cause = cause
            self._press(attempt, 0)

    def _press(self, attempt: Attempt, level: int) -> None:
        if attempt is not self._attempt:
            return
        executor = self._executors[attempt.definition.isolation]
        refusal = executor.stop(attempt, level)
        if refusal:
            log.warning("cannot stop helping yet", task_id=attempt.shown, why=refusal)
        else:
            self._loop.call_later(self._stop_s, self._press, attempt, level + 1)

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt is not self._attempt:
            return
        why = outcome.error.message if isinstance(outcome, Failed) else ""
        log.info("helps no more", task_id=attempt.shown, why=why)
        fence, self.fence, self._attempt = self.fence, 0, None
        self._workload.lent = 0
        self._workload.begin()
        self.ended.set()
        self.on_free(fence, why)


class _EndListener(Listener):
    """Receives the end of a helper session, on whichever thread, and passes it to the loop.

    Nothing waits for the rest: the owner reports the progress, and a helper keeps its slot.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ended: Callable[[Attempt, Outcome], None]
    ) -> None:
        self._loop = loop
        self._ended = ended

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended, attempt, outcome)

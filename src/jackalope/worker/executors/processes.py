"""The process executor: runs functions in processes that can be stopped for certain.

Owns the processes: it starts them as they are needed, keeps those that are idle for the next task,
and lets them go when they have run enough tasks, are old enough or have grown too large. A task
that is asked to stop gets SIGTERM; if it is still there after that, its process and all that it
started get SIGKILL, which also ends C code.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from jackalope.core.assertions import must
from jackalope.core.task import Error
from jackalope.errors import Rejected
from jackalope.tasks.serialization import error_of
from jackalope.transport.address import Address
from jackalope.worker.attempt import Attempt, Failed, Outcome, Stopped, Surroundings
from jackalope.worker.context import Cancelled
from jackalope.worker.executors.child_process import (
    CRASHED,
    LENGTH,
    OUT_OF_MEMORY,
    ChildProcess,
    Ended,
    Exit,
    Progressed,
    Ready,
    Rested,
    StepAnswered,
    StepAsked,
    Told,
    Unfit,
    WaitAsked,
    Work,
    decode_word,
    exit_error,
    oom_kill_count,
    packet,
    signal_name,
)
from jackalope.worker.logs.capture import TaskLogs

CHILD_COMMAND = (sys.executable, "-m", "jackalope.worker.executors.child")

#: The surroundings of a process that was sent none.
_NOWHERE = Surroundings(address=Address("localhost"), worker="")

#: How long a process that has hung up may take to be gone.
_EXIT_S = 2.0
#: How long the stack of a process that is to be killed may take to be written.
_STACK_S = 1.0
_STACK_LOOK_S = 0.02
_STACK_BYTES_MAX = 16 * 1024
#: How long what a task has written may take to be read.
_CATCH_UP_S = 0.5
_CATCH_UP_LOOK_S = 0.001


@dataclass(frozen=True)
class Recycling:
    """When a process has served for long enough; 0 for never."""

    tasks: int = 0  # after so many tasks
    age_s: float = 0.0  # after so many seconds
    rss_bytes: int = 0  # when it is larger than this after a task


class ProcessExecutor:
    """Runs attempts whose functions are isolated. Belongs to the loop of the connection."""

    begins_at_once = False

    def __init__(
        self,
        application: str,
        *,
        memory_bytes_max: int = 0,
        recycling: Recycling | None = None,
        command: tuple[str, ...] = CHILD_COMMAND,
        log: str = "",
        surroundings: Surroundings | None = None,
    ) -> None:
        self._surroundings = packet(
            replace(surroundings, is_isolated=True) if surroundings is not None else _NOWHERE
        )
        self._command = (*command, application)
        self._task_logs = surroundings.task_logs if surroundings is not None else TaskLogs.OUTPUT
        self._log = log
        self._memory_bytes_max = memory_bytes_max
        self._recycling = recycling or Recycling()
        self._idle: list[Child] = []
        self._children: set[Child] = set()
        self._runs: set[asyncio.Task[None]] = set()

    def run(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            run = asyncio.get_running_loop().create_task(self._run(attempt))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)

    def stop(self, attempt: Attempt, level: int) -> str:
        """Ask the process of an attempt to stop, or end it."""
        child = attempt.handle
        if not isinstance(child, Child):
            attempt.acknowledge()
            return ""  # Its process is still starting: it will not begin.
        if level == 0:
            child.terminate()
        else:
            child.kill_later()
        return "" if level < 2 else "its process was killed and has not exited yet"

    def time_out_softly(self, attempt: Attempt) -> None:
        """Do nothing: the process has a timer of its own."""

    def processes(self) -> list[int]:
        return [child.pid for child in self._children]

    async def close(self) -> None:
        for child in list(self._children):
            await child.end()

    async def _run(self, attempt: Attempt) -> None:
        try:
            outcome = await self._outcome(attempt)
        except Exception as error:  # noqa: BLE001  a process that cannot be had is a failure
            outcome = Failed(error_of(error))
        attempt.handle = None
        attempt.listener.ended(attempt, outcome)

    async def _outcome(self, attempt: Attempt) -> Outcome:
        child = self._take() or await self._start()
        if attempt.cause is not None:
            self._idle.append(child)
            return attempt.raised(Cancelled())
        attempt.handle = child
        attempt.listener.began(attempt)
        outcome = await child.run(attempt)
        if child.is_gone:
            self._children.discard(child)
        elif attempt.why():
            # What the task has started must not outlive it, even if the task itself obeyed.
            self._children.discard(child)
            await child.end(is_group=True)
        elif _is_out_of_memory(outcome) or self._is_worn(child):
            self._children.discard(child)
            await child.end()
        else:
            self._idle.append(child)
        return outcome

    def _take(self) -> Child | None:
        """Take a process that is fit for another task, the one used last."""
        while self._idle:
            child = self._idle.pop()
            if not child.is_gone and not self._is_worn(child):
                return child
            self._children.discard(child)
            child.hang_up()
        return None

    async def _start(self) -> Child:
        child = Child()
        self._children.add(child)
        try:
            await child.start(
                self._command,
                self._memory_bytes_max,
                self._log,
                self._surroundings,
                task_logs=self._task_logs,
            )
        except BaseException:
            self._children.discard(child)
            raise
        return child

    def _is_worn(self, child: Child) -> bool:
        """Whether a process must not run another task."""
        limit = self._recycling
        return (
            child.is_doomed
            or (0 < limit.tasks <= child.tasks)
            or (0 < limit.age_s <= child.age_s)
            or (0 < limit.rss_bytes <= child.rss_bytes)
        )


class CannotStart(Exception):
    """A process came to its end before it could run anything."""


class Child:
    """The worker's end of one process."""

    def __init__(self) -> None:
        self.tasks = 0  # how many it has run
        self.rss_bytes = 0  # how large it was after the last of them
        self.is_gone = False  # it has ended, or is about to
        # it is to be killed, so that a task that ends just before is its last
        self.is_doomed = False
        self._started_at = time.monotonic()
        self._oom_kills = oom_kill_count()
        self._process: ChildProcess | None = None
        self._stack = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115  lives as long as this
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_killed = False
        self._keeps_output = False  # what its tasks print is kept
        self._is_behind = False  # and was not read in time
        self._trace = ""

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._started_at

    async def start(
        self,
        command: tuple[str, ...],
        memory_bytes_max: int,
        log: str,
        surroundings: bytes,
        *,
        task_logs: str = TaskLogs.OUTPUT,
    ) -> None:
        """Start the process, and wait until it is ready."""
        ours, theirs = socket.socketpair()
        self._keeps_output = task_logs != TaskLogs.OUTPUT
        lines, their_lines = os.pipe() if self._keeps_output else (-1, -1)
        with theirs:
            stack = self._stack.fileno()
            arguments = (theirs.fileno(), stack, os.getpid(), memory_bytes_max, log, their_lines)
            fds = (theirs.fileno(), stack, *([their_lines] if self._keeps_output else []))
            try:
                self._process = ChildProcess(
                    (*command, *map(str, arguments)),
                    fds,
                    lines,
                    echoes=task_logs != TaskLogs.BROKER,
                )
            finally:
                if self._keeps_output:
                    os.close(their_lines)
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        self._say(surroundings)
        word = await self._hear()
        if type(word) is Ready:
            return
        ended = await self._exit()
        if type(word) is Unfit:
            raise CannotStart(word.reason)
        raise CannotStart(exit_error(ended).message)

    async def run(self, attempt: Attempt) -> Outcome:
        """Run one attempt to its end, whatever that is."""
        must(self._writer is not None, "a process is started before it runs anything")
        os.ftruncate(self._stack.fileno(), 0)
        await report_leaves()
        self._say(packet(Work(attempt.assignment)))
        if self._keeps_output and self._process is not None:
            self._process.output.attempt = attempt
        try:
            return await self._outcome(attempt)
        finally:
            await self._catch_up()

    async def _catch_up(self) -> None:
        """Wait until the attempt was given what it has written, unless that takes too long."""
        if not self._keeps_output or self._process is None:
            return
        output, by = self._process.output, time.monotonic() + _CATCH_UP_S
        while output.is_behind():
            if time.monotonic() >= by or self._is_behind:
                self._is_behind = True  # The worker's output is not read: do not wait each time.
                break
            await asyncio.sleep(_CATCH_UP_LOOK_S)
        else:
            self._is_behind = False
        output.attempt = None

    async def _outcome(self, attempt: Attempt) -> Outcome:
        while True:
            word = await self._hear()
            if type(word) is Progressed:
                attempt.listener.progressed(attempt, word.percent, word.note)
            elif type(word) is Told:
                if attempt.cause is not None:
                    attempt.acknowledge()
            elif type(word) is Rested:
                attempt.listener.rested(attempt, is_resting=word.is_resting)
            elif isinstance(word, StepAsked | WaitAsked):
                answer: Future[Any] = Future()
                answer.add_done_callback(partial(self._answer, word.number))
                attempt.listener.asked(attempt, word.message, answer)
            elif type(word) is Ended:
                self.tasks += 1
                self.rss_bytes = word.rss_bytes
                return word.outcome
            else:
                if self._process is not None:
                    self._process.ends_group = True
                return self._autopsy(attempt, await self._exit())

    def _answer(self, number: int, answer: Future[Any]) -> None:
        """Pass on what came of a question; a process that no longer waits for it ignores it."""
        if not self.is_gone:
            self._say(packet(_answered(number, answer)))

    def terminate(self) -> None:
        """Ask the task in the process to stop."""
        self._signal(signal.SIGTERM)

    def kill_later(self) -> None:
        """End the process and all that it has started, once it has written down where it is."""
        self.is_doomed = True
        self._signal(signal.SIGUSR2)
        self._kill_when_written(0, time.monotonic() + _STACK_S)

    def _kill_when_written(self, written: int, by: float) -> None:
        """Kill once the stack is there and grows no more, or when that takes too long."""
        if self._stack.closed:
            return
        size = os.fstat(self._stack.fileno()).st_size
        if 0 < size == written or time.monotonic() >= by:
            self.kill()
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(_STACK_LOOK_S, self._kill_when_written, size, by)

    def kill(self) -> None:
        """End the process and all that it has started."""
        if self._process is not None and not self._process.has_ended:
            self._is_killed = True
            self._process.kill()

    def hang_up(self) -> None:
        """Let the process end by itself: it has nothing to do any more."""
        self.is_gone = True
        if self._writer is not None:
            self._writer.close()

    async def end(self, *, is_group: bool = False) -> None:
        """Let the process end, and see to it that it does; what it has started too, if so asked."""
        if is_group and self._process is not None:
            self._process.ends_group = True
        self.hang_up()
        await self._exit()

    async def _exit(self) -> Exit:
        """Wait for the end of a process that has hung up, and return how it ended."""
        self.hang_up()
        if self._process is None:
            return Exit(0)
        try:
            async with asyncio.timeout(_EXIT_S):
                await self._process.exited()
        except TimeoutError:
            self.kill()
        ended = await self._process.exited()
        trace = os.pread(self._stack.fileno(), _STACK_BYTES_MAX, 0)
        self._trace = trace.decode(errors="replace")
        self._stack.close()
        return ended

    def _autopsy(self, attempt: Attempt, ended: Exit) -> Outcome:
        """Return the outcome of an attempt whose process is gone."""
        status = ended.status
        if attempt.cause is not None:
            force = "forced: " if self._is_killed else ""
            detail = f"{force}{attempt.why()}; its process was ended by "
            detail += f"signal {signal_name(-status)}" if status < 0 else f"exit code {status}"
            return Stopped(detail, self._trace)
        if self._is_killed:
            error = Error(CRASHED, "the process closed its channel and did not exit", self._trace)
            return Failed(error, crashed=True)
        kills = oom_kill_count() - self._oom_kills
        return Failed(exit_error(ended, oom_kills=kills, trace=self._trace), crashed=True)

    def _say(self, data: bytes) -> None:
        if self._writer is not None:
            self._writer.write(data)

    async def _hear(self) -> object:
        """Return the next word of the process, or None when it has hung up."""
        if self._reader is None:
            return None
        try:
            head = await self._reader.readexactly(LENGTH.size)
            return decode_word(await self._reader.readexactly(*LENGTH.unpack(head)))
        except (asyncio.IncompleteReadError, OSError):
            return None

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.signal(number)


async def report_leaves() -> None:
    """Return when what was reported before is on its way: see `Workload`."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _answered(number: int, answer: Future[Any]) -> StepAnswered:
    error = answer.exception()
    if error is None:
        return StepAnswered(number, answer.result())
    if isinstance(error, Rejected):
        told = (error.message, error.code, error.retry_after_us)
        return StepAnswered(number, None, False, *told)
    if isinstance(error, Cancelled):
        return StepAnswered(number, is_over=True)
    return StepAnswered(number, refusal=str(error))


def _is_out_of_memory(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and outcome.error.type == OUT_OF_MEMORY

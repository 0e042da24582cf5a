"""A process that runs tasks for a worker, one at a time.

Owns what happens on the inside: it imports the application itself, runs each function in its main
thread, and can be interrupted there by signals. What it cannot do about itself (C code that does
not return) its parent does from outside.

SIGTERM raises `Cancelled` in the task, or cancels it if it is a coroutine; SIGALRM, set as a timer
of its own, does the same with `SoftTimeout`; SIGUSR2 writes the Python stack to the file that the
parent reads when the process is gone. It dies with its parent.
"""

from __future__ import annotations

import faulthandler
import io
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from itertools import count
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn, TextIO, cast

from jackalope.core.commands import RecordStep, Suspend
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment
from jackalope.core.shapes.task_log import LogStream
from jackalope.core.task import Error
from jackalope.errors import Rejected
from jackalope.parent_process import die_with_parent
from jackalope.tasks.context import running
from jackalope.tasks.definition import TaskSource, find_task
from jackalope.tasks.serialization import error_of
from jackalope.worker.attempt import (
    Attempt,
    CannotLoad,
    Cause,
    Failed,
    Listener,
    Outcome,
    StepRefused,
    Surroundings,
    load_application,
    unknown_task,
)
from jackalope.worker.context import Cancelled, SoftTimeout, TaskContext, name_task
from jackalope.worker.executors.child_process import (
    LENGTH,
    OUT_OF_MEMORY,
    Ended,
    Given,
    Progressed,
    Ready,
    Rested,
    StepAnswered,
    StepAsked,
    Told,
    Unfit,
    WaitAsked,
    Word,
    Work,
    decode_given,
    decode_surroundings,
    packet,
    rss_bytes,
)
from jackalope.worker.executors.run_coroutine import run_coroutine
from jackalope.worker.logs.capture import install_in_child
from jackalope.worker.logs.child_pipe import PipeSink, ShownStream

UNFIT = 2

#: A task may report its progress in every turn of a tight loop; the worker is sent it this often.
_PROGRESS_EVERY_S = 0.05


class Child(Listener):
    """The inside of the process. Also the listener of its attempts."""

    def __init__(
        self,
        parent: socket.socket,
        memory_bytes_max: int,
        log: InheritedLog,
        lines: PipeSink | None = None,
    ) -> None:
        self._parent = parent
        self._lines = lines
        self._memory_bytes_max = memory_bytes_max
        self._log = log
        self._surroundings: Surroundings | None = None
        self._attempt: Attempt | None = None
        self._on_signal: Callable[[int], None] | None = None
        self._speaking = threading.Lock()
        self._teller: threading.Thread | None = None
        self._latest: Progressed | None = None
        self._has_progress = threading.Event()
        self._telling = threading.Lock()
        self._numbers = count(1)
        self._asked: dict[int, SimpleQueue[StepAnswered]] = {}
        self._has_asked = False  # so that from then on a thread reads what the parent sends
        self._reading = threading.Lock()
        self._reader: threading.Thread | None = None
        # what it has read; None when the parent has hung up
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        bell, self._bell = os.pipe()
        self._answered, answered = os.pipe()
        self._rings = 0
        teller = threading.Thread(target=self._answer_bell, args=(bell, answered), daemon=True)
        teller.start()

    def serve(self, application: str) -> int:
        """Run what the parent sends until it hangs up, and return the exit code."""
        signal.signal(signal.SIGTERM, self._interrupt)
        signal.signal(signal.SIGALRM, self._interrupt)
        self._log.prepare()
        self._surroundings = decode_surroundings(self._packet())
        try:
            source = load_application(application)
        except CannotLoad as error:
            self._say(Unfit(str(error)))
            return UNFIT
        source.address = self._surroundings.address
        self._log.begin_if_wanted()
        self._say(Ready())
        while (assignment := self._next()) is not None:
            outcome = self._run(source, assignment)
            self._end_rings()
            self._say_latest()
            self._say(Ended(outcome, rss_bytes()))
        for traces in {each.traces for each in source.functions.values() if each.traces}:
            traces.flush()  # The process ends without exit handlers.
        return 0

    # The listener of the attempt. The parent knows that it began, and its outcome is returned.

    def acknowledged(self, attempt: Attempt) -> None:
        """Do nothing: the parent has said so already."""

    def sink_of(self, attempt: Attempt) -> PipeSink | None:  # noqa: ARG002
        return self._lines

    def rested(self, attempt: Attempt, *, is_resting: bool) -> None:
        """Pass on that the attempt only waits, or no more, where no signal interrupts it."""
        if attempt is self._attempt:
            teller = threading.Thread(target=self._say, args=(Rested(is_resting),), daemon=True)
            teller.start()
            teller.join()

    def progressed(self, attempt: Attempt, percent: float | None, note: str) -> None:
        """Pass on how far the attempt has come, in a thread that no signal interrupts."""
        if attempt is not self._attempt:
            return
        self._latest = Progressed(percent, note)
        if self._teller is None:
            self._teller = threading.Thread(target=self._tell_progress, daemon=True)
            self._teller.start()
        self._has_progress.set()

    def asked(self, attempt: Attempt, message: RecordStep | Suspend, answer: Future[Any]) -> None:
        """Ask the parent about a step, in a thread that no signal interrupts."""
        if attempt is not self._attempt:
            answer.set_exception(Cancelled("the attempt is over"))
            return
        self._has_asked = True
        threading.Thread(target=self._ask, args=(message, answer), daemon=True).start()

    def _ask(self, message: RecordStep | Suspend, answer: Future[Any]) -> None:
        _leave_signals_to_the_task()
        self._start_reader()
        number, box = next(self._numbers), SimpleQueue[StepAnswered]()
        self._asked[number] = box
        if isinstance(message, RecordStep):
            self._say(StepAsked(number, message))
        else:
            self._say(WaitAsked(number, message))
        settle(answer, box.get())

    def _start_reader(self) -> None:
        """Let a thread read what the parent sends. Not from the task's own thread."""
        with self._reading:
            if self._reader is None:
                self._reader = threading.Thread(target=self._read_on, daemon=True)
                self._reader.start()

    def _read_on(self) -> None:
        """Read what the parent sends from now on: answers come while the task runs."""
        _leave_signals_to_the_task()
        while (word := self._word()) is not None:
            if isinstance(word, Work):
                self._work.put(word)
            elif (box := self._asked.pop(word.number, None)) is not None:
                box.put(word)
        self._work.put(None)

    def _tell_progress(self) -> None:
        _leave_signals_to_the_task()
        while self._has_progress.wait():
            self._has_progress.clear()
            self._say_latest()
            time.sleep(_PROGRESS_EVERY_S)

    def _say_latest(self) -> None:
        """Send the last progress of the attempt, if the parent has not received it."""
        with self._telling:
            word, self._latest = self._latest, None
            if word is not None:
                self._say(word)

    # One attempt.

    def _run(self, source: TaskSource, assignment: Assignment) -> Outcome:
        definition = find_task(source.functions, assignment.name, assignment.queue)
        if definition is None:
            return unknown_task(source, assignment.name)
        if not assignment.attempt:
            from jackalope.worker.fanout.helper_session import HelpDefinition  # noqa: PLC0415  rarely needed

            definition = HelpDefinition(definition, source.functions)
        attempt = Attempt(assignment, definition, self, self._surroundings)
        memory_bytes_max = definition.memory_bytes_max or self._memory_bytes_max
        try:
            try:
                self._attempt = attempt
                signal.setitimer(signal.ITIMER_REAL, definition.soft_timeout_us / SECOND)
                limit_memory(memory_bytes_max)
                return copy_context().run(self._call, attempt)
            finally:
                self._attempt = None
                signal.setitimer(signal.ITIMER_REAL, 0)
                limit_memory(0)
        except MemoryError as error:
            return out_of_memory(error, memory_bytes_max)
        except BaseException as error:  # noqa: BLE001  a signal that came while all this was set up
            return attempt.raised(error)

    def _call(self, attempt: Attempt) -> Outcome:
        running.set(TaskContext(attempt, self._log.begin))
        try:
            value = attempt.call()
            if attempt.definition.is_async:
                value = run_coroutine(value, self._catch_signals, self._tell)
        except MemoryError:
            raise
        except BaseException as error:  # noqa: BLE001  whatever it is, it is this attempt's
            return attempt.raised(error)
        return attempt.succeeded(value)

    def _catch_signals(self, catch: Callable[[int], None] | None) -> None:
        """Hand signals to a coroutine's loop, which must not be torn by an exception."""
        self._on_signal = catch

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        if number == signal.SIGTERM:
            attempt.cause = attempt.cause or Cause.KILL
        if self._on_signal is not None:
            self._on_signal(number)
        elif number == signal.SIGTERM:
            self._tell()
            raise Cancelled(attempt.why())
        else:
            raise SoftTimeout("the soft time-out is over")

    def _tell(self) -> None:
        """Notify the parent that the task knows it must stop.

        Here a signal may have interrupted anything, the sending of a message included: so a thread
        that waits for this byte sends it.
        """
        self._rings += 1
        os.write(self._bell, b"!")

    def _answer_bell(self, bell: int, answered: int) -> None:
        _leave_signals_to_the_task()
        while os.read(bell, 1):
            self._say(Told())
            os.write(answered, b"!")

    def _end_rings(self) -> None:
        """Wait until the parent was notified, so that it receives the end after that."""
        while self._rings:
            self._rings -= len(os.read(self._answered, 1))

    # The channel.

    def _say(self, word: Word) -> None:
        try:
            with self._speaking:
                self._parent.sendall(packet(word))
        except OSError:
            os._exit(1)  # The parent is gone: no process would read this.

    def _next(self) -> Assignment | None:
        if self._has_asked:
            self._start_reader()  # The task may have ended before its question was sent.
            word: Given | None = self._work.get()
        else:
            word = self._word()
        return word.assignment if isinstance(word, Work) else None

    def _word(self) -> Given | None:
        packet = self._packet()
        return decode_given(packet) if packet else None

    def _packet(self) -> bytes:
        head = self._receive(LENGTH.size)
        return self._receive(*LENGTH.unpack(head)) if head else b""

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._parent.recv(size - len(data))
            if not part:
                return b""
            data += part
        return bytes(data)


def _leave_signals_to_the_task() -> None:
    """Take no signal in this thread: they are for the task, whose stack is to be shown."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def settle(answer: Future[Any], word: StepAnswered) -> None:
    """Pass the answer on to the code that waits for it, if it does."""
    if not answer.set_running_or_notify_cancel():
        return
    if word.is_over:
        answer.set_exception(Cancelled("the task no longer belongs to this worker"))
    elif word.code:
        answer.set_exception(Rejected(word.code, word.refusal, word.retry_after_us))
    elif word.refusal:
        answer.set_exception(StepRefused(word.refusal))
    else:
        answer.set_result(word.body)


def limit_memory(bytes_max: int) -> None:
    """Let this process have so much private memory and no more; 0 lifts the limit."""
    soft = bytes_max or resource.RLIM_INFINITY
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard) if bytes_max else hard
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def out_of_memory(error: MemoryError, bytes_max: int) -> Outcome:
    """Describe a task that wanted more memory than there was for it."""
    if not bytes_max:
        return Failed(error_of(error))
    message = f"the task wanted more than its {bytes_max} bytes of memory"
    return Failed(Error(OUT_OF_MEMORY, message, error_of(error).trace))


def main(arguments: list[str]) -> NoReturn:
    """Run the process: application, channel, stack file, parent, memory, look of the log, lines."""
    application, channel, stack, parent, memory, look, lines = arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # So that a crash loses no line.
    die_with_parent(int(parent))
    faulthandler.enable(file=int(stack), all_threads=False)
    faulthandler.register(signal.SIGUSR2, file=int(stack), all_threads=False)
    pipe = PipeSink(int(lines)) if int(lines) >= 0 else None
    if pipe is not None:
        install_in_child(pipe)
    child = Child(socket.socket(fileno=int(channel)), int(memory), InheritedLog(look, pipe), pipe)
    code = child.serve(application)
    # Threads that a task has left behind must not keep the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# The log of a process for isolated tasks: it looks like the worker's.


class InheritedLog(logging.Handler):
    """Stands where the standard library's logging writes to, until there is something to write."""

    def __init__(self, look: str, pipe: PipeSink | None = None) -> None:
        """Take how the worker's log looks: its level and form; empty for as it happens to be."""
        super().__init__()
        self._look = look
        self._pipe = pipe

    def prepare(self) -> None:
        """Catch what is logged through the standard library from now on."""
        if self._look:
            logging.getLogger().handlers = [self]
            # Whatever the look, libraries say nothing of use below this.
            logging.getLogger().setLevel(logging.INFO)
            logging.captureWarnings(capture=True)

    def begin_if_wanted(self) -> None:
        """Begin if the application is about to log by itself, and has not chosen its own way."""
        structlog = sys.modules.get("structlog")
        if structlog is not None and not structlog.is_configured():
            self.begin()

    def begin(self) -> None:
        """Set the log up, unless that is done."""
        if self._look:
            look, self._look = self._look.split(), ""
            from jackalope.log_setup import set_up  # noqa: PLC0415  slow, and mostly not needed

            stream = None  # The records are kept: what is made of them is only to be shown.
            if self._pipe is not None:
                stream = cast("TextIO", ShownStream(self._pipe, sys.stderr, LogStream.STDERR))
            set_up(*look, stream=stream, about=name_task, is_patient=False)

    def emit(self, record: logging.LogRecord) -> None:
        """Begin, and pass the line on."""
        self.begin()
        root = logging.getLogger()
        if record.levelno >= root.level:
            for handler in root.handlers:
                handler.handle(record)


if __name__ == "__main__":
    main(sys.argv[1:])

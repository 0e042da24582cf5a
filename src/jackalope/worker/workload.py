"""The workload: every attempt that this worker holds, from assignment to acknowledged end.

Owns how many run at once, how one is stopped, and what is reported about each. Belongs to the loop
of the connection; knows neither sockets nor how functions are run.

Theory of operation: an attempt is in the table from the moment it is assigned until the broker has
acknowledged its end: exactly this is what the worker names as held when it joins again. It waits,
runs, or has ended and its report is on the way. One that the broker disowns leaves the table at
once; if it still runs it becomes a ghost: asked to stop, never reported, but counted against the
room for others until it is really gone.

An attempt that only waits for other tasks rests: it runs, but its slot is free for others, so that
a parent cannot keep its children from running. It goes on as soon as it can, even if that makes one
too many run for a while.

An attempt that must stop is asked ever less gently, each time after `stop_s`: at level 0 it can
clean up, at level 1 it is made to, at level 2 the executor returns whether it can be stopped at
all, and if not, that is the answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog

from jackalope.core.commands import (
    Answer,
    AnswerSignal,
    Fail,
    Finish,
    Held,
    RecordStep,
    Suspend,
    Verdict,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment, SignalAsked
from jackalope.core.task import BlobRef, Error
from jackalope.errors import JackalopeError
from jackalope.tasks.definition import TaskDefinition, TaskSource, find_task
from jackalope.tasks.serialization import error_of
from jackalope.wire.frames import FRAME_BYTES_MAX, UPLOAD_BYTES_MAX
from jackalope.worker.attempt import (
    Attempt,
    Cause,
    Failed,
    Finished,
    Left,
    Listener,
    Outcome,
    Stopped,
    Surroundings,
    unknown_task,
)
from jackalope.worker.executors.child_process import TIMEOUT
from jackalope.worker.logs.lines import AttemptLines
from jackalope.worker.outcome_log import OutcomeLog
from jackalope.worker.reports import Reports, unreportable

log = structlog.get_logger(component="worker")

#: What a frame needs beside one large result.
_FRAME_OVERHEAD_BYTES = 4096

#: Of how many attempts that rest the slots are given to others. Each still has memory, and perhaps
#: a thread or a process.
RESTING_MAX = 1_000


class Executor(Protocol):
    """Runs attempts of one kind."""

    begins_at_once: bool  # user code runs soon after `run`. Otherwise the executor calls `began`.

    def run(self, attempts: list[Attempt]) -> None:
        """Begin attempts. The listener of each is called when it has ended, however it ended."""

    def stop(self, attempt: Attempt, level: int) -> str:
        """Ask an attempt to stop, more forcefully at each level; return why it cannot stop."""

    def time_out_softly(self, attempt: Attempt) -> None:
        """Raise `SoftTimeout` in an attempt, if its kind cannot do that by itself."""


class Workload:
    """What this worker holds."""

    def __init__(
        self,
        source: TaskSource,
        executors: Mapping[str, Executor],
        *,
        concurrency: int,
        prefetch: int = 0,
        tasks_max: int = 0,
        stop_s: float = 5.0,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._source = source
        self._executors = executors
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._left = tasks_max or -1  # Counts down to 0, where it is enough; below it never is.
        self._stop_s = stop_s
        self._surroundings = surroundings
        self._loop = asyncio.get_running_loop()
        self._log = OutcomeLog(self._loop)
        self._mailbox = Mailbox(
            self._loop,
            self._on_ended,
            self._on_began,
            self._on_told,
            self._on_progressed,
            on_rested=self._on_rested,
            on_asked=self._on_asked,
            on_printed=self._on_printed,
        )
        self._attempts: dict[int, Attempt] = {}
        self._fetches: dict[Attempt, asyncio.Task[None]] = {}
        self._waiting: deque[Attempt] = deque()
        self._running = 0
        self._ghosts = 0
        self._resting = 0
        self._is_closed = False
        self.reports = Reports(self)  # the way to the broker
        self.emptied = asyncio.Event()  # set while nothing is held
        self.emptied.set()
        self._result_bytes_max = FRAME_BYTES_MAX - _FRAME_OVERHEAD_BYTES
        # called when the broker does not know this worker any more
        self.on_forgotten: Callable[[], None] = _nothing
        # called when the worker has room for more or fewer attempts than before
        self.on_slots_changed: Callable[[], None] = _nothing
        # called when something is held after nothing was, or the other way round
        self.on_holding: Callable[[bool], None] = _nothing
        # called when attempts are about to run
        self.on_begin: Callable[[], None] = _nothing
        # called when the last attempt of those that it may run begins
        self.on_enough: Callable[[], None] = _nothing
        self.finished = 0  # how many attempts have ended well
        self.failed = 0  # how many have failed
        self.lent = 0  # how many slots are taken by helping others. The broker counts them itself.

    # What the worker reports about itself.

    @property
    def slots(self) -> int:
        """How many attempts the worker is to hold."""
        if self._is_closed:
            return 0
        room = self._room - self._ghosts
        slots = room + self._prefetch if room > 0 else 0
        return min(slots, self._running + self._left) if self._left > 0 else slots

    @property
    def running(self) -> int:
        """How many attempts run, those that rest included."""
        return self._running

    @property
    def _room(self) -> int:
        """How many attempts may run at once."""
        return self._concurrency + min(self._resting, RESTING_MAX)

    @property
    def waiting(self) -> int:
        """How many attempts wait for room."""
        return len(self._waiting)

    @property
    def holding(self) -> list[Held]:
        """Every attempt whose end the broker has not acknowledged."""
        return [attempt.held for attempt in self._attempts.values()]

    @property
    def attempts(self) -> list[Attempt]:
        """The same, as they are here."""
        return list(self._attempts.values())

    def definition_of(self, assignment: Assignment) -> TaskDefinition | None:
        """Return what to run, if it is known here."""
        return find_task(self._source.functions, assignment.name, assignment.queue)

    # Messages of the broker.

    def assign(self, assignments: list[Assignment]) -> None:
        """Take attempts, and begin as many as there is room for."""
        if self.emptied.is_set():
            self.emptied.clear()
            self.on_holding(True)
        for assignment in assignments:
            if assignment.fence in self._attempts:
                continue  # Said twice.
            definition = self.definition_of(assignment)
            attempt = Attempt(assignment, definition or _NOBODY, self._mailbox, self._surroundings)
            self._attempts[assignment.fence] = attempt
            if self._is_closed:
                self._report(attempt, attempt.held)
            elif definition is None:
                self._report(attempt, self._report_of(attempt, self._unknown(assignment.name)))
            else:
                self._waiting.append(attempt)
        self.begin()
        self.reports.flush()

    def signal(self, ask: SignalAsked) -> None:
        """Take the broker's signal that an attempt must pause, be killed or has timed out."""
        attempt = self._attempts.get(ask.fence)
        if attempt is None or attempt.report is not None:
            return  # It has ended, and that is reported to the broker.
        attempt.is_signalled = True
        if attempt.refusal:
            self.reports.answer(attempt, Answer.REFUSED, attempt.refusal)
        else:
            word = Answer.ACKNOWLEDGED if attempt.is_acknowledged else Answer.DELIVERED
            self.reports.answer(attempt, word)
        self._stop(attempt, Cause(ask.signal.value))
        self.reports.flush()

    def limit_results(self, frame_bytes_max: int, *, has_parts: bool = False) -> None:
        """Take what fits into a frame of the broker, and whether it takes more in parts."""
        self._result_bytes_max = frame_bytes_max - _FRAME_OVERHEAD_BYTES
        if has_parts:
            self._result_bytes_max = UPLOAD_BYTES_MAX

    def drop(self, held: Iterable[Held]) -> None:
        """Abandon attempts that are no longer this worker's."""
        found = [self._attempts[name.fence] for name in held if name.fence in self._attempts]
        self.disowned(found)

    # Outcomes of reports.

    def settled(self, attempts: Iterable[Attempt]) -> None:
        """Forget attempts about which nothing more needs to be reported."""
        table = self._attempts
        for attempt in attempts:
            if table.pop(attempt.assignment.fence, None) is not None and attempt.is_running:
                self._ghosts += 1
            elif attempt.files:
                attempt.remove_files()
        if not table and not self.emptied.is_set():
            self.emptied.set()
            self.on_holding(False)

    def disowned(self, attempts: Iterable[Attempt]) -> None:
        """Abandon attempts, and stop those that run."""
        gone = list(attempts)
        for attempt in gone:
            if attempt.assignment.fence not in self._attempts:
                continue
            log.warning("no longer ours", task_id=attempt.shown)
            self.reports.forget_asked(attempt)
            if attempt.is_running:
                self._stop(attempt, Cause.DROP)
            elif attempt.report is None:
                self._waiting.remove(attempt)
        self.settled(gone)
        if self._ghosts:
            self.on_slots_changed()

    def forgotten(self) -> None:
        """Pass on that the worker must join again."""
        self.on_forgotten()

    # Stopping as a whole.

    def close(self) -> None:
        """Want nothing more, and begin nothing more."""
        self._is_closed = True

    def hand_back_waiting(self) -> None:
        """Hand back what has not begun. Report zero slots first, or it comes back."""
        while self._waiting:
            attempt = self._waiting.popleft()
            self._report(attempt, attempt.held)
        self.reports.flush()

    def hand_back_running(self, stop_s: float) -> None:
        """Stop everything that runs, so that it can be handed back."""
        self._stop_s = stop_s
        for attempt in self.attempts:
            if attempt.is_running:
                self._stop(attempt, Cause.DRAIN)

    def give_up(self) -> None:
        """Hand back even what cannot be stopped: it ends with this process, in a moment."""
        for attempt in self.attempts:
            if attempt.is_running and attempt.report is None:
                self._report(attempt, attempt.held)
        self.reports.flush()

    # Running.

    def begin(self) -> None:
        """Begin as many attempts as there is room for."""
        batch: list[Attempt] = []
        room = self._room - self.lent
        while self._waiting and self._running < room and self._left and not self._is_closed:
            attempt = self._waiting.popleft()
            self._left -= 1
            attempt.is_running = True
            self._running += 1
            batch.append(attempt)
        if batch:
            if not self._left:
                self.on_enough()
            # A task that kills its worker at once must be known to have begun, or it would be given
            # out for ever. So user code runs when the system has the report; only where the broker
            # does not take it, because it does not read, it runs a round of the loop later.
            if self._on_began([a for a in batch if self._executor_of(a).begins_at_once]):
                self._hand_over(batch)
            else:
                self._loop.call_soon(self._hand_over, batch)

    def _on_began(self, attempts: list[Attempt]) -> bool:
        now_s = self._loop.time()
        for attempt in attempts:
            attempt.has_begun = True
            attempt.began_s = now_s
            definition = attempt.definition
            timeout_us = attempt.assignment.timeout_us
            if timeout_us:
                self._later(timeout_us / SECOND, attempt, self._time_out)
            if definition.soft_timeout_us:
                time_out_softly = self._executor_of(attempt).time_out_softly
                self._later(definition.soft_timeout_us / SECOND, attempt, time_out_softly)
        return self.reports.start(attempts)

    def _hand_over(self, batch: list[Attempt]) -> None:
        self.on_begin()
        by_kind: dict[str, list[Attempt]] = {}
        for attempt in batch:
            if not attempt.files and _is_elsewhere(attempt.assignment):
                self._fetches[attempt] = self._loop.create_task(self._fetch(attempt))
                continue
            by_kind.setdefault(attempt.definition.isolation, []).append(attempt)
        for kind, attempts in by_kind.items():
            self._executors[kind].run(attempts)

    async def _fetch(self, attempt: Attempt) -> None:
        """Fetch a payload that came in no frame into a file, and then run the attempt."""
        try:
            given = await self._fetched(attempt)
        except (JackalopeError, OSError) as error:
            self._mailbox.ended(attempt, Failed(error_of(error)))
        except asyncio.CancelledError:
            self._mailbox.ended(attempt, Stopped("its payload was being fetched"))
        else:
            attempt.assignment = given
            self._hand_over([attempt])
        finally:
            self._fetches.pop(attempt, None)

    async def _fetched(self, attempt: Attempt) -> Assignment:
        """Return an assignment whose bodies are all here, or in files."""
        given = attempt.assignment
        if type(given.payload) is not bytes:
            payload = await self.reports.fetch(attempt)
            given = msgspec.structs.replace(given, payload=payload)
        if not given.inputs:
            return given
        inputs = [
            each
            if type(each.result) is bytes
            else msgspec.structs.replace(each, result=await self.reports.fetch(attempt, each.node))
            for each in given.inputs
        ]
        return msgspec.structs.replace(given, inputs=tuple(inputs))

    def _executor_of(self, attempt: Attempt) -> Executor:
        return self._executors[attempt.definition.isolation]

    def _on_ended(self, ended: list[Ended]) -> None:
        for attempt, outcome in ended:
            attempt.is_running = False
            self._running -= 1
            if attempt.rests:
                attempt.rests = 0
                self._stop_resting()
            if attempt.timers:
                for timer in attempt.timers:
                    timer.cancel()
                attempt.timers.clear()
            if attempt.assignment.fence not in self._attempts:
                attempt.remove_files()
                self._bury()
            elif type(outcome) is Left:
                self.settled((attempt,))  # The broker ended it.
            elif attempt.report is None:
                self._report(attempt, self._safe_report_of(attempt, outcome))
        self.begin()
        self.reports.flush()

    def _bury(self) -> None:
        """Note that a ghost is gone."""
        self._ghosts -= 1
        self.on_slots_changed()

    def _on_told(self, attempt: Attempt) -> None:
        if attempt.is_signalled and attempt.report is None:
            self.reports.answer(attempt, Answer.ACKNOWLEDGED)

    def _on_progressed(self, progress: dict[Attempt, tuple[float | None, str]]) -> None:
        for attempt, (percent, note) in progress.items():
            if attempt.is_running and attempt.assignment.fence in self._attempts:
                self.reports.progress(attempt, percent, note)

    def _on_rested(self, attempt: Attempt, is_resting: bool) -> None:
        if not attempt.is_running:
            return  # Its end was quicker than this word of something that it left behind.
        rested = attempt.rests > 0
        attempt.rests += 1 if is_resting else -1
        if attempt.rests > 0 and not rested:
            self._resting += 1
            self.on_slots_changed()
            self.begin()
        elif rested and attempt.rests <= 0:
            self._stop_resting()

    def _on_asked(
        self, attempt: Attempt, message: RecordStep | Suspend, answer: Future[Any]
    ) -> None:
        self.reports.ask(attempt, message, answer)
        self.reports.flush()
        if attempt.assignment.fence not in self._attempts:
            self.reports.forget_asked(attempt)

    def _on_printed(self, attempt: Attempt) -> None:
        if attempt.assignment.fence in self._attempts:
            self.reports.printed(attempt)

    def _stop_resting(self) -> None:
        self._resting -= 1
        self.on_slots_changed()

    # Stopping one.

    def _time_out(self, attempt: Attempt) -> None:
        self._stop(attempt, Cause.TIMEOUT)

    def _stop(self, attempt: Attempt, cause: Cause) -> None:
        if not attempt.is_running:
            self._waiting.remove(attempt)
            attempt.cause = cause
            self._report(attempt, self._stopped(attempt, "it had not begun"))
        elif attempt.cause is None:
            attempt.cause = cause
            self._press(attempt, 0)
        elif cause.weight > attempt.cause.weight:
            attempt.cause = cause

    def _press(self, attempt: Attempt, level: int) -> None:
        """Ask an attempt to stop, and again later, until it has stopped or cannot be."""
        if attempt in self._fetches:
            self._fetches[attempt].cancel()
            return
        refusal = self._executor_of(attempt).stop(attempt, level)
        if not refusal:
            self._later(self._stop_s, attempt, lambda a: self._press(a, level + 1))
            return
        attempt.refusal = refusal
        log.warning("cannot be stopped", task_id=attempt.shown, why=refusal)
        if attempt.is_signalled:
            self.reports.answer(attempt, Answer.REFUSED, refusal)

    def _later(self, after_s: float, attempt: Attempt, act: Callable[[Attempt], None]) -> None:
        attempt.timers.append(self._loop.call_later(after_s, act, attempt))

    # Reporting.

    def _report(self, attempt: Attempt, report: Finish | Fail | Held | AnswerSignal) -> None:
        attempt.report = report
        self.reports.end(attempt)

    def _safe_report_of(
        self, attempt: Attempt, outcome: Outcome
    ) -> Finish | Fail | Held | AnswerSignal:
        """Put an outcome into the broker's words; what goes wrong here is this attempt's alone."""
        try:
            return self._report_of(attempt, outcome)
        except Exception as error:  # noqa: BLE001  the others that ended with it must be reported
            return unreportable(attempt, f"{type(error).__name__}: {error}")

    def _report_of(self, attempt: Attempt, outcome: Outcome) -> Finish | Fail | Held | AnswerSignal:
        """Put an outcome into the broker's words."""
        task, fence = attempt.assignment.task, attempt.assignment.fence
        if type(outcome) is Finished and outcome.file:
            if outcome.is_temporary:
                attempt.files.append(outcome.file)
            size = Path(outcome.file).stat().st_size
            if size <= self._result_bytes_max:
                self._succeed(attempt)
                return Finish(task, fence, BlobRef(outcome.file, size))
            outcome = self._too_large(size)
        if type(outcome) is Finished:
            if len(outcome.result) <= self._result_bytes_max:
                self._succeed(attempt)
                return Finish(task, fence, outcome.result)
            outcome = self._too_large(len(outcome.result))
        if type(outcome) is Failed:
            if outcome.verdict is not Verdict.THROTTLED:
                self.failed += 1
                self._log.failed(attempt, outcome.error)
            told = (outcome.verdict, outcome.retry_after_us, outcome.crashed, outcome.key)
            return Fail(task, fence, outcome.error, *told)
        return self._stopped(attempt, outcome.detail, outcome.trace)  # type: ignore[union-attr]

    def _stopped(
        self, attempt: Attempt, detail: str, trace: str = ""
    ) -> Fail | Held | AnswerSignal:
        held = attempt.held
        if attempt.cause is Cause.TIMEOUT:
            seconds = attempt.assignment.timeout_us / SECOND
            message = f"it exceeded its time limit of {seconds:g} s" + (
                f": {detail}" if detail else ""
            )
            self.failed += 1
            return Fail(held.task, held.fence, Error(TIMEOUT, message, trace))
        if attempt.cause in (Cause.KILL, Cause.PAUSE):
            return AnswerSignal(0, held.task, held.fence, Answer.STOPPED, detail)
        return held

    def _succeed(self, attempt: Attempt) -> None:
        self.finished += 1
        self._log.succeeded(attempt)

    def _unknown(self, name: str) -> Failed:
        return unknown_task(self._source, name)

    def _too_large(self, size: int) -> Failed:
        message = (
            f"the result has {size} bytes, and the broker accepts {self._result_bytes_max}; "
            "store large data elsewhere and return a reference"
        )
        return Failed(Error("TooLarge", message), Verdict.DEAD)


def _is_elsewhere(given: Assignment) -> bool:
    """Return whether a body of an assignment came in no frame."""
    if type(given.payload) is not bytes:
        return True
    return bool(given.inputs) and any(type(each.result) is not bytes for each in given.inputs)


def _nothing(*_: object) -> None:
    pass


#: Stands for the function of a task that this worker does not know.
_NOBODY = TaskDefinition(_nothing, name="unknown")


# The mailbox: what executors have to say, brought to the thread of the connection.

Ended = tuple[Attempt, Outcome]


class Mailbox(Listener):
    """Takes words from any thread, and hands them over on one loop.

    Attributes:
        on_ended: called on the loop with every attempt that has ended since the last call.
        on_began: called on the loop with an attempt whose code is about to run.
        on_acknowledged: called on the loop with an attempt that knows it must stop.
        on_progressed: called on the loop with the latest word of each attempt.
        on_rested: called on the loop with an attempt that begins to wait, or goes on.
        on_asked: called on the loop with what an attempt asks of the broker.
        on_printed: called on the loop with an attempt that has printed or logged something.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_ended: Callable[[list[Ended]], None],
        on_began: Callable[[list[Attempt]], object],
        on_acknowledged: Callable[[Attempt], None],
        on_progressed: Callable[[dict[Attempt, tuple[float | None, str]]], None],
        *,
        on_rested: Callable[[Attempt, bool], None],
        on_asked: Callable[[Attempt, RecordStep | Suspend, Future[Any]], None],
        on_printed: Callable[[Attempt], None],
    ) -> None:
        self._loop = loop
        self._on_printed = on_printed
        self._on_ended = on_ended
        self._on_began = on_began
        self._on_acknowledged = on_acknowledged
        self._on_progressed = on_progressed
        self._on_rested = on_rested
        self._on_asked = on_asked
        self._ended: deque[Ended] = deque()
        self._acknowledged: deque[Attempt] = deque()
        self._rested: deque[tuple[Attempt, bool]] = deque()
        self._asked: deque[tuple[Attempt, RecordStep | Suspend, Future[Any]]] = deque()
        self._progress: dict[Attempt, tuple[float | None, str]] = {}
        self._progress_lock = threading.Lock()
        self._is_telling = False
        self._is_woken = False

    def began(self, attempt: Attempt) -> None:
        """Take the word that user code is about to run. From the loop's own thread."""
        self._on_began([attempt])

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        self._ended.append((attempt, outcome))
        self._wake()

    def acknowledged(self, attempt: Attempt) -> None:
        """Note that an attempt knows that it must stop."""
        self._acknowledged.append(attempt)
        self._wake()

    def rested(self, attempt: Attempt, *, is_resting: bool) -> None:
        """Take the word that an attempt only waits, or no more."""
        self._rested.append((attempt, is_resting))
        self._wake()

    def asked(self, attempt: Attempt, message: RecordStep | Suspend, answer: Future[Any]) -> None:
        self._asked.append((attempt, message, answer))
        self._wake()

    def sink_of(self, attempt: Attempt) -> AttemptLines:
        return AttemptLines(lambda: self._call(lambda: self._on_printed(attempt)))

    def progressed(self, attempt: Attempt, percent: float | None, note: str) -> None:
        """Take how far an attempt has come; a later word replaces an earlier one."""
        with self._progress_lock:
            is_first = not self._is_telling
            self._is_telling = True
            self._progress[attempt] = (percent, note)
        if is_first:
            self._call(self._progress_later)

    def _wake(self) -> None:
        # A producer puts its item in before it looks at the flag, and the loop takes the flag
        # down before it looks inside: at worst the loop is woken for nothing, never left asleep.
        if not self._is_woken:
            self._is_woken = True
            self._call(self._empty)

    def _call(self, callback: Callable[[], None]) -> None:
        # A closed loop means that the worker has left: nothing waits for this any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _empty(self) -> None:
        self._is_woken = False
        while self._acknowledged:
            self._on_acknowledged(self._acknowledged.popleft())
        while self._rested:
            self._on_rested(*self._rested.popleft())
        while self._asked:
            self._on_asked(*self._asked.popleft())
        ended: list[Ended] = []
        while self._ended:
            ended.append(self._ended.popleft())
        if ended:
            if self._progress:
                self._tell_last_progress(ended)
            self._on_ended(ended)

    def _progress_later(self) -> None:
        self._loop.call_later(_PROGRESS_EVERY_S, self._tell_progress)

    def _tell_last_progress(self, ended: list[Ended]) -> None:
        """Report the last progress of attempts before their ends, which would overtake it."""
        with self._progress_lock:
            last = {
                attempt: self._progress.pop(attempt)
                for attempt, _ in ended
                if attempt in self._progress
            }
        if last:
            self._on_progressed(last)

    def _tell_progress(self) -> None:
        with self._progress_lock:
            progress, self._progress = self._progress, {}
            self._is_telling = False
        self._on_progressed(progress)


#: A task may report its progress in every turn of a tight loop; the broker is sent it this often.
_PROGRESS_EVERY_S = 0.05

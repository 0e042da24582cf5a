"""Reports: what the worker sends the broker about its attempts.

Owns what is on its way and not yet acknowledged. How an attempt ended stays with the attempt until
the broker has accepted it or refused it for good, over however many connections that takes. Ends
are sent in batches: those of one tick of the loop in one frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import aclosing
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, Protocol, cast

import msgspec
import structlog

from jackalope.core.commands import (
    Answer,
    AnswerSignal,
    Fail,
    Finish,
    Held,
    JoinWorker,
    LeaveWorker,
    RecordStep,
    ReportProgress,
    StartAttempts,
    Suspend,
    Verdict,
)
from jackalope.core.limits import ITEMS_PER_COMMAND_MAX
from jackalope.core.refusals import Code
from jackalope.core.task import BlobRef, Error
from jackalope.errors import ConfigError, ConnectionLost, JackalopeError, Rejected, refusals
from jackalope.tasks.serialization import chunks_of, encodable
from jackalope.transport.connection import STREAMED_BYTES, Connection, fetch_parts, send_parts
from jackalope.wire.messages import Logs, Result
from jackalope.worker.attempt import SPOOL_PREFIX, Attempt
from jackalope.worker.context import Cancelled
from jackalope.worker.logs.lines import AttemptLines
from jackalope.worker.logs.sender import LogSender

log = structlog.get_logger(component="worker")

#: A frame of results is closed when it has reached this size.
_FRAME_BYTES = 1024 * 1024
_AGAIN_S = 1.0
#: How often a payload is fetched that a lost connection has torn.
_FETCH_TRIES = 30
#: Refusals that another try may overcome.
_PASSING = frozenset({Code.STORAGE_FAILED, Code.OVERLOADED, Code.TOO_MANY})

_encode = msgspec.msgpack.Encoder().encode

Asks = (
    StartAttempts | Result | AnswerSignal | JoinWorker | LeaveWorker | RecordStep | Suspend | Logs
)


class Line(Protocol):
    """The part of a connection that reports need."""

    @property
    def is_congested(self) -> bool:
        """Whether much waits to be sent."""

    def ask(self, message: Asks, answered: Callable[[Any, JackalopeError | None], None]) -> None:
        """Send a request, and have its answer brought."""

    def send(self, message: ReportProgress) -> None:
        """Send a message without waiting for an answer."""

    def flush(self) -> bool:
        """Write what was sent; return whether it leaves even if this process ends."""


class Owner(Protocol):
    """Who holds the attempts."""

    def settled(self, attempts: Iterable[Attempt]) -> None:
        """Forget attempts about which nothing more needs to be reported."""

    def disowned(self, attempts: Iterable[Attempt]) -> None:
        """Drop attempts that are no longer this worker's."""

    def forgotten(self) -> None:
        """Join again: the broker does not know this worker."""


class Reports:
    """Reports the outcome of attempts to the broker. Belongs to the loop of the connection."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._line: Line | None = None
        self._ends: list[Attempt] = []
        self._streaming: set[asyncio.Task[None]] = set()
        self._asked: dict[Future[Any], tuple[Attempt, RecordStep | Suspend]] = {}
        self._logs = LogSender()

    def resume(self, line: Line, attempts: Iterable[Attempt], *, keeps_logs: bool = False) -> None:
        """Report everything that is still open, now that the worker has joined."""
        self._line = line
        self._logs.resume(line, is_wanted=keeps_logs)
        held = list(attempts)
        self._ends = [attempt for attempt in held if attempt.report is not None]
        self.start([attempt for attempt in held if attempt.is_running and attempt.has_begun])
        for answer in list(self._asked):
            self._send_asked(answer)
        self.flush()

    def suspend(self) -> None:
        """Report nothing until the worker has joined again."""
        self._line = None
        self._logs.suspend()

    def start(self, attempts: list[Attempt]) -> bool:
        """Report that attempts begin, and what else is to be reported.

        Returns whether the report leaves even if the attempts end this process. Without a line,
        `resume` will send it.
        """
        line = self._line
        if line is None or not attempts:
            return True
        for begin in range(0, len(attempts), ITEMS_PER_COMMAND_MAX):
            part = attempts[begin : begin + ITEMS_PER_COMMAND_MAX]

            def answered(body: Any, error: JackalopeError | None, part: Any = part) -> None:
                self._on_started(part, body, error)

            line.ask(StartAttempts(0, [attempt.held for attempt in part]), answered)
        return self.flush()

    async def fetch(self, attempt: Attempt, node: str = "") -> BlobRef:
        """Fetch the payload of an attempt into a temporary file, and return where it is.

        With the name of a node of its flow, what that one left is meant.
        """
        with NamedTemporaryFile(prefix=SPOOL_PREFIX, delete=False) as file:
            attempt.files.append(file.name)
            for left in reversed(range(_FETCH_TRIES)):
                try:
                    await self._fetch_into(file, attempt, node)
                    break
                except ConnectionLost:
                    if not left:
                        raise
                    await asyncio.sleep(_AGAIN_S)
            return BlobRef(file.name, file.tell())

    async def _fetch_into(self, file: IO[bytes], attempt: Attempt, node: str) -> None:
        line = self._line
        if line is None:
            raise ConnectionLost("the connection was lost while a payload was fetched")
        file.seek(0)
        file.truncate()
        held = attempt.held
        parts = fetch_parts(
            cast("Connection", line), held.task, fence=held.fence, payload=True, node=node
        )
        async with aclosing(parts):
            async for part in parts:
                await asyncio.to_thread(file.write, part)

    def end(self, attempt: Attempt) -> None:
        """Put the end of an attempt, which stands in its `report`, into the next frame.

        A report that cannot be encoded would take down all others of its frame, so it is encoded on
        its own first. A result of bytes always can be.
        """
        report = attempt.report
        if attempt.sink is not None:
            self._finish_lines(attempt)
        if type(report) is not Finish or type(report.result) is not bytes:
            try:
                _encode(report)
            except Exception as error:  # noqa: BLE001  each has an error of its own
                attempt.report = unreportable(attempt, str(error))
        self._ends.append(attempt)

    def answer(self, attempt: Attempt, answer: Answer, detail: str = "") -> None:
        """Report the state of a signal. The broker asks again if this is lost."""
        if self._line is not None:
            held = attempt.held
            self._line.ask(AnswerSignal(0, held.task, held.fence, answer, detail), _whatever)

    def progress(self, attempt: Attempt, percent: float | None, note: str) -> None:
        """Report how far an attempt has come. This may be lost."""
        if self._line is not None:
            held = attempt.held
            self._line.send(ReportProgress(0, held.task, held.fence, percent, note))

    def printed(self, attempt: Attempt) -> None:
        """Send soon what an attempt has printed and logged."""
        if isinstance(attempt.sink, AttemptLines):
            self._logs.note(attempt.sink, attempt.held)

    def _finish_lines(self, attempt: Attempt) -> None:
        if isinstance(attempt.sink, AttemptLines):
            self._logs.finish(attempt.sink, attempt.held)

    def ask(self, attempt: Attempt, message: RecordStep | Suspend, answer: Future[Any]) -> None:
        """Ask about a step of an attempt; again over the next connection if this one is lost."""
        if isinstance(message, Suspend):
            self._finish_lines(attempt)
        self._asked[answer] = (attempt, message)
        self._send_asked(answer)

    def forget_asked(self, attempt: Attempt) -> None:
        """Let an attempt that is no longer this worker's wait for nothing."""
        for answer in [each for each, (whose, _) in self._asked.items() if whose is attempt]:
            del self._asked[answer]
            _settle(answer, error=Cancelled("the task no longer belongs to this worker"))

    def _send_asked(self, answer: Future[Any]) -> None:
        line = self._line
        if line is None or answer not in self._asked:
            return  # `resume` will send it, or it is of no use any more.

        def answered(body: Any, error: JackalopeError | None) -> None:
            if isinstance(error, ConnectionLost):
                return
            if isinstance(error, Rejected) and error.code == Code.UNKNOWN_SESSION:
                self._on_refused(error)
            elif isinstance(error, Rejected) and error.code in _PASSING:
                wait_s = max(error.retry_after_s, _AGAIN_S)
                asyncio.get_running_loop().call_later(wait_s, self._send_asked, answer)
            elif self._asked.pop(answer, None) is not None:
                _settle(answer, body, error)

        line.ask(self._asked[answer][1], answered)

    def flush(self) -> bool:
        """Send the ends that have gathered, and write all that was sent; see `start`."""
        if self._ends and self._line is not None:
            self._send_ends()
        return self._line is None or self._line.flush()

    def _send_ends(self) -> None:
        ends, self._ends = self._ends, []
        frame = _Frame()
        for attempt in ends:
            report = attempt.report
            if isinstance(report, AnswerSignal):
                self._send_stopped(attempt, report)
                continue
            if type(report) is Finish and is_streamed(report):
                self._send_in_parts(attempt, report)
                continue
            frame.add(attempt, report)
            if frame.size >= _FRAME_BYTES or frame.count >= ITEMS_PER_COMMAND_MAX:
                self._send(frame)
                frame = _Frame()
        if frame.count:
            self._send(frame)

    # Sending, and what comes back.

    def _send(self, frame: _Frame) -> None:
        line = self._line
        if line is None:
            return
        attempts = frame.finished + frame.failed + frame.released

        def answered(body: Any, error: JackalopeError | None) -> None:
            self._on_ended(line, attempts, body, error)

        line.ask(frame.message(), answered)

    def _send_in_parts(self, attempt: Attempt, report: Finish) -> None:
        """Send a large result before the report that names it. A lost connection begins again."""
        line = self._line
        if line is None:
            return
        task = asyncio.ensure_future(self._stream(line, attempt, report))
        self._streaming.add(task)
        task.add_done_callback(self._streaming.discard)

    async def _stream(self, line: Line, attempt: Attempt, report: Finish) -> None:
        body = report.result
        source = body if isinstance(body, bytes) else Path(body.blob)
        try:
            ref = await send_parts(cast("Connection", line), chunks_of(source))
        except JackalopeError as error:
            if isinstance(error, ConfigError):
                error = Rejected(Code.INVALID, str(error))
            self._on_ended(line, [attempt], None, error)
            return

        def answered(body: Any, error: JackalopeError | None) -> None:
            if isinstance(error, Rejected) and error.code == Code.UNKNOWN_BLOB:
                self._again(line, [attempt])
            else:
                self._on_ended(line, [attempt], body, error)

        line.ask(Result(0, [msgspec.structs.replace(report, result=ref)]), answered)

    def _send_stopped(self, attempt: Attempt, report: AnswerSignal) -> None:
        line = self._line
        if line is None:
            return

        def answered(body: Any, error: JackalopeError | None) -> None:
            if isinstance(error, Rejected) and error.code == Code.WRONG_STATE:
                # No stop is pending, so the broker decides no outcome: hand the attempt back.
                attempt.report = attempt.held
                self.end(attempt)
                self.flush()
            else:
                self._on_ended(line, [attempt], body, error)

        line.ask(report, answered)

    def _on_started(self, attempts: list[Attempt], body: Any, error: JackalopeError | None) -> None:
        if error is not None:
            self._on_refused(error)
            return
        refused = refusals(body)
        if refused:
            # One that runs already is refused too, as `wrong_state`: that is a repeated report.
            self._owner.disowned(
                attempts[index] for index, no in refused.items() if no.code == Code.STALE_FENCE
            )

    def _on_ended(
        self, line: Line, attempts: list[Attempt], body: Any, error: JackalopeError | None
    ) -> None:
        if error is None:
            if body and body.get("refused"):
                for index, no in refusals(body).items():
                    log.info("report refused", task_id=attempts[index].shown, why=str(no))
            self._owner.settled(attempts)
        elif isinstance(error, Rejected) and error.code == Code.STALE_FENCE:
            log.info("report refused", task_id=attempts[0].shown, why=str(error))
            self._owner.settled(attempts)
        elif isinstance(error, Rejected) and error.code in _PASSING:
            wait_s = max(error.retry_after_s, _AGAIN_S)
            asyncio.get_running_loop().call_later(wait_s, self._again, line, attempts)
        elif isinstance(error, Rejected) and error.code != Code.UNKNOWN_SESSION:
            self._on_bad_frame(attempts, error)
        else:
            self._on_refused(error)

    def _on_refused(self, error: JackalopeError) -> None:
        """Take a refusal of everything: joining again, here or elsewhere, reports it all again."""
        if isinstance(error, Rejected) and error.code == Code.UNKNOWN_SESSION:
            self._owner.forgotten()
        elif not isinstance(error, ConnectionLost):
            log.error("report refused", why=str(error))

    def _on_bad_frame(self, attempts: list[Attempt], error: Rejected) -> None:
        """Find the report that spoils a frame, and report at least that to the broker."""
        log.error("reports refused", count=len(attempts), why=str(error))
        if len(attempts) == 1:
            why = f"the broker refused the worker's report: {error}"
            attempts[0].report = unreportable(attempts[0], why)
        for attempt in attempts:
            self.end(attempt)
            self.flush()

    def _again(self, line: Line, attempts: list[Attempt]) -> None:
        if line is self._line:
            for attempt in attempts:
                self.end(attempt)
            self.flush()


class _Frame:
    """Ends that go out together."""

    __slots__ = ("count", "failed", "finished", "released", "size")

    def __init__(self) -> None:
        self.finished: list[Attempt] = []
        self.failed: list[Attempt] = []
        self.released: list[Attempt] = []
        self.count = 0
        self.size = 0

    def add(self, attempt: Attempt, report: Finish | Fail | Held | None) -> None:
        self.count += 1
        if type(report) is Finish:
            self.finished.append(attempt)
            self.size += len(report.result) + 32  # type: ignore[arg-type]
        elif type(report) is Fail:
            self.failed.append(attempt)
            self.size += len(report.error.message) + len(report.error.trace) + 64
        else:
            self.released.append(attempt)
            self.size += 32

    def message(self) -> Result:
        reports: Any = [[a.report for a in p] for p in (self.finished, self.failed, self.released)]
        return Result(0, *reports)


def is_streamed(report: Finish) -> bool:
    """Return whether a result goes in parts: one that is in a file, or too large for a frame."""
    result = report.result
    return type(result) is not bytes or len(result) > STREAMED_BYTES


def unreportable(attempt: Attempt, why: str) -> Fail:
    """Return the report of an attempt whose own report cannot be sent."""
    held = attempt.held
    return Fail(held.task, held.fence, Error("Unreportable", encodable(why)), Verdict.DEAD)


def _settle(answer: Future[Any], body: Any = None, error: BaseException | None = None) -> None:
    if not answer.set_running_or_notify_cancel():
        return  # Who waited has been cancelled.
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(body)


def _whatever(_: Any, __: JackalopeError | None) -> None:
    pass

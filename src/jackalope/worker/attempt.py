"""An attempt as its worker holds it, and how it can end.

Owns the shapes that the workload, the executors and the child processes share. An attempt is made
and forgotten by the thread of the connection; the thread that runs it reads it, and reports only
through its listener.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path, PurePath
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal

import msgspec

from jackalope.core.commands import Fail, Finish, Held, Verdict
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment
from jackalope.core.ids import id_text
from jackalope.core.lifecycle import State
from jackalope.core.limits import TIME_US_MAX
from jackalope.core.task import Error, OnDependency
from jackalope.errors import JackalopeError
from jackalope.tasks.context import current
from jackalope.tasks.serialization import (
    CONTENT_HEADER,
    Content,
    DecodeFailed,
    Stream,
    can_stream,
    chunks_of,
    error_of,
    plain_chunks,
)
from jackalope.transport.address import Address
from jackalope.worker.context import Cancelled

if TYPE_CHECKING:
    from jackalope.core.commands import AnswerSignal, RecordStep, Suspend
    from jackalope.core.shapes.flow import Input
    from jackalope.tasks.definition import TaskDefinition, TaskSource
    from jackalope.tasks.middleware import HookedRun
    from jackalope.worker.logs.lines import Sink

#: How the names of files begin in which bodies are kept while a task runs.
SPOOL_PREFIX = "jackalope-body-"


class Cause(StrEnum):
    """Why an attempt must stop. A later one here outweighs an earlier one."""

    DRAIN = "drain"
    PAUSE = "pause"
    TIMEOUT = "timeout"
    KILL = "kill"
    DROP = "drop"

    @property
    def weight(self) -> int:
        """How much it counts against another cause."""
        return list(Cause).index(self)


_WHY = {
    Cause.PAUSE: "the task was paused",
    Cause.KILL: "the task was killed",
    Cause.TIMEOUT: "the task exceeded its time limit",
    Cause.DRAIN: "the worker stops",
    Cause.DROP: "the task no longer belongs to this worker",
}


class Finished(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The function returned, and this is its encoded result."""

    result: bytes
    file: str = ""  # where the result is, if it is not here
    is_temporary: bool = False  # the file is to be removed when it was sent


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The function raised, its process died (`crashed`), or it could not even begin."""

    error: Error
    verdict: Verdict = Verdict.RETRY
    retry_after_us: int = 0
    crashed: bool = False
    key: str = ""  # if it was throttled: which limit, or key of a limit, is closed


class Stopped(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The function no longer runs because it was asked to stop."""

    detail: str = ""
    trace: str = ""


class Left(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The function was left at a step, where the task waits without a worker; it is told."""


Outcome = Finished | Failed | Stopped | Left


class Listener:
    """Callbacks for the outcome of attempts. Called from any thread unless stated otherwise.

    Each does nothing unless it is overridden.
    """

    def began(self, attempt: Attempt) -> None:
        """Note that user code is about to run. From the thread of the connection only."""

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """Note that an attempt runs no longer."""

    def progressed(self, attempt: Attempt, percent: float | None, note: str) -> None:
        """Note how far an attempt has come."""

    def acknowledged(self, attempt: Attempt) -> None:
        """Note that an attempt knows that it must stop."""

    def rested(self, attempt: Attempt, *, is_resting: bool) -> None:
        """Note that an attempt only waits from now on, or no more. These may be nested."""

    def sink_of(self, attempt: Attempt) -> Sink | None:  # noqa: ARG002
        """Return what keeps the output of an attempt; None if nothing does."""
        return None

    def asked(
        self,
        attempt: Attempt,  # noqa: ARG002
        message: RecordStep | Suspend,  # noqa: ARG002
        answer: Future[Any],
    ) -> None:
        """Ask the broker about a step, over however many connections that takes."""
        answer.set_exception(
            StepRefused("steps are for the task itself, not for those who help with its items")
        )


class Attempt:
    """One attempt in this worker."""

    __slots__ = (
        "assignment",
        "began_s",
        "cause",
        "definition",
        "files",
        "handle",
        "has_begun",
        "is_acknowledged",
        "is_running",
        "is_signalled",
        "listener",
        "refusal",
        "report",
        "rests",
        "sink",
        "surroundings",
        "timers",
    )

    def __init__(
        self,
        assignment: Assignment,
        definition: TaskDefinition,
        listener: Listener,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.assignment = assignment  # what the broker sent
        self.definition = definition  # the function
        self.listener = listener  # receives its outcome
        self.surroundings = surroundings  # where it runs; None where that is of no use
        self.is_running = False  # given to an executor, and not ended yet
        self.began_s = 0.0  # when that was, by the clock of the worker's loop
        self.has_begun = False  # its user code runs, or is just about to
        self.cause: Cause | None = None  # why it must stop, once it must
        self.is_signalled = False  # the broker asked for that, and waits for answers
        # how it ended, as reported to the broker until the broker acknowledges it
        self.report: Finish | Fail | Held | AnswerSignal | None = None
        self.handle: Any = None  # the executor's own
        self.timers: list[asyncio.TimerHandle] = []  # deadlines that must not outlive it
        self.files: list[str] = []  # temporary files that must not outlive it either
        self.is_acknowledged = False  # the task itself knows that it must stop
        self.refusal = ""  # why it cannot be stopped, once that is known
        self.rests = 0  # how many of its waits need no slot
        self.sink: Sink | None = None  # where its output goes, once there is some

    @property
    def shown(self) -> str:
        """The task's id as people see it."""
        return id_text(self.assignment.task)

    @property
    def held(self) -> Held:
        """The attempt's name in messages."""
        return Held(self.assignment.task, self.assignment.fence)

    def output(self) -> Sink | None:
        """Return where its output goes; None if it is not kept."""
        if self.sink is None:
            self.sink = self.listener.sink_of(self)
        return self.sink

    def call(self) -> Any:
        """Call the function; a coroutine if it is async."""
        body = self.assignment.payload
        # A body that is not here was fetched into a file before.
        payload = body if isinstance(body, bytes) else Stream(Path(body.blob))
        definition, content = self.definition, self._content()
        may_stream = definition.is_async and (content or definition.content) == "bytes"
        is_hooked = bool(definition.middleware or definition.dependencies)
        inputs = self.inputs
        if definition.traces is None and not may_stream and not is_hooked and inputs is None:
            return definition.call(payload, content)
        call: Callable[..., Any] = partial(definition.call, payload, content)
        if inputs is not None:
            call = partial(definition.call, payload, content, inputs)
        if may_stream:
            call = partial(_spooling, call)
        if is_hooked:
            call = partial(self._hooked().run, call)
        if definition.traces is None:
            return call()
        return definition.traces.run(self.assignment, call, is_async=definition.is_async)

    def _hooked(self) -> HookedRun:
        from jackalope.tasks.middleware import HookedRun  # noqa: PLC0415  most tasks have none

        definition = self.definition
        return HookedRun(
            definition.middleware,
            definition.dependencies,
            definition.overrides,
            task=current(),
            is_retried=self._is_retried,
            is_async=definition.is_async,
        )

    def _is_retried(self, error: Exception) -> bool:
        """Return whether the task is tried again after this failure, as far as is known here."""
        outcome = self.raised(error)
        may_retry = isinstance(outcome, Failed) and outcome.verdict is Verdict.RETRY
        return may_retry and (self.assignment.retries_left != 0 or isinstance(error, RetryLater))

    @property
    def inputs(self) -> tuple[Input, ...] | None:
        """What the predecessors of a task of a flow left; None if it is of none.

        Failures are for those that collect them. One that needs only some has the results alone.
        """
        given = self.assignment
        if given.options.node is None and not given.inputs:
            return None
        if given.options.on_dependency is OnDependency.RUN:
            return given.inputs
        return tuple(each for each in given.inputs if each.state is State.SUCCEEDED)

    def values_of_inputs(self) -> dict[str, Any]:
        """Return what its predecessors left, by the names of their nodes."""
        from jackalope.tasks.inputs import Inputs  # noqa: PLC0415  few tasks are of a flow

        content = self._content() or self.definition.content
        return Inputs(self.inputs or (), content).all()

    def remove_files(self) -> None:
        for file in self.files:
            with suppress(OSError):
                Path(file).unlink(missing_ok=True)
        self.files.clear()

    def why(self) -> str:
        return _WHY[self.cause] if self.cause else ""

    def acknowledge(self) -> None:
        """Note that the task itself knows that it must stop."""
        if not self.is_acknowledged:
            self.is_acknowledged = True
            self.listener.acknowledged(self)

    def succeeded(self, value: object) -> Outcome:
        try:
            if (self._content() or self.definition.content) == "bytes":
                if isinstance(value, Finished):
                    return value  # What came of an async iterator.
                if can_stream(value):
                    return _in_file(value)
            return Finished(self.definition.encode_result(value, self._content()))
        except BaseException as error:  # noqa: BLE001  a user's own type may raise anything
            if self._is_cancellation(error):
                return Stopped()
            return Failed(error_of(error), Verdict.DEAD)

    def raised(self, error: BaseException) -> Outcome:
        if isinstance(error, Suspension):
            return Left()
        if self._is_cancellation(error):
            return Stopped()
        if isinstance(error, RetryLater | Throttled):
            return _tried_again(error)
        if isinstance(error, Reject | DecodeFailed | StepRefused):
            return Failed(error_of(error), Verdict.REJECT)
        if not self.definition.may_retry(error):
            return Failed(error_of(error), Verdict.DEAD)
        return Failed(error_of(error))

    def _is_cancellation(self, error: BaseException) -> bool:
        return isinstance(error, Cancelled | asyncio.CancelledError) and self.cause is not None

    def _content(self) -> Content | Literal[""]:
        """Return how the values of the task are encoded; empty for the definition's own way."""
        headers = self.assignment.options.headers
        return headers.get(CONTENT_HEADER, "") if headers else ""


async def _spooling(call: Callable[..., Any], **made: Any) -> object:
    """Call an async function; what it returns as an async iterator is written into a file."""
    value = await call(**made)
    if not isinstance(value, AsyncIterator):
        return value
    with _spool() as file:
        async for chunk in chunks_of(value):
            file.write(chunk)
    return Finished(b"", file.name, is_temporary=True)


def _in_file(value: object) -> Finished:
    """Make an outcome of a result that is a file, or is written into one now."""
    if isinstance(value, PurePath):
        path = Path(value).absolute()
        path.stat()  # Raises now rather than when it is sent.
        return Finished(b"", str(path))
    with _spool() as file:
        for chunk in plain_chunks(value):
            file.write(chunk)
    return Finished(b"", file.name, is_temporary=True)


@contextmanager
def _spool() -> Iterator[IO[bytes]]:
    """Make a temporary file, which stays if all goes well."""
    with NamedTemporaryFile(prefix=SPOOL_PREFIX, delete=False) as file:
        try:
            yield file
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _tried_again(error: RetryLater | Throttled) -> Failed:
    """Make an outcome of an error whose delay a subclass or its caller may have replaced."""
    try:
        if isinstance(error, Throttled):
            after_us, key = int(error.retry_after_us), str(error.key)
            return Failed(error_of(error), Verdict.THROTTLED, after_us, key=key)
        return Failed(error_of(error), Verdict.RETRY, delay_us(error.after_s))
    except Exception as problem:  # noqa: BLE001  an attribute of a subclass may raise anything
        return Failed(error_of(problem))


# Verdicts: what task code may say about its own failure.


class RetryLater(Exception):
    """Try again after this time rather than after the policy's. Counts as a failure.

    Where the policy has no retries it is obeyed all the same, a limited number of times.

    Raises:
        TypeError: `after` is neither a number nor a `timedelta`.
        ValueError: `after` is not finite, or longer than any time that the broker stores.
    """

    __module__ = "jackalope"  # Where users know it from; histories show its name.

    def __init__(self, message: str = "", *, after: float | timedelta) -> None:
        # the time, in seconds
        self.after_s = after.total_seconds() if isinstance(after, timedelta) else after
        delay_us(self.after_s)
        super().__init__(message or f"requested a retry in {self.after_s:g} s")


class Throttled(Exception):
    """What the task calls wants to be left alone for a while. Counts as no failure.

    The broker starts no task with the same value of the key until then, and then this one again.
    Where no limit goes by the key, only this task waits.

    Args:
        key: the key of a limit of the task, such as "user", or the name of the limit.
        retry_after: for how long, in seconds or as a `timedelta`: the header `Retry-After`.
        until: until when, as an aware `datetime`, in place of `retry_after`.

    Raises:
        TypeError: neither or both of `retry_after` and `until` are given, or one has a wrong type.
        ValueError: the time is not finite, or `until` has no time zone.
    """

    __module__ = "jackalope"

    def __init__(
        self,
        key: str = "",
        *,
        retry_after: float | timedelta | None = None,
        until: datetime | None = None,
        message: str = "",
    ) -> None:
        if not isinstance(key, str):
            raise TypeError(f"Throttled: key must be text, not {type(key).__name__}")
        if (retry_after is None) == (until is None):
            raise TypeError("Throttled: give one of retry_after and until")
        if until is not None:
            if not isinstance(until, datetime):
                raise TypeError(f"Throttled: until must be a datetime, not {type(until).__name__}")
            if until.utcoffset() is None:
                raise ValueError("Throttled: until has no time zone; use datetime.now(UTC)")
            retry_after = until - datetime.now(UTC)
        after_s = retry_after.total_seconds() if isinstance(retry_after, timedelta) else retry_after
        self.key = key  # what is closed
        self.retry_after_us = delay_us(after_s, "Throttled: retry_after")  # for how long
        of = f" {key}" if key else ""
        super().__init__(message or f"throttled{of} for {self.retry_after_us / SECOND:g} s")


class Reject(Exception):
    """Never try this task again: it cannot succeed."""

    __module__ = "jackalope"


class StepRefused(JackalopeError):
    """A step cannot be done, however often it is tried: the code or its result does not fit."""

    __module__ = "jackalope"


class Suspension(BaseException):
    """The task waits without a worker from here on. Let it pass: the next attempt goes on.

    No `Exception`, so that an `except Exception` in task code does not swallow it.
    """

    __module__ = "jackalope"


def delay_us(after_s: object, what: str = "RetryLater: after") -> int:
    """Return a delay as a report carries it: at least one microsecond, so that it is not 0."""
    if not isinstance(after_s, int | float):
        raise TypeError(f"{what} must be seconds, not {type(after_s).__name__}")
    if not after_s <= TIME_US_MAX / SECOND:  # False for what is not a number, too.
        raise ValueError(f"{what} must be at most {TIME_US_MAX // SECOND} s")
    return max(1, int(max(0, after_s) * SECOND))


# The surroundings of a running task: what its worker knows and a fan-out needs.


class Surroundings(msgspec.Struct, frozen=True):
    """Where a task runs."""

    address: Address  # where the broker is, and who we are there
    worker: str  # the name of the worker
    application: str = ""  # where the tasks are, as `module:name`
    child_command: tuple[str, ...] = ()  # how a process for isolated tasks is started
    log: str = ""  # the look of the log that such a process inherits
    fanout_host: str = ""  # where to listen for helpers; empty for where the broker is reached from
    fanout_advertise: str = ""  # where helpers connect instead; empty for the same
    fanout_cert: str = ""  # the file of the certificate for helpers; empty for one that is made
    fanout_key: str = ""  # the file of its key
    is_isolated: bool = False  # the task has a process of its own
    secret: str = ""  # proves over a connection of its own that it is the worker's
    task_logs: str = "both"  # where the output of tasks goes; see `TaskLogs`


# The application: the object named module:name that has the tasks which a worker runs.


_NAMES_SHOWN_MAX = 20


class CannotLoad(Exception):
    """The application cannot be loaded; the message has the reason, in one line."""


def load_application(text: str) -> TaskSource:
    """Import `module:name` and return the object."""
    module_name, _, name = text.partition(":")
    if not module_name:
        raise CannotLoad(
            "isolated tasks run in another process, which must be able to import their "
            "application: put it into a module of its own"
        )
    if not name:
        raise CannotLoad(f"{text!r} is not an application; write module:name, as in shop.tasks:app")
    here = os.getcwd()  # noqa: PTH109  as it stands, links and all
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise CannotLoad(f"cannot load {text}: {_in_one_line(error)}") from error
    if not isinstance(getattr(found, "address", None), Address) or not hasattr(found, "functions"):
        raise CannotLoad(f"{text} is a {type(found).__name__}, not a Jackalope application")
    source: TaskSource = found
    return source


def unknown_task(source: TaskSource, name: str) -> Failed:
    """Describe a task whose function this worker does not have."""
    known = sorted(source.functions)
    shown = ", ".join(known[:_NAMES_SHOWN_MAX]) or "none"
    if len(known) > _NAMES_SHOWN_MAX:
        shown += f" and {len(known) - _NAMES_SHOWN_MAX} more"
    what = f"this worker has no task {name!r}" if name else "the task has no name"
    return Failed(Error("UnknownTask", f"{what}; it has {shown}"))


def _in_one_line(error: Exception) -> str:
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__

"""The steps of a running task: what its code does once, however often it is tried.

Owns the order in which the code comes to its steps, and what is known of each from earlier
attempts. Records are asked of the broker through the attempt's listener; a step that is not
recorded is done again by the next attempt.
"""

from __future__ import annotations

import inspect
from asyncio import wrap_future
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar

from jackalope.core.commands import RecordStep, Suspend
from jackalope.core.durations import SECOND
from jackalope.core.limits import INLINE_BYTES_MAX, STEPS_PER_TASK_MAX, TIME_US_MAX
from jackalope.core.shapes.steps import Step
from jackalope.tasks.definition import Shape
from jackalope.tasks.serialization import DEFAULT_CONTENT, decode_value, encode_value
from jackalope.worker.attempt import StepRefused, Suspension

if TYPE_CHECKING:
    from jackalope.worker.attempt import Attempt

R = TypeVar("R")

Timeout = float | timedelta | None


class TaskSteps:
    """The steps of one attempt, for code that awaits."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._done: dict[int, Step] = {step.index: step for step in attempt.assignment.steps}
        self._next = 0

    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        index, done = self._come_to(name)
        if done is not None:
            return _decoded(done.result, function)
        begin_ns = monotonic_ns()
        value = function(*args, **kwargs)
        if inspect.isawaitable(value):
            value = await value
        record = self._record(index, name, value, begin_ns)
        await wrap_future(self._ask(record))
        return _decoded(record.result, function)

    async def sleep(self, after_us: int) -> None:
        index, done = self._come_to("sleep")
        if done is None and after_us > 0:
            _done_now(await wrap_future(self._ask(self._suspend(index, "sleep", after_us))))

    async def wait_for(self, event: str, within: Timeout, kind: Any) -> Any:
        name = f"wait for {event}"
        index, done = self._come_to(name)
        if done is None:
            wanted = self._suspend(index, name, _within_us(within), event)
            done = _done_now(await wrap_future(self._ask(wanted)))
        return _event_data(done, event, kind)

    # The same for code that blocks.

    def step_blocking(self, name: str, function: Callable[..., R], *args: Any, **kw: Any) -> R:
        index, done = self._come_to(name)
        if done is not None:
            found: R = _decoded(done.result, function)
            return found
        begin_ns = monotonic_ns()
        record = self._record(index, name, function(*args, **kw), begin_ns)
        self._ask(record).result()
        value: R = _decoded(record.result, function)
        return value

    def sleep_blocking(self, after_us: int) -> None:
        index, done = self._come_to("sleep")
        if done is None and after_us > 0:
            _done_now(self._ask(self._suspend(index, "sleep", after_us)).result())

    def wait_for_blocking(self, event: str, timeout: Timeout, kind: Any) -> Any:
        name = f"wait for {event}"
        index, done = self._come_to(name)
        if done is None:
            wanted = self._suspend(index, name, _within_us(timeout), event)
            done = _done_now(self._ask(wanted).result())
        return _event_data(done, event, kind)

    # What both have in common.

    def _come_to(self, name: str) -> tuple[int, Step | None]:
        """Take the next place in the order of steps, and return what is known of it."""
        index, self._next = self._next, self._next + 1
        if index >= STEPS_PER_TASK_MAX:
            raise StepRefused(f"a task has at most {STEPS_PER_TASK_MAX} steps")
        done = self._done.get(index)
        if done is not None and done.name != name:
            raise StepRefused(
                f"step {index + 1} was {done.name!r} and is now {name!r}: the code has changed "
                "since an earlier attempt; finish such tasks with the old code, or submit new ones"
            )
        return index, done

    def _record(self, index: int, name: str, value: object, begin_ns: int) -> RecordStep:
        result = encode_value(DEFAULT_CONTENT, value)
        if len(result) > INLINE_BYTES_MAX:
            raise StepRefused(
                f"the result of step {name!r} has {len(result)} bytes, at most {INLINE_BYTES_MAX} "
                "are kept; store it elsewhere and return a reference"
            )
        held, took_us = self._attempt.held, (monotonic_ns() - begin_ns) // 1_000
        return RecordStep(0, held.task, held.fence, index, name, result, took_us)

    def _suspend(self, index: int, name: str, after_us: int, event: str = "") -> Suspend:
        held = self._attempt.held
        return Suspend(0, held.task, held.fence, index, name, after_us, event)

    def _ask(self, message: RecordStep | Suspend) -> Future[Any]:
        answer: Future[Any] = Future()
        self._attempt.listener.asked(self._attempt, message, answer)
        return answer


def duration_us(seconds: float, minutes: float, hours: float, days: float) -> int:
    """Return a time to sleep, in microseconds."""
    length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return _checked(length.total_seconds())


def _within_us(timeout: Timeout) -> int:
    if timeout is None:
        return 0
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    return max(1, _checked(seconds))  # 0 would be for ever.


def _checked(seconds: float) -> int:
    if not 0 <= seconds <= TIME_US_MAX / SECOND:
        raise ValueError(f"{seconds:g} s is no time to wait; use 0 to {TIME_US_MAX // SECOND}")
    return int(seconds * SECOND)


def _done_now(answer: Any) -> Step:
    """Return how a wait ended that need not have begun; else the attempt is over."""
    if answer.get("is_suspended"):
        raise Suspension
    return Step(0, "", answer.get("result", b""), is_late=answer.get("is_late", False))


def _event_data(done: Step, event: str, kind: Any) -> Any:
    if done.is_late:
        raise TimeoutError(f"the event {event!r} did not come in time")
    return decode_value(DEFAULT_CONTENT, done.result, kind)


def _decoded(result: bytes, function: Callable[..., Any]) -> Any:
    """Return the value of a step as every attempt gets it."""
    try:
        kind = Shape(function).returns
    except (TypeError, ValueError):  # It has no signature, as some of those in C.
        kind = Any
    return decode_value(DEFAULT_CONTENT, result, kind)

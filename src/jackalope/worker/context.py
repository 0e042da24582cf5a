"""The context of a running task: what user code may know and say about its own attempt.

`jackalope.current()` returns it. It may be used from any thread that the task starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from jackalope.core.ids import id_text, successor_id
from jackalope.core.limits import HELPERS_PER_FANOUT_MAX, NOTE_CHARS_MAX
from jackalope.core.shapes.envelope import headers_shown
from jackalope.tasks.context import Spawnable, running
from jackalope.tasks.serialization import encodable
from jackalope.worker.logs.capture import take_line

if TYPE_CHECKING:
    from jackalope.core.ids import TaskId
    from jackalope.worker.attempt import Attempt
    from jackalope.worker.fanout.team import Team
    from jackalope.worker.logs.lines import Sink
    from jackalope.worker.steps import TaskSteps

P = ParamSpec("P")
H = TypeVar("H")


class Cancelled(BaseException):
    """The task was asked to stop. Raised in threads and processes; let it pass.

    No `Exception`, so that an `except Exception` in task code does not swallow it. Coroutines see
    `asyncio.CancelledError` in its place.
    """


class SoftTimeout(Exception):
    """The soft time-out of the task is over. It may still clean up and finish."""


class TaskContext:
    """One attempt, as its own code sees it. What each part means stands in `Running`."""

    __slots__ = ("_attempt", "_begin_log", "_log", "_spawned", "_steps", "fence", "id")

    def __init__(self, attempt: Attempt, begin_log: Callable[[], None] | None = None) -> None:
        self._attempt = attempt
        self._begin_log = begin_log
        self._log: Any = None
        self._spawned: dict[bytes, int] | None = None
        self._steps: TaskSteps | None = None
        self.id: TaskId = attempt.assignment.task
        self.fence: int = attempt.assignment.fence

    @property
    def attempt(self) -> int:
        return self._attempt.assignment.attempt

    @property
    def name(self) -> str:
        return self._attempt.assignment.name

    @property
    def queue(self) -> str:
        return self._attempt.assignment.queue

    @property
    def key(self) -> str:
        return self._attempt.assignment.key

    @property
    def headers(self) -> dict[str, Any]:
        given = self._attempt.assignment
        return headers_shown(given.options.headers, given.envelope)

    @property
    def inputs(self) -> dict[str, Any]:
        return self._attempt.values_of_inputs()

    @property
    def log(self) -> Any:
        if self._log is None:
            if self._begin_log is not None:
                self._begin_log()
            import structlog  # noqa: PLC0415  slow to import, and most isolated tasks log nothing

            self._log = structlog.get_logger(
                component="task",
                task_id=self._attempt.shown,
                attempt=self.attempt,
                name=self.name,
                queue=self.queue,
            )
        return self._log

    @property
    def sink(self) -> Sink | None:
        """Where its output goes; None if it is not kept."""
        return self._attempt.output()

    @property
    def is_cancelled(self) -> bool:
        attempt = self._attempt
        if attempt.cause is None:
            return False
        attempt.acknowledge()
        return True

    def raise_if_cancelled(self) -> None:
        if self.is_cancelled:
            raise Cancelled(self._attempt.why())

    def progress(self, percent: float | None = None, note: str = "") -> None:
        attempt = self._attempt
        attempt.listener.progressed(attempt, _percentage(percent), _line(note))

    async def spawn(self, task: Spawnable[P, H], *args: P.args, **kwargs: P.kwargs) -> H:
        return await task.spawn_in(self, *args, **kwargs)

    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.steps.step(name, function, *args, **kwargs)

    async def sleep(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        from jackalope.worker.steps import duration_us  # noqa: PLC0415

        await self.steps.sleep(duration_us(seconds, minutes, hours, days))

    async def wait_for(
        self,
        event: str,
        *,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109  it outlives this process
        returns: Any = Any,
    ) -> Any:
        return await self.steps.wait_for(event, timeout, returns)

    @property
    def blocking(self) -> BlockingContext:
        return BlockingContext(self.steps)

    @property
    def steps(self) -> TaskSteps:
        """The steps of the task, made when it comes to the first."""
        if self._steps is None:
            from jackalope.worker.steps import TaskSteps  # noqa: PLC0415  most tasks have none

            self._steps = TaskSteps(self._attempt)
        return self._steps

    def helpers(
        self,
        max: int = HELPERS_PER_FANOUT_MAX,  # noqa: A002  as the user reads it
        *,
        local: int = 1,
        progress: bool = True,
    ) -> Team:
        from jackalope.worker.fanout.team import Team  # noqa: PLC0415  most tasks have no items

        return Team(self, self._attempt, helpers_max=max, local=local, has_progress=progress)

    def child_id(self, content: bytes) -> TaskId:
        if self._spawned is None:
            self._spawned = {}
        number = self._spawned[content] = self._spawned.get(content, 0) + 1
        return successor_id(self.id, f"{content.hex()} {number}")

    @contextmanager
    def rest(self) -> Iterator[None]:
        attempt = self._attempt
        attempt.listener.rested(attempt, is_resting=True)
        try:
            yield
        finally:
            attempt.listener.rested(attempt, is_resting=False)


class BlockingContext:
    """What a task may do step by step, for code that blocks; see `Running.blocking`."""

    __slots__ = ("_steps",)

    def __init__(self, steps: TaskSteps) -> None:
        self._steps = steps

    def step(self, name: str, function: Callable[..., H], *args: Any, **kwargs: Any) -> H:
        return self._steps.step_blocking(name, function, *args, **kwargs)

    def sleep(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        from jackalope.worker.steps import duration_us  # noqa: PLC0415

        self._steps.sleep_blocking(duration_us(seconds, minutes, hours, days))

    def wait_for(
        self, event: str, *, timeout: float | timedelta | None = None, returns: Any = Any
    ) -> Any:
        return self._steps.wait_for_blocking(event, timeout, returns)


def _percentage(percent: object) -> float | None:
    if percent is None:
        return None
    if not isinstance(percent, int | float):
        raise TypeError(f"percent must be a number or None, not {type(percent).__name__}")
    if percent != percent:  # noqa: PLR0124  only "not a number" differs from itself
        raise ValueError("percent must be a number, not nan")
    return float(min(max(percent, 0), 100))


def _line(note: object) -> str:
    if not isinstance(note, str):
        raise TypeError(f"note must be text, not {type(note).__name__}")
    return encodable(note[:NOTE_CHARS_MAX])


def name_task(_: object, __: str, line: Any) -> Any:
    """Name the task in a line of the log that its code has written, and keep it with the task."""
    context = running.get()
    if context is not None:
        take_line(line)
        line.setdefault("task_id", id_text(context.id))
    return line

"""The running task: what user code can read and report about the attempt that it is part of.

Owns the place where the worker puts it, and what it must offer. How that works is the worker's.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, ParamSpec, Protocol, Self, TypeVar

from jackalope.core.ids import TaskId
from jackalope.core.limits import HELPERS_PER_FANOUT_MAX
from jackalope.errors import JackalopeError

P = ParamSpec("P")
R = TypeVar("R")
H_co = TypeVar("H_co", covariant=True)


class Spawnable(Protocol[P, H_co]):
    """A task that can be submitted as the child of another."""

    async def spawn_in(self, parent: Running, *args: P.args, **kwargs: P.kwargs) -> H_co:
        """Submit a child of a running task, and return its handle."""


class Blocking(Protocol):
    """Steps of a task for code that blocks; see `Running.step`, `sleep` and `wait_for`."""

    def step(self, name: str, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Call a function once for this task, and return its result in every attempt."""

    def sleep(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Wait without a worker, for a time."""

    def wait_for(
        self, event: str, *, timeout: float | timedelta | None = None, returns: Any = Any
    ) -> Any:
        """Wait without a worker for an event, and return its data."""


class Running(Protocol):
    """An attempt that is under way."""

    id: TaskId  # the task's id, 16 bytes
    # grows with every attempt at any task: hand it to external stores, so that they can refuse the
    # writes of an attempt that was given up
    fence: int

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""

    @property
    def name(self) -> str:
        """The name of the task's function."""

    @property
    def queue(self) -> str:
        """The queue that the task came from."""

    @property
    def key(self) -> str:
        """The key that the task was submitted with."""

    @property
    def headers(self) -> dict[str, Any]:
        """The submitter's own data; of a message of AMQP its headers, and `amqp` has the rest."""

    @property
    def inputs(self) -> dict[str, Any]:
        """Of a task of a flow, what its predecessors returned, by the names of their nodes.

        In place of the result of one that failed there is a `NodeError`.
        """

    @property
    def log(self) -> Any:
        """A logger that names the task in every line."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the task was asked to stop, for long loops in plain functions."""

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` if the task was asked to stop."""

    def progress(self, percent: float | None = None, note: str = "") -> None:
        """Report how far the task has come. Cheap: only the latest report is sent, now and then.

        Args:
            percent: 0 to 100; what is beyond counts as the nearest of these.
            note: one line for people.

        Raises:
            TypeError: one of them is of another type.
            ValueError: the percentage is not a number.
        """

    async def spawn(self, task: Spawnable[P, H_co], *args: P.args, **kwargs: P.kwargs) -> H_co:
        """Submit a child of this task, once, however often this task is tried.

        A later attempt that spawns the same again gets the handle of the same child, with its
        result if it has one; a child that ended badly is tried again. Killing this task kills its
        children.

        Raises:
            Rejected: the broker did not accept it; `stale_fence` if this attempt was given up.
            EncodeFailed: an argument cannot be sent.
        """

    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function once for this task, and return its result in every attempt.

            await current().step("charge", charge, order)

        The result is stored before the task goes on; a later attempt gets it without the call. A
        function that raises is called again by the next attempt, as is one whose worker is lost
        before its result is stored. A task comes to its steps in the same order in every attempt.

        Raises:
            StepRefused: the code has changed since an earlier attempt, or the result is too large.
            EncodeFailed: the result cannot be stored.
        """

    async def sleep(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Wait without a worker: the slot is free, and another attempt goes on after that time."""

    async def wait_for(
        self,
        event: str,
        *,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109  it outlives this process
        returns: Any = Any,
    ) -> Any:
        """Wait without a worker until an event is sent to this task, and return its data.

        One that was sent before is taken at once. Events of one name are taken in their order.

        Args:
            event: the name of the event.
            timeout: how long to wait, in seconds; for ever if it is None.
            returns: the type of the data.

        Raises:
            TimeoutError: the event did not come in time.
        """

    @property
    def blocking(self) -> Blocking:
        """The same three for code that does not await, as plain functions do."""

    def helpers(
        self,
        max: int = HELPERS_PER_FANOUT_MAX,  # noqa: A002  as the user reads it
        *,
        local: int = 1,
        progress: bool = True,
    ) -> Helpers:
        """Let idle workers help with the items of this task.

            async with current().helpers(max=8) as helpers:
                async for result in helpers.map(score, candidates):
                    ...

        In a plain function, `with` and `for` do the same. Helpers come as workers are free, and go
        at the end of the block.

        Args:
            max: how many helpers there may be.
            local: how many threads of this task compute as well; 0 leaves it all to helpers. For a
                function in processes, how many processes of this worker.
            progress: tell the progress of the task by its items.

        Raises:
            ConfigError: neither helpers nor the task could compute.
        """

    def child_id(self, content: bytes) -> TaskId:
        """Return the id of the next child with this content: the same in every attempt."""

    def rest(self) -> AbstractContextManager[None]:
        """Let the worker run something else while this task only waits.

        Waiting for the end of another task does this by itself.
        """


running: ContextVar[Running | None] = ContextVar("jackalope_running", default=None)


def current() -> Running:
    """Return the task that this code is part of.

    Raises:
        JackalopeError: it is part of none.
    """
    context = running.get()
    if context is None:
        raise JackalopeError(
            "no task is running here; current() is only available in code that a worker runs"
        )
    return context


@contextmanager
def resting() -> Iterator[None]:
    """Give back the slot of the task that this code is part of, if it is, while it only waits."""
    context = running.get()
    if context is None:
        yield
    else:
        with context.rest():
            yield


# The fan-out of a running task, as its code sees it: helpers, and the results that they bring.

R_co = TypeVar("R_co", covariant=True)

OnError = Literal["fail", "collect"]


class Mappable(Protocol[R_co]):
    """A task: a function that `@app.task` has given a name."""

    async def run(self, *args: Any, **kwargs: Any) -> R_co:
        """Submit a task, wait for it, and return its result."""


class Results(Protocol[R_co]):
    """Results as they come: for `async for` and for a plain `for`."""

    def __iter__(self) -> Iterator[R_co]: ...

    def __aiter__(self) -> AsyncIterator[R_co]: ...


class Helpers(Protocol):
    """Workers that help this task, for `async with` and for a plain `with`."""

    @property
    def count(self) -> int:
        """How many there are now."""

    @property
    def by_broker(self) -> str:
        """Why items go through the broker as child tasks; empty while they do not."""

    def map(
        self,
        task: Mappable[R],
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        fixed: Mapping[str, Any] | None = None,
        ordered: bool = True,
        retries: int = 0,
        on_error: OnError = "fail",
        total: int | None = None,
    ) -> Results[R]:
        """Call a task's function on each item, here and at the helpers, and yield the results.

        Items are taken as they are needed, so that there may be any number of them. One `map` runs
        at a time; the helpers stay for the next.

        Args:
            task: a task of the application, which takes an item as its first argument.
            items: what to call it on; an async iterable only with `async for`.
            fixed: further arguments by name, the same for all items, sent once to each helper.
            ordered: yield results in the order of the items, and not as they come.
            retries: how often an item that failed is tried again.
            on_error: what an item does that has failed for good: `fail` the whole, or `collect`:
                then its result is an `ItemError`.
            total: how many items there are, for the progress, where `len(items)` is not available.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

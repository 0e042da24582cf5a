"""The fan-out of a running task, as its code sees it: helpers, and the results that they bring.

Owns what they must offer. How that works is the worker's.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

R = TypeVar("R")
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
    """Workers that help this task, for `async with` and for a plain `with`.

    Attributes:
        count: how many there are now.
        by_broker: why items go through the broker as child tasks; empty while they do not.
    """

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
        """Call a task's function on each item, here and at the helpers, and yield the results."""

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

"""The team: a task and its helpers, as the task's code uses them.

Owns the way from a user's items to the ledger and from there to the user, in coroutines and in
plain functions, and the reports of progress.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Iterable,
    Iterator,
    Mapping,
    Sized,
)
from contextlib import suppress
from contextvars import copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from jackalope.core.limits import HELPERS_PER_FANOUT_MAX
from jackalope.errors import ConfigError, JackalopeError
from jackalope.tasks.context import Mappable, OnError
from jackalope.tasks.serialization import EncodeFailed, encode_value
from jackalope.wire.fanout import DATA_BYTES_MAX
from jackalope.worker.executors.run_coroutine import run_coroutine
from jackalope.worker.fanout.computation import Part, Run, Stopwatch
from jackalope.worker.fanout.ledger import Ledger
from jackalope.worker.fanout.owner import Hub

if TYPE_CHECKING:
    from jackalope.worker.attempt import Attempt
    from jackalope.worker.context import TaskContext

R = TypeVar("R")

#: How often a plain function that waits for results checks whether it must stop.
_LOOK_S = 0.25
#: How often the progress of a fan-out is reported.
_TELL_S = 0.5


class Team:
    """A task and its helpers, as `Helpers` describes them. Made by `current().helpers(...)`."""

    def __init__(
        self,
        context: TaskContext,
        attempt: Attempt,
        *,
        helpers_max: int,
        local: int,
        has_progress: bool,
    ) -> None:
        if not 0 <= helpers_max <= HELPERS_PER_FANOUT_MAX:
            raise ConfigError(f"max: 0 to {HELPERS_PER_FANOUT_MAX} helpers, not {helpers_max}")
        if local < 0:
            raise ConfigError(f"local: must not be negative, got {local}")
        if not local and (not helpers_max or attempt.surroundings is None):
            raise ConfigError("neither helpers nor this task may compute; set max or local")
        self._context = context
        self._attempt = attempt
        self._local = local
        self._has_progress = has_progress
        self._runs = 0
        self._before: tuple[object, Ledger] | None = None
        self._hub: Hub | None = None
        self._max = helpers_max
        self._results: TeamResults[Any] | None = None
        self._is_over = False

    @property
    def count(self) -> int:
        return 0 if self._hub is None else self._hub.helpers

    @property
    def by_broker(self) -> str:
        return "" if self._hub is None else self._hub.by_broker

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
    ) -> TeamResults[R]:
        if self._is_over:
            raise ConfigError("these helpers were released; use them inside their with block")
        if self._results is not None and self._results.is_running:
            raise ConfigError("another map of these helpers is not over; read its results first")
        if total is None and isinstance(items, Sized):
            total = len(items)
        ledger = Ledger(
            is_ordered=ordered,
            retries=retries,
            on_error=on_error,
            total=total,
            item_s=self._known_item_s(task),
        )
        self._before = (task, ledger)
        self._runs += 1
        run = Run(self._runs, task, dict(fixed or {}), ledger)
        self._results = TeamResults(self, run, items)
        return self._results

    def _known_item_s(self, task: object) -> float:
        """Return how long items took when the same task was mapped before."""
        task_before, ledger = self._before or (None, None)
        return ledger.item_s if ledger is not None and task_before is task else 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._hub is not None:
            self._hub.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        if self._hub is not None:
            await asyncio.to_thread(self._hub.close)

    # For the results.

    def must_be_current(self, results: TeamResults[Any]) -> None:
        """Refuse to begin with a map after another one has begun."""
        if results is not self._results:
            raise JackalopeError("another map of these helpers was called since; read that one")

    def begin(self, run: Run) -> list[LocalPeer]:
        """Start all peers on a run, and return those that compute here."""
        surroundings, definition = self._attempt.surroundings, run.definition
        must_be_apart = definition.isolation == "process" and not (
            surroundings is None or surroundings.is_isolated
        )
        peers = [] if must_be_apart else [LocalPeer(run) for _ in range(self._local)]
        is_alone = surroundings is None or not (self._max or must_be_apart)
        if surroundings is not None and not is_alone:
            if self._hub is not None and not self._hub.fits(definition):
                self._hub.close()
                self._hub = None
            if self._hub is None:
                local_helpers = self._local if must_be_apart else 0
                self._hub = Hub(self._attempt, surroundings, self._max, local_helpers)
            self._hub.begin(run)
        return peers

    def wake(self) -> None:
        if self._hub is not None:
            self._hub.wake()

    def finish(self) -> None:
        if self._hub is not None:
            self._hub.finish()

    def tell(self, ledger: Ledger, rate: float) -> None:
        if not self._has_progress:
            return
        total, done = ledger.total, ledger.done
        percent = min(100.0, 100.0 * done / total) if total else None
        of = f"{done} of {total} items" if total is not None else f"{done} items"
        way = ", through the broker" if self.by_broker else ""
        helpers = "1 helper" if self.count == 1 else f"{self.count} helpers"
        self._context.progress(percent, f"{of}, {rate:.0f}/s, {helpers}{way}")

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` if the task was asked to stop."""
        self._context.raise_if_cancelled()


class TeamResults(Generic[R]):
    """The results of one `map`. Read once."""

    def __init__(self, team: Team, run: Run, items: Iterable[Any] | AsyncIterable[Any]) -> None:
        self._team = team
        self._ledger = run.ledger
        self._run = run
        self._items = items
        self._peers: list[LocalPeer] = []
        self._is_begun = False
        self._has_news = False
        self._room = asyncio.Event()
        self._pumping: asyncio.Task[None] | None = None
        self._told = (time.monotonic(), 0)
        self._is_over = False

    @property
    def is_running(self) -> bool:
        """Return whether a consumer reads, and more may come."""
        return self._is_begun and not self._is_over

    def __iter__(self) -> Iterator[R]:
        if isinstance(self._items, AsyncIterable):
            raise ConfigError("async items need `async for`")
        items, news, ledger = iter(self._items), threading.Event(), self._ledger
        self._begin(news.set)
        try:
            while True:
                yield from self._ready(items)
                if ledger.is_over:
                    return
                if not news.wait(_LOOK_S):
                    self._team.raise_if_cancelled()
                news.clear()
                self._tell()
        finally:
            self._end()

    def __aiter__(self) -> AsyncIterator[R]:
        reading = _Reading(self._read())
        # A loop that is left early drops this object at once, but an async generator is closed by
        # the event loop, later: the next map need not wait for that.
        weakref.finalize(reading, self._end)
        return reading

    async def _read(self) -> AsyncGenerator[R, None]:
        loop, news, ledger = asyncio.get_running_loop(), asyncio.Event(), self._ledger

        def look() -> None:
            news.set()
            self._room.set()

        def wake() -> None:
            with suppress(RuntimeError):  # The loop is closed: nothing waits any more.
                loop.call_soon_threadsafe(look)

        self._begin(wake)
        items: Iterator[Any] = iter(())
        if isinstance(self._items, AsyncIterable):
            self._pumping = loop.create_task(self._pump(self._items))
        else:
            items = iter(self._items)
        try:
            while True:
                for result in self._ready(items):
                    yield result
                if ledger.is_over:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await news.wait()
                news.clear()
                self._tell()
        finally:
            self._end()

    # Items in.

    def _fill(self, items: Iterator[Any]) -> None:
        """Give in items while they are wanted."""
        ledger = self._ledger
        if self._pumping is not None:
            self._room.set()
            return
        while count := ledger.room():
            chunk = list(islice(items, count))
            if chunk:
                self._offer(chunk)
            if len(chunk) < count:
                ledger.complete()

    async def _pump(self, items: AsyncIterable[Any]) -> None:
        ledger = self._ledger
        chunk: list[Any] = []
        try:
            async for item in items:
                chunk.append(item)
                while not (count := ledger.room()):
                    self._room.clear()
                    await self._room.wait()
                if len(chunk) >= count or ledger.is_starved:
                    self._offer(chunk)
                    chunk = []
            if chunk:
                self._offer(chunk)
            ledger.complete()
            ledger.on_news()
        except Exception as error:  # noqa: BLE001  it is raised where the results are read
            ledger.fail(error)

    def _offer(self, chunk: list[Any]) -> None:
        try:
            data = encode_value("msgpack", chunk)
        except EncodeFailed as error:
            raise EncodeFailed(f"an item of {self._run.definition.name}: {error}") from error
        if len(data) <= DATA_BYTES_MAX:
            self._ledger.offer(len(chunk), data)
        elif len(chunk) > 1:
            middle = len(chunk) // 2
            self._offer(chunk[:middle])
            self._offer(chunk[middle:])
        else:
            message = f"an item of {len(data)} bytes; at most {DATA_BYTES_MAX}"
            raise EncodeFailed(message + ": send where it is")

    # Results out.

    def _ready(self, items: Iterator[Any]) -> Iterator[R]:
        """Yield the results that are there, and give in items meanwhile."""
        ledger = self._ledger
        while True:
            self._fill(items)
            if ledger.failure is not None:
                raise ledger.failure
            results = ledger.take_results()
            for result in results:
                yield result
                if self._has_news:
                    self._has_news = False
                    self._fill(items)
            if not results or ledger.is_over:
                return

    def _begin(self, wake: Any) -> None:
        if self._is_begun:
            raise JackalopeError("the results of a map can be read once")
        self._team.must_be_current(self)
        self._is_begun = True

        def on_news() -> None:
            self._has_news = True
            wake()

        def on_work() -> None:
            for peer in self._peers:
                peer.wake()
            self._team.wake()

        self._ledger.on_news, self._ledger.on_work = on_news, on_work
        self._peers = self._team.begin(self._run)
        for peer in self._peers:
            peer.start()

    def _end(self) -> None:
        if not self.is_running:
            return
        self._is_over = True
        if self._pumping is not None:
            self._pumping.cancel()
        for peer in self._peers:
            peer.close()
        self._team.finish()
        self._tell(is_last=True)

    def _tell(self, *, is_last: bool = False) -> None:
        now, (then, done_then) = time.monotonic(), self._told
        if now - then >= _TELL_S or is_last:
            done = self._ledger.done
            self._team.tell(self._ledger, (done - done_then) / max(now - then, 1e-3))
            self._told = (now, done)


class _Reading(Generic[R]):
    """One loop over results. Ends with it, however it is left."""

    __slots__ = ("__weakref__", "_results")

    def __init__(self, results: AsyncGenerator[R, None]) -> None:
        self._results = results

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[R]:
        return self._results.__anext__()

    async def aclose(self) -> None:
        await self._results.aclose()


# The owner's own share: a thread that computes items beside the helpers.


class LocalPeer:
    """One thread, for one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._computation = run.computation()
        self._wake = threading.Event()
        self._is_closed = False
        context = copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._live,), name="jackalope-fanout-local", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look whether there is something to take. From any thread."""
        self._wake.set()

    def close(self) -> None:
        """Take no more. What is being computed ends by itself."""
        self._is_closed = True
        self._wake.set()

    def _live(self) -> None:
        ledger = self._run.ledger
        while not self._is_closed:
            self._wake.clear()
            batch = ledger.take(self, is_careful=True)
            if batch is None:
                self._wake.wait()
                continue
            watch = Stopwatch()
            try:
                parts = self._compute(batch.data)
            except BaseException as error:  # noqa: BLE001  the owner decides what it means
                ledger.fail(error)
                return
            busy_us = watch.us()
            for part in parts:
                values, is_last = self._run.values(part.data), part is parts[-1]
                spent_us = busy_us if is_last else 0
                ledger.answer(self, batch.number, part.begin, values, part.failed, busy_us=spent_us)

    def _compute(self, data: bytes) -> list[Part]:
        if self._computation.is_async:
            parts: list[Part] = run_coroutine(self._computation.run_async(data))
            return parts
        return self._computation.run(data)

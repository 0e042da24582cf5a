"""Handles: a task that was submitted, as its submitter holds it.

Owns waiting for results and looking at a task. A handle is light: an id, where to ask, and how to
read the result. Results are pushed by the broker, never polled for.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from jackalope.client.deadlines import Within
from jackalope.client.option_checks import Seconds, wait_s
from jackalope.client.session.watches import Ends
from jackalope.core.commands import Action
from jackalope.core.durations import SECOND
from jackalope.core.effects import TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.shapes.task_log import LogLineView, LogPage
from jackalope.core.task import BlobRef
from jackalope.errors import Rejected, TaskFailed
from jackalope.tasks.context import resting
from jackalope.wire.views import ExplanationView, HistoryEntryView, ProgressView, TaskView

if TYPE_CHECKING:
    from jackalope.client.app import Jackalope
    from jackalope.client.session.session import Session

#: How many steps of progress wait for a reader before the oldest are left out.
STEPS_MAX = 1_000

#: How many lines of a log come at once, and how long the broker is asked to wait for more.
LINES_PER_PAGE = 1_000
LOGS_WAIT_S = 10.0

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Handle(Generic[R_co]):
    """A task that was submitted."""

    __slots__ = ("_decode", "app", "end", "id")

    def __init__(self, app: Jackalope, task_id: TaskId, decode: Callable[[bytes], R_co]) -> None:
        self._decode = decode
        self.app = app  # where the task was submitted
        self.id = task_id  # the task's id, 16 bytes; `str(handle)` shows it in hexadecimal
        self.end: TaskEnded | None = None  # how it ended, once that is known here

    def __str__(self) -> str:
        return self.id.hex()

    def __repr__(self) -> str:
        return f"<Handle {self.id.hex()}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # The end.

    async def result(self, timeout: Seconds | None = None) -> R_co:  # noqa: ASYNC109
        """Wait for the task to end, and return its result.

        Args:
            timeout: how long to wait, in seconds; without it, as long as it takes.

        Raises:
            TaskFailed: it ended without success; the error has the remote type, message and trace.
            Timeout: it has not ended in time. It goes on; ask again, or kill it.
            Rejected: the broker does not know the task (any more).
        """
        if self.end is None:
            with resting():
                self.end = await self.app.session().end_of(self.id, wait_s(timeout))
        return await self.outcome_of(self.end)

    async def wait(self, timeout: Seconds | None = None) -> State:  # noqa: ASYNC109
        """Wait for the task to end, and return how: `succeeded`, `dead` or `killed`.

        Raises:
            Timeout: it has not ended in time.
            Rejected: the broker does not know the task (any more).
        """
        if self.end is None:
            with resting():
                self.end = await self.app.session().end_of(self.id, wait_s(timeout))
        return self.end.state

    async def download(
        self,
        path: str | os.PathLike[str],
        timeout: Seconds | None = None,  # noqa: ASYNC109
    ) -> int:
        """Wait for the task to end, and write its result into a file, as it was encoded.

        However large it is, little of it is in memory at a time.

        Args:
            path: the file, which is replaced.
            timeout: how long to wait for the end.

        Returns:
            How many bytes it has.

        Raises:
            TaskFailed: the task ended without success.
            Timeout: it has not ended in time.
            ConnectionLost: the connection was lost half-way; download it again.
        """
        size = 0
        parts = self.parts(timeout)
        async with aclosing(parts):
            with await asyncio.to_thread(Path(path).open, "wb") as file:
                async for part in parts:
                    await asyncio.to_thread(file.write, part)
                    size += len(part)
        return size

    async def parts(
        self,
        timeout: Seconds | None = None,  # noqa: ASYNC109
    ) -> AsyncGenerator[bytes, None]:
        """Wait for the task to end, and yield its result in parts, as it was encoded.

        Raises as `download` does.
        """
        if await self.wait(timeout) is not State.SUCCEEDED or self.end is None:
            end = cast("TaskEnded", self.end)
            raise TaskFailed(self.id, end.state, end.reason, end.error)
        if isinstance(self.end.result, bytes):
            yield self.end.result
            return
        parts = self.app.session().parts_of(self.id)
        async with aclosing(parts):
            async for part in parts:
                yield part

    async def outcome_of(self, end: TaskEnded) -> R_co:
        """Return the result that an end brought, fetched if it is too large to come with it.

        Raises:
            TaskFailed: it brought none.
        """
        if end.state is State.SUCCEEDED and isinstance(end.result, BlobRef):
            parts = [part async for part in self.app.session().parts_of(self.id)]
            end = msgspec.structs.replace(end, result=b"".join(parts))
        return self.outcome(end)

    def outcome(self, end: TaskEnded) -> R_co:
        """Return the result that an end brought.

        Raises:
            TaskFailed: it brought none.
        """
        if end.state is not State.SUCCEEDED:
            raise TaskFailed(self.id, end.state, end.reason, end.error)
        if isinstance(end.result, BlobRef):
            message = f"the result of {self} has {end.result.size} bytes; await result() fetches it"
            raise Rejected("too_large", message)
        return self._decode(end.result)

    # Looking.

    async def status(self) -> TaskView:
        """Return the task as it is now."""
        return await self.app.find(self.id)

    async def explain(self) -> ExplanationView:
        """Return why the task is as it is: what it waits for, and who is ahead of it."""
        return await self.app.query("explain", {"id": self.id}, ExplanationView)

    async def history(self) -> list[HistoryEntryView]:
        """Return what has happened to the task, oldest first."""
        return await self.app.query("history", {"id": self.id}, list[HistoryEntryView])

    async def logs(
        self,
        *,
        follow: bool = False,
        attempt: int = 0,
        level: str = "",
        text: str = "",
        since_us: int = 0,
        tail: int = 0,
        after: str = "",
        on_page: Callable[[LogPage], None] | None = None,
    ) -> AsyncGenerator[LogLineView, None]:
        """Yield the lines that the task has printed and logged, oldest first.

        Args:
            follow: go on with new lines as they come, until the task ends.
            attempt: only those of this attempt, from 1.
            level: only those at least as grave: `error`, `warn`, `info`, `debug`, `trace`.
            text: only those that contain this, in upper or lower case.
            since_us: only those written then or later, in microseconds since 1970.
            tail: begin with the last so many.
            after: begin behind the line with this id.
            on_page: called with each page as it comes; it tells what was dropped.

        Raises:
            Rejected: the broker does not know the task (any more), or an argument is wrong.
        """
        about: dict[str, Any] = {
            "id": self.id,
            "attempt": attempt,
            "level": level,
            "text": text,
            "since_us": since_us,
            "limit": min(tail, LINES_PER_PAGE) if tail else LINES_PER_PAGE,
            "after_line": after,
            "is_tail": tail > 0,
        }
        wait_us = int(min(LOGS_WAIT_S, (self.app.timeout_s or 2 * LOGS_WAIT_S) / 2) * SECOND)
        while True:
            with resting() if about.get("wait_us") else nullcontext():
                page = await self.app.query("logs", about, LogPage)
            if on_page is not None:
                on_page(page)
            for line in page.lines:
                yield line
            if (page.ended or not follow) and not (page.has_more and not about["is_tail"]):
                return
            about |= {"is_tail": False, "limit": LINES_PER_PAGE, "wait_us": wait_us * follow}
            if page.lines:
                about["after_line"] = page.lines[-1].id

    async def progress(self) -> AsyncGenerator[ProgressView, None]:
        """Yield the task's progress as the worker reports it, until the task ends.

        Begins with what is known. Pushed, not polled: the worker tells its latest word about
        twenty times a second at most, and starts over with another attempt. A slow reader
        misses the oldest steps.

        Raises:
            Rejected: the broker does not know the task (any more).
        """
        session, news = self.app.session(), asyncio.Event()
        steps: deque[ProgressView] = deque(maxlen=STEPS_MAX)
        told = None

        def follow(step: ProgressView) -> None:
            steps.append(step)
            news.set()

        end = session.watch(self.id, follow)
        end.add_done_callback(lambda _: news.set())
        try:
            while not end.done() or steps:
                while steps:
                    step = steps.popleft()
                    if step != told:
                        told = step
                        yield step
                news.clear()
                if not end.done():
                    with resting():
                        await news.wait()
            self.end = end.result()
        finally:
            session.unwatch(self.id, end, follow)

    # Acting.

    async def kill(self) -> bool:
        """End the task, and its children with it.

        Returns:
            Whether it is done. If not, the worker that runs it was asked to; `wait` tells the end.

        Raises:
            Rejected: the state of the task does not allow it. So for every action.
        """
        return await self._act(Action.KILL)

    async def pause(self) -> bool:
        """Stop the task until it is played. Returns as `kill` does."""
        return await self._act(Action.PAUSE)

    async def play(self) -> bool:
        """Let a held or paused task go on."""
        return await self._act(Action.PLAY)

    async def hold(self) -> bool:
        """Keep a task that has not begun from beginning, until it is played."""
        return await self._act(Action.HOLD)

    async def retry(self) -> bool:
        """Try a dead or killed task again, or a scheduled one now."""
        self.end = None
        return await self._act(Action.RETRY)

    async def purge(self) -> bool:
        """Forget the task, which must have ended, and its result."""
        return await self._act(Action.PURGE)

    async def signal(self, event: str, data: object = None) -> None:
        """Send the task an event that it waits for, or will; see `Jackalope.signal`."""
        await self.app.signal(self, event, data)

    async def _act(self, action: Action) -> bool:
        acted = await self.app.act(action, [self])
        for error in acted.refused.values():
            raise error
        return acted.changed > 0


async def as_completed(
    handles: Iterable[Handle[R]],
    timeout: Seconds | None = None,  # noqa: ASYNC109
) -> AsyncIterator[Handle[R]]:
    """Yield handles as their tasks end. `result()` of each then returns or raises at once.

    Args:
        handles: the tasks.
        timeout: how long to wait for all of them together.

    Raises:
        Timeout: some have not ended in time.
        Rejected: the broker does not know one of the tasks.
    """
    loop, timeout_s = asyncio.get_running_loop(), wait_s(timeout)
    until = None if timeout_s is None else loop.time() + timeout_s
    with _Waiting(handles) as waiting:
        while waiting.left:
            left_s = None if until is None else max(0.0, until - loop.time())
            async with Within(left_s, waiting.describe):
                ended = await waiting.some()
            for handle in ended:
                yield handle


async def gather(
    handles: Iterable[Handle[R]],
    timeout: Seconds | None = None,  # noqa: ASYNC109
) -> list[R]:
    """Wait for all tasks, and return their results in the order of the handles.

    Args:
        handles: the tasks.
        timeout: how long to wait for all of them together.

    Raises:
        TaskFailed: one of them ended without success. The others go on.
        Timeout: some have not ended in time.
        Rejected: the broker does not know one of the tasks.
    """
    handles = list(handles)
    with _Waiting(handles) as waiting:
        async with Within(wait_s(timeout), waiting.describe):
            while waiting.left:
                for handle in await waiting.some():
                    if handle.end is not None and handle.end.state is not State.SUCCEEDED:
                        handle.outcome(handle.end)
    return [await handle.outcome_of(handle.end) for handle in handles if handle.end is not None]


class _Waiting(Generic[R]):
    """Handles whose tasks are watched together until each has ended.

    Attributes:
        left: how many have not been returned yet.
    """

    def __init__(self, handles: Iterable[Handle[R]]) -> None:
        self._known: list[Handle[R]] = []
        self._by_id: dict[TaskId, list[Handle[R]]] = {}
        for handle in handles:
            if handle.end is not None:
                self._known.append(handle)
            else:
                self._by_id.setdefault(handle.id, []).append(handle)
        self.left = self._total = len(self._known) + sum(map(len, self._by_id.values()))
        self._ends = Ends()
        self._sessions: dict[Session, list[TaskId]] = {}

    def __enter__(self) -> _Waiting[R]:
        for task_id, (handle, *_) in self._by_id.items():
            self._sessions.setdefault(handle.app.session(), []).append(task_id)
        for session, task_ids in self._sessions.items():
            session.watch_many(task_ids, self._ends)
        return self

    def __exit__(self, *_: object) -> None:
        for session, task_ids in self._sessions.items():
            unended = [task_id for task_id in task_ids if task_id in self._by_id]
            session.unwatch_many(unended, self._ends)

    def describe(self) -> str:
        """Say what has not happened."""
        return f"{self.left} of {self._total} tasks did not end"

    async def some(self) -> list[Handle[R]]:
        """Return handles whose tasks have ended, as soon as there are any."""
        ended, self._known = self._known, []
        if not ended:
            with resting():
                await self._ends.wait()
        came = self._ends.came
        while came:
            end = came.popleft()
            for handle in self._by_id.pop(end.task, ()):
                handle.end = end
                ended.append(handle)
        self.left -= len(ended)
        return ended

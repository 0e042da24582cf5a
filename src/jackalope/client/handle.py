"""Handles: a task that was submitted, as its submitter holds it.

Owns waiting for results and looking at a task. A handle is light: an id, where to ask, and how to
read the result. Results are pushed by the broker, never polled for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from jackalope.client.choices import Seconds
from jackalope.client.deadlines import Within
from jackalope.core.commands import Action
from jackalope.core.effects import TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.task import BlobRef
from jackalope.link.errors import Rejected, TaskFailed
from jackalope.wire.views import ExplanationView, HappeningView, ProgressView, TaskView

if TYPE_CHECKING:
    from jackalope.client.app import Jackalope

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Handle(Generic[R_co]):
    """A task that was submitted.

    Attributes:
        app: where the task was submitted.
        id: the task's id, 16 bytes; `str(handle)` shows it in hexadecimal.
        end: how it ended, once that is known here.
    """

    __slots__ = ("_decode", "app", "end", "id")

    def __init__(self, app: Jackalope, task_id: TaskId, decode: Callable[[bytes], R_co]) -> None:
        self._decode = decode
        self.app = app
        self.id = task_id
        self.end: TaskEnded | None = None

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
            self.end = await self.app.session().end_of(self.id, seconds(timeout))
        return self.outcome(self.end)

    async def wait(self, timeout: Seconds | None = None) -> State:  # noqa: ASYNC109
        """Wait for the task to end, and return how: `succeeded`, `dead` or `killed`.

        Raises:
            Timeout: it has not ended in time.
            Rejected: the broker does not know the task (any more).
        """
        if self.end is None:
            self.end = await self.app.session().end_of(self.id, seconds(timeout))
        return self.end.state

    def outcome(self, end: TaskEnded) -> R_co:
        """Return the result that an end brought.

        Raises:
            TaskFailed: it brought none.
        """
        if end.state is not State.SUCCEEDED:
            raise TaskFailed(self.id, end.state, end.reason, end.error)
        if isinstance(end.result, BlobRef):
            message = f"the result of {self} has {end.result.size} bytes, too many to send"
            raise Rejected("too_large", message)
        return self._decode(end.result)

    # Looking.

    async def status(self) -> TaskView:
        """Return the task as it is now."""
        return await self.app.find(self.id)

    async def explain(self) -> ExplanationView:
        """Return why the task is as it is: what it waits for, and who is ahead of it."""
        return await self.app.query("explain", {"id": self.id}, ExplanationView)

    async def history(self) -> list[HappeningView]:
        """Return what has happened to the task, oldest first."""
        return await self.app.query("history", {"id": self.id}, list[HappeningView])

    async def progress(self, every: Seconds = 0.5) -> AsyncIterator[ProgressView]:
        """Yield the task's progress whenever it has changed, until the task ends.

        Progress is what the worker last said; steps between two looks are not told one by one.

        Args:
            every: how often to look.
        """
        session, told = self.app.session(), None
        end = session.watch(self.id)
        try:
            while True:
                seen = (await self.status()).progress
                if seen is not None and seen != told:
                    told = seen
                    yield seen
                if end.done():
                    self.end = end.result()
                    return
                await asyncio.wait([end], timeout=seconds(every))
        finally:
            session.unwatch(self.id, end)

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
    loop, timeout_s = asyncio.get_running_loop(), seconds(timeout)
    until = None if timeout_s is None else loop.time() + timeout_s
    handles = list(handles)
    ended: asyncio.Queue[Handle[R]] = asyncio.Queue()
    ends: dict[Handle[R], asyncio.Future[TaskEnded]] = {}
    for handle in handles:
        if handle.end is not None:
            ended.put_nowait(handle)
        else:
            ends[handle] = end = handle.app.session().watch(handle.id)
            end.add_done_callback(partial(_put, ended, handle))
    try:
        for left in range(len(handles), 0, -1):
            left_s = None if until is None else max(0.0, until - loop.time())
            async with Within(left_s, f"{left} of {len(handles)} tasks did not end"):
                handle = await ended.get()
            if handle in ends:
                handle.end = ends[handle].result()
            yield handle
    finally:
        for handle, end in ends.items():
            handle.app.session().unwatch(handle.id, end)


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
    async for handle in as_completed(handles, timeout):
        if handle.end is not None and handle.end.state is not State.SUCCEEDED:
            handle.outcome(handle.end)
    return [handle.outcome(handle.end) for handle in handles if handle.end is not None]


def seconds(duration: Seconds | None) -> float | None:
    """Return a duration in seconds; None stays None."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def _put(ended: asyncio.Queue[Handle[R]], handle: Handle[R], _: asyncio.Future[TaskEnded]) -> None:
    ended.put_nowait(handle)
